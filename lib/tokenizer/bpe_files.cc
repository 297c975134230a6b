#include "tokenizer/bpe_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace neox {
namespace {

using nlohmann::json;
using Ids = std::unordered_map<std::string_view, int32_t>;

json parse(const std::string& name, const std::string& text) try {
  return json::parse(text);
} catch (const json::exception& e) {
  std::string reason = e.what();
  fail(Exit::kIo, name, ": not valid JSON: ", reason.substr(reason.find("] ") + 2));
}

// A JSON object with the words that name it in messages: file and place.
struct Part {
  const json& value;
  std::string where;

  template <class... Text>
  [[noreturn]] void refuse(const Text&... text) const {
    fail(Exit::kIo, where, ": ", text...);
  }
  bool has(const char* key) const {
    return value.is_object() && value.contains(key) && !value[key].is_null();
  }
  Part at(const char* key) const {
    if (!value.is_object()) refuse("expected a JSON object, found ", value.type_name());
    if (!has(key)) refuse("\"", key, "\" is missing");
    return {value[key], concat(where, ", ", key)};
  }
  std::vector<Part> items() const {
    if (!value.is_array()) refuse("expected a JSON list, found ", value.type_name());
    std::vector<Part> parts;
    for (const json& item : value) parts.push_back({item, concat(where, "[", parts.size(), "]")});
    return parts;
  }
  bool flag() const {
    if (!value.is_boolean()) refuse("expected true or false, found ", value.dump());
    return value.get<bool>();
  }
  std::string text() const {
    if (!value.is_string()) refuse("expected a string, found ", value.type_name());
    return value.get<std::string>();
  }
  std::string type() const { return at("type").text(); }
};

bool is_vocab(const json& root) {
  auto is_id = [](const json& value) { return value.is_number(); };
  return root.is_object() && !root.empty() && std::ranges::all_of(root, is_id);
}

// Ids 0 to n - 1, each once. Python's library would take holes, but then give added tokens ids that
// collide with the vocabulary.
std::vector<std::string> read_vocab(const Part& vocab) {
  if (!vocab.value.is_object())
    vocab.refuse("expected a map from token to id, found ", vocab.value.type_name());
  auto count = static_cast<int64_t>(vocab.value.size());
  std::vector<std::string> tokens(vocab.value.size());
  std::vector<bool> taken(vocab.value.size());
  for (const auto& [token, id] : vocab.value.items()) {
    if (!id.is_number_integer())
      vocab.refuse("the id of \"", token, "\" is ", id.dump(), ", not a whole number");
    auto number = id.get<int64_t>();
    if (number < 0 || number >= count)
      vocab.refuse("\"", token, "\" has id ", number, ", but the ids of ", count,
                   " tokens must be 0 to ", count - 1, " without holes");
    auto index = static_cast<size_t>(number);
    if (taken[index])
      vocab.refuse("\"", tokens[index], "\" and \"", token, "\" have the same id ", number);
    tokens[index] = token;
    taken[index] = true;
  }
  return tokens;
}

Ids index_of(const std::vector<std::string>& tokens) {
  Ids ids(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) ids[tokens[id]] = static_cast<int32_t>(id);
  return ids;
}

// Where a merge stands: text only once a message needs it.
struct Place {
  const std::string& list;
  const char* before;
  size_t number;
  const char* after;
};

std::ostream& operator<<(std::ostream& out, const Place& p) {
  return out << p.list << p.before << p.number << p.after;
}

BpeMerge make_merge(const Ids& ids, std::string_view left, std::string_view right,
                    const Place& where) {
  auto id = [&](std::string_view token) {
    auto found = ids.find(token);
    check_io(found != ids.end(), where, ": the merge \"", left, " ", right, "\" needs the token \"",
             token, "\", which the vocabulary does not have");
    return found->second;
  };
  return {id(left), id(right), id(std::string(left).append(right))};
}

BpeMerge parse_merge(const Ids& ids, std::string_view line, const Place& where) {
  size_t space = line.find(' ');
  check_io(space != line.npos && line.find(' ', space + 1) == line.npos, where,
           ": expected two tokens with one space between, found \"", line, "\"");
  return make_merge(ids, line.substr(0, space), line.substr(space + 1), where);
}

// Merges stand as "a b" (a line that starts with #version is no merge) or as ["a", "b"].
std::vector<BpeMerge> read_merges(const Part& list, const Ids& ids) {
  if (!list.value.is_array()) list.refuse("expected a JSON list, found ", list.value.type_name());
  std::vector<BpeMerge> merges;
  merges.reserve(list.value.size());
  for (size_t i = 0; i < list.value.size(); ++i) {
    const json& item = list.value[i];
    Place where{list.where, "[", i, "]"};
    if (item.is_string()) {
      const auto& line = item.get_ref<const std::string&>();
      if (!line.starts_with("#version")) merges.push_back(parse_merge(ids, line, where));
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.push_back(make_merge(ids, item[0].get_ref<const std::string&>(),
                                  item[1].get_ref<const std::string&>(), where));
    } else {
      fail(Exit::kIo, where, ": expected \"a b\" or [\"a\", \"b\"], found ", item.dump());
    }
  }
  return merges;
}

void read_model(const Part& model, TokenizerFiles& files) {
  std::string type = model.has("type") ? model.type() : "BPE";
  if (type != "BPE") model.refuse("the type is ", type, "; only byte-level BPE is supported");
  if (model.has("dropout") && model.at("dropout").value != 0.0)
    model.refuse("dropout is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.has(key) && !model.at(key).text().empty()) model.refuse(key, " is not supported");
  if (model.has("byte_fallback") && model.at("byte_fallback").flag())
    model.refuse("byte_fallback is not supported: this is no byte-level BPE");
  if (model.has("ignore_merges") && model.at("ignore_merges").flag())
    files.whole_words = Bpe::WholeWords::kFirst;
  // unk_token needs no check: every byte must have a token, so nothing is unknown.
  files.tokens = read_vocab(model.at("vocab"));
  files.merges = read_merges(model.at("merges"), index_of(files.tokens));
}

void read_normalizer(const Part& normalizer, TokenizerFiles& files) {
  std::string type = normalizer.type();
  if (type == "NFC") {
    files.normalizer = TokenizerFiles::Normalizer::kNfc;
  } else if (type == "Sequence") {
    for (const Part& part : normalizer.at("normalizers").items()) read_normalizer(part, files);
  } else {
    normalizer.refuse("the type is ", type, "; only NFC is supported");
  }
}

// The words of a Split by a regular expression. Spellings of one meaning stand beside each other.
Words read_split(const Part& split) {
  static const std::pair<const char*, Words> kPatterns[] = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       Words::kGpt2},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       Words::kCl100k},
      {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       Words::kCl100k},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       Words::kQwen2}};
  Part pattern = split.at("pattern");
  std::string text = pattern.has("Regex") ? pattern.at("Regex").text() : "";
  auto known =
      std::ranges::find(kPatterns, text, [](const auto& p) { return std::string(p.first); });
  if (known == std::end(kPatterns))
    pattern.refuse(pattern.value.dump(),
                   " is not supported; supported are the regular expressions of "
                   "GPT-2, of cl100k_base (LLaMA 3, OLMo 2) and of Qwen 2");
  std::string behavior = split.at("behavior").text();
  bool invert =
      split.at("invert").flag();  // they cover the text: no difference but in the words for it
  if (behavior != (invert ? "Removed" : "Isolated"))
    split.refuse("behavior ", behavior, invert ? " with" : " without",
                 " invert is not supported; "
                 "supported are Isolated, and Removed with invert");
  return known->second;
}

