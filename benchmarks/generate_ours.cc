// Generation by GptNeoX with initial values of a Pythia shape, for benchmarks/generate.py: decoding
// greedily behind prompts of equal length, as generate() does it, and prompts alone. One JSON
// object per line.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sum.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <boost/program_options.hpp>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/memory.h"
#include "generate/generate.h"
#include "generate/load.h"
#include "launch/environment.h"
#include "launch/openmp.h"
#include "memory_read.h"
#include "model/device.h"
#include "ops/cpu_arena.h"
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
const std::map<std::string, Shape> kShapes = {{"14m", {6, 128, 4}},    {"70m", {6, 512, 8}},
                                              {"160m", {12, 768, 12}}, {"410m", {24, 1024, 16}},
                                              {"1b", {16, 2048, 8}},   {"1.4b", {24, 2048, 16}}};

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

// Seconds until the device has done what the work gave it.
double device_seconds(at::Device device, const std::function<void()>& work) {
  auto wait = [&] {
    if (!device.is_cpu())
      c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  };
  wait();
  return seconds([&] { work(), wait(); });
}

double best_of_four(at::Device device, const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 4; ++i) best = std::min(best, device_seconds(device, work));
  return best;
}

// Bytes per second of all threads that read a large buffer once, the faster way.
double read_rate(int threads) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  at::Tensor buffer = at::empty({kBytes / 8}, at::kLong);
  buffer.fill_(1);
  const auto* words = reinterpret_cast<const uint64_t*>(buffer.const_data_ptr<int64_t>());
  std::atomic<uint64_t> sum = 0;
  double best = 1e9;
  for (auto read : {read_in_turn, read_in_places})
    best = std::min(best, best_of_four(at::kCPU, [&] {
                      run_team(threads, [&](Team& team) {
                        auto [from, to] = team.share(buffer.numel(), 512);
                        sum += read(words + from, to - from);
                      });
                    }));
  return sum > 0 ? static_cast<double>(kBytes) / best : 0;
}

// Bytes per second of a device that sums up a large buffer, or copies it, which moves each byte
// twice: the better of the two.
double device_rate(at::Device device) {
  constexpr int64_t kBytes = int64_t{4} << 30;
  at::Tensor from = at::ones({kBytes / 4}, at::device(device).dtype(at::kFloat)),
             to = at::empty_like(from), sum = at::empty({}, from.options());
  double copied = best_of_four(device, [&] { to.copy_(from); });
  double read = best_of_four(device, [&] { at::sum_out(sum, from); });
  return static_cast<double>(kBytes) / std::min(copied / 2, read);
}

struct Options {
  std::string shape, precision, device;
  int64_t batch = 1, prompt = 128, tokens = 64, rounds = 3;
};

struct Run {
  GptNeoX& model;
  const Options& o;
  double weight_bytes = 0;
  std::vector<int32_t> prompt = {};

  void print(const std::string& metric, double value, int64_t round,
             const std::string& more) const {
    std::cout << "{\"case\": \"" << o.shape << " " << o.precision << " batch " << o.batch
              << "\", \"who\": \"ours\", \"metric\": \"" << metric << "\", \"value\": " << value
              << ", \"round\": " << round << more << "}" << std::endl;
  }

  // When all texts had their n-th token, in seconds.
  std::vector<double> times_of_tokens(int64_t tokens) const {
    std::vector<TextRequest> requests(static_cast<size_t>(o.batch),
                                      {prompt, {.max_tokens = tokens}});
    std::vector<double> times(static_cast<size_t>(tokens));
    std::vector<size_t> had(requests.size());
    auto start = Clock::now();
    generate(model, requests, {.batch_size = o.batch, .on_token = [&](size_t i, int32_t) {
                                 times[had[i]++] =
                                     std::chrono::duration<double>(Clock::now() - start).count();
                                 return true;
                               }});
    return times;
  }

