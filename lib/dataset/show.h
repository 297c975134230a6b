// What is in a dataset, for people: a document, or the samples of a step of training.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>

#include "config/config.h"
#include "data/step_samples.h"
#include "tokenizer/tokenizer.h"

namespace neox {

// The text of a document; its ids, with spaces between them, where tokenizer is null. It is written
// as it is read: memory is that of some million tokens, however long it is.
void show_document(const std::string& prefix, int64_t document, const Tokenizer* tokenizer,
                   std::ostream& out);

struct StepRequest {
  int64_t step = 1;  // from 1, as the log of the training counts
  DataRank rank;
};

// The samples that a data rank has in a step of a run that starts with this configuration on
// `ranks` data ranks: of each its tokens, the weights of their losses, the documents they come
// from, and the text where tokenizer is not null. Throws Error (64) for a step or a rank that the
// run does not have.
void show_step(const Config& config, const Tokenizer* tokenizer, const StepRequest& request,
               std::ostream& out);

}  // namespace neox
