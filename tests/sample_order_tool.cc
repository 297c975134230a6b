// Dumps samples for tests/oracle/sample_order.py. Each line of stdin is a case, "CONFIG SAMPLES
// TRAIN VALID TEST": a configuration, how many samples are shown of each split, and how many are
// asked. A line of stdout for each split is its size, or "-", and "| tokens : weights" of its first
// samples.
#include <iostream>
#include <sstream>

#include "base/program.h"
#include "data/sampler.h"

namespace {

void dump(const neox::Sampler& sampler, neox::Split split, int64_t shown, size_t seq) {
  if (!sampler.has(split)) {
    std::cout << "-\n";
    return;
  }
  std::vector<int64_t> tokens(seq + 1);
  std::vector<float> weights(seq);
  std::cout << sampler.size(split);
  for (int64_t id = 0; id < shown; ++id) {
    sampler.get(split, id, tokens, weights);
    std::cout << " |";
    for (int64_t token : tokens) std::cout << ' ' << token;
    std::cout << " :";
    for (float weight : weights) std::cout << ' ' << weight;
  }
  std::cout << '\n';
}

void dump(const std::string& line) {
  std::istringstream in(line);
  std::string file;
  int64_t shown = 0;
  neox::SampleCounts counts;
  in >> file >> shown >> counts.train >> counts.valid >> counts.test;
  neox::Config config = neox::load_config({.files = {file}});
  neox::Sampler sampler(config.data, config.model.seq, int64_t{1} << 31, -1, counts);
  for (auto split : {neox::Split::kTrain, neox::Split::kValid, neox::Split::kTest})
    dump(sampler, split, shown, static_cast<size_t>(config.model.seq));
}

}  // namespace

int main() {
  return neox::run_program("sample_order_tool", [] {
    for (std::string line; std::getline(std::cin, line);) dump(line);
    return 0;
  });
}
