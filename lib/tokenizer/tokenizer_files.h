// The files that describe a tokenizer, read and checked: Hugging Face's tokenizer.json, GPT-2's
// vocab.json with merges.txt (docs/formats.md), and tiktoken's ranks.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/bpe_added.h"
#include "tokenizer/bpe_split.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_decoder.h"
#include "tokenizer/word_model.h"

namespace neox {

struct TokenizerFiles {
  std::string name;                             // for error messages
  std::vector<std::string> tokens = {};         // of each id of the model, "" of none
  std::vector<AddedToken> added = {};           // one for each content, in the order of the file
  std::shared_ptr<const WordModel> model = {};  // null: byte-level BPE, by what follows

  std::vector<BpeMerge> merges = {};  // best first
  Bpe::WholeWords whole_words = Bpe::WholeWords::kMergeOnly;
  Bpe::LackingBytes lacking_bytes = Bpe::LackingBytes::kRefused;
  bool prefix_space = false;  // of a text between added tokens that does not start with one
  Words words = Words::kGpt2;

  std::vector<Normalizer> normalizers = {};
  std::vector<PreTokenizer> pre_tokenizers = {};     // in front of the words
  std::vector<DecoderStep> decoder = {};             // empty: the bytes of the tokens, joined
  std::vector<int32_t> begin = {}, end = {};         // the ids that stand around those of a text
  std::optional<std::filesystem::path> beside = {};  // where files may name its eos_token
};

// Throws Error with the path and the place for what is not supported, and for ids that `tokenizers`
// would not give.
TokenizerFiles read_tokenizer_json(const std::filesystem::path& path);

// "<|endoftext|>" of the vocabulary becomes a special added token, as in Hugging Face's GPT2
// tokenizers. (GPT-NeoX's own GPT2BPETokenizer encodes that text like any other.)
TokenizerFiles read_gpt2_files(const std::filesystem::path& vocab,
                               const std::filesystem::path& merges);

// tiktoken's file of ranks, which is named after its encoding, or as in tiktoken's cache, or LLaMA
// 3's, also under Meta's name, tokenizer.model; special tokens in a text are these tokens
// (allowed_special="all"), and LLaMA 3's begin with one.
TokenizerFiles read_tiktoken(const std::filesystem::path& path);
// The same as a tokenizer.json: with the same ids in Hugging Face's libraries where the parts of a
// token have better ranks than it, as those of tiktoken's own ranks have.
std::string tokenizer_json_of(const TokenizerFiles& tiktoken);

}  // namespace neox
