// Learns a byte-level BPE vocabulary from texts: the merges of the BpeTrainer of Hugging Face's
// `tokenizers` 0.23 on GPT-2's words, with the same order among equals. Results depend neither on
// the order of the documents nor on the number of threads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tokenizer/bpe.h"

namespace neox {

struct BpeProgress {
  enum class Stage { kCount, kMerge };
  Stage stage;
  int64_t done;   // kCount: bytes of text read; kMerge: entries of the vocabulary
  int64_t total;  // kCount: 0, since the texts' size is not known; kMerge: entries wanted
};

struct BpeTrainerConfig {
  enum class Normalizer { kNone, kNfc };
  int64_t vocab_size = 50257;  // with special tokens and the 256 bytes
  int64_t min_frequency = 0;   // pairs that are rarer are not merged
  std::vector<std::string> special_tokens = {"<|endoftext|>", "<|padding|>"};  // ids 0, 1, ...
  Normalizer normalizer = Normalizer::kNfc;
  int num_threads = 1;                                    // that count words
  std::function<void(const BpeProgress&)> progress = {};  // called now and then; may throw
};

struct TrainedBpe {
  std::vector<std::string> tokens;          // byte-level text of each id
  std::vector<BpeMerge> merges;             // best first
  std::vector<std::string> special_tokens;  // the first ids
  BpeTrainerConfig::Normalizer normalizer;
};

// Puts the next document into `text`, or returns false after the last. Bytes that are not UTF-8 are
// read as U+FFFD. Special tokens that occur in a document are learnt from as ordinary text.
using NextDocument = std::function<bool(std::string& text)>;

// Stops early (with fewer entries than vocab_size) where no pair is left to merge. Throws Error
// (64) for a vocab_size below special tokens + 256 or an empty or repeated special token. Memory
// grows with the number of distinct words. next_document and progress are called from the calling
// thread only.
TrainedBpe train_bpe(const BpeTrainerConfig& config, const NextDocument& next_document);

// Both byte for byte as the Python library saves them.
void write_tokenizer_json(const std::filesystem::path& path, const TrainedBpe& trained);
void write_gpt2_files(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                      const TrainedBpe& trained);

}  // namespace neox
