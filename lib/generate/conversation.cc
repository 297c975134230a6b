#include "generate/conversation.h"

#include <set>

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

// Of a question, a reply and another question; "" where the template refuses them.
std::string example_of(const ChatTemplate& style) try {
  std::string text;
  for (const ChatTurn& turn :
       turns_before_reply({{"user", "A?"}, {kAssistant, "B."}, {"user", "C?"}}, style))
    text += turn.text;
  return text;
} catch (const Error&) { return ""; }

// Tokenizers of SentencePiece read special tokens as letters, of which the model knows nothing.
void check_special_tokens(const ChatTemplate& style, const SpecialTokens& special,
                          const std::filesystem::path& vocab, const Tokenizer& tokenizer) {
  std::set<std::string> texts = {special.bos, special.eos};
  for (const auto& [name, text] : style.tokens) texts.insert(text);
  const std::string example = example_of(style);
  for (const std::string& text : texts) {
    if (text.empty() || example.find(text) == example.npos) continue;
    std::vector<int32_t> ids;
    tokenizer.encode_plain(text, ids);
    check_usage(ids.size() == 1, "by the chat template ", style.name, " conversations hold '", text,
                "', which is ", ids.size(), " tokens of ",
                vocab.empty() ? "the tokenizer" : vocab.string(),
                ": they need a tokenizer whose texts can hold special tokens: give the model's "
                "tokenizer.json (--vocab-file tokenizer.json --set tokenizer_type=HFTokenizer), "
                "beside which tokenizer_config.json names the right ones");
  }
}

}  // namespace

ChatTemplate chat_template_for(const std::string& name_or_file, const std::filesystem::path& vocab,
                               const Tokenizer& tokenizer) {
  SpecialTokens special = special_tokens_beside(vocab);
  ChatTemplate style = read_chat_template(name_or_file);
  style = with_special_tokens(style, special);
  check_generation_role(style, kAssistant);
  check_special_tokens(style, special, vocab, tokenizer);
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