  // From the token on behind which steps are recorded, and libraries warm.
  void decode(int64_t round, double memory_rate) const {
    constexpr size_t kFirst = 8, kSpell = 8;
    std::vector<double> times =
        times_of_tokens(static_cast<int64_t>(kFirst) + std::max<int64_t>(o.tokens, kSpell) + 1);
    double best = 1e9;
    for (size_t i = kFirst; i + kSpell < times.size(); ++i)
      best = std::min(best, (times[i + kSpell] - times[i]) / static_cast<double>(kSpell));
    double step = (times.back() - times[kFirst]) / static_cast<double>(times.size() - 1 - kFirst);
    auto batch = static_cast<double>(o.batch);
    print("decode tokens/s", batch / step, round,
          concat(", \"weights GB/s\": ", weight_bytes / step / 1e9, ", \"of ceiling\": ",
                 weight_bytes / step / memory_rate, ", \"best spell tokens/s\": ", batch / best,
                 ", \"best spell weights GB/s\": ", weight_bytes / best / 1e9,
                 ", \"first token s\": ", times.front()));
  }

  // The best of a few, as of the peers: what ran before may have put weights out of the caches.
  void prefill(int64_t round) const {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) best = std::min(best, times_of_tokens(1).front());
    print("prefill tokens/s", static_cast<double>(o.batch * o.prompt) / best, round, "");
  }
};

at::Device device_of(const Options& o) {
  if (o.device == "cpu") return at::kCPU;
  check_usage(o.device == "cuda", "--device ", o.device, ": expected cpu or cuda");
  at::Device device = pick_device(environment());
  check_usage(device.is_cuda(), "--device cuda: there is no GPU, or this build has no CUDA");
  return device;
}

void run(const Options& o) {
  at::NoGradGuard no_grad;
  int threads = at::get_num_threads();
  at::Device device = device_of(o);
  if (device.is_cpu()) use_cpu_arena();  // as neox-generate
  auto world = self_communicator();
  Mesh mesh({}, *world);
  Dtypes dtypes = dtypes_of(o.precision == "bf16" ? Precision::kBf16 : Precision::kFp32);
  dtypes.state = dtypes.param;
  ModelConfig config = config_of(kShapes.at(o.shape));
  GptNeoX model(config, mesh,
                {.dtypes = dtypes,
                 .device = device,
                 .keeping = Keeping::kNoGradients,
                 .packing = WeightPacking::kWhereFaster});
  double elements = -static_cast<double>(config.vocab * config.hidden);  // embed_in is not read
  for (ParamBuffer* buffer : model.buffers()) elements += static_cast<double>(buffer->chunk_size());
  Run run{model, o, elements * (o.precision == "bf16" ? 2 : 4)};
  at::Tensor prompt = at::randint(config.vocab, {o.prompt}, at::kInt);
  run.prompt.assign(prompt.const_data_ptr<int32_t>(), prompt.const_data_ptr<int32_t>() + o.prompt);
  for (int64_t round = 0; round < o.rounds; ++round) {
    double rate = device.is_cpu() ? read_rate(threads) : device_rate(device);
    run.print("memory read GB/s", rate / 1e9, round, "");
    run.prefill(round);
    run.decode(round, rate);
  }
}

}  // namespace
}  // namespace neox

int main(int argc, char** argv) try {
  namespace po = boost::program_options;
  neox::let_own_openmp_threads_sleep(argv);
  neox::keep_freed_memory();
  neox::Options o;
  po::options_description options;
  options.add_options()("device", po::value(&o.device)->default_value("cpu"))(
      "shape", po::value(&o.shape)->default_value("160m"))(
      "precision", po::value(&o.precision)->default_value("bf16"))(
      "batch", po::value(&o.batch)->default_value(1))("prompt",
                                                      po::value(&o.prompt)->default_value(128))(
      "tokens", po::value(&o.tokens)->default_value(64))("rounds",
                                                         po::value(&o.rounds)->default_value(3));
  po::variables_map given;
  po::store(po::parse_command_line(argc, argv, options), given);
  po::notify(given);
  neox::run(o);
} catch (const std::exception& e) {
  std::cerr << "generate_ours: " << e.what() << "\n";
  return 70;
}
