// Conversations for fine-tuning: a list of messages {role, content} is written as one text by a
// chat template. Templates are data: configs/chat_templates.yml, or a file of a user. Pure but for
// reading files; any thread may call them.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace neox {

struct ChatTemplate {
  struct Role {
    std::string name;
    std::string before, after;  // around the content
    std::string within;         // "", or the role whose next message begins with this one
  };
  std::string name;
  std::string begin;              // before the first message
  std::string default_system;     // stands first where no system message does; "": none
  std::string generation_prompt;  // what asks for a reply, the beginning of its message
  enum class Space { kKeep, kTrim } space = Space::kKeep;  // around contents
  // kAlternate: user, assistant, user ... behind a system message.
  enum class Order { kAny, kAlternate } order = Order::kAny;
  std::vector<Role> roles;
};

struct ChatMessage {
  std::string role, content;
};

// What a message adds to the text, and with it the generation prompt where a reply follows.
struct ChatTurn {
  std::string role, text;
};

// A template by its name in the table, or that of a file. Throws Error (64) with the names that
// there are, or with file:line of what is wrong.
ChatTemplate read_chat_template(const std::string& name_or_file,
                                const std::filesystem::path& table);

// configs/chat_templates.yml of this installation. Throws Error (74) where it is not there.
std::filesystem::path chat_template_table();

// {bos} and {eos} in the texts of a template stand for these from now on.
ChatTemplate with_special_tokens(ChatTemplate style, const std::string& bos,
                                 const std::string& eos);

// Says which words of the template the tokenizer has no token for: models learn them as text.
void warn_of_split_markers(const ChatTemplate& style, const Tokenizer& tokenizer,
                           const std::filesystem::path& vocab);

// The messages in the JSON of a list. Throws Error (74) with the message that lacks something.
std::vector<ChatMessage> parse_conversation(std::string_view json);

// The turns, whose texts, joined, are the text of the conversation, as transformers'
// apply_chat_template renders it by the same template: turn i is what messages 0 .. i have, with
// the generation prompt where message i + 1 is of the generation role, and messages 0 .. i - 1 had
// not. Throws Error (74) for roles that the template does not know, or that do not alternate.
std::vector<ChatTurn> render_chat(const std::vector<ChatMessage>& messages,
                                  const ChatTemplate& style, const std::string& generation_role);

// bos_token and eos_token in the tokenizer_config.json beside a vocabulary; "<|endoftext|>" where
// the file is not there or says nothing.
struct SpecialTokens {
  std::string bos, eos;
};
SpecialTokens special_tokens_beside(const std::filesystem::path& vocab);

}  // namespace neox
