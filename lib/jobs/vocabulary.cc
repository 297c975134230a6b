#include "jobs/vocabulary.h"

#include "base/error.h"
#include "base/text.h"
#include "jobs/container.h"
#include "tokenizer/of_config.h"

namespace neox {

int64_t vocabulary_entries(const Config& config, const std::string& mounts,
                           std::vector<std::string>& notes) {
  if (config.model.vocab > 0) return config.model.vocab;
  const TokenizerConfig& t = config.tokenizer;
  auto usual = [&](const std::string& why) {
    UsualVocabulary usual = usual_vocabulary(t);
    notes.push_back(concat("memory and checkpoints are computed for ", with_commas(usual.entries),
                           " entries of the vocabulary, those of ", usual.name, ", since ", why,
                           " (padded_vocab_size: N says another number)"));
    return usual.entries;
  };
  if (Tokenizer::reads_files(t.type) && t.vocab_file.empty())
    return usual("no vocab_file is given");
  try {
    return Tokenizer::of_type(t.type, path_outside(t.vocab_file, mounts),
                              path_outside(t.merge_file, mounts))
        .vocab_size();
  } catch (const Error& e) { return usual(concat("the tokenizer cannot be read: ", e.what())); }
}

}  // namespace neox
