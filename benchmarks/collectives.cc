// Bus bandwidth of the collectives, for ranks as threads and as MPI processes, against MPI's own
// calls on the same memory in the same run. Rounds of all sides alternate. Prints a JSON line for
// each (harness/lines.py).
//
//   cmake --build build/release --target collectives
//   mpirun --bind-to none -n 2 build/release/benchmarks/collectives [--least KIB] [--most KIB]
//   [--rounds N] [--chunk KIB] [--direct KIB]
//
// Bound to cores, as mpirun binds two processes, the threads would share one.
//
// Bus bandwidth is that of nccl-tests: bytes x 2 (n - 1) / n / seconds for all_reduce, bytes x (n -
// 1) / n / seconds for the other two, bytes being those of the whole tensor.
#include <ATen/ops/full.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/mpi_plugin.h"
#include "comm/thread.h"

namespace neox {
namespace {

using Clock = std::chrono::steady_clock;

struct Side {
  std::string name;
  std::vector<double> seconds = {};  // per call, by round
};

struct Operation {
  const char* name;
  double bus_factor;  // times (n - 1) / n
  std::function<void(Communicator&, Tensor& full, Tensor& mine)> ours;
  std::function<void(Tensor& full, Tensor& mine)> peer;
};

int to_int(int64_t n) { return static_cast<int>(n); }

std::vector<Operation> operations() {
  return {
      {"all_reduce", 2, [](Communicator& c, Tensor& full, Tensor&) { c.all_reduce(full); },
       [](Tensor& full, Tensor&) {
         MPI_Allreduce(MPI_IN_PLACE, full.data_ptr(), to_int(full.numel()), MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD);
       }},
      {"reduce_scatter", 1,
       [](Communicator& c, Tensor& full, Tensor& mine) { c.reduce_scatter(full, mine); },
       [](Tensor& full, Tensor& mine) {
         MPI_Reduce_scatter_block(full.data_ptr(), mine.data_ptr(), to_int(mine.numel()), MPI_FLOAT,
                                  MPI_SUM, MPI_COMM_WORLD);
       }},
      {"all_gather", 1,
       [](Communicator& c, Tensor& full, Tensor& mine) { c.all_gather(mine, full); },
       [](Tensor& full, Tensor& mine) {
         MPI_Allgather(mine.data_ptr(), to_int(mine.numel()), MPI_FLOAT, full.data_ptr(),
                       to_int(mine.numel()), MPI_FLOAT, MPI_COMM_WORLD);
       }},
  };
}

// Seconds of a call: so many calls that a round takes a while, after one to warm up.
template <class Call>
double time_of(int calls, const Call& call) {
  call();
  auto start = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

// Sleeps until all processes are here, and so leaves the cores to rank 0's threads.
void meet() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class Benchmark {
 public:
  Benchmark(Communicator& world, int rounds) : world_(world), rounds_(rounds) {}

  void run(const Operation& operation, int64_t bytes) {
    int n = world_.size();
    int64_t numel = bytes / 4 / n * n;
    int calls = static_cast<int>(std::clamp<int64_t>((int64_t{64} << 20) / bytes, 1, 1000));
    Tensor full = at::full({numel}, 0.0f), mine = at::full({numel / n}, 0.0f);
    Side mpi{mpi_plugin("").library}, plugin{"ours, processes by MPI"}, threads{"ours, threads"};
    for (int round = 0; round < rounds_; ++round) {
      meet();
      mpi.seconds.push_back(time_of(calls, [&] { operation.peer(full, mine); }));
      meet();
      plugin.seconds.push_back(time_of(calls, [&] { operation.ours(world_, full, mine); }));
      meet();
      if (world_.rank() == 0) threads.seconds.push_back(time_of_threads(operation, numel, calls));
      meet();
    }
    if (world_.rank() != 0) return;
    double bus_bytes = double(numel) * 4 * operation.bus_factor * (n - 1) / n;
    for (const Side* side : {&mpi, &plugin, &threads}) print(operation, bytes, bus_bytes, *side);
  }

 private:
  double time_of_threads(const Operation& operation, int64_t numel, int calls) {
    double seconds = 0;
    run_thread_ranks(world_.size(), [&](Communicator& c, Control&) {
      Tensor full = at::full({numel}, 0.0f), mine = at::full({numel / c.size()}, 0.0f);
      double own = time_of(calls, [&] { operation.ours(c, full, mine); });
      if (c.rank() == 0) seconds = own;
    });
    return seconds;
  }

  void print(const Operation& operation, int64_t bytes, double bus_bytes, const Side& side) const {
    for (size_t round = 0; round < side.seconds.size(); ++round)
      std::printf(R"({"case": "%s, %ld KiB, %d ranks", "who": "%s", "metric": "bytes/s", )"
                  R"("value": %.6g, "round": %zu})"
                  "\n",
                  operation.name, bytes >> 10, world_.size(), side.name.c_str(),
                  bus_bytes / side.seconds[round], round);
    std::fflush(stdout);
  }

  Communicator& world_;
  int rounds_;
};

int64_t option(int argc, char** argv, const std::string& name, int64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i)
    if (argv[i] == name) return std::stoll(argv[i + 1]);
  return otherwise;
}

}  // namespace
}  // namespace neox

int main(int argc, char** argv) {
  using namespace neox;
  auto world = mpi_plugin("").world(
      {.chunk_bytes = option(argc, argv, "--chunk", MpiOptions{}.chunk_bytes >> 10) << 10,
       .direct_bytes = option(argc, argv, "--direct", MpiOptions{}.direct_bytes >> 10) << 10});
  Benchmark benchmark(*world, static_cast<int>(option(argc, argv, "--rounds", 7)));
  auto all = operations();
  all.resize(std::min(all.size(), static_cast<size_t>(option(argc, argv, "--operations", 3))));
  for (const Operation& operation : all)
    for (int64_t kib = option(argc, argv, "--least", 4);
         kib <= option(argc, argv, "--most", 256 << 10); kib *= 4)
      benchmark.run(operation, kib << 10);
}
