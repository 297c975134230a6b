#include "train/own_time.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>

namespace neox {

double OwnTime::Spent::seconds() const {
  double milliseconds = 0;
  for (const auto& [begin, end] : device) milliseconds += begin.elapsedTime(end);
  return std::max(host, milliseconds * 1e-3);
}

void OwnTime::of_host(const Work& work) {
  if (world_.size() == 1) return work();
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  double waited = world_.seconds_spent();
  work();
  spent_.host += std::chrono::duration<double>(Clock::now() - begin).count();
  spent_.host -= world_.seconds_spent() - waited;
}

void OwnTime::of_device(const Work& work) {
  if (device_.is_cpu() || world_.size() == 1) return of_host(work);
  c10::Event begin = now();
  work();
  spent_.device.emplace_back(std::move(begin), now());
}

c10::Event OwnTime::now() const {
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // with a clock
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return event;
}

}  // namespace neox
