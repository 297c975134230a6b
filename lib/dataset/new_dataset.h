// Writes a dataset out of stretches of others: .bin by copies that the kernel makes (or that share
// the disk's blocks, where the file system can), .idx by runs of lengths and documents. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/signals.h"
#include "data/indexed_dataset.h"
#include "data/output_file.h"

namespace neox {

// A run of sequences and the documents they form.
struct IndexPart {
  UnalignedSpan<int32_t> lengths;
  UnalignedSpan<int64_t> ends;  // for each document, the sequence after its last
  int64_t first = 0;            // sequence that `ends` counts the first of `lengths` as
};

// How much there is of a dataset.
struct Totals {
  int64_t documents = 0, sequences = 0, tokens = 0, bytes = 0;
  Totals& operator+=(const Totals& other);
};

// The whole .idx of the parts, one behind the other. Throws Error (74).
Totals write_index(OutputFile& idx, TokenType type, std::span<const IndexPart> parts);

// Called with the bytes copied since the last call.
using OnCopied = std::function<void(int64_t)>;

class NewDataset {
 public:
  // Creates the directory. Throws Error (64) where the dataset exists, Error (74) where another
  // process is writing it. What one that was killed has left makes room.
  explicit NewDataset(const std::string& prefix);
  // Appends bytes of a .bin. As write_index(), throws Error (75) where a signal asks to stop.
  void copy(const std::string& path, int64_t position, int64_t bytes, const OnCopied& copied);
  // The index, once; ends the writing.
  Totals write_index(TokenType type, std::span<const IndexPart> parts);
  // Names both files. Nothing is left under their names if that fails, or if it is not called.
  void publish();
  const std::string& prefix() const { return prefix_; }

 private:
  std::string prefix_;
  HeldSignals signals_;  // outlives the files, which are removed before a signal ends the process
  OutputFile bin_, idx_;
};

}  // namespace neox
