#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "tokenizer/bpe_words.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

constexpr size_t kProgressEvery = 64;  // merges

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

int32_t left_of(uint64_t pair) { return static_cast<int32_t>(pair >> 32); }
int32_t right_of(uint64_t pair) { return static_cast<int32_t>(pair & UINT32_MAX); }

// Follows the reference's do_train() (tokenizers, models/bpe/trainer.rs) in what decides the order
// of merges, including two things one would not expect: the count of a pair is not lowered when the
// pair itself is merged, and a pair that comes up again (because a token arose in two ways) is
// queued, and merged, once more.
class Merger {
 public:
  Merger(const BpeTrainerConfig& config,
         const std::vector<std::pair<std::string, int64_t>>& counted);
  TrainedBpe run();

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t count;
  };
  using Places = std::vector<uint32_t>;  // words that may hold a pair
  struct Candidate {
    int64_t count;
    uint64_t pair;
    uint32_t serial;  // of the queue's entries; Places are kept by it
    // Last comes the best: the most frequent, then the smallest pair of ids, then the oldest.
    bool operator<(const Candidate& other) const {
      if (count != other.count) return count < other.count;
      return pair != other.pair ? pair > other.pair : serial > other.serial;
    }
  };

  void add_token(const std::string& text);
  void add_words(const std::vector<std::pair<std::string, int64_t>>& counted);
  void queue_found();
  bool next(Candidate& best);
  void merge(const Candidate& best);
  void merge_word(uint32_t index, uint64_t pair, int32_t whole);
  void change(uint32_t index, int32_t left, int32_t right, int sign);
  std::vector<BpeMerge> merges_by_rank() const;

  const BpeTrainerConfig& config_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, Places> found_;  // pairs that arose since the last merge
  std::vector<Places> places_;
  std::priority_queue<Candidate> queue_;
  std::vector<BpeMerge> merges_;
};

Merger::Merger(const BpeTrainerConfig& config,
               const std::vector<std::pair<std::string, int64_t>>& counted)
    : config_(config) {
  for (const std::string& token : config.special_tokens) add_token(token);
  std::vector<std::string> alphabet;
  for (int b = 0; b < 256; ++b)
    alphabet.push_back(to_byte_level(std::string(1, static_cast<char>(b))));
  std::sort(alphabet.begin(), alphabet.end());  // in UTF-8 this is the order of code points
  for (const std::string& character : alphabet)
    if (!ids_.contains(character)) add_token(character);
  add_words(counted);
  queue_found();
}

void Merger::add_token(const std::string& text) {
  ids_.emplace(text, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(text);
}

void Merger::add_words(const std::vector<std::pair<std::string, int64_t>>& counted) {
  int32_t byte_ids[256];
  for (int b = 0; b < 256; ++b)
    byte_ids[b] = ids_.at(to_byte_level(std::string(1, static_cast<char>(b))));
  for (const auto& [text, count] : counted) {
    auto index = static_cast<uint32_t>(words_.size());
    Word& word = words_.emplace_back(Word{.symbols = {}, .count = count});
    for (char c : text) word.symbols.push_back(byte_ids[static_cast<uint8_t>(c)]);
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i)
      change(index, word.symbols[i], word.symbols[i + 1], 1);
  }
}

void Merger::change(uint32_t index, int32_t left, int32_t right, int sign) {
  uint64_t pair = pair_of(left, right);
  counts_[pair] += sign * words_[index].count;
  if (sign < 0) return;
  Places& places = found_[pair];
  if (places.empty() || places.back() != index) places.push_back(index);
}

void Merger::queue_found() {
  for (auto& [pair, places] : found_) {
    int64_t count = counts_[pair];
    if (count <= 0) continue;
    queue_.push({count, pair, static_cast<uint32_t>(places_.size())});
    places_.push_back(std::move(places));
  }
  found_.clear();
}

// The best pair by the counts of now; those in the queue may be outdated, which never makes them
// too small for the top place.
bool Merger::next(Candidate& best) {
  while (!queue_.empty()) {
    best = queue_.top();
    queue_.pop();
    int64_t count = counts_[best.pair];
    if (count == best.count) return count >= std::max<int64_t>(config_.min_frequency, 1);
    best.count = count;
    queue_.push(best);
  }
  return false;
}

void Merger::merge_word(uint32_t index, uint64_t pair, int32_t whole) {
  std::vector<int32_t>& symbols = words_[index].symbols;
  int32_t left = left_of(pair), right = right_of(pair);
  size_t kept = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    bool is_match = symbols[i] == left && i + 1 < symbols.size() && symbols[i + 1] == right;
    if (!is_match) {
      symbols[kept++] = symbols[i];
      continue;
    }
    if (kept > 0) {
      change(index, symbols[kept - 1], left, -1);
      change(index, symbols[kept - 1], whole, 1);
    }
    ++i;
    if (i + 1 < symbols.size()) {
      change(index, right, symbols[i + 1], -1);
      change(index, whole, symbols[i + 1], 1);
    }
    symbols[kept++] = whole;
  }
  symbols.resize(kept);
}

void Merger::merge(const Candidate& best) {
  int32_t left = left_of(best.pair), right = right_of(best.pair);
  std::string text = tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)];
  if (!ids_.contains(text)) add_token(text);
  int32_t whole = ids_.at(text);
  merges_.push_back({left, right, whole});
  for (uint32_t index : std::exchange(places_[best.serial], {}))
    merge_word(index, best.pair, whole);
  queue_found();
}

