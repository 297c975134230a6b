#include "chat/chat.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "chat/by_jinja.h"
#include "jinja/text.h"

namespace neox {
namespace {

constexpr const char* kSystem = "system";
constexpr const char* kUser = "user";
constexpr const char* kAssistant = "assistant";

// Of the messages that a model writes.
const ChatTemplate::Role& written_role(const ChatTemplate& style, const std::string& name) {
  auto role = std::ranges::find(style.roles, name, &ChatTemplate::Role::name);
  check_usage(role != style.roles.end(), "the chat template ", style.name, " has no role ", name,
              ", whose messages a model writes");
  return *role;
}

// Writes the turns of one conversation.
class Writer {
 public:
  Writer(const std::vector<ChatMessage>& messages, const ChatTemplate& style,
         const std::string& generation_role)
      : messages_(messages), style_(style), generation_role_(generation_role) {}

  std::vector<ChatTurn> turns() {
    check_io(!messages_.empty(), "a conversation without messages");
    text_ = style_.begin;
    if (!style_.default_system.empty() && messages_[0].role != kSystem)
      add(role(kSystem, 0), style_.default_system);
    for (size_t i = 0; i < messages_.size(); ++i) {
      const ChatTemplate::Role& its = role(messages_[i].role, i);
      check_order(i, its);
      add(its, messages_[i].content);
      asked_ = i + 1 < messages_.size() && messages_[i + 1].role == generation_role_;
      if (asked_) text_ += style_.generation_prompt;
      turns_.push_back({messages_[i].role, std::move(text_)});
      text_.clear();
    }
    check_io(held_.empty(), "no message follows that of the role '", messages_.back().role,
             "', which stands inside of the next in the template ", style_.name);
    return std::move(turns_);
  }

 private:
  const ChatTemplate::Role& role(const std::string& name, size_t i) const {
    std::vector<std::string> names;
    for (const ChatTemplate::Role& role : style_.roles) {
      if (role.name == name) return role;
      names.push_back("'" + role.name + "'");
    }
    fail(Exit::kIo, "message ", i + 1, " is of the role '", beginning_of(name), "'; the template ",
         style_.name, " has ", join(names, ", "));
  }

  void check_order(size_t i, const ChatTemplate::Role& its) {
    if (style_.order == ChatTemplate::Order::kAny) return;
    bool system = its.name == kSystem && i == 0;
    if (system) return;
    bool wants_user = spoken_++ % 2 == 0;
    check_io((its.name == kUser) == wants_user && its.name != kSystem, "message ", i + 1,
             " is of the role '", its.name, "' where the template ", style_.name, " wants '",
             wants_user ? "user" : "assistant",
             "': the roles must alternate, behind a system message");
  }

  void add(const ChatTemplate::Role& its, const std::string& content) {
    if (!its.within.empty()) {
      held_ += its.before + content + its.after;
      return;
    }
    std::string whole = std::exchange(held_, {}) + content;
    // The generation prompt is there already.
    text_ += its.before.substr(std::exchange(asked_, false) ? style_.generation_prompt.size() : 0);
    text_ +=
        style_.space == ChatTemplate::Space::kTrim ? jinja::strip(whole) : std::string_view(whole);
    text_ += its.after;
  }

  const std::vector<ChatMessage>& messages_;
  const ChatTemplate& style_;
  const std::string& generation_role_;
  std::vector<ChatTurn> turns_;
  std::string text_;
  std::string held_;    // messages that stand inside of the next
  bool asked_ = false;  // text so far ends with the generation prompt
  int64_t spoken_ = 0;  // messages that must alternate, so far
};

}  // namespace

std::vector<ChatTurn> render_chat(const Chat& chat, const ChatTemplate& style,
                                  const std::string& generation_role, Apart apart) {
  if (style.jinja) return render_by_jinja(chat, style, generation_role, apart);
  return Writer(chat.messages, style, generation_role).turns();
}

std::vector<ChatTurn> turns_before_reply(const std::vector<ChatMessage>& messages,
                                         const ChatTemplate& style) {
  if (style.jinja) return {{kAssistant, text_by_jinja({messages}, style, Prompt::kGeneration)}};
  std::vector<ChatTurn> turns = render_chat({messages}, style, kAssistant);
  turns.back().text += style.generation_prompt;
  return turns;
}

void check_generation_role(const ChatTemplate& style, const std::string& role) {
  if (style.jinja) return;
  const ChatTemplate::Role& its = written_role(style, role);
  check_usage(its.within.empty() && its.before.starts_with(style.generation_prompt),
              "the chat template ", style.name, " asks for a reply by '", style.generation_prompt,
              "', with which messages of the role '", role, "' do not begin");
}

void check_writes_tools(const ChatTemplate& style) {
  check_usage(style.jinja && writes_tools(style), "the chat template ", style.name,
              " writes nothing of tools: take the Jinja of a model that calls tools (the directory "
              "of its tokenizer), or leave --tools-key out");
}

std::string end_of_reply(const ChatTemplate& style) {
  return style.jinja ? end_by_jinja(style) : written_role(style, kAssistant).after;
}

}  // namespace neox
