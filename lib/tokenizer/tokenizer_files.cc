#include "tokenizer/tokenizer_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_bounds.h"
#include "base/log.h"
#include "base/text.h"
#include "tokenizer/character_bpe.h"
#include "tokenizer/piece_models.h"
#include "tokenizer/pipeline.h"

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

// Each id once; some may be missing, as between a vocabulary and tokens that were added to it.
std::vector<std::string> read_vocab(const Part& vocab) {
  if (!vocab.value.is_object())
    vocab.refuse("expected a map from token to id, found ", vocab.value.type_name());
  auto count = static_cast<int64_t>(vocab.value.size());
  const int64_t most = 2 * count + 1000;
  std::vector<std::string> tokens(vocab.value.size());
  std::vector<bool> taken(vocab.value.size());
  for (const auto& [token, id] : vocab.value.items()) {
    if (!id.is_number_integer())
      vocab.refuse("the id of \"", token, "\" is ", id.dump(), ", not a whole number");
    auto number = id.get<int64_t>();
    if (number < 0 || number >= most)
      vocab.refuse("\"", token, "\" has id ", number, ", which is not one of ", count, " tokens");
    auto index = static_cast<size_t>(number);
    if (index >= tokens.size()) tokens.resize(index + 1), taken.resize(index + 1);
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

// The second part without the bytes of a prefix that stands inside words.
BpeMerge make_merge(const Ids& ids, std::string_view left, std::string_view right, size_t prefix,
                    const Place& where) {
  auto id = [&](std::string_view token) {
    auto found = ids.find(token);
    check_io(found != ids.end(), where, ": the merge \"", left, " ", right, "\" needs the token \"",
             token, "\", which the vocabulary does not have");
    return found->second;
  };
  std::string_view rest = right.substr(std::min(prefix, right.size()));
  return {id(left), id(right), id(std::string(left).append(rest))};
}

BpeMerge parse_merge(const Ids& ids, std::string_view line, size_t prefix, const Place& where) {
  size_t space = line.find(' ');
  check_io(space != line.npos && line.find(' ', space + 1) == line.npos, where,
           ": expected two tokens with one space between, found \"", line, "\"");
  return make_merge(ids, line.substr(0, space), line.substr(space + 1), prefix, where);
}

// Merges stand as "a b" (a line that starts with #version is no merge) or as ["a", "b"].
std::vector<BpeMerge> read_merges(const Part& list, const Ids& ids, size_t prefix) {
  if (!list.value.is_array()) list.refuse("expected a JSON list, found ", list.value.type_name());
  std::vector<BpeMerge> merges;
  merges.reserve(list.value.size());
  for (size_t i = 0; i < list.value.size(); ++i) {
    const json& item = list.value[i];
    Place where{list.where, "[", i, "]"};
    if (item.is_string()) {
      const auto& line = item.get_ref<const std::string&>();
      if (!line.starts_with("#version")) merges.push_back(parse_merge(ids, line, prefix, where));
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.push_back(make_merge(ids, item[0].get_ref<const std::string&>(),
                                  item[1].get_ref<const std::string&>(), prefix, where));
    } else {
      fail(Exit::kIo, where, ": expected \"a b\" or [\"a\", \"b\"], found ", item.dump());
    }
  }
  return merges;
}

std::string text_or_none(const Part& part, const char* key) {
  return part.has(key) ? part.at(key).text() : "";
}

bool flag_or_off(const Part& part, const char* key) { return part.has(key) && part.at(key).flag(); }

// Whether some byte that UTF-8 uses has no token of its own.
bool lacks_bytes(const Ids& ids) {
  for (int byte = 0; byte < 256; ++byte)
    if (occurs_in_utf8(byte) &&
        !ids.contains(to_byte_level(std::string(1, static_cast<char>(byte)))))
      return true;
  return false;
}

// BPE of characters, where words are not spelled in bytes or some bytes have no token.
void read_bpe(const Part& root, TokenizerFiles& files) {
  Part model = root.at("model");
  if (model.has("dropout") && model.at("dropout").value != 0.0)
    model.refuse("dropout is not supported");
  CharacterBpeRules rules{.prefix = text_or_none(model, "continuing_subword_prefix"),
                          .suffix = text_or_none(model, "end_of_word_suffix"),
                          .unknown = text_or_none(model, "unk_token"),
                          .fuses_unknown = flag_or_off(model, "fuse_unk"),
                          .byte_fallback = flag_or_off(model, "byte_fallback"),
                          .whole_words = flag_or_off(model, "ignore_merges")};
  bool affixed = !rules.prefix.empty() || !rules.suffix.empty();
  if (affixed && rules.byte_fallback)
    model.refuse(
        "byte_fallback with a continuing_subword_prefix or end_of_word_suffix is not supported");
  files.tokens = read_vocab(model.at("vocab"));
  Ids ids = index_of(files.tokens);
  files.merges = read_merges(model.at("merges"), ids, rules.prefix.size());
  bool replaces = !rules.unknown.empty() || rules.byte_fallback;  // what has no token
  if (spells_bytes(root) && !affixed && !(replaces && lacks_bytes(ids))) {
    if (rules.whole_words) files.whole_words = Bpe::WholeWords::kFirst;
    files.lacking_bytes = Bpe::LackingBytes::kLost;
    return;
  }
  files.model = std::make_shared<CharacterBpe>(files.tokens, files.merges, std::move(rules));
  files.merges.clear();
}

void read_unigram(const Part& model, TokenizerFiles& files) {
  std::vector<double> scores;
  for (const Part& item : model.at("vocab").items()) {
    bool pair = item.value.is_array() && item.value.size() == 2 && item.value[0].is_string() &&
                item.value[1].is_number();
    if (!pair) item.refuse("expected a token and its score, found ", item.value.dump());
    files.tokens.push_back(item.value[0].get<std::string>());
    scores.push_back(item.value[1].get<double>());
  }
  UnigramModel::Rules rules{.byte_fallback = flag_or_off(model, "byte_fallback")};
  if (model.has("unk_id")) {
    size_t id = model.at("unk_id").number(0);
    if (id >= files.tokens.size())
      model.at("unk_id").refuse(id, " is none of ", files.tokens.size(), " tokens");
    rules.unknown = static_cast<int32_t>(id);
  }
  files.model = std::make_shared<UnigramModel>(files.tokens, std::move(scores), rules);
}

void read_model(const Part& root, TokenizerFiles& files) {
  Part model = root.at("model");
  std::string type = model.has("type") ? model.type() : "BPE";
  if (type == "BPE") return read_bpe(root, files);
  if (type == "Unigram") return read_unigram(model, files);
  if (type != "WordLevel" && type != "WordPiece")
    model.refuse("the type is ", type, "; supported are BPE, Unigram, WordLevel and WordPiece");
  files.tokens = read_vocab(model.at("vocab"));
  std::string unknown = model.at("unk_token").text();
  if (type == "WordLevel") {
    files.model = std::make_shared<WordLevelModel>(files.tokens, unknown);
    return;
  }
  WordPieceModel::Rules rules{.prefix = model.at("continuing_subword_prefix").text(),
                              .most_characters = model.at("max_input_chars_per_word").number(0)};
  files.model = std::make_shared<WordPieceModel>(files.tokens, unknown, std::move(rules));
}

// `tokenizers` ignores the ids that the file gives to added tokens: it takes the vocabulary's, or
// the next free one. A file where the two differ is refused.
void read_added(const Part& root, TokenizerFiles& files) {
  Ids ids = index_of(files.tokens);
  // Not of files.tokens, in which a token "" looks as an id without one.
  auto count = static_cast<int32_t>(root.at("model").at("vocab").value.size()), greatest = -1;
  std::vector<Part> items = root.at("added_tokens").items();
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
    auto [known, is_new] = ids.try_emplace(contents[i], std::max(count, greatest + 1));
    token.id = known->second;
    greatest = std::max(greatest, token.id);
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
  read_model(root, files);
  if (root.has("added_tokens")) read_added(root, files);
  read_pipeline(root, files);
}

}  // namespace

TokenizerFiles read_tokenizer_json(const std::filesystem::path& path) {
  TokenizerFiles files{.name = path.string()};
  json root = parse(files.name, read_file(path));
  check_io(!is_vocab(root), files.name,
           " is GPT-2's vocab.json, tokens and their ids alone; give a tokenizer.json, or take the "
           "type GPT2BPETokenizer, with its merges.txt");
  read_parts({root, files.name}, files);
  files.beside = path.parent_path();
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
    files.merges.push_back(parse_merge(ids, line, 0, {merges_name, ":", i + 1, ""}));
  }
  if (auto end = ids.find("<|endoftext|>"); end != ids.end())
    files.added.push_back({.content = "<|endoftext|>", .id = end->second, .special = true});
  return files;
}

}  // namespace neox
