// What becomes of a document of the input: its tokens, and where the run masks parts of it, the
// labels that training learns from. Immutable; any number of threads may encode at once.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepare/prepare.h"
#include "tokenizer/tokenizer.h"

namespace neox {

// Whether a dataset of labels is written beside that of the tokens. Then both are of int32.
bool writes_labels(const PrepareOptions& options);
// The name of the labels of a key, as GPT-NeoX's tools have it: <prefix>_<name>_document.
std::string label_name(const PrepareOptions& options, const std::string& key);

class DocumentEncoder {
 public:
  // Both must outlive the encoder. Throws Error (64) for options that the tokenizer cannot fulfil.
  DocumentEncoder(const PrepareOptions& options, const Tokenizer& tokenizer);

  bool has_labels() const { return writes_labels(options_); }
  // Whether a text may come in parts, cut where Tokenizer::parts_at_words() allows it.
  bool takes_parts() const;

  // Appends the tokens of a text, or of one of its parts, the last of which ends the document; of
  // an empty text none. Where there are labels, one for each token: itself, or -100 where nothing
  // is learnt from it. Throws Error (74) with what is wrong with the text.
  enum class Part { kLast, kGoesOn };
  void encode(std::string_view text, Part part, std::vector<int32_t>& tokens,
              std::vector<int32_t>& labels) const;
  // The same of a conversation.
  void encode_chat(const std::vector<ChatTurn>& turns, std::vector<int32_t>& tokens,
                   std::vector<int32_t>& labels) const;

  // Whether some document so far had what labels begin at: a turn to learn, or the tokens of
  // --mask-before-token. Where none is looked for, true.
  bool found_marks() const { return found_; }
  // What to say where no document had one, of this rank's or another's.
  std::string no_marks() const;

 private:
  void encode_text(std::string_view text, Part part, std::vector<int32_t>& tokens) const;
  void note_role(const std::string& role) const;
  void look_for_ends(std::span<const int32_t> conversation) const;
  void end_chat(size_t begin, std::vector<int32_t>& tokens, std::vector<int32_t>& labels) const;
  void mask_beginning(size_t begin, const std::vector<int32_t>& tokens,
                      std::vector<int32_t>& labels) const;

  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  mutable std::atomic<bool> said_ = false;  // what look_for_ends() has found
  mutable std::atomic<bool> found_;         // marks
  mutable std::mutex mutex_;                // of the following
  mutable std::set<std::string> roles_;     // of last turns, while no mark is found
  int32_t eos_ = -1;                        // behind conversations
};

}  // namespace neox
