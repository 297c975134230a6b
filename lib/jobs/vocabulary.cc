#include "jobs/vocabulary.h"

#include "base/error.h"
#include "base/text.h"
#include "jobs/check_job.h"
#include "tokenizer/tokenizer.h"

namespace neox {
namespace {

int64_t entries_of(const TokenizerConfig& tokenizer, const std::string& mounts) {
  if (tokenizer.type == "CharLevelTokenizer") return Tokenizer::characters().vocab_size();
  auto vocab = path_outside(tokenizer.vocab_file, mounts);
  if (tokenizer.type == "HFTokenizer") return Tokenizer::from_json(vocab).vocab_size();
  return Tokenizer::from_gpt2(vocab, path_outside(tokenizer.merge_file, mounts)).vocab_size();
}

}  // namespace

int64_t vocabulary_entries(const Config& config, const std::string& mounts,
                           std::vector<std::string>& notes) {
  if (config.model.vocab > 0) return config.model.vocab;
  try {
    return entries_of(config.tokenizer, mounts);
  } catch (const Error& e) {
    notes.push_back(concat("memory and checkpoints are computed for ", with_commas(kPythiaEntries),
                           " entries of the vocabulary, Pythia's, since the tokenizer cannot be "
                           "read: ",
                           e.what()));
    return kPythiaEntries;
  }
}

}  // namespace neox