void read_byte_level(const Part& splitter, TokenizerFiles& files) {
  std::string type = splitter.type();
  if (type != "ByteLevel") splitter.refuse("the type is ", type, "; only ByteLevel is supported");
  if (splitter.at("add_prefix_space").flag()) files.prefix = TokenizerFiles::Prefix::kSpace;
  if (splitter.has("use_regex") && !splitter.at("use_regex").flag()) files.words = Words::kWhole;
}

// ByteLevel, alone or behind one that makes words, or cuts digits out.
void read_pre_tokenizer(const Part& splitter, TokenizerFiles& files) {
  if (splitter.type() != "Sequence") return read_byte_level(splitter, files);
  std::vector<Part> parts = splitter.at("pretokenizers").items();
  if (parts.empty() || parts.size() > 2)
    splitter.refuse("a Sequence of ", parts.size(),
                    "; supported is ByteLevel, alone or behind a Split or Digits");
  read_byte_level(parts.back(), files);
  if (parts.size() == 1) return;
  const Part& first = parts[0];
  bool whole = files.words == Words::kWhole;
  if (files.prefix != TokenizerFiles::Prefix::kNone)
    parts[1].refuse("add_prefix_space is not supported behind ", first.type());
  if (first.type() == "Split" && whole) {
    files.words = read_split(first);
  } else if (first.type() == "Digits" && !whole) {
    if (!first.at("individual_digits").flag())
      first.refuse("individual_digits: false is not supported");
    files.digits_alone = true;
  } else {
    first.refuse("a ", first.type(), " in front of a ByteLevel ", whole ? "without" : "with",
                 " use_regex is not supported; supported are Split without it and Digits with it");
  }
}

void check_decoder(const Part& decoder) {
  std::string type = decoder.type();
  if (type == "Sequence") {
    std::vector<Part> parts = decoder.at("decoders").items();
    if (parts.size() == 1) return check_decoder(parts[0]);
    decoder.refuse("a Sequence of ", parts.size(), "; only ByteLevel alone is supported");
  }
  if (type != "ByteLevel") decoder.refuse("the type is ", type, "; only ByteLevel is supported");
}

