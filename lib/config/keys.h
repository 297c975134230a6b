// The table of keys: every key that GPT-NeoX declares, the keys inside its dictionaries, and our
// own. docs/config.md is printed from it.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace neox {

enum class KeyType {
  kBool,
  kInt,
  kNumber,
  kText,
  kChoice,  // one of `allowed`, in any case
  kInts,    // lists
  kNumbers,
  kTexts,
  kPattern,  // attention_config
  kDict,     // with the keys of `children`
  kAny,      // read by others only: no type is asked for
};

enum class Fate {
  kUsed,
  kNoEffect,  // accepted and said once: would change only speed, reports or how jobs start
  kRefused,   // not supported yet: only null, the default and the words of `allowed` are accepted
};

struct KeyRow {
  const char* name;
  KeyType type;
  const char* fallback;  // the default as YAML
  Fate fate;
  const char* words;         // what it is; or why it has no effect or is refused
  const char* allowed = "";  // "a|b": values that are supported
  const char* later = "";  // "c|d": values that NeoX has and that are refused as not supported yet
  std::span<const KeyRow> children = {};
};

struct KeyGroup {
  const char* title;
  std::span<const KeyRow> rows;
};

// The 318 keys that GPT-NeoX declares, in its groups and order.
std::span<const KeyGroup> neox_keys();
// Keys that GPT-NeoX does not have.
std::span<const KeyRow> own_keys();

// A key by its path ("optimizer.params.lr"); null pointer: there is none.
const KeyRow* find_key(std::string_view path);

// Of a key that older versions of GPT-NeoX call otherwise its name of today; any other as it is.
std::string name_of_today(const std::string& name);

// What to say of an unknown key, from "" (top level) or inside the dictionary `parent`: the nearest
// key, or the key that other programs' users mean. Starts with "; " or is empty.
std::string suggest_key(const std::string& name, const std::string& parent);

// The first half of it: "; here it is num_layers" for a key of other programs, else "".
std::string translate_key(const std::string& name);

// "an integer", "true or false", "cosine, linear or constant" ...
std::string describe_type(const KeyRow& row);

}  // namespace neox
