// A block of input as the datasets hold it. Pure functions; any thread may call them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/indexed_dataset.h"
#include "prepare/blocks.h"
#include "prepare/document_encoder.h"
#include "prepare/documents.h"

namespace neox {

// How documents become bytes of datasets.
struct EncodingRules {
  const DocumentRules& documents;
  const DocumentEncoder& encoder;
  TokenType type = TokenType::kUint16;  // of tokens; of labels it is int32
  int64_t vocab = 0;
  BlockRules::Texts texts = BlockRules::Texts::kWhole;  // how the encoder may take a long text
};

// The documents of a block for one key, back to back.
struct EncodedKey {
  std::vector<std::byte> tokens = {}, labels = {};
  std::vector<int64_t> lengths = {};  // in tokens, of each document; 0 where it is left out
  std::vector<int32_t> rewards = {};  // of each document; or none

  // Tokens of the first so many documents.
  int64_t num_tokens(size_t documents) const;
  // Of those of the first so many documents that are not left out.
  std::vector<int32_t> kept_rewards(size_t documents) const;
};

// Of each document, for all keys.
struct EncodedDocument {
  int64_t text_bytes = 0;
  bool repaired = false, empty = true;
};

struct EncodedBlock {
  std::vector<EncodedKey> keys;
  std::vector<EncodedDocument> documents;
  int64_t skipped = 0;                            // bad lines
  std::vector<std::string> skipped_at, replaced;  // messages about the first of them
  std::string error;                              // that ended the block early

  // Work space of encode_block().
  std::vector<int32_t> tokens_wanted = {}, labels_wanted = {};
};

// Replaces what `encoded` holds and uses its memory again. Throws Error for a text that cannot be
// encoded.
void encode_block(const Block& block, const EncodingRules& rules, EncodedBlock& encoded);

}  // namespace neox
