// HDF5 files for this module: failures are Errors in HDF5's own words, datasets for payload, tables
// of columns. Serial HDF5: an Hdf5File holds the module's one mutex while it lives, so that a
// thread may have one at a time.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace neox {

// Types that a checkpoint can hold, and their names in it: "bfloat16", "float16", "float32",
// "float64". Throws for others.
std::string dtype_name(c10::ScalarType dtype);
c10::ScalarType dtype_of(const std::string& name);

class Hdf5File {
 public:
  enum class Mode { kCreate, kExtend, kRead };
  Hdf5File(const fs::path& path, Mode mode);
  // In memory; `name` is for messages.
  static Hdf5File in_memory(const std::string& name);
  static Hdf5File from_image(std::string_view bytes, const std::string& name);
  Hdf5File(Hdf5File&&) noexcept;
  ~Hdf5File();

  // A contiguous dataset of that many elements, aligned to 4 KiB, its place set aside and not
  // filled. Returns its offset in the file.
  int64_t add_payload(const std::string& name, c10::ScalarType dtype, int64_t elements);

  // Columns of a table. Numbers may have several in a row.
  void put_numbers(const std::string& name, std::span<const int64_t> values, size_t row = 1);
  void put_texts(const std::string& name, const std::vector<std::string>& values);
  std::vector<int64_t> numbers(const std::string& name) const;
  std::vector<std::string> texts(const std::string& name) const;

  std::string image();
  void close();

 private:
  struct Impl;
  explicit Hdf5File(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neox
