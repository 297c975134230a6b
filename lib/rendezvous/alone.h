// The job of one process, which needs no store, and so no LibTorch.
#pragma once
#include <memory>

#include "rendezvous/job.h"

namespace neox {

std::unique_ptr<Job> job_of_one(const ProcessInfo& process);

}  // namespace neox
