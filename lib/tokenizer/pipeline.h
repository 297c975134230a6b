// What stands around the model in a Hugging Face tokenizer.json: normalizer, pre_tokenizer, decoder
// and post_processor, read and checked. All throw Error with the place for what is not supported.
#pragma once
#include "tokenizer/json_part.h"
#include "tokenizer/tokenizer_files.h"

namespace neox {

// The regular expression by which a tokenizer.json has these words; "" for kWhole.
const char* expression_of(Words words);

// Whether the pre_tokenizer of a tokenizer.json makes words of bytes, with no steps but those that
// byte-level BPE knows.
bool spells_bytes(const JsonPart& root);

// Of a tokenizer.json whose model and added tokens are read.
void read_pipeline(const JsonPart& root, TokenizerFiles& files);

// Its parts.
TextPattern read_pattern(const JsonPart& part);  // of a text or of a regular expression
PreTokenizer::Prefix read_prepend_scheme(const JsonPart& metaspace);
void read_normalizer(const JsonPart& normalizer, TokenizerFiles& files);
void read_decoder(const JsonPart& root, TokenizerFiles& files);

}  // namespace neox
