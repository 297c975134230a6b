// How fast a rank computes and its node exchanges, and whose clock is off.
#pragma once
#include "comm/communicator.h"
#include "doctor/report.h"
#include "launch/control.h"

namespace neox {

// Matrix products for about a second: bf16 on a GPU, fp32 on a CPU.
void measure_matmul(const at::Device& device, RankReport& report);

// Collective over `group`. Bus bandwidth as nccl-tests counts it: 2 (n - 1) / n bytes per second. A
// group of one has none. Sums that are wrong are a finding.
void measure_all_reduce(Communicator& group, const at::Device& device, const std::string& name,
                        Blame blame, RankReport& report);

// Collective over `control`. The error is the time a message takes.
void measure_clock(Control& control, RankReport& report);

// Collective over `control`, of what each rank's clock (seconds) says after each of some barriers:
// the offset of this rank's against rank 0's, and how far off that can be.
struct ClockOffset {
  double offset = 0, error = 0;
};
ClockOffset clock_offset(std::span<const double> mine, std::span<const double> first);

}  // namespace neox
