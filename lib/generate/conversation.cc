#include "generate/conversation.h"

#include <algorithm>

#include "base/error.h"

namespace neox {
namespace {

constexpr const char* kAssistant = "assistant";

}  // namespace

std::vector<int32_t> tokens_before_reply(const std::vector<ChatMessage>& messages,
                                         const ChatTemplate& style, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  try {
    std::vector<ChatTurn> turns = render_chat(messages, style, kAssistant);
    turns.back().text += style.generation_prompt;
    for (const ChatTurn& turn : turns) tokenizer.encode_next(turn.text, tokens);
  } catch (const Error& e) { fail(Exit::kUsage, e.what()); }
  return tokens;
}

Conversation::Conversation(ChatTemplate style, std::string system, const Tokenizer& tokenizer)
    : style_(std::move(style)), tokenizer_(tokenizer) {
  auto role = std::ranges::find(style_.roles, kAssistant, &ChatTemplate::Role::name);
  check_usage(role != style_.roles.end(), "the chat template ", style_.name, " has no role ",
              kAssistant, ", whose messages a model writes");
  if (!system.empty()) start_.push_back({"system", std::move(system)});
  begin_anew();
  std::vector<int32_t> after;
  tokenizer.encode_plain(role->after, after);
  std::ranges::copy_if(after, std::back_inserter(ends_),
                       [&](int32_t id) { return tokenizer.is_special(id); });
}

std::vector<int32_t> Conversation::asked(const std::string& message) const {
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", message});
  return tokens_before_reply(messages, style_, tokenizer_);
}

void Conversation::add(const std::string& message, const std::string& reply) {
  messages_.push_back({"user", message});
  messages_.push_back({kAssistant, reply});
}

void Conversation::begin_anew() { messages_ = start_; }

}  // namespace neox
