#include "comm/side_stream.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace neox {
namespace {

c10::Stream stream_of_this_thread(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event event(first.device_type());
  event.record(first);
  event.block(second);
}

}  // namespace

// Of high priority, so that other ranks do not wait for this one's computation.
SideStream::SideStream(at::Device device) {
  if (!device.is_cpu())
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
}

void SideStream::run(const std::function<void()>& work) {
  if (!stream_) return work();
  order(stream_of_this_thread(stream_->device()), *stream_);
  busy_ = true;
  c10::StreamGuard guard(*stream_);
  work();
}

void SideStream::join() {
  if (busy_) order(*stream_, stream_of_this_thread(stream_->device()));
  busy_ = false;
}

}  // namespace neox
