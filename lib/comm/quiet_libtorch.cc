#include "comm/quiet_libtorch.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <mutex>

namespace neox {
namespace {

static_assert(static_cast<int>(QuietLibTorch::Least::kError) == c10::GLOG_ERROR);
static_assert(static_cast<int>(QuietLibTorch::Least::kFatal) == c10::GLOG_FATAL);

struct Levels {
  std::mutex mutex;
  std::multiset<int> asked;
  int usual = 0;

  // There to the last: a call that was left behind in LibTorch may return while the process ends.
  static Levels& get() {
    static auto* levels = new Levels;
    return *levels;
  }
  void apply() const {
    FLAGS_caffe2_log_level = asked.empty() ? usual : std::max(usual, *asked.rbegin());
  }
};

}  // namespace

QuietLibTorch::QuietLibTorch(Least least) {
  Levels& levels = Levels::get();
  std::lock_guard lock(levels.mutex);
  if (levels.asked.empty()) levels.usual = FLAGS_caffe2_log_level;
  mine_ = levels.asked.insert(static_cast<int>(least));
  levels.apply();
}

QuietLibTorch::~QuietLibTorch() {
  Levels& levels = Levels::get();
  std::lock_guard lock(levels.mutex);
  levels.asked.erase(mine_);
  levels.apply();
}

}  // namespace neox
