// The files that describe a BPE tokenizer, byte-level or with byte_fallback, read and checked:
// Hugging Face's tokenizer.json, GPT-2's vocab.json with merges.txt (docs/formats.md), and
// tiktoken's ranks.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/bpe_added.h"
#include "tokenizer/bpe_split.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace neox {

struct TokenizerFiles {
  // kSpace: a text between added tokens that does not start with a space gets one; kFirstSpace:
  // only what begins the whole text.
  enum class Prefix { kNone, kSpace, kFirstSpace };
  std::string name;                      // for error messages
  std::vector<std::string> tokens = {};  // of each id of the model; bytes in their byte-level text
  std::vector<BpeMerge> merges = {};     // best first
  std::vector<AddedToken> added = {};    // one for each content, in the order of the file
  Bpe::WholeWords whole_words = Bpe::WholeWords::kMergeOnly;
  Bpe::LackingBytes lacking_bytes = Bpe::LackingBytes::kRefused;
  std::vector<Normalizer> normalizers = {};
  std::vector<PreTokenizer> pre_tokenizers = {};  // in front of the words
  Prefix prefix = Prefix::kNone;
  bool byte_fallback = false;  // BPE of characters (fallback_bpe.h), not of bytes
  bool metaspace = false;      // spaces are written as U+2581 behind the normalizers
  bool strips_space = false;   // decoding leaves out a space in front
  Words words = Words::kGpt2;
  std::vector<int32_t> begin = {}, end = {};  // the ids that stand around those of a text
};

// Throws Error with the path and the place for whatever is no such BPE, and for ids that
// `tokenizers` would not give.
TokenizerFiles read_tokenizer_json(const std::filesystem::path& path);

// "<|endoftext|>" of the vocabulary becomes a special added token, as in Hugging Face's GPT2
// tokenizers. (GPT-NeoX's own GPT2BPETokenizer encodes that text like any other.)
TokenizerFiles read_gpt2_files(const std::filesystem::path& vocab,
                               const std::filesystem::path& merges);

// tiktoken's file of ranks, which is named after its encoding, or as in tiktoken's cache; special
// tokens in a text are these tokens (allowed_special="all").
TokenizerFiles read_tiktoken(const std::filesystem::path& path);
// The same as a tokenizer.json: with the same ids in Hugging Face's libraries where the parts of a
// token have better ranks than it, as those of tiktoken's own ranks have.
std::string tokenizer_json_of(const TokenizerFiles& tiktoken);

}  // namespace neox
