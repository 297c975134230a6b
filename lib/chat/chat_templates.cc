// Chat templates: read from YAML and Jinja, with the special tokens of a tokenizer.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "chat/by_jinja.h"
#include "chat/chat.h"
#include "config/value.h"
#include "jinja/template.h"

namespace neox {
namespace {

void require(bool ok, const Value& value, const std::string& what) {
  check_usage(ok, value.place.text(), ": ", what);
}

void allow(const Value& map, const std::vector<std::string>& known) {
  require(map.kind == Value::Kind::kMap, map, "a map of keys is wanted: " + join(known, ", "));
  for (size_t i = 0; i < map.names.size(); ++i) {
    bool found = std::find(known.begin(), known.end(), map.names[i]) != known.end();
    std::string near = nearest(map.names[i], known);
    require(found, map.items[i],
            concat("unknown key ", map.names[i], did_you_mean(near, "."), " There are ",
                   join(known, ", ")));
  }
}

std::string text(const Value& map, const char* key) {
  const Value* value = map.find(key);
  if (!value || value->kind == Value::Kind::kNull) return "";
  bool scalar = value->kind != Value::Kind::kList && value->kind != Value::Kind::kMap;
  require(scalar, *value, concat(key, " must be a text"));
  return value->text;
}

bool flag(const Value& map, const char* key) {
  const Value* value = map.find(key);
  if (!value) return false;
  require(value->kind == Value::Kind::kBool, *value, concat(key, " must be true or false"));
  return value->is_true();
}

ChatTemplate read_template(const Value& value) {
  allow(value, {"name", "description", "begin", "default_system", "generation_prompt", "trim",
                "alternate", "roles"});
  ChatTemplate style{.name = text(value, "name"),
                     .begin = text(value, "begin"),
                     .default_system = text(value, "default_system"),
                     .generation_prompt = text(value, "generation_prompt")};
  if (flag(value, "trim")) style.space = ChatTemplate::Space::kTrim;
  if (flag(value, "alternate")) style.order = ChatTemplate::Order::kAlternate;
  require(!style.name.empty(), value, "a template needs a name");
  const Value* roles = value.find("roles");
  require(roles && roles->kind == Value::Kind::kList && !roles->items.empty(), value,
          style.name + " needs roles, a list");
  for (const Value& role : roles->items) {
    allow(role, {"role", "before", "after", "within"});
    style.roles.push_back(
        {text(role, "role"), text(role, "before"), text(role, "after"), text(role, "within")});
    require(!style.roles.back().name.empty(), role, "a role needs its name: role");
  }
  auto has = [&](const std::string& name) {
    return std::any_of(style.roles.begin(), style.roles.end(),
                       [&](const ChatTemplate::Role& role) { return role.name == name; });
  };
  for (const ChatTemplate::Role& role : style.roles)
    require(role.within.empty() || has(role.within), *roles,
            concat("within names ", role.within, ", which is no role of ", style.name));
  require(style.default_system.empty() || has("system"), value,
          style.name + " has a default_system, but no role system");
  return style;
}

std::vector<ChatTemplate> read_templates(const fs::path& file) {
  Value all = parse_yaml(read_file(file), file.string());
  const Value* list = all.kind == Value::Kind::kMap ? all.find("chat_templates") : nullptr;
  check_usage(list && list->kind == Value::Kind::kList && !list->items.empty(), file.string(),
              ": no list chat_templates; docs/fine-tuning.md shows how to write one");
  std::vector<ChatTemplate> templates;
  for (const Value& item : list->items) templates.push_back(read_template(item));
  return templates;
}

// The template in a tokenizer_config.json, or the default one of several.
std::string jinja_in_config(const fs::path& file) {
  nlohmann::json config = json_object_in(file);
  auto found = config.find("chat_template");
  check_usage(found != config.end() && !found->is_null(), file.string(),
              " has no chat_template; take one by name, such as chatml (docs/fine-tuning.md)");
  if (found->is_string()) return found->get<std::string>();
  std::vector<std::string> names;
  for (const auto& one : found->is_array() ? *found : nlohmann::json::array()) {
    if (!one.is_object() || !one.contains("name") || !one.contains("template")) continue;
    names.push_back(one["name"].is_string() ? one["name"].get<std::string>() : "?");
    if (names.back() == "default" && one["template"].is_string())
      return one["template"].get<std::string>();
  }
  fail(Exit::kUsage, file.string(), ": chat_template is neither a text nor a list with one named ",
       "default; it has ", names.empty() ? "none" : join(names, ", "));
}

// Hugging Face's tools write the one beside the other since 2025, and read it first.
fs::path file_in(const fs::path& directory) {
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"})
    if (is_found(directory / name)) return directory / name;
  fail(Exit::kUsage, "--chat-template ", directory.string(),
       " is a directory without chat_template.jinja and tokenizer_config.json");
}

ChatTemplate read_template_file(fs::path file) {
  if (fs::is_directory(file)) file = file_in(file);
  std::string extension = file.extension().string();
  bool yaml = extension == ".yml" || extension == ".yaml";
  if (!yaml) {
    std::string source = extension == ".json" ? jinja_in_config(file) : read_file(file);
    check_usage(!trim(source).empty(), file.string(), ": the chat template is empty");
    return {.name = file.string(),
            .jinja = std::make_shared<const jinja::Template>(std::move(source), file.string())};
  }
  std::vector<ChatTemplate> templates = read_templates(file);
  check_usage(templates.size() == 1, file.string(), " holds ", templates.size(),
              " templates; --chat-template takes a file with one");
  return templates.front();
}

// "<|im_start|>" and its like in the texts of a template.
std::set<std::string> markers_of(const ChatTemplate& style) {
  std::vector<std::string> texts = {style.begin, style.generation_prompt};
  try {
    if (style.jinja) texts.push_back(end_of_reply(style));
  } catch (const Error&) {}  // it may take other conversations than the one that this asks for
  for (const ChatTemplate::Role& role : style.roles) {
    texts.push_back(role.before);
    texts.push_back(role.after);
  }
  std::set<std::string> markers;
  for (const std::string& text : texts)
    for (size_t at = 0; (at = text.find("<|", at)) != text.npos;) {
      size_t end = text.find("|>", at);
      if (end == text.npos) break;
      markers.insert(text.substr(at, end + 2 - at));
      at = end + 2;
    }
  return markers;
}

}  // namespace

void warn_of_split_markers(const ChatTemplate& style, const Tokenizer& tokenizer,
                           const fs::path& vocab) {
  for (const std::string& marker : markers_of(style)) {
    std::vector<int32_t> ids;
    tokenizer.encode_plain(marker, ids);
    if (ids.size() > 1)
      log_warning(marker, " of the chat template ", style.name, " is ", ids.size(), " tokens of ",
                  vocab.string(),
                  ", which has no token for it: a model learns it as text. Take a tokenizer that "
                  "has it, or --chat-template plain");
  }
}

ChatTemplate read_chat_template(const std::string& name_or_file, const fs::path& table) {
  if (name_or_file.find('/') != std::string::npos) return read_template_file(name_or_file);
  std::vector<std::string> names;
  bool is_file = fs::exists(name_or_file);
  for (const ChatTemplate& style : read_templates(table.empty() ? chat_template_table() : table)) {
    names.push_back(style.name);
    if (style.name != name_or_file) continue;
    if (is_file)
      log_warning("the chat template ", style.name, " is the one of neox.cpp; for the file or ",
                  "directory of that name here give ./", name_or_file);
    return style;
  }
  if (is_file) return read_template_file(name_or_file);
  std::string near = nearest(name_or_file, names);
  fail(Exit::kUsage, "--chat-template ", name_or_file, " is not known", did_you_mean(near, "."),
       " There are ", join(names, ", "),
       ", or a file with one: YAML, Jinja, or a tokenizer_config.json (docs/fine-tuning.md)");
}

fs::path chat_template_table() {
  fs::path file = installed_config("chat_templates.yml");
  check_io(fs::exists(file), "the table of chat templates ", file.string(),
           " is not there: the installation is incomplete, copy share/neox too");
  return file;
}

ChatTemplate with_special_tokens(ChatTemplate style, const SpecialTokens& tokens) {
  auto put = [&](std::string& text) {
    text = replace_all(replace_all(text, "{bos}", tokens.bos), "{eos}", tokens.eos);
  };
  style.tokens = tokens.named;
  for (std::string* text : {&style.begin, &style.default_system, &style.generation_prompt})
    put(*text);
  for (ChatTemplate::Role& role : style.roles) put(role.before), put(role.after);
  if (style.jinja && writes_parts(style)) style.parts = ChatTemplate::Parts::kWritten;
  return style;
}

}  // namespace neox
