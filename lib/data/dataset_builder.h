// Writes a dataset, <prefix>.bin and <prefix>.idx, byte for byte as the tools of GPT-NeoX and
// Megatron do (docs/data.md). One thread.
//
// Alone: add_document() for each, finish(). The ranks of a job have a builder each and add the
// documents of their parts of the input; a document may go on in the next part. Then all tell each
// other their part(), place() what they have, and when all are done rank 0 calls publish().
#pragma once
#include <cstdint>
#include <memory>
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

class DatasetBuilder {
 public:
  // Creates the directory of the prefix. vocab decides the type of the tokens. Rank 0 writes into
  // the file at once, the others hold their tokens until they know their place.
  DatasetBuilder(const std::string& prefix, int64_t vocab, int rank = 0, std::string life = "");

  // One document of one sequence, or its first tokens.
  void add_document(std::span<const int32_t> tokens);
  // More of it, or of the last document of the part before.
  void add_to_document(std::span<const int32_t> tokens);
  // Drops all but the lead and the first so many documents.
  void keep(int64_t documents);
  void drop_all();

  DatasetPart part() const;
  // Writes what this rank has to its place; parts: of all ranks.
  void place(std::span<const DatasetPart> parts);
  // Names the files; nothing is left under their names if that fails, or if it is not called.
  void publish();
  // Of a builder that is alone.
  void finish();

  int64_t num_documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_tokens() const { return num_tokens_; }
  TokenType type() const { return type_; }

 private:
  void append(std::span<const int32_t> tokens);
  void write_index(OutputFile& idx, std::span<const DatasetPart> parts, int64_t begin);
  OutputFile open(const char* ending, OutputFile::Open how) const;

  std::string prefix_;
  int64_t vocab_;
  TokenType type_;
  int rank_;
  std::string life_;
  std::vector<OutputFile> files_;    // of rank 0: .bin and .idx
  std::unique_ptr<HeldBytes> held_;  // of the others
  int64_t lead_ = 0;
  std::vector<int64_t> lengths_;
  std::vector<uint16_t> narrow_;
  int64_t num_tokens_ = 0;
};

}  // namespace neox
