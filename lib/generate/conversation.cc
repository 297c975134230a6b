#include "generate/conversation.h"

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

constexpr const char* kAssistant = "assistant";

// What is typed need not be UTF-8, in which templates read it.
std::string as_utf8(std::string_view typed) {
  std::string storage;
  return std::string(unicode::repair(typed, storage));
}

}  // namespace

ChatTemplate chat_template_for(const std::string& name_or_file, const std::filesystem::path& vocab,
                               const Tokenizer& tokenizer) {
  SpecialTokens special = special_tokens_beside(vocab);
  ChatTemplate style = read_chat_template(name_or_file);
  style = with_special_tokens(style, special);
  check_generation_role(style, kAssistant);
  warn_of_split_markers(style, tokenizer, vocab);
  return style;
}

std::vector<int32_t> ends_of_replies(const ChatTemplate& style, const Tokenizer& tokenizer) {
  std::vector<int32_t> ends;
  tokenizer.encode_plain(end_of_reply(style), ends);
  std::erase_if(ends, [&](int32_t id) { return !tokenizer.is_special(id); });
  return ends;
}

std::vector<int32_t> tokens_before_reply(const std::vector<ChatMessage>& messages,
                                         const ChatTemplate& style, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  try {
    for (const ChatTurn& turn : turns_before_reply(messages, style))
      tokenizer.encode_next(turn.text, tokens);
  } catch (const Error& e) { fail(Exit::kUsage, e.what()); }
  return tokens;
}

Conversation::Conversation(ChatTemplate style, const std::string& system,
                           const Tokenizer& tokenizer)
    : style_(std::move(style)), tokenizer_(tokenizer), ends_(ends_of_replies(style_, tokenizer)) {
  if (!system.empty()) start_.push_back({"system", as_utf8(system)});
  begin_anew();
}

std::vector<int32_t> Conversation::asked(const std::string& message) const {
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", as_utf8(message)});
  return tokens_before_reply(messages, style_, tokenizer_);
}

void Conversation::add(const std::string& message, const std::string& reply) {
  messages_.push_back({"user", as_utf8(message)});
  messages_.push_back({kAssistant, reply});
}

void Conversation::begin_anew() { messages_ = start_; }

}  // namespace neox
