// Datasets and files for tests, in a directory that goes away with the object.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/dataset_builder.h"

namespace neox::testing {

using Documents = std::vector<std::vector<int32_t>>;

class Directory {
 public:
  Directory() {
    std::string name = (fs::temp_directory_path() / "neox-test-XXXXXX").string();
    check(::mkdtemp(name.data()) != nullptr, "mkdtemp ", name);
    path_ = name;
  }
  ~Directory() { fs::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const fs::path& path() const { return path_; }

  // Writes a file and returns its path.
  std::string put(const std::string& name, std::string_view content) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return *this / name;
  }
  // Writes a dataset and returns its prefix.
  std::string put(const std::string& name, const Documents& documents, int64_t vocab = 100) const {
    DatasetBuilder builder(*this / name, vocab);
    for (const auto& document : documents) builder.add_document(document);
    builder.finish();
    return *this / name;
  }
  std::vector<std::string> list() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  fs::path path_;
};

// Documents of these lengths; the tokens count up from 0 through all of them.
inline Documents counting(const std::vector<int32_t>& lengths) {
  Documents documents;
  int32_t next = 0;
  for (int32_t length : lengths) {
    documents.emplace_back();
    for (int32_t i = 0; i < length; ++i) documents.back().push_back(next++);
  }
  return documents;
}

// The message and exit code of what a call throws, "74: ..."; "" where it throws nothing.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) { return concat(static_cast<int>(e.exit()), ": ", e.what()); }
  return "";
}

}  // namespace neox::testing
