#include "convert/read_ahead.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

namespace neox {

ReadAhead::ReadAhead(ModelFiles& model, int64_t most_bytes) : most_bytes_(most_bytes) {
  for (ModelTensor& t : model.tensors) {
    size_t number = sources_.size();
    sources_.push_back({t.info.bytes(), std::move(t.read)});
    t.read = [this, number] { return take(number); };
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

ReadAhead::~ReadAhead() = default;  // the thread ends first

ReadAhead::Ready ReadAhead::read(size_t number) {
  std::lock_guard one_at_a_time(reading_);
  try {
    return {sources_[number].read(), nullptr};
  } catch (...) { return {{}, std::current_exception()}; }
}

void ReadAhead::run(const std::stop_token& stop) {
  c10::AutoGradMode no_grad(false);  // a setting of each thread
  for (;;) {
    size_t number = 0;
    {
      std::unique_lock lock(mutex_);
      auto fits = [&] {
        return next_ == sources_.size() || bytes_ == 0 ||
               bytes_ + sources_[next_].bytes <= most_bytes_;
      };
      if (!changed_.wait(lock, stop, fits) || next_ == sources_.size()) return;
      number = next_++;
      bytes_ += sources_[number].bytes;
    }
    Ready ready = read(number);
    std::lock_guard lock(mutex_);
    if (number < taken_)
      bytes_ -= sources_[number].bytes;  // skipped while it was read
    else
      ready_.push_back(std::move(ready));
    changed_.notify_all();
  }
}

void ReadAhead::skip_to(size_t number) {
  for (; taken_ < number; ++taken_) {
    if (ready_.empty()) continue;
    ready_.pop_front();
    bytes_ -= sources_[taken_].bytes;
  }
  next_ = std::max(next_, number);
  changed_.notify_all();
}

at::Tensor ReadAhead::take(size_t number) {
  Ready ready;
  {
    std::unique_lock lock(mutex_);
    if (number >= taken_) {
      skip_to(number);
      changed_.wait(lock, [&] { return !ready_.empty(); });
      ready = std::move(ready_.front());
      ready_.pop_front();
      bytes_ -= sources_[number].bytes;
      ++taken_;
      changed_.notify_all();
    } else {
      lock.unlock();
      ready = read(number);
    }
  }
  if (ready.error) std::rethrow_exception(ready.error);
  return ready.tensor;
}

}  // namespace neox
