// Writes a dataset, <prefix>.bin and <prefix>.idx, byte for byte as the tools of GPT-NeoX and
// Megatron do (docs/data.md). One thread, but for sync(). Memory does not depend on the size of the
// dataset.
//
// Alone: add_document() for each, finish(). The ranks of a job have a builder each and add the
// documents of their parts of the input; a document may go on in the next part. Then all flush()
// and sync(), tell each other their part(), place() what they have, when all are done rank 0 calls
// publish(), and at last the builders go. Until then the files are called .tmp-<rank>, and another
// process may take them over at any state() that they had.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/indexed_dataset.h"
#include "data/output_file.h"

namespace neox {

// What a rank has of a dataset.
struct DatasetPart {
  int64_t lead = 0;       // tokens of a document that begins in an earlier part
  int64_t documents = 0;  // that begin here
  int64_t tokens = 0;     // all of them
};

// How far a builder is: what its files hold, and what they do not.
struct DatasetState {
  DatasetPart part;
  int64_t last = 0;  // tokens of the last document, which may grow: its length is not in the file
};

struct DatasetOptions {
  TokenType type = TokenType::kUint16;
  int rank = 0;
  std::optional<DatasetState> from = {};  // of a builder with these options, in files it has left
};

class DatasetBuilder {
 public:
  // Creates the directory of the prefix. Throws Error (74), also where another process writes this
  // dataset, or where the files to go on with are not there.
  DatasetBuilder(const std::string& prefix, const DatasetOptions& options);
  // Alone; tokens are 0 .. vocab - 1.
  DatasetBuilder(const std::string& prefix, int64_t vocab);
  DatasetBuilder(const DatasetBuilder&) = delete;
  DatasetBuilder& operator=(const DatasetBuilder&) = delete;

  // One document of one sequence.
  void add_document(std::span<const int32_t> tokens);
  // Many, by their numbers of tokens; those of none are left out. The tokens of all, back to back,
  // as append_tokens() gives them.
  void add_documents(std::span<const std::byte> tokens, std::span<const int64_t> lengths);
  // More of the last document, or of the last one of the part before.
  void add_to_document(std::span<const std::byte> tokens);

  DatasetState state() const { return state_; }
  // Drops all that was added since.
  void go_back(const DatasetState& state);
  // What was added so far outlives this process, and after sync() the machine.
  void flush();
  void sync() const;
  // Whether the files are there that options.from speaks of.
  static bool can_go_on(const std::string& prefix, const DatasetOptions& options);
  // Whether the files stay for another process when the builder goes; those it has taken over do.
  void keep_files();
  void discard_files();

  DatasetPart part() const { return state_.part; }
  // Writes what this rank has to its place, durably; parts: of all ranks.
  void place(std::span<const DatasetPart> parts);
  // Names the files; nothing is left under their names if that fails, or if it is not called.
  void publish();
  // Of a builder that is alone.
  void finish();

  const std::string& prefix() const { return prefix_; }
  int64_t num_documents() const { return state_.part.documents; }
  int64_t num_tokens() const { return state_.part.tokens; }
  TokenType type() const { return type_; }

 private:
  void append(std::span<const std::byte> tokens);
  void begin_document(int64_t tokens);
  void end_document();
  void check_length(int64_t tokens) const;
  void write_index(OutputFile& idx, std::span<const DatasetPart> parts, int64_t begin);

  std::string prefix_;
  TokenType type_;
  int64_t vocab_;
  int rank_;
  OutputFile bin_;  // the tokens of this rank; of rank 0 in the end all
  OutputFile idx_;  // the lengths, where rank 0's belong
  DatasetState state_;
  std::vector<std::byte> encoded_;
};

// Appends tokens as a .bin of that type holds them. Throws Error (70) for one that is not in
// least .. vocab - 1.
void append_tokens(std::span<const int32_t> tokens, TokenType type, int64_t vocab, int32_t least,
                   std::vector<std::byte>& bytes);

// What stands before the arrays of an .idx.
void write_index_header(OutputFile& idx, TokenType type, int64_t sequences, int64_t documents);

// Names the two files of a dataset; nothing is left under their names if that fails.
void publish_dataset(const std::string& prefix, OutputFile& bin, OutputFile& idx);

// Removes what builders of this prefix have left of ranks from `first` on.
void remove_parts(const std::string& prefix, int first);

}  // namespace neox
