#include "prepare/arrow/row_file.h"

#include <new>

#include "base/error.h"

namespace neox {

void fail_reading(const std::string& path, const char* as, std::string what) {
  while (what.ends_with('.') || what.ends_with('\n')) what.pop_back();
  fail(Exit::kIo, path, " cannot be read as ", as, ": ", what,
       "; fetch or copy it again if it is damaged or cut off");
}

void fail_reading(const std::string& path, const char* as, const arrow::Status& status) {
  if (status.IsOutOfMemory()) throw std::bad_alloc();
  fail_reading(path, as, status.message());
}

}  // namespace neox
