// What LibTorch logs by itself, left out for a while.
#pragma once
#include <set>

namespace neox {

// While one of these lives LibTorch logs nothing below its level. That is one for the process, so
// the highest of those that live holds, and behind the last one what was before.
class QuietLibTorch {
 public:
  enum class Least { kError = 2, kFatal = 3 };  // c10::GLOG_ERROR, c10::GLOG_FATAL
  explicit QuietLibTorch(Least least);
  QuietLibTorch(const QuietLibTorch&) = delete;
  QuietLibTorch& operator=(const QuietLibTorch&) = delete;
  ~QuietLibTorch();

 private:
  std::multiset<int>::iterator mine_;
};

}  // namespace neox
