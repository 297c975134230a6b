// Files of Hugging Face's safetensors format: the length of the header (u64, little-endian), the
// header (JSON), the tensors' bytes without holes. Tensors are read and written one at a time.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "convert/tensor_source.h"

namespace neox {

// One file. Throws (74) on opening it where the header is larger than 100 MB or than the file, is
// not JSON, names a tensor twice, has a type that is not known or a shape that does not fit its
// bytes, or where tensors overlap, leave holes, or end elsewhere than the file. It is open only
// while it is read, since models come in more files than a process may have open; read() throws
// (74) where it was written again since.
class SafetensorsFile : public TensorSource {
 public:
  explicit SafetensorsFile(const fs::path& path);
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override;

 private:
  fs::path path_;
  fs::file_time_type written_;
  std::vector<TensorInfo> tensors_;        // in the order of their bytes
  std::map<std::string, size_t> numbers_;  // position in tensors_, by name
  std::vector<int64_t> offsets_;           // in the file
};

// Writes model.safetensors, or model-00001-of-0000N.safetensors and their index where the tensors
// have more than max_bytes: files hold as many as fit, and at least one.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const fs::path& dir, const std::vector<TensorInfo>& tensors, int64_t max_bytes);
  ~SafetensorsWriter();
  void write(const std::string& name, const at::Tensor& tensor);
  // Throws unless every tensor was written.
  void finish();

 private:
  struct File;
  struct Place {
    TensorInfo info;
    size_t file = 0;
    int64_t offset = 0;  // from the end of the header
    bool written = false;
  };
  std::string file_name(size_t file) const;
  void lay_out(size_t file, std::vector<Place*> places);
  void write_index() const;

  fs::path dir_;
  std::map<std::string, Place> places_;
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace neox
