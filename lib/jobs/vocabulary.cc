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
    UsualVocabulary usual = usual_vocabulary(config.tokenizer);
    notes.push_back(concat("memory and checkpoints are computed for ", with_commas(usual.entries),
                           " entries of the vocabulary, those of ", usual.name,
                           ", since the tokenizer cannot be read (padded_vocab_size: N says ",
                           "another number): ", e.what()));
    return usual.entries;
  }
}

}  // namespace neox
