// Generation by GptNeoX with initial values of a Pythia shape, for benchmarks/generate.py: decoding
// greedily behind a prompt, and prompts alone. One JSON object per line.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>

#include <algorithm>
#include <atomic>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstring>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/memory.h"
#include "generate/generate.h"
#include "generate/huge_pages.h"
#include "generate/load.h"
#include "launch/openmp.h"
#include "ops/team.h"

namespace neox {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(const std::function<void()>& work) {
  auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Shape {
  int64_t layers, hidden, heads;
};
const std::map<std::string, Shape> kShapes = {{"14m", {6, 128, 4}},
                                              {"70m", {6, 512, 8}},
                                              {"160m", {12, 768, 12}},
                                              {"410m", {24, 1024, 16}},
                                              {"1b", {16, 2048, 8}}};

ModelConfig config_of(const Shape& s) {
  return {.layers = s.layers,
          .hidden = s.hidden,
          .heads = s.heads,
          .seq = 2048,
          .positions = 2048,
          .vocab = 50304,
          .intermediate = 4 * s.hidden,
          .rotary_pct = 0.25,
          .parallel_residual = true,
          .tied_embedding = false};
}

// Bytes per second of all threads that read a large buffer once.
double read_rate(int threads) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  at::Tensor buffer = at::empty({kBytes / 8}, at::kLong);
  use_huge_pages(buffer.mutable_data_ptr(), kBytes);
  buffer.fill_(1);
  const auto* words = buffer.const_data_ptr<int64_t>();
  std::atomic<int64_t> sum = 0;
  double best = 1e9;
  for (int i = 0; i < 4; ++i)
    best = std::min(best, seconds([&] {
                      run_team(threads, [&](Team& team) {
                        auto [from, to] = team.share(buffer.numel(), 512);
                        int64_t mine = 0;
                        for (int64_t k = from; k < to; ++k) mine ^= words[k];
                        sum += mine;
                      });
                    }));
  return sum >= 0 ? static_cast<double>(kBytes) / best : 0;
}

struct Options {
  std::string shape, precision;
  int64_t batch = 1, prompt = 128, tokens = 64, rounds = 3;
};

struct Run {
  GptNeoX& model;
  const Options& o;
  double weight_bytes = 0;

  void print(const std::string& metric, double value, int64_t round,
             const std::string& more) const {
    std::cout << "{\"case\": \"" << o.shape << " " << o.precision << " batch " << o.batch
              << "\", \"who\": \"ours\", \"metric\": \"" << metric << "\", \"value\": " << value
              << ", \"round\": " << round << more << "}" << std::endl;
  }

  // Behind a prompt that is the same for each row: as many texts at once as the batch has.
  void decode(int64_t round) const {
    KvCache cache = model.new_cache(o.batch, o.prompt + o.tokens + 1);
    at::Tensor prompt = at::randint(50304, {1, o.prompt}, at::kLong);
    at::Tensor next = at::empty({o.batch, 1}, at::kLong);
    double prefill = seconds([&] {
      for (int64_t b = 0; b < o.batch; ++b) {
        KvCache row = cache.row(b);
        next[b].fill_(model.generate_step({}, prompt, row).argmax());
        cache.lengths[static_cast<size_t>(b)] = row.lengths.front();
      }
    });
    double time = 0, best = 1e9;
    for (int64_t i = 0; i < o.tokens; ++i) {
      double step = seconds([&] {
        at::Tensor logits = model.generate_step({}, next, cache);
        for (int64_t b = 0; b < o.batch; ++b)
          next.mutable_data_ptr<int64_t>()[b] = choose(logits[b], {}, 0);
      });
      time += step;
      best = std::min(best, step);
    }
    auto steps = static_cast<double>(o.tokens), batch = static_cast<double>(o.batch);
    print("decode tokens/s", batch * steps / time, round,
          concat(", \"weights GB/s\": ", weight_bytes * steps / time / 1e9,
                 ", \"best step tokens/s\": ", batch / best,
                 ", \"best step weights GB/s\": ", weight_bytes / best / 1e9));
    print("prefill tokens/s", static_cast<double>(o.batch * o.prompt) / prefill, round, "");
  }
};

void run(const Options& o) {
  at::NoGradGuard no_grad;
  int threads = at::get_num_threads();
  auto world = self_communicator();
  Mesh mesh({}, *world);
  Dtypes dtypes = dtypes_of(o.precision == "bf16" ? Precision::kBf16 : Precision::kFp32);
  dtypes.state = dtypes.param;
  ModelConfig config = config_of(kShapes.at(o.shape));
  GptNeoX model(config, mesh, {.dtypes = dtypes, .keeping = GradientKeeping::kNone});
  use_huge_pages(model);
  double elements = -static_cast<double>(config.vocab * config.hidden);  // embed_in is not read
  for (ParamBuffer* buffer : model.buffers()) elements += static_cast<double>(buffer->chunk_size());
  Run run{model, o, elements * (o.precision == "bf16" ? 2 : 4)};
  for (int64_t round = 0; round < o.rounds; ++round) {
    run.print("memory read GB/s", read_rate(threads) / 1e9, round, "");
    run.decode(round);
  }
}

}  // namespace
}  // namespace neox

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  neox::let_openmp_threads_sleep();
  neox::keep_freed_memory();
  neox::Options o;
  po::options_description options;
  options.add_options()("shape", po::value(&o.shape)->default_value("160m"))(
      "precision", po::value(&o.precision)->default_value("bf16"))(
      "batch", po::value(&o.batch)->default_value(1))("prompt",
                                                      po::value(&o.prompt)->default_value(128))(
      "tokens", po::value(&o.tokens)->default_value(64))("rounds",
                                                         po::value(&o.rounds)->default_value(3));
  po::variables_map given;
  po::store(po::parse_command_line(argc, argv, options), given);
  po::notify(given);
  neox::run(o);
}
