// Work of all ranks of a job at the same time: each rank learns how far the others are, an error of
// one ends the work of all, and waiting takes as long as the work does while every rank is alive.
#pragma once
#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "launch/control.h"

namespace neox {

struct TogetherWork {
  // This rank's; what it returns all ranks are told. It should end soon once `stop` is set.
  std::function<std::string(const std::atomic<bool>& stop)> work;
  // How far it is; from another thread.
  std::function<std::string()> progress = [] { return std::string(); };
  // The progress of all ranks by rank, of those that are done the result; from that thread.
  std::function<void(std::span<const std::string>)> heard = [](std::span<const std::string>) {};
};

// Collective. Returns the results of all ranks, by rank. Where the work of a rank throws, that rank
// throws the same and the others throw its error with "rank R: " before it. Throws what Control
// throws for a rank that is gone.
std::vector<std::string> work_together(Control& control, const TogetherWork& work);

}  // namespace neox
