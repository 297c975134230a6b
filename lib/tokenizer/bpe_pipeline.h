// What stands around the model in a Hugging Face tokenizer.json: normalizer, pre_tokenizer, decoder
// and post_processor, read and checked.
#pragma once
#include "tokenizer/bpe_files.h"
#include "tokenizer/json_part.h"

namespace neox {

// The regular expression by which a tokenizer.json has these words; "" for kWhole.
const char* expression_of(Words words);

// Whether a pre_tokenizer is a ByteLevel, or has one.
bool spells_bytes(const JsonPart& splitter);

// files.added must be read. Throw Error with the place for what is not supported.
void read_byte_level_pipeline(const JsonPart& root, TokenizerFiles& files);
// With byte_fallback, where spaces are written as U+2581.
void read_marked_pipeline(const JsonPart& root, TokenizerFiles& files);

}  // namespace neox
