#include "prepare/document_encoder.h"

#include "base/error.h"

namespace neox {

DocumentEncoder::DocumentEncoder(const PrepareOptions& options, const Tokenizer& tokenizer)
    : options_(options), tokenizer_(tokenizer) {
  if (options.end_of_document == PrepareOptions::EndOfDocument::kAppend)
    check_usage(tokenizer.has_end_of_document(), options.tokenizer.vocab,
                " has no token <|endoftext|>, which --append-eod wants to append; leave "
                "--append-eod out, or use another tokenizer");
}

void DocumentEncoder::encode(std::string_view text, Part part, std::vector<int32_t>& tokens,
                             std::vector<int32_t>&) const {
  size_t before = tokens.size();
  tokenizer_.encode(text, tokens);
  bool append = options_.end_of_document == PrepareOptions::EndOfDocument::kAppend;
  if (append && part == Part::kLast && tokens.size() > before)
    tokens.push_back(tokenizer_.end_of_document());
}

}  // namespace neox
