#include "config/merge.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/check.h"
#include "config/keys.h"

namespace neox {
namespace {

bool has_ending(const std::string& name) {
  for (const char* ending : {".yml", ".yaml", ".json"})
    if (name.ends_with(ending)) return true;
  return false;
}

std::string nearest_file(const fs::path& path) {
  if (path.stem().extension() == ".py") return "; leave out GPT-NeoX's and Megatron's programs";
  std::vector<std::string> names;
  std::error_code error;
  fs::path dir = directory_of(path);
  for (const auto& entry : fs::directory_iterator(dir, error))
    if (has_ending(entry.path().filename().string()))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::string found = nearest(path.filename().string(), names);
  for (const std::string& name : names)
    if (found.empty() && fs::path(name).stem() == path.stem()) found = name;
  if (!found.empty()) return "; did you mean " + (path.parent_path() / found).string() + "?";
  return "; check the name";
}

Value read_one(const ConfigText& source) {
  Value root = parse_yaml(source.yaml, source.name);
  check_usage(root.kind != Value::Kind::kNull, source.name,
              ": the file is empty; it should hold keys and values, such as num_layers: 6");
  check_usage(root.kind == Value::Kind::kMap, root.place.text(), ": found ", root.show(),
              " where keys and values should stand, such as num_layers: 6");
  for (std::string& name : root.names)
    if (std::string today = name_of_today(name); !root.find(today)) name = today;
  return root;
}

// Whether two files say the same of a key. Names of choices are read in any case.
bool agree(const std::string& name, const Value& a, const Value& b) {
  using Kind = Value::Kind;
  if (a.kind == Kind::kMap && b.kind == Kind::kMap) {
    for (size_t i = 0; i < a.items.size(); ++i) {
      const Value* other = b.find(a.names[i]);
      if (!other || !agree(name + '.' + a.names[i], a.items[i], *other)) return false;
    }
    return a.items.size() == b.items.size();
  }
  const KeyRow* row = find_key(name);
  bool choice = row && *row->allowed && a.kind == Kind::kText && b.kind == Kind::kText;
  return choice ? equal_words(a.text, b.text) : same(a, b);
}

// The first place where two values differ, for the message: "optimizer.params.lr".
std::string difference(const std::string& name, const Value& a, const Value& b, const Value** left,
                       const Value** right) {
  *left = &a, *right = &b;
  if (a.kind != Value::Kind::kMap || b.kind != Value::Kind::kMap) return name;
  for (size_t i = 0; i < a.items.size(); ++i) {
    const Value* other = b.find(a.names[i]);
    std::string inner = name + '.' + a.names[i];
    if (other && !agree(inner, a.items[i], *other))
      return difference(inner, a.items[i], *other, left, right);
  }
  return name;
}

[[noreturn]] void fail_conflict(const std::string& name, const Value& old, const Value& now) {
  const Value *left, *right;
  std::string key = difference(name, old, now, &left, &right);
  std::string whole = left->kind == Value::Kind::kMap && right->kind == Value::Kind::kMap
                          ? " (a dictionary is taken whole from one file, so the two must be equal)"
                          : "";
  fail(Exit::kUsage, right->place.text(), ": ", key, " is ", right->show(), ", but ",
       left->place.text(), " says ", left->show(), whole,
       "; keep it in one file, or override it with --set ", key, "=VALUE");
}

// What two files say of a key, each as a map of that alone, of which it is the first.
struct Conflict {
  Value old, now;
};

Value map_of(const std::string& key, const Value& value) {
  return {.kind = Value::Kind::kMap, .names = {key}, .items = {value}, .place = value.place};
}

void merge_into(Value& root, Value file, std::vector<Conflict>& conflicts) {
  for (size_t i = 0; i < file.items.size(); ++i) {
    const std::string& key = file.names[i];
    if (const Value* old = root.find(key)) {
      if (!agree(key, *old, file.items[i]))
        conflicts.push_back({map_of(key, *old), map_of(key, file.items[i])});
      continue;
    }
    root.names.push_back(std::move(file.names[i]));
    root.items.push_back(std::move(file.items[i]));
  }
}

void set_path(Value& map, std::span<const std::string> path, const std::string& whole,
              Value value) {
  check_usage(!path[0].empty(), "--set ", whole, ": the key has an empty part between its dots");
  if (map.kind == Value::Kind::kNull) map.kind = Value::Kind::kMap;
  check_usage(map.kind == Value::Kind::kMap, "--set ", whole, ": '", path[0],
              "' cannot be set inside ", map.show(), " (", map.place.text(),
              "), which is not a dictionary");
  auto at = std::find(map.names.begin(), map.names.end(), path[0]) - map.names.begin();
  auto index = static_cast<size_t>(at);
  if (index == map.names.size()) {
    map.names.push_back(path[0]);
    map.items.push_back(
        {.kind = Value::Kind::kNull, .text = {}, .names = {}, .items = {}, .place = {"--set", 0}});
  }
  if (path.size() > 1) return set_path(map.items[index], path.subspan(1), whole, std::move(value));
  map.items[index] = std::move(value);
}

void set_places(Value& value, const Place& place) {
  value.place = place;
  for (Value& item : value.items) set_places(item, place);
}

// Whether YAML would take a part of it for a comment.
bool cuts_a_comment(std::string_view text) {
  std::string_view value = trim(text);
  bool quoted = value.starts_with('"') || value.starts_with('\'');
  if (value.starts_with('[') || value.starts_with('{'))
    quoted = value.find_first_of("\"'") != value.npos;
  for (size_t at = text.find('#'); at != text.npos && !quoted; at = text.find('#', at + 1))
    if (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t') return true;
  return false;
}

// "key=value" of an option such as --set.
std::pair<std::string, Value> read_assignment(const std::string& option,
                                              const std::string& assignment) {
  size_t equals = assignment.find('=');
  check_usage(equals != std::string::npos && equals > 0, option, " ", assignment, ": write ",
              option, " key=value, such as --set optimizer.params.lr=1e-4");
  std::string key(trim(assignment.substr(0, equals)));
  std::replace(key.begin(), key.end(), '-', '_');
  key = name_of_today(key);
  std::string text = assignment.substr(equals + 1);
  check_usage(!cuts_a_comment(text), option, " ", assignment,
              ": what follows '#' would be a comment; write the text in quotes: ", option, " '",
              key, "=", yaml_text(text), "'");
  Value value = parse_yaml(text, option + " " + key);
  set_places(value, {option, 0});
  return {key, std::move(value)};
}

void override_one(Value& root, const std::string& assignment) {
  auto [key, value] = read_assignment("--set", assignment);
  set_path(root, split(key, '.'), key, std::move(value));
}

// DeepSpeed's file, as GPT-NeoX and Megatron-DeepSpeed take it by --deepspeed_config. What
// DeepSpeed has beside GPT-NeoX's keys belongs into their deepspeed_extra_args.
void override_from_deepspeed(Value& root, const std::string& name) {
  std::error_code error;
  check_usage(fs::is_regular_file(name, error), "--deepspeed-config ", name, ": no such file",
              nearest_file(name));
  Value file = read_one({name, read_file(name)}), mine;
  mine.kind = Value::Kind::kMap;
  for (size_t i = 0; i < file.items.size(); ++i) {
    const std::string& key = file.names[i];
    bool extra = !find_key(key) && find_key("deepspeed_extra_args." + key);
    std::vector<std::string> path = {key};
    if (extra) path.insert(path.begin(), "deepspeed_extra_args");
    set_path(mine, path, key, file.items[i]);
    set_path(root, path, key, file.items[i]);
  }
  check_keys(mine);  // what it asks for first is refused first
}

void override_all(Value& root, const ConfigOptions& options) {
  if (!options.deepspeed_config.empty()) override_from_deepspeed(root, options.deepspeed_config);
  for (const std::string& assignment : options.overrides) override_one(root, assignment);
}

// Who names one key of a group has decided about all of it.
bool is_mentioned(const Value& root, const std::string& key) {
  static const std::vector<std::vector<std::string_view>> kGroups = {
      {"save", "load"},
      {"precision", "fp16", "bf16"},
      {"data_path", "train_data_paths", "valid_data_paths", "test_data_paths",
       "pos_train_data_paths", "pos_valid_data_paths", "pos_test_data_paths",
       "neg_train_data_paths", "neg_valid_data_paths", "neg_test_data_paths"}};
  if (root.find(key)) return true;
  for (const auto& group : kGroups)
    if (std::ranges::count(group, key) > 0)
      return std::ranges::any_of(group, [&](std::string_view k) { return root.find(k); });
  return false;
}

void add_defaults(Value& root, const std::vector<std::string>& defaults) {
  const Value mentioned = root;
  for (const std::string& assignment : defaults) {
    auto [key, value] = read_assignment("--default", assignment);
    check_usage(key.find('.') == std::string::npos, "--default ", assignment,
                ": only whole keys have a default, not those inside a dictionary");
    if (is_mentioned(mentioned, key)) continue;
    set_path(root, std::vector{key}, key, std::move(value));
  }
}

}  // namespace

fs::path find_config(const std::string& name, const fs::path& directory) {
  check_usage(!name.empty(), "the name of a configuration file is empty");
  fs::path path = directory / (has_ending(name) ? name : name + ".yml");
  std::error_code error;
  check_usage(fs::exists(path, error) || !find_key(name.substr(0, name.find('='))), name,
              ": no such file; a key is set by --set ", name);
  constexpr std::string_view kShipped = "configs/";
  if (!fs::exists(path, error) && directory.empty() && path.string().starts_with(kShipped))
    if (fs::path there = installed_config(path.string().substr(kShipped.size()));
        fs::exists(there, error))
      return there;
  check_usage(!fs::is_directory(path, error) && !fs::is_directory(directory / name, error),
              (directory / name).string(), ": is a directory, not a file");
  check_usage(is_found(path), path.string(), ": no such file", nearest_file(path),
              directory.empty() ? "" : " (-d " + directory.string() + ")");
  return path;
}

Value merge_config(const ConfigOptions& options) {
  check_usage(!options.files.empty() || !options.texts.empty(),
              "no configuration file is given; try configs/quickstart.yml");
  Value root;
  root.kind = Value::Kind::kMap;
  std::vector<Conflict> conflicts;
  for (const ConfigText& text : options.texts) merge_into(root, read_one(text), conflicts);
  for (const std::string& name : options.files) {
    fs::path path = find_config(name, options.directory);
    merge_into(root, read_one({path.string(), read_file(path)}), conflicts);
  }
  for (Conflict& c : conflicts) {
    override_all(c.old, options), override_all(c.now, options);
    const Value &old = c.old.items[0], &now = c.now.items[0];
    if (!agree(c.old.names[0], old, now)) fail_conflict(c.old.names[0], old, now);
  }
  override_all(root, options);
  add_defaults(root, options.defaults);
  return root;
}

}  // namespace neox
