// A conversation that a model has a part in: the messages so far, as tokens that its next reply
// follows.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "chat/chat.h"
#include "tokenizer/tokenizer.h"

namespace neox {

// A template of a name or file with the special tokens beside a vocabulary; says which of its words
// the tokenizer has no token for. Throws as read_chat_template() and check_generation_role(), and
// Error (64) where a special token that conversations hold is no token of a text.
ChatTemplate chat_template_for(const std::string& name_or_file, const std::filesystem::path& vocab,
                               const Tokenizer& tokenizer);

// The special tokens behind a reply; none where the template has none there. Throws as
// end_of_reply().
std::vector<int32_t> ends_of_replies(const ChatTemplate& style, const Tokenizer& tokenizer);

// The tokens that a reply to these messages follows, each turn by itself, as neox-prepare-data
// makes them. style: its special tokens are there. Throws Error (64) where it cannot say that.
std::vector<int32_t> tokens_before_reply(const std::vector<ChatMessage>& messages,
                                         const ChatTemplate& style, const Tokenizer& tokenizer);

class Conversation {
 public:
  // style: its special tokens are there. system: the first message, or "".
  Conversation(ChatTemplate style, const std::string& system, const Tokenizer& tokenizer);

  // tokens_before_reply() to a message of the user.
  std::vector<int32_t> asked(const std::string& message) const;
  // ends_of_replies().
  const std::vector<int32_t>& ends() const { return ends_; }
  void add(const std::string& message, const std::string& reply);
  void begin_anew();

 private:
  ChatTemplate style_;
  const Tokenizer& tokenizer_;
  std::vector<ChatMessage> start_, messages_;
  std::vector<int32_t> ends_;
};

}  // namespace neox
