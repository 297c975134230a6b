// A file that torch.save wrote (PyTorch 1.6 and later), read without PyTorch and without running
// anything that is in it: docs/formats.md says what is read. The file is mapped; values and tensors
// are views of it, valid as long as the TorchFile. Read-only after construction; any thread.
#pragma once
#include <memory>
#include <string>

#include "base/file.h"
#include "torchfile/value.h"

namespace neox::torchfile {

struct Document;

class TorchFile {
 public:
  // Throws (74) naming the file for anything that cannot be read as a whole.
  explicit TorchFile(const fs::path& path);
  // A file that lies in the caller's bytes, as the parts of a .distcp file; `name` is for messages.
  TorchFile(std::span<const std::byte> bytes, std::string name);
  TorchFile(TorchFile&&) noexcept;
  TorchFile& operator=(TorchFile&&) noexcept;
  ~TorchFile();

  // A file that holds a pickle alone, without tensors, as .metadata of a distributed checkpoint.
  static TorchFile plain_pickle(const fs::path& path);

  Value root() const { return root_; }
  // root().at(path), with the file's name in what it throws.
  Value at(std::string_view path) const;
  const std::string& name() const { return name_; }

  // Gives back the memory of what was read so far, which the kernel counts as this process's; it is
  // read from the file again where it is used again.
  void release_memory() const;

 private:
  TorchFile() = default;
  void read(std::span<const std::byte> bytes);

  std::string name_;
  MappedFile file_;
  std::unique_ptr<Document> document_;
  Value root_;
};

}  // namespace neox::torchfile
