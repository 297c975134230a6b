// Conversations, for fine-tuning and for replies: a list of messages {role, content}, or {from,
// value} as ShareGPT has them, is written as one text by a chat template. Templates are data:
// configs/chat_templates.yml, a file of a user, or the Jinja beside a tokenizer. Pure but for
// reading files; any thread may call them.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

namespace neox {

namespace jinja {
class Template;
struct Value;
}  // namespace jinja

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
  // What a content that is a list of parts becomes: one text, with a line for each part, or the
  // list, where the template is Jinja that writes it.
  enum class Parts { kJoined, kWritten } parts = Parts::kJoined;
  // Where it is Jinja, which says all of the above but the name; and the tokens that it may name.
  std::shared_ptr<const jinja::Template> jinja = {};
  std::map<std::string, std::string> tokens = {};
};

struct ChatMessage {
  std::string role, content;
  std::shared_ptr<const jinja::Value> whole = {};  // for Jinja; none: role and content
};

// A conversation, and the tools that its model may call: a list of their descriptions (JSON
// schemas), for Jinja; none: none.
struct Chat {
  std::vector<ChatMessage> messages;
  std::shared_ptr<const jinja::Value> tools = {};
};

// What a message adds to the text, and with it the generation prompt where a reply follows.
struct ChatTurn {
  std::string role, text;
};

// A template by its name in the table ("": that of this installation), or that of a file: YAML,
// Jinja (chat_template.jinja), the tokenizer_config.json of Hugging Face, or the directory that has
// one of the latter. Throws Error (64) with the names that there are, or with file:line of what is
// wrong.
ChatTemplate read_chat_template(const std::string& name_or_file,
                                const std::filesystem::path& table = {});

// configs/chat_templates.yml of this installation. Throws Error (74) where it is not there.
std::filesystem::path chat_template_table();

// {bos} and {eos} in the texts of a template, and the names in Jinja, stand for these from now on.
// Also finds out what becomes of parts.
ChatTemplate with_special_tokens(ChatTemplate style, const SpecialTokens& tokens);

// Says which words of the template the tokenizer has no token for: models learn them as text.
void warn_of_split_markers(const ChatTemplate& style, const Tokenizer& tokenizer,
                           const std::filesystem::path& vocab);

// Throws Error (64) unless messages of the role, which a model writes, begin with what asks for a
// reply. Of Jinja this shows in each conversation.
void check_generation_role(const ChatTemplate& style, const std::string& role);

// The messages in a list of JSON, which sentences about them count from 1. Those of ShareGPT's form
// have the keys "from" and "value" and no "role"; their roles human, gpt and the like become user
// and assistant. A content that is a list of parts of the type text, as in OpenAI's API, is one
// text, with a line for each, as vLLM joins them; Jinja that writes parts gets the list, as from
// transformers' apply_chat_template. Throws Error (74) with the message that lacks something, or
// has a part that is no text; what a message must have besides a role, Jinja says itself.
std::vector<ChatMessage> messages_of(const nlohmann::ordered_json& list, const ChatTemplate& style);
// Those in the text of such a list, with the tools in another: a list of objects, null, or a string
// that holds one of these, as datasets have it whose tools differ in form; "" : none.
Chat parse_conversation(std::string_view json, const ChatTemplate& style,
                        std::string_view tools = {});

// Throws Error (64) where the template writes a conversation with tools as one without.
void check_writes_tools(const ChatTemplate& style);

// Which messages of the generation role must be turns of their own.
enum class Apart { kReplies, kLastReply, kNone };

// The turns, whose texts, joined, are the text of the conversation, as transformers'
// apply_chat_template renders it by the same template: turn i is what messages 0 .. i have, with
// the generation prompt where message i + 1 is of the generation role, and messages 0 .. i - 1 had
// not. By Jinja what need not be apart is one turn, of its last message's role. Throws Error (74)
// for roles that the template does not know, or that do not alternate, and where Jinja writes what
// stands before a message otherwise with it than without.
std::vector<ChatTurn> render_chat(const Chat& chat, const ChatTemplate& style,
                                  const std::string& generation_role,
                                  Apart apart = Apart::kReplies);

// What a reply to these messages follows. Throws as render_chat().
std::vector<ChatTurn> turns_before_reply(const std::vector<ChatMessage>& messages,
                                         const ChatTemplate& style);

// What stands behind a reply. Throws Error (64) where the template writes none, and (74) where it
// is Jinja that refuses a question and a reply, with a system message before them and without.
std::string end_of_reply(const ChatTemplate& style);

}  // namespace neox
