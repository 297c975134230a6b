// One rank of a job for rendezvous_test: meets the others, then does as its options say.
#pragma once
#include <map>
#include <string>

namespace neox::testing {

// The whole life of a process; returns its exit code.
int be_rank(const std::map<std::string, std::string>& options);

}  // namespace neox::testing