int32_t known_id(const Part& id, const TokenizerFiles& files) {
  int64_t number = id.value.is_number_integer() ? id.value.get<int64_t>() : -1;
  bool in_model = 0 <= number && number < std::ssize(files.tokens);
  if (!in_model && !std::ranges::count(files.added, number, &AddedToken::id))
    id.refuse(id.value.dump(), " is no token of this tokenizer");
  return static_cast<int32_t>(number);
}

// What stands around the ids of a single text.
void read_post_processor(const Part& processor, TokenizerFiles& files) {
  std::string type = processor.type();
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    for (const Part& part : processor.at("processors").items()) read_post_processor(part, files);
    return;
  }
  if (type != "TemplateProcessing")
    processor.refuse("the type is ", type, ", which adds tokens to the ids; not supported");
  if (!files.begin.empty() || !files.end.empty())
    processor.refuse("a second template is not supported");
  bool text = false;
  for (const Part& piece : processor.at("single").items()) {
    if (piece.has("Sequence")) {
      if (std::exchange(text, true))
        piece.refuse("the text stands twice in the template; not supported");
      continue;
    }
    Part special =
        processor.at("special_tokens").at(piece.at("SpecialToken").at("id").text().c_str());
    for (const Part& id : special.at("ids").items())
      (text ? files.end : files.begin).push_back(known_id(id, files));
  }
  if (!text) processor.refuse("the template has no place for the text");
}

// `tokenizers` ignores the ids that the file gives to added tokens: it takes the vocabulary's, or
// the next free one. A file where the two differ is refused.
void read_added(const Part& list, TokenizerFiles& files) {
  Ids ids = index_of(files.tokens);
  auto next_id = static_cast<int32_t>(files.tokens.size());
  std::vector<Part> items = list.items();
  std::vector<std::string> contents(items.size());  // what ids refers to
  for (size_t i = 0; i < items.size(); ++i) {
    const Part& item = items[i];
    contents[i] = item.at("content").text();
    AddedToken token{.content = contents[i],
                     .special = item.at("special").flag(),
                     .normalized = item.at("normalized").flag(),
                     .single_word = item.at("single_word").flag(),
                     .lstrip = item.at("lstrip").flag(),
                     .rstrip = item.at("rstrip").flag()};
    Part id = item.at("id");
    if (token.content.empty()) item.refuse("the content is empty");
    auto [place, is_new] = ids.try_emplace(contents[i], next_id);
    token.id = place->second;
    if (is_new) ++next_id;
    if (!id.value.is_number_integer() || id.value.get<int64_t>() != token.id)
      item.refuse("\"", token.content, "\" has id ", id.value.dump(), ", but ",
                  is_new ? "the next free id is " : "already stands for ", token.id);
    auto earlier = std::ranges::find(files.added, token.id, &AddedToken::id);
    if (is_new || earlier == files.added.end()) {
      files.added.push_back(std::move(token));
    } else {  // the later one counts, but what was special stays so
      token.special |= earlier->special;
      *earlier = std::move(token);
    }
  }
}

void read_parts(const Part& root, TokenizerFiles& files) {
  if (root.has("version") && root.at("version").value != "1.0")
    root.refuse("version ", root.at("version").value.dump(), " is not supported, only \"1.0\"");
  for (const char* key : {"truncation", "padding"})
    if (root.has(key)) root.refuse(key, " changes the ids and is not supported; set it to null");
  read_model(root.at("model"), files);
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), files);
  read_pre_tokenizer(root.at("pre_tokenizer"), files);
  check_decoder(root.at("decoder"));
  if (root.has("added_tokens")) read_added(root.at("added_tokens"), files);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), files);
}

}  // namespace

TokenizerFiles read_tokenizer_json(const std::filesystem::path& path) {
  TokenizerFiles files{.name = path.string()};
  json root = parse(files.name, read_file(path));
  check_io(!is_vocab(root), files.name,
           " is GPT-2's vocab.json, tokens and their ids alone; give a tokenizer.json, or take the "
           "type GPT2BPETokenizer, with its merges.txt");
  read_parts({root, files.name}, files);
  return files;
}

TokenizerFiles read_gpt2_files(const std::filesystem::path& vocab,
                               const std::filesystem::path& merges) {
  TokenizerFiles files{.name = vocab.string()};
  json root = parse(files.name, read_file(vocab));
  bool whole = root.is_object() && root.contains("model") && root["model"].is_object();
  check_io(!whole, files.name,
           " is a tokenizer.json, which is whole without merges; give GPT-2's vocab.json, or take "
           "the type HFTokenizer");
  files.tokens = read_vocab({root, files.name});
  Ids ids = index_of(files.tokens);
  std::string merges_name = merges.string();
  std::vector<std::string> lines = split(read_file(merges), '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string_view line = lines[i];
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    files.merges.push_back(parse_merge(ids, line, {merges_name, ":", i + 1, ""}));
  }
  if (auto end = ids.find("<|endoftext|>"); end != ids.end())
    files.added.push_back({.content = "<|endoftext|>", .id = end->second, .special = true});
  return files;
}

}  // namespace neox
