// Dumps sample orders for tests/oracle/sample_order.py. Each line of stdin is a case, "seq samples
// seed length...", and each line of stdout its order, as in tests/golden/sample_order.txt.
#include <iostream>
#include <iterator>
#include <sstream>

#include "base/program.h"
#include "data/sample_index.h"

namespace {

using neox::SampleIndex;

template <class Values>
void print(const Values& values, const char* end) {
  const char* before = "";
  for (auto value : values) std::cout << std::exchange(before, " ") << value;
  std::cout << end;
}

void dump(const std::string& line) {
  std::istringstream in(line);
  int64_t seq = 0, samples = 0, seed = 0;
  in >> seq >> samples >> seed;
  std::vector<int32_t> lengths(std::istream_iterator<int32_t>(in), {});
  SampleIndex index = neox::build_sample_index(std::span<const int32_t>(lengths),
                                               {.range = {0, static_cast<int64_t>(lengths.size())},
                                                .seq = seq,
                                                .samples = samples,
                                                .seed = seed},
                                               "case");
  std::vector<int64_t> positions;
  for (auto p : index.positions) positions.insert(positions.end(), {p.document, p.offset});
  print(std::vector<int64_t>{seq, samples, seed}, " | ");
  print(lengths, " | ");
  print(index.documents, " | ");
  print(positions, " | ");
  print(index.shuffle, "\n");
}

}  // namespace

int main() {
  return neox::run_program("sample_order_tool", [] {
    for (std::string line; std::getline(std::cin, line);) dump(line);
    return 0;
  });
}