// Of equal merges only the last one counts, as in the reference's map of merges.
std::vector<BpeMerge> Merger::merges_by_rank() const {
  std::unordered_map<uint64_t, size_t> last;
  for (size_t i = 0; i < merges_.size(); ++i) last[pair_of(merges_[i].left, merges_[i].right)] = i;
  std::vector<BpeMerge> kept;
  for (size_t i = 0; i < merges_.size(); ++i)
    if (last[pair_of(merges_[i].left, merges_[i].right)] == i) kept.push_back(merges_[i]);
  return kept;
}

TrainedBpe Merger::run() {
  auto wanted = static_cast<size_t>(config_.vocab_size);
  Candidate best;
  while (tokens_.size() < wanted && next(best)) {
    merge(best);
    if (config_.progress && merges_.size() % kProgressEvery == 0)
      config_.progress(
          {BpeProgress::Stage::kMerge, static_cast<int64_t>(tokens_.size()), config_.vocab_size});
  }
  return {tokens_, merges_by_rank(), config_.special_tokens, config_.normalizer};
}

void check_config(const BpeTrainerConfig& config) {
  const std::vector<std::string>& special = config.special_tokens;
  auto least = static_cast<int64_t>(special.size()) + 256;
  check_usage(config.vocab_size >= least && config.vocab_size <= INT32_MAX, "a vocabulary of ",
              config.vocab_size, " entries: ", special.size(),
              " special tokens and the 256 bytes need at least ", least);
  std::string storage;
  for (auto token = special.begin(); token != special.end(); ++token) {
    check_usage(!token->empty(), "a special token is empty");
    check_usage(unicode::repair(*token, storage) == *token, "the special token \"", storage,
                "\" is not UTF-8");
    check_usage(std::find(special.begin(), token, *token) == token, "the special token \"", *token,
                "\" is given twice");
  }
}

using nlohmann::json;

std::string quoted(const std::string& text) { return json(text).dump(); }

std::string added_token(size_t id, const std::string& content) {
  return concat(
      "    {\n      \"id\": ", id, ",\n      \"content\": ", quoted(content),
      ",\n      \"single_word\": false,\n      \"lstrip\": false,\n      \"rstrip\": false"
      ",\n      \"normalized\": false,\n      \"special\": true\n    }");
}

std::string byte_level(const char* key, const char* add_prefix_space) {
  return concat("  \"", key,
                "\": {\n    \"type\": \"ByteLevel\",\n    \"add_prefix_space\": ", add_prefix_space,
                ",\n    \"trim_offsets\": true,\n    \"use_regex\": true\n  },\n");
}

// "[\n<items, one after another>\n<indent>]", or "[]" without items.
template <class Items, class Item>
std::string block(char open, char close, const char* indent, const Items& items, Item item) {
  std::string text(1, open);
  for (size_t i = 0; i < items.size(); ++i) (text += i ? ",\n" : "\n") += item(i);
  if (!items.empty()) (text += '\n') += indent;
  return text += close;
}

}  // namespace

TrainedBpe train_bpe(const BpeTrainerConfig& config, const NextDocument& next_document) {
  check_config(config);
  return Merger(config, count_words(config, next_document)).run();
}

void write_tokenizer_json(const std::filesystem::path& path, const TrainedBpe& trained) {
  const auto& [tokens, merges, special_tokens, normalizer] = trained;
  auto token = [&](int32_t id) { return quoted(tokens[static_cast<size_t>(id)]); };
  bool is_nfc = normalizer == BpeTrainerConfig::Normalizer::kNfc;
  std::string text = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  text += "  \"added_tokens\": ";
  text += block('[', ']', "  ", special_tokens,
                [&](size_t id) { return added_token(id, special_tokens[id]); });
  text += is_nfc ? ",\n  \"normalizer\": {\n    \"type\": \"NFC\"\n  },\n"
                 : ",\n  \"normalizer\": null,\n";
  text += byte_level("pre_tokenizer", "false");
  text += byte_level("post_processor", "true");
  text += byte_level("decoder", "true");
  text +=
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
      "    \"vocab\": ";
  text += block('{', '}', "    ", tokens,
                [&](size_t id) { return concat("      ", quoted(tokens[id]), ": ", id); });
  text += ",\n    \"merges\": ";
  text += block('[', ']', "    ", merges, [&](size_t i) {
    return concat("      [\n        ", token(merges[i].left), ",\n        ", token(merges[i].right),
                  "\n      ]");
  });
  write_file_atomically(path, text + "\n  }\n}");
}

void write_gpt2_files(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                      const TrainedBpe& trained) {
  std::string text = "{";
  for (size_t id = 0; id < trained.tokens.size(); ++id)
    text += concat(id ? "," : "", quoted(trained.tokens[id]), ":", id);
  write_file_atomically(vocab, text + "}");
  text = "#version: 0.2\n";
  for (const BpeMerge& merge : trained.merges)
    text += concat(trained.tokens[static_cast<size_t>(merge.left)], " ",
                   trained.tokens[static_cast<size_t>(merge.right)], "\n");
  write_file_atomically(merges, text);
}

}  // namespace neox
