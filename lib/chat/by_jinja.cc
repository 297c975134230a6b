#include "chat/by_jinja.h"

#include <span>

#include "base/error.h"
#include "jinja/template.h"

namespace neox {
namespace {

jinja::Value value_of(const ChatMessage& message) {
  if (message.whole) return *message.whole;
  jinja::Map map;
  map.set("role", message.role);
  map.set("content", message.content);
  return map;
}

// What transformers' apply_chat_template gives a template.
std::string text_of(std::span<const jinja::Value> messages, const Chat& chat,
                    const ChatTemplate& style, Prompt prompt) {
  jinja::Map values;
  values.set("messages", jinja::List(messages.begin(), messages.end()));
  values.set("tools", chat.tools ? *chat.tools : jinja::None{});
  values.set("documents", jinja::None{});
  values.set("add_generation_prompt", prompt == Prompt::kGeneration);
  for (const auto& [name, token] : style.tokens) values.set(name, token);
  return style.jinja->render(values);
}

std::vector<jinja::Value> values_of(const std::vector<ChatMessage>& messages) try {
  std::vector<jinja::Value> values;
  for (const ChatMessage& message : messages) values.push_back(value_of(message));
  return values;
} catch (const jinja::Failure& failure) { fail(Exit::kIo, "a message: ", failure.what()); }

// Of messages behind a system message where they are refused without one.
std::string text_of_any(Chat chat, const ChatTemplate& style) {
  try {
    return text_by_jinja(chat, style, Prompt::kNone);
  } catch (const Error&) {
    chat.messages.insert(chat.messages.begin(), {"system", "an instruction"});
    return text_by_jinja(chat, style, Prompt::kNone);
  }
}

}  // namespace

std::vector<ChatTurn> render_by_jinja(const Chat& chat, const ChatTemplate& style,
                                      const std::string& generation_role, Apart apart) {
  const std::vector<ChatMessage>& messages = chat.messages;
  check_io(!messages.empty(), "a conversation without messages");
  std::vector<jinja::Value> values = values_of(messages);
  std::vector<ChatTurn> turns;
  std::string before;
  for (size_t i = 0; i < messages.size(); ++i) {
    bool last = i + 1 == messages.size(), reply = messages[i].role == generation_role;
    bool asked = !last && messages[i + 1].role == generation_role;
    bool last_asked = asked && i + 2 == messages.size();
    bool ends = apart == Apart::kReplies     ? asked || reply
                : apart == Apart::kLastReply ? last_asked
                                             : false;
    if (!last && !ends) continue;
    std::string whole = text_of(std::span(values).first(i + 1), chat, style,
                                asked ? Prompt::kGeneration : Prompt::kNone);
    check_io(whole.starts_with(before), "the chat template ", style.name,
             " writes what stands before message ", i + 1,
             " otherwise with it than without, so that replies cannot be told from the rest; with "
             "--only-last the last one alone must be");
    turns.push_back({messages[i].role, whole.substr(before.size())});
    before = std::move(whole);
  }
  return turns;
}

std::string text_by_jinja(const Chat& chat, const ChatTemplate& style, Prompt prompt) {
  return text_of(values_of(chat.messages), chat, style, prompt);
}

bool writes_parts(const ChatTemplate& style) try {
  const std::string words = "a text in a part";
  jinja::Map part, message;
  part.set("type", "text");
  part.set("text", words);
  message.set("role", "user");
  message.set("content", jinja::List{part});
  std::string text =
      text_of_any({{{"user", "", std::make_shared<const jinja::Value>(message)}}}, style);
  size_t at = text.find(words);
  if (at == text.npos) return false;
  // Not the list as Python, or tojson, writes it.
  std::string_view behind = std::string_view(text).substr(at + words.size());
  return !behind.starts_with("'}") && !behind.starts_with("\"}");
} catch (const Error&) { return false; }

bool writes_tools(const ChatTemplate& style) try {
  Chat chat = parse_conversation(
      R"([{"role": "user", "content": "What time is it?"}])", style,
      R"([{"type": "function", "function": {"name": "now", "description": "The time.",
           "parameters": {"type": "object", "properties": {}, "required": []}}}])");
  std::string with = text_of_any(chat, style);
  chat.tools = nullptr;
  return text_of_any(chat, style) != with;
} catch (const Error&) { return true; }  // it may take other conversations than this

std::string end_by_jinja(const ChatTemplate& style) {
  const std::string reply = "a reply of the model";
  std::string text = text_of_any({{{"user", "a question"}, {"assistant", reply}}}, style);
  size_t at = text.rfind(reply);
  check_usage(at != text.npos, "the chat template ", style.name,
              " does not write what a message of the role assistant says");
  return text.substr(at + reply.size());
}

}  // namespace neox
