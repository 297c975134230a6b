// The messages of conversations in JSON, of OpenAI's form and of ShareGPT's.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_bounds.h"
#include "base/text.h"
#include "base/utf8.h"
#include "chat/chat.h"
#include "jinja/value.h"

namespace neox {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonBounds kConversationBounds = {.keys = 1000};

// Roles as files of ShareGPT's form call them; others are called the same.
struct RoleName {
  std::string_view there, here;
};
constexpr RoleName kShareGptRoles[] = {
    {"human", "user"},     {"gpt", "assistant"},  {"chatgpt", "assistant"}, {"bot", "assistant"},
    {"bard", "assistant"}, {"bing", "assistant"}, {"observation", "tool"}};

// The keys of a message: "role" and "content", or ShareGPT's.
struct MessageKeys {
  const char *role, *content;
  bool share_gpt() const { return std::string_view(role) != "role"; }
};

MessageKeys keys_of(const Json& message) {
  bool share_gpt = !message.contains("role") && message.contains("from");
  return share_gpt ? MessageKeys{"from", "value"} : MessageKeys{"role", "content"};
}

std::string names_of(const Json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back("'" + item.key() + "'");
  return names.empty() ? "no key at all" : join(names, ", ");
}

const Json& field_of(const Json& message, const char* key, size_t number) {
  auto value = message.find(key);
  check_io(value != message.end(), "message ", number, " has no '", key, "'; it has ",
           names_of(message));
  return *value;
}

std::string string_of(const Json& message, const char* key, size_t number) {
  const Json& value = field_of(message, key, number);
  check_io(value.is_string(), "the '", key, "' of message ", number, " is of type ",
           value.type_name(), ", not a string");
  return value.get<std::string>();
}

std::string role_of(const Json& message, const MessageKeys& keys, size_t number) {
  std::string role = string_of(message, keys.role, number);
  if (!keys.share_gpt()) return role;
  auto known = std::ranges::find(kShareGptRoles, role, &RoleName::there);
  return known == std::end(kShareGptRoles) ? role : std::string(known->here);
}

// Of a content that is a list of parts, of which there are those of texts here.
std::vector<std::string> texts_of(const Json& parts, const char* key, size_t number) {
  std::vector<std::string> texts;
  for (const Json& part : parts) {
    std::string which =
        concat("part ", texts.size() + 1, " of the '", key, "' of message ", number);
    check_io(part.is_object() && part.contains("type"), which,
             " is no object with a 'type', such as {\"type\": \"text\", \"text\": \"...\"}");
    check_io(part["type"] == "text", which, " is of the type ", beginning_of(part["type"].dump()),
             "; only parts of the type \"text\" are supported");
    check_io(part.contains("text") && part["text"].is_string(), which,
             " is of the type \"text\" and has no 'text' that is a string");
    texts.push_back(part["text"].get<std::string>());
  }
  return texts;
}

std::shared_ptr<const jinja::Value> jinja_of(const Json& json, const std::string& what) try {
  return std::make_shared<const jinja::Value>(jinja::value_of(json));
} catch (const jinja::Failure& failure) { fail(Exit::kIo, what, ": ", failure.what()); }

// As a template that is Jinja sees it: with role and content, and all else that it has.
std::shared_ptr<const jinja::Value> whole_of(Json message, const ChatTemplate& style,
                                             size_t number) {
  MessageKeys keys = keys_of(message);
  if (keys.share_gpt()) {
    std::string role = role_of(message, keys, number);
    Json content = field_of(message, keys.content, number);
    message.erase(keys.role);
    message.erase(keys.content);
    message["role"] = role;
    message["content"] = content;
  }
  if (auto content = message.find("content"); content != message.end() && content->is_array()) {
    std::string text = join(texts_of(*content, keys.content, number), "\n");
    if (style.parts == ChatTemplate::Parts::kJoined) *content = text;
  }
  return jinja_of(message, concat("message ", number));
}

Json bounded(std::string_view json, const char* name) {
  std::string what = beyond(kConversationBounds, json);
  check_io(what.empty(), name, " ", what);
  return Json::parse(json, nullptr, false);
}

const char* type_of(const Json& value) {
  return value.is_discarded() ? "no JSON" : value.type_name();
}

std::shared_ptr<const jinja::Value> tools_of(std::string_view json) {
  if (json.empty()) return nullptr;
  Json tools = bounded(json, "the list of tools");
  if (tools.is_string()) tools = bounded(tools.get_ref<const std::string&>(), "the list of tools");
  if (tools.is_null()) return nullptr;
  bool objects = tools.is_array() && std::ranges::all_of(tools, &Json::is_object);
  check_io(objects,
           "the tools must be a list of objects, such as [{\"type\": \"function\", \"function\": "
           "{\"name\": \"...\"}}], and are ",
           tools.is_array() ? "a list of other things" : type_of(tools));
  return jinja_of(tools, "the tools");
}

ChatMessage message_of(const Json& message, const ChatTemplate& style, size_t number) {
  check_io(message.is_object(), "message ", number, " is of type ", message.type_name(),
           ", not an object with 'role' and 'content', or 'from' and 'value'");
  MessageKeys keys = keys_of(message);
  std::string role = role_of(message, keys, number);
  if (style.jinja) return {role, "", whole_of(message, style, number)};
  const Json& content = field_of(message, keys.content, number);
  if (content.is_array()) return {role, join(texts_of(content, keys.content, number), "\n")};
  return {role, string_of(message, keys.content, number)};
}

}  // namespace

std::vector<ChatMessage> messages_of(const nlohmann::ordered_json& list,
                                     const ChatTemplate& style) {
  std::vector<ChatMessage> messages;
  for (const Json& message : list)
    messages.push_back(message_of(message, style, messages.size() + 1));
  return messages;
}

Chat parse_conversation(std::string_view json, const ChatTemplate& style, std::string_view tools) {
  Json list = bounded(json, "the conversation");
  check_io(list.is_array(),
           "not a list of messages such as [{\"role\": \"user\", \"content\": ", "\"...\"}], but ",
           type_of(list));
  return {messages_of(list, style), tools_of(tools)};
}

}  // namespace neox
