// What a configuration says, for people and for other programs.
#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/keys.h"
#include "config/value.h"

namespace neox {
namespace {

bool is_effective(const Setting& setting) {
  return (setting.effect == Effect::kUsed || setting.effect == Effect::kDerived) &&
         setting.value != "null";
}

bool belongs(const Setting& setting, Effect group) {
  bool used = group == Effect::kUsed && setting.effect == Effect::kInput;
  bool quiet = setting.value == "null" || setting.effect == Effect::kInput;
  bool unset = quiet && setting.source == "default";
  return (setting.effect == group || used) && !unset;
}

std::string idle_reason(const Setting& setting) {
  const KeyRow* row = find_key(setting.key);
  if (!row || row->fate != Fate::kNoEffect) return "has no part in this run";
  return row->words;
}

const Setting* find_setting(const Config& config, const std::string& key) {
  auto at = std::lower_bound(config.settings.begin(), config.settings.end(), key,
                             [](const Setting& s, const std::string& k) { return s.key < k; });
  return at != config.settings.end() && at->key == key ? &*at : nullptr;
}

std::string table(const Config& config, const char* title, Effect group) {
  size_t key_width = 0, value_width = 0;
  for (const Setting& setting : config.settings) {
    if (!belongs(setting, group)) continue;
    key_width = std::max(key_width, setting.key.size());
    value_width = std::max(value_width, std::min<size_t>(setting.value.size(), 40));
  }
  if (key_width == 0) return "";
  std::string out = std::string(title) + '\n';
  for (const Setting& setting : config.settings) {
    if (!belongs(setting, group)) continue;
    std::string key = setting.key, value = setting.value;
    key.resize(key_width, ' ');
    if (value.size() < value_width) value.resize(value_width, ' ');
    out += "  " + key + "  " + value + "  " + setting.source;
    if (group == Effect::kNone) out += ": " + idle_reason(setting);
    out += '\n';
  }
  return out + '\n';
}

const char* type_name(const KeyRow& row) {
  switch (row.type) {
    case KeyType::kBool:
      return "true/false";
    case KeyType::kInt:
      return "integer";
    case KeyType::kNumber:
      return "number";
    case KeyType::kText:
      return "text";
    case KeyType::kChoice:
      return "choice";
    case KeyType::kInts:
      return "integers";
    case KeyType::kNumbers:
      return "numbers";
    case KeyType::kTexts:
      return "texts";
    case KeyType::kPattern:
      return "pattern";
    case KeyType::kDict:
      return "dictionary";
    case KeyType::kAny:
      return "any";
  }
  return "";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string row_words(const KeyRow& row) {
  std::string words = row.words;
  auto add = [&](const char* lead, const char* list) {
    if (!*list) return;
    if (!words.empty()) words += "; ";
    words += lead + join(split(list, '|'), ", ");
  };
  if (row.fate != Fate::kNoEffect) add("supported: ", row.allowed);
  add("not yet: ", row.later);
  if (!row.children.empty() && row.fate == Fate::kUsed) words = "see below";
  return words;
}

void add_rows(std::string& out, std::span<const KeyRow> rows) {
  for (const KeyRow& row : rows) {
    const char* fate = row.fate == Fate::kUsed       ? "used"
                       : row.fate == Fate::kNoEffect ? "no effect"
                                                     : "refused";
    out += concat("| `", row.name, "` | ", type_name(row), " | `", escaped(row.fallback), "` | ",
                  fate, " | ", escaped(row_words(row)), " |\n");
  }
}

void add_table(std::string& out, const std::string& title, std::span<const KeyRow> rows) {
  out += concat("\n### ", title, "\n\n| key | type | default | fate | what it is, or why |\n",
                "|---|---|---|---|---|\n");
  add_rows(out, rows);
}

// The dictionaries inside `rows`, each in a table of its own.
void add_nested(std::string& out, std::span<const KeyRow> rows, const std::string& parent) {
  for (const KeyRow& row : rows) {
    if (row.children.empty()) continue;
    std::string path = parent + row.name;
    add_table(out, "Inside `" + path + "`", row.children);
    add_nested(out, row.children, path + '.');
  }
}

// Nested, of the settings that are wanted.
std::string yaml_of(const std::vector<Setting>& settings,
                    const std::function<bool(const Setting&)>& wanted) {
  std::string out;
  std::vector<std::string> open;  // dictionaries that the last line stands in
  for (const Setting& setting : settings) {
    if (!wanted(setting)) continue;
    auto path = split(setting.key, '.');
    size_t depth = 0;
    while (depth < open.size() && depth + 1 < path.size() && open[depth] == path[depth]) ++depth;
    open.resize(depth);
    for (; depth + 1 < path.size(); ++depth) {
      out += std::string(2 * depth, ' ') + path[depth] + ":\n";
      open.push_back(path[depth]);
    }
    out += std::string(2 * depth, ' ') + path.back() + ": " + setting.value + '\n';
  }
  return out;
}

// Initial values, length and type of the computation are the run's, and padding is done.
bool is_of_model(const std::string& key) {
  constexpr std::array kOfRun = {"precision",   "seq_length",      "make_vocab_size_divisible_by",
                                 "init_method", "init_method_std", "output_layer_init_method"};
  constexpr std::array kOwn = {"add_qkv_bias", "embed_layernorm", "kv_channels"};
  if (key.starts_with("rope_scaling") || key.starts_with("moe_")) return true;
  if (std::ranges::find(kOwn, key) != kOwn.end()) return true;
  return std::ranges::find(kOfRun, key) == kOfRun.end() &&
         std::ranges::any_of(neox_keys(), [&](const KeyGroup& group) {
           return std::string_view(group.title) == "Model" &&
                  std::ranges::any_of(group.rows,
                                      [&](const KeyRow& row) { return key == row.name; });
         });
}

std::set<std::string> different_keys(const Config& a, const Config& b) {
  std::set<std::string> keys;
  for (const Config* config : {&a, &b})
    for (const Setting& setting : config->settings)
      if (a.value(setting.key) != b.value(setting.key)) keys.insert(setting.key);
  return keys;
}

// Whether one of them has the key's default, which the other, in another spelling, did not read.
bool reads_default(const std::string& key, const Config& a, const Config& b) {
  const KeyRow* row = find_key(key);
  auto unread = [&](const Config& config) { return !find_setting(config, key); };
  auto by_default = [&](const Config& config) { return config.value(key) == row->fallback; };
  return row && ((unread(a) && by_default(b)) || (unread(b) && by_default(a)));
}

// Whether a value is derived, and from nothing that has changed: it was given before.
bool is_back_at_default(const Setting& setting, const std::set<std::string>& changed) {
  return setting.effect == Effect::kDerived &&
         std::ranges::none_of(changed, [&](const std::string& key) {
           return setting.source.find(key) != std::string::npos;
         });
}

}  // namespace

std::string Config::where(const std::string& key) const {
  const Setting* setting = find_setting(*this, key);
  return setting ? setting->source : "default";
}

std::string Config::value(const std::string& key) const {
  const Setting* setting = find_setting(*this, key);
  return setting ? setting->value : "null";
}

std::string Config::text() const { return yaml_of(settings, is_effective); }

std::string Config::model_text() const {
  constexpr std::array kTokenizer = {"tokenizer_type", "vocab_file", "merge_file",
                                     "padded_vocab_size"};
  bool nameless = tokenizer.vocab_file.empty() && tokenizer.type == "GPT2BPETokenizer";
  return yaml_of(settings, [&](const Setting& setting) {
    bool tokenizer = std::ranges::find(kTokenizer, setting.key) != kTokenizer.end();
    if (nameless && setting.key == "tokenizer_type") return false;  // a default, meant by nobody
    return is_effective(setting) && setting.source != "default" &&
           (tokenizer || is_of_model(setting.key));
  });
}

std::string model_difference(const Config& a, const Config& b) {
  std::string text;
  auto idle = [&](const std::string& key) {  // read, and no part of the model by itself
    const Setting *x = find_setting(a, key), *y = find_setting(b, key);
    return (!x || x->effect == Effect::kInput || x->effect == Effect::kNone) &&
           (!y || y->effect == Effect::kInput || y->effect == Effect::kNone);
  };
  for (const std::string& key : different_keys(a, b))
    if ((is_of_model(key) || key == "use_mup" || key.starts_with("mup_")) && !idle(key))
      text += concat("\n  ", key, ": ", a.value(key), ", not ", b.value(key));
  return text;
}

std::string changed_keys(const Config& before, const Config& now) {
  std::string text;
  const std::set<std::string> different = different_keys(before, now);
  for (const std::string& key : different) {
    const Setting* setting = find_setting(now, key);
    if (setting && setting->effect != Effect::kUsed && !is_back_at_default(*setting, different))
      continue;
    // A run keeps the batch that it began with.
    if (key == "train_batch_size" || key == "gradient_accumulation_steps") continue;
    if (reads_default(key, before, now)) continue;
    text += concat(text.empty() ? "" : ", ", key, ' ', now.value(key),
                   " (before: ", before.value(key), ')');
  }
  return text;
}

std::string explain(const Config& config) {
  std::string out = table(config, "Used", Effect::kUsed);
  out += table(config, "Derived", Effect::kDerived);
  out += table(config, "Without effect here", Effect::kNone);
  for (const std::string& note : config.notes) out += "note: " + note + '\n';
  return out;
}

std::string key_table_markdown() {
  std::string out;
  for (const KeyGroup& group : neox_keys()) add_table(out, group.title, group.rows);
  for (const KeyGroup& group : neox_keys()) add_nested(out, group.rows, "");
  add_table(out, "Keys that GPT-NeoX does not have", own_keys());
  add_nested(out, own_keys(), "");
  return out.substr(1);
}

}  // namespace neox
