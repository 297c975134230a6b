#include "tokenizer/bpe_words.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <unordered_map>

#include "tokenizer/bpe_split.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

constexpr size_t kBatchBytes = 1 << 18;  // of text for each thread at a time

struct ViewHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

using WordCounts = std::unordered_map<std::string, int64_t, ViewHash, std::equal_to<>>;

void count_document(std::string_view text, BpeTrainerConfig::Normalizer normalizer,
                    WordCounts& counts) {
  std::string repaired, composed;
  text = unicode::repair(text, repaired);
  if (normalizer == BpeTrainerConfig::Normalizer::kNfc) text = unicode::nfc(text, composed);
  for (WordSplitter words(text); !words.done();) {
    std::string_view word = words.next();
    auto found = counts.find(word);
    if (found == counts.end()) found = counts.emplace(word, 0).first;
    ++found->second;
  }
}

// One thread's share: the documents of a batch and the counts of all its batches.
struct Share {
  std::vector<std::string> documents;
  WordCounts counts;
  std::exception_ptr error;

  void count(BpeTrainerConfig::Normalizer normalizer) try {
    for (const std::string& text : documents) count_document(text, normalizer, counts);
    documents.clear();
  } catch (...) { error = std::current_exception(); }
};

// Reads the next documents, up to kBatchBytes; returns the bytes read, 0 at the end.
size_t fill(Share& share, const NextDocument& next_document) {
  size_t bytes = 0;
  for (std::string text; bytes < kBatchBytes && next_document(text); text.clear()) {
    bytes += text.size() + 1;
    share.documents.push_back(std::move(text));
  }
  return bytes;
}

void count_batch(std::vector<Share>& shares, BpeTrainerConfig::Normalizer normalizer) {
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < shares.size(); ++i)
      if (!shares[i].documents.empty())
        threads.emplace_back([&, i] { shares[i].count(normalizer); });
    shares[0].count(normalizer);
  }
  for (const Share& share : shares)
    if (share.error) std::rethrow_exception(share.error);
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> count_words(const BpeTrainerConfig& config,
                                                         const NextDocument& next_document) {
  std::vector<Share> shares(static_cast<size_t>(std::max(config.num_threads, 1)));
  int64_t done = 0;
  for (size_t read = 1; read > 0;) {
    read = 0;
    for (Share& share : shares) read += fill(share, next_document);
    count_batch(shares, config.normalizer);
    done += static_cast<int64_t>(read);
    if (config.progress) config.progress({BpeProgress::Stage::kCount, done, 0});
  }
  WordCounts& all = shares[0].counts;
  for (size_t i = 1; i < shares.size(); ++i)
    for (const auto& [word, count] : shares[i].counts) all[word] += count;
  std::vector<std::pair<std::string, int64_t>> words(all.begin(), all.end());
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace neox
