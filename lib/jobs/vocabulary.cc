#include "jobs/vocabulary.h"

#include "base/error.h"
#include "base/text.h"
#include "jobs/container.h"
#include "tokenizer/of_config.h"

namespace neox {

int64_t vocabulary_entries(const Config& config, const std::string& mounts,
                           std::vector<std::string>& notes) {
  if (config.model.vocab > 0) return config.model.vocab;
  try {
    const TokenizerConfig& t = config.tokenizer;
    return Tokenizer::of_type(t.type, path_outside(t.vocab_file, mounts),
                              path_outside(t.merge_file, mounts))
        .vocab_size();
  } catch (const Error& e) {
    int64_t entries = usual_entries(config.tokenizer);
    notes.push_back(concat("memory and checkpoints are computed for ", with_commas(entries),
                           " entries of the vocabulary, those of ",
                           usual_vocabulary(config.tokenizer),
                           ", since the tokenizer cannot be read: ", e.what()));
    return entries;
  }
}

}  // namespace neox
