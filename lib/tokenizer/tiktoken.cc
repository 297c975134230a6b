// tiktoken's files of ranks, and what its encodings have beside them (tiktoken 0.14,
// tiktoken_ext/openai_public.py), and LLaMA 3 (Meta's llama3/tokenizer.py).
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokenizer_files.h"

namespace neox {
namespace {

struct Special {
  std::string content;
  int32_t id;
};

struct Encoding {
  std::string name;
  std::string
      other;  // the file in tiktoken's cache: SHA-1 of its address; Meta's name of LLaMA 3's
  Words words;
  std::vector<Special> special;
  size_t ranks = 0;        // that all its files have; 0: any number
  std::string begin = "";  // the token in front of texts
};

// Those of 3.1 and later. LLaMA 3 had other names for some that no text has.
std::vector<Special> llama3_special(int32_t first) {
  std::vector<Special> all;
  auto add = [&](const std::string& name) {
    all.push_back({concat("<|", name, "|>"), first + static_cast<int32_t>(all.size())});
  };
  for (const char* name :
       {"begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1",
        "finetune_right_pad_id", "reserved_special_token_2", "start_header_id", "end_header_id",
        "eom_id", "eot_id", "python_tag"})
    add(name);
  for (int number = 3; all.size() < 256; ++number) add(concat("reserved_special_token_", number));
  return all;
}

const std::vector<Encoding>& encodings() {
  static const std::vector<Special> kR50k = {{"<|endoftext|>", 50256}};
  static const std::vector<Encoding> kAll = {
      {"r50k_base", "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4", Words::kGpt2, kR50k},
      {"p50k_base", "ec7223a39ce59f226a68acc30dc1af2788490e15", Words::kGpt2, kR50k},
      {"cl100k_base",
       "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
       Words::kCl100k,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base",
       "fb374d419588a4632f3f557e76b4b70aebbca790",
       Words::kO200k,
       {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"llama3", "tokenizer", Words::kCl100k, llama3_special(128000), 128000, "<|begin_of_text|>"}};
  return kAll;
}

const Encoding& encoding_of(const std::filesystem::path& path) {
  std::string name = path.stem().string(), names;
  for (const Encoding& encoding : encodings()) {
    if (name == encoding.name || name == encoding.other) return encoding;
    names += concat(names.empty() ? "" : ", ", encoding.name, ".tiktoken");
  }
  fail(Exit::kIo, path.string(),
       ": the name says which encoding it is, with which words and special tokens; known are ",
       names, " (of a model on Hugging Face take its tokenizer.json, with HFTokenizer)");
}

// The bytes of a text in base64 (RFC 4648), or false.
bool from_base64(std::string_view text, std::string& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  for (int pad = 0; pad < 2 && text.ends_with('='); ++pad) text.remove_suffix(1);
  uint32_t value = 0;
  int bits = 0;
  for (char c : text) {
    size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return false;
    value = value << 6 | static_cast<uint32_t>(digit);
    if ((bits += 6) < 8) continue;
    bytes.push_back(static_cast<char>(value >> (bits -= 8)));
  }
  return (value & ((1u << bits) - 1)) == 0;
}

struct Ranked {
  std::string bytes;
  int32_t rank = -1;
};

Ranked read_line(std::string_view line, const std::string& where) {
  Ranked token;
  size_t space = line.find(' ');
  const char* end = line.data() + line.size();
  bool is_token = space != line.npos && from_base64(line.substr(0, space), token.bytes);
  auto [last, error] = is_token ? std::from_chars(line.data() + space + 1, end, token.rank)
                                : std::from_chars_result{line.data(), std::errc()};
  check_io(is_token && error == std::errc() && last == end && token.rank >= 0, where,
           ": expected a token in base64, a space and its rank, found \"", line, "\"");
  return token;
}

using Ranks = std::unordered_map<std::string_view, int32_t>;

// Each way of making a token of two others, the best rank first: in tiktoken any two neighbours
// merge that are a token together.
std::vector<BpeMerge> merges_of(const std::vector<std::string>& tokens, const Ranks& ranks) {
  std::vector<BpeMerge> merges;
  for (size_t id = 0; id < tokens.size(); ++id) {
    std::string_view whole = tokens[id];
    for (size_t cut = 1; cut < whole.size(); ++cut) {
      auto left = ranks.find(whole.substr(0, cut));
      if (left == ranks.end()) continue;
      if (auto right = ranks.find(whole.substr(cut)); right != ranks.end())
        merges.push_back({left->second, right->second, static_cast<int32_t>(id)});
    }
  }
  return merges;
}

// The bytes of each rank; "" for those that special tokens have.
std::vector<std::string> read_ranks(const std::string& name, const Encoding& encoding) {
  std::vector<std::string> tokens, lines = split(read_file(name), '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string_view line = trim(lines[i]);
    if (line.empty()) continue;
    Ranked token = read_line(line, concat(name, ":", i + 1));
    auto at = static_cast<size_t>(token.rank);
    check_io(at <= lines.size(), name, ":", i + 1, ": rank ", at, " in a file of ", lines.size(),
             " lines");
    if (at >= tokens.size()) tokens.resize(at + 1);
    check_io(tokens[at].empty(), name, ":", i + 1, ": the rank ", at, " stands twice");
    tokens[at] = std::move(token.bytes);
  }
  check_io(encoding.ranks == 0 || tokens.size() == encoding.ranks, name, " has ", tokens.size(),
           " ranks, but ", encoding.name, "'s are ", encoding.ranks);
  for (size_t id = 0; id < tokens.size(); ++id) {
    bool special = std::ranges::count(encoding.special, static_cast<int32_t>(id), &Special::id) > 0;
    check_io(tokens[id].empty() == special, name, ": the rank ", id,
             special ? " is that of a special token" : " is missing");
  }
  return tokens;
}

constexpr const char* kTokenizerJson = R"({
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": true, "vocab": {}, "merges": []}})";
constexpr const char* kAddedToken = R"({
  "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})";

// Puts the token in front of texts.
nlohmann::json template_of(const AddedToken& begin) {
  nlohmann::json token = {{"SpecialToken", {{"id", begin.content}, {"type_id", 0}}}};
  auto text = [](const char* id) {
    return nlohmann::json{{"Sequence", {{"id", id}, {"type_id", 0}}}};
  };
  nlohmann::json known = {{"id", begin.content}, {"ids", {begin.id}}, {"tokens", {begin.content}}};
  return {{"type", "TemplateProcessing"},
          {"single", {token, text("A")}},
          {"pair", {token, text("A"), token, text("B")}},
          {"special_tokens", {{begin.content, known}}}};
}

}  // namespace

TokenizerFiles read_tiktoken(const std::filesystem::path& path) {
  const Encoding& encoding = encoding_of(path);
  TokenizerFiles files{.name = path.string(), .whole_words = Bpe::WholeWords::kRanks};
  files.words = encoding.words;
  std::vector<std::string> tokens = read_ranks(files.name, encoding);
  Ranks ranks(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    bool is_new = ranks.try_emplace(tokens[id], static_cast<int32_t>(id)).second;
    check_io(is_new, files.name, ": the ranks ", ranks[tokens[id]], " and ", id,
             " are of one token");
  }
  files.merges = merges_of(tokens, ranks);
  for (const std::string& bytes : tokens) files.tokens.push_back(to_byte_level(bytes));
  for (const Special& token : encoding.special)
    files.added.push_back({.content = token.content, .id = token.id, .special = true});
  for (const Special& token : encoding.special)
    if (token.content == encoding.begin) files.begin = {token.id};
  return files;
}

std::string tokenizer_json_of(const TokenizerFiles& tiktoken) {
  using nlohmann::json;
  json root = json::parse(kTokenizerJson);
  json &vocab = root["model"]["vocab"], &merges = root["model"]["merges"];
  auto text = [&](int32_t id) { return tiktoken.tokens[static_cast<size_t>(id)]; };
  int32_t entries = 0;
  for (const std::string& token : tiktoken.tokens) vocab[token] = entries++;
  vocab.erase("");  // what stands for special tokens among the ranks
  for (const BpeMerge& merge : tiktoken.merges)
    merges.push_back({text(merge.left), text(merge.right)});
  // `tokenizers` numbers added tokens itself but for those of the vocabulary, which has no holes.
  for (const AddedToken& token : tiktoken.added) {
    while (entries < token.id) {
      vocab[concat("<|reserved_", entries, "|>")] = entries;
      ++entries;
    }
    vocab[token.content] = token.id;
    entries = std::max(entries, token.id + 1);
    json added = json::parse(kAddedToken);
    added["id"] = token.id;
    added["content"] = token.content;
    if (tiktoken.begin == std::vector{token.id}) root["post_processor"] = template_of(token);
    root["added_tokens"].push_back(std::move(added));
  }
  root["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = expression_of(tiktoken.words);
  return root.dump(1) + "\n";
}

}  // namespace neox
