#include "tokenizer/bpe_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_bounds.h"
#include "base/log.h"
#include "base/text.h"
#include "tokenizer/bpe_pipeline.h"

namespace neox {
namespace {

using nlohmann::json;
using Part = JsonPart;
using Ids = std::unordered_map<std::string_view, int32_t>;

json parse(const std::string& name, const std::string& text) try {
  std::string what = beyond({}, text);
  check_io(what.empty(), name, " ", what);
  return json::parse(text);
} catch (const json::exception& e) {
  std::string reason = e.what();
  fail(Exit::kIo, name, ": not valid JSON: ", reason.substr(reason.find("] ") + 2));
}

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
  if (type != "BPE")
    model.refuse("the type is ", type, "; only BPE is supported, byte-level or with byte_fallback");
  if (model.has("dropout") && model.at("dropout").value != 0.0)
    model.refuse("dropout is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.has(key) && !model.at(key).text().empty()) model.refuse(key, " is not supported");
  files.byte_fallback = model.has("byte_fallback") && model.at("byte_fallback").flag();
  if (model.has("ignore_merges") && model.at("ignore_merges").flag())
    files.whole_words = Bpe::WholeWords::kFirst;
  if (files.byte_fallback && files.whole_words == Bpe::WholeWords::kFirst)
    model.refuse("ignore_merges is not supported with byte_fallback");
  // Where every byte has a token, nothing is unknown.
  if (!model.has("unk_token")) files.lacking_bytes = Bpe::LackingBytes::kLost;
  files.tokens = read_vocab(model.at("vocab"));
  files.merges = read_merges(model.at("merges"), index_of(files.tokens));
}

// `tokenizers` ignores the ids that the file gives to added tokens: it takes the vocabulary's, or
// the next free one. A file where the two differ is refused.
void read_added(const Part& list, TokenizerFiles& files) {
  Ids ids = index_of(files.tokens);
  auto next_id = static_cast<int32_t>(files.tokens.size());
  std::vector<Part> items = list.items();
  std::vector<std::string> contents(items.size());  // what ids refers to
  std::unordered_map<int32_t, size_t> places;       // in files.added, of each id
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
    auto [known, is_new] = ids.try_emplace(contents[i], next_id);
    token.id = known->second;
    if (is_new) ++next_id;
    if (!id.value.is_number_integer() || id.value.get<int64_t>() != token.id)
      item.refuse("\"", token.content, "\" has id ", id.value.dump(), ", but ",
                  is_new ? "the next free id is " : "already stands for ", token.id);
    auto [place, is_first] = places.try_emplace(token.id, files.added.size());
    if (is_first) {
      files.added.push_back(std::move(token));
    } else {  // the later one counts, but what was special stays so
      AddedToken& earlier = files.added[place->second];
      token.special |= earlier.special;
      earlier = std::move(token);
    }
  }
}

void read_parts(const Part& root, TokenizerFiles& files) {
  if (root.has("version") && root.at("version").value != "1.0")
    root.refuse("version ", root.at("version").value.dump(), " is not supported, only \"1.0\"");
  for (const char* key : {"truncation", "padding"})
    if (root.has(key))
      log_warning(root.where, ": ", key, " is left out; ids are those of whole texts");
  read_model(root.at("model"), files);
  if (root.has("added_tokens")) read_added(root.at("added_tokens"), files);
  if (files.byte_fallback && root.has("pre_tokenizer") &&
      spells_bytes(root.at("pre_tokenizer"))) {  // with a token for each byte none falls back
    files.byte_fallback = false;
    files.lacking_bytes = Bpe::LackingBytes::kRefused;
  }
  files.byte_fallback ? read_marked_pipeline(root, files) : read_byte_level_pipeline(root, files);
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
