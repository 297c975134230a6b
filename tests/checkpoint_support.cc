#include "checkpoint_support.h"

#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace neox {
namespace {

class ThreadWorld {
 public:
  explicit ThreadWorld(int size) : texts_(static_cast<size_t>(size)) {}
  int size() const { return static_cast<int>(texts_.size()); }
  std::vector<std::string> gather(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    texts_[static_cast<size_t>(rank)] = mine;
    int64_t round = round_;
    if (++arrived_ == size()) {
      result_ = texts_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, std::chrono::seconds(120), [&] { return round_ != round; }))
      fail(Exit::kPeerLost, "a rank is missing");
    return result_;
  }
  // For a second thread of each rank.
  ThreadWorld& channel() {
    std::lock_guard lock(mutex_);
    if (!channel_) channel_ = std::make_unique<ThreadWorld>(size());
    return *channel_;
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<ThreadWorld> channel_;
  std::condition_variable changed_;
  std::vector<std::string> texts_, result_;
  int arrived_ = 0;
  int64_t round_ = 0;
};

class ThreadControl : public Control {
 public:
  ThreadControl(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  std::vector<std::string> gather(const std::string& mine, std::chrono::seconds) override {
    return world_.gather(rank_, mine);
  }
  std::unique_ptr<Control> channel(const std::string&, int) override {
    return std::make_unique<ThreadControl>(world_.channel(), rank_);
  }

 private:
  ThreadWorld& world_;
  int rank_;
};

// Small integers: exact in every type.
double element(int64_t step, const std::string& state, const std::string& name, int64_t at) {
  uint64_t x = std::hash<std::string>()(state + "/" + name) + static_cast<uint64_t>(at) * 7919 +
               static_cast<uint64_t>(step) * 104729;
  x ^= x >> 29;
  x *= 0x9E3779B97F4A7C15ull;
  return static_cast<double>(x >> 56) - 128;
}

// Calls visit(position in the buffer, position in the tensor) for the elements of a placement.
template <class Visit>
void each_element(const Placement& p, Visit visit) {
  for (int64_t i = 0; i < p.box.numel(); ++i) {
    int64_t rest = i, flat = 0, stride = 1;
    for (size_t d = p.shape.size(); d-- > 0;) {
      flat += (p.box.start[d] + rest % p.box.extent[d]) * stride;
      rest /= p.box.extent[d];
      stride *= p.shape[d];
    }
    visit(p.offset + i, flat);
  }
}

}  // namespace

std::vector<TensorSpec> small_model() {
  return {{"embed", "embed.weight", {28, 20}, at::kFloat},
          {"layers.0", "layers.0.qkv.weight", {5, 3, 4, 7}, at::kBFloat16},
          {"layers.0", "layers.0.norm.weight", {20}, at::kBFloat16},
          {"layers.1", "layers.1.mlp.weight", {20, 13}, at::kHalf},
          {"final", "final.bias", {11}, at::kDouble},
          {"final", "final.scale", {}, at::kDouble}};
}

std::vector<TensorSpec> model_of(at::ScalarType dtype, const Dims& shape) {
  return {{"b", "w", shape, dtype}};
}

std::vector<Box> Cutter::cut(const Dims& shape, int cuts) {
  std::vector<Box> boxes = {whole(shape)};
  for (int i = 0; i < cuts && !shape.empty(); ++i) {
    auto which = static_cast<size_t>(below(static_cast<int64_t>(boxes.size())));
    auto dim = static_cast<size_t>(below(static_cast<int64_t>(shape.size())));
    Box& left = boxes[which];
    if (left.extent[dim] < 2) continue;
    Box right = left;
    int64_t at = 1 + below(left.extent[dim] - 1);
    left.extent[dim] = at;
    right.start[dim] += at, right.extent[dim] -= at;
    boxes.push_back(right);
  }
  std::shuffle(boxes.begin(), boxes.end(), rng_);
  return boxes;
}

Layout Cutter::layout(const std::vector<TensorSpec>& model, int ranks) {
  Layout layout(static_cast<size_t>(ranks));
  for (const char* state : {"param", "adam_m"}) {
    std::map<std::pair<size_t, std::string>, std::pair<StateChunk, int64_t>> chunks;
    for (const TensorSpec& spec : model)
      for (const Box& box : cut(spec.shape, 9)) {
        auto rank = static_cast<size_t>(below(ranks));
        auto& [chunk, size] = chunks[{rank, spec.buffer}];
        chunk.buffer = spec.buffer, chunk.state = state;
        chunk.data = at::full({0}, 0, at::TensorOptions().dtype(spec.dtype));
        size += below(3);
        chunk.placements.push_back({spec.name, spec.shape, box, size});
        size += box.numel();
      }
    for (auto& [key, value] : chunks) {
      auto& [chunk, size] = value;
      chunk.data = at::full({size + below(5)}, -999, chunk.data.options());
      layout[key.first].push_back(std::move(chunk));
    }
  }
  return layout;
}

void fill(const Layout& layout, int64_t step) {
  for (const auto& rank : layout)
    for (const StateChunk& chunk : rank) {
      at::Tensor values = at::full({chunk.data.numel()}, -999, at::kDouble);
      auto* value = values.mutable_data_ptr<double>();
      for (const Placement& p : chunk.placements)
        each_element(
            p, [&](int64_t i, int64_t at) { value[i] = element(step, chunk.state, p.name, at); });
      chunk.data.copy_(values);
    }
}

std::string difference(const Layout& layout, int64_t step) {
  std::string found;
  for (const auto& rank : layout)
    for (const StateChunk& chunk : rank) {
      at::Tensor values = chunk.data.to(at::kDouble);
      const auto* value = values.const_data_ptr<double>();
      for (const Placement& p : chunk.placements)
        each_element(p, [&](int64_t i, int64_t at) {
          double want = element(step, chunk.state, p.name, at);
          if (found.empty() && value[i] != want)
            found = concat(chunk.state, " of ", p.name, " element ", at, " is ", value[i], ", not ",
                           want);
        });
    }
  return found;
}

std::vector<std::string> run_ranks(int ranks, const std::function<void(Control&)>& rank) {
  ThreadWorld world(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      ThreadControl control(world, r);
      errors[static_cast<size_t>(r)] = error_of([&] { rank(control); });
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TrainState state_of(int64_t step) {
  TrainState state;
  state.iteration = step;
  state.optimizer_steps = step - 1;
  state.consumed_samples = 9007199254740993 + step;  // no double holds it
  state.loss_scale = 0.1;
  state.config = "a: 1\n# \"b\"\n";
  return state;
}

std::vector<std::string> save_all(const SaveOptions& options, const Layout& layout, int64_t step) {
  return run_ranks(static_cast<int>(layout.size()), [&](Control& control) {
    save_checkpoint(options, layout[static_cast<size_t>(control.rank())], state_of(step), control);
  });
}

void save_alone(const SaveOptions& options, const Layout& layout, int64_t step) {
  AloneControl control;
  save_checkpoint(options, layout[0], state_of(step), control);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const std::exception& e) { return e.what(); }
}

void CheckpointTest::SetUp() {
  std::string name = testing::TempDir() + "neox_checkpoint_XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  dir_ = fs::canonical(name);
}

void CheckpointTest::TearDown() { fs::remove_all(dir_); }

Layout CheckpointTest::filled(int ranks, int64_t step) {
  Layout layout = cutter_.layout(model_, ranks);
  fill(layout, step);
  return layout;
}

std::string CheckpointTest::read_back(const fs::path& dir, int64_t step, int ranks) {
  Layout layout = cutter_.layout(model_, ranks);
  return error_of([&] {
    Checkpoint checkpoint(dir);
    TrainState state = checkpoint.state();
    state.save_seconds = 0;  // each save's own
    check(state == state_of(step), "another train state");
    for (auto& rank : layout) checkpoint.read(rank);
    std::string different = difference(layout, step);
    check(different.empty(), different);
  });
}

}  // namespace neox
