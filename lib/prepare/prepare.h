// Corpora to datasets: files of JSON lines or text are tokenized on all cores and written as
// <prefix>_<key>_document.bin and .idx, in the order of the input, with the bytes that
// GPT-NeoX's and Megatron's preprocess_data.py write for the same documents. The ranks of a job
// share the input by its bytes, and write the same files as one. Memory is bounded by the blocks in
// flight and the largest document, whatever the size of the input. A run that was killed goes on
// where it was when it is started again (prepare/journal.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat.h"
#include "data/indexed_dataset.h"
#include "launch/control.h"
#include "prepare/documents.h"
#include "tokenizer/tokenizer.h"

namespace neox {

struct TokenizerFile {
  std::string type = "HFTokenizer";  // as of Tokenizer::of_type()
  std::string vocab, merges;         // merges: of GPT2BPETokenizer; none of CharLevelTokenizer
  bool gpt2() const { return type == "GPT2BPETokenizer"; }
};

// Documents that are conversations.
struct ChatOptions {
  ChatTemplate style;              // with the tokenizer's special tokens in it
  std::string role = "assistant";  // the generation role: whose messages are learnt
  std::string eos;                 // the token behind a conversation
  // All replies, the last message where it is one, all of it without labels, or the last token.
  enum class Learn { kReplies, kLastTurn, kEverything, kVerdict } learn = Learn::kReplies;
};

struct PrepareOptions {
  std::vector<std::string> inputs;        // files, directories, lists of them separated by commas
  std::vector<std::string> exclude = {};  // patterns of what is left out of directories, archives
  std::string output_prefix;
  DocumentRules rules;
  TokenizerFile tokenizer;
  enum class EndOfDocument { kNone, kAppend } end_of_document = EndOfDocument::kNone;
  // Labels: nothing is learnt up to where these tokens stand in a row; none: no labels.
  std::vector<int32_t> mask_before = {};
  std::optional<ChatOptions> chat = {};
  std::optional<int64_t> max_documents;
  int workers = 1;
  std::string life = {};  // of the job, for temporary names of corpora; "": the process id
  // Train a tokenizer of so many entries on the input first, and write it to `tokenizer`.
  std::optional<int64_t> train_vocab;
  enum class Existing { kKeep, kReplace } existing_tokenizer = Existing::kKeep;
  // All options that the output depends on, as text: a run that was killed is gone on with by one
  // of the same options only.
  std::string identity = {};
  double save_seconds =
      10;  // how much work a killed run may lose, about; 0: none but blocks in work
};

struct PreparedDataset {
  std::string prefix;
  Content holds = Content::kTokens;
  int64_t documents = 0, tokens = 0, bytes = 0;
};

struct PrepareResult {
  // Of the tokens of each key, then of their labels and rewards where there are some.
  std::vector<PreparedDataset> datasets;
  int64_t documents = 0;  // read, and not empty
  int64_t empty = 0, skipped = 0, repaired = 0;
  int64_t text_bytes = 0;
  int64_t resumed_bytes = 0;  // of input, which a killed run had done
  int64_t vocab = 0;
  double seconds = 0;
};

// Collective; the same options on all ranks, but for the number of workers. Throws Error (64, 74).
// Shows the progress of all ranks on stderr of rank 0. Datasets of these names are replaced once
// the new ones are whole. Paths must lead to the same files on all ranks.
PrepareResult prepare_data(const PrepareOptions& options, Control& control);

// What was done, where it lies, and the lines of a configuration that use it.
std::string summary(const PrepareOptions& options, const PrepareResult& result);

}  // namespace neox
