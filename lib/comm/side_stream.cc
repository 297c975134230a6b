#include "comm/side_stream.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <utility>

namespace neox {
namespace {

c10::Stream stream_of_this_thread(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

// Of high priority, so that other ranks do not wait for this one's computation.
SideStream::SideStream(at::Device device) {
  if (!device.is_cpu())
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
}

SideStream::Work SideStream::run(const Work& work) {
  if (!stream_) {
    work();
    return {};
  }
  at::Device device = stream_->device();
  c10::Event begin(device.type());
  auto end = std::make_shared<c10::Event>(device.type());
  begin.record(stream_of_this_thread(device));
  begin.block(*stream_);
  {
    c10::StreamGuard guard(*stream_);
    work();
  }
  end->record(*stream_);
  return [work, end, device] { end->block(stream_of_this_thread(device)); };
}

SideStream::Work SideStream::run_holding(const Work& work) {
  auto join = std::make_shared<Work>(run(work));
  Work once = [join] {
    if (Work first = std::exchange(*join, nullptr)) first();
  };
  held_.push_back(once);
  if (held_.size() > kHeld) {
    held_.front()();
    held_.pop_front();
  }
  return once;
}

}  // namespace neox
