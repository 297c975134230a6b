// For the tests of checkpoints: ranks as threads, and a state that is cut into random boxes. Each
// element is a function of step, state, tensor and position, so that every reader knows what to
// expect.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint.h"

namespace neox {

struct TensorSpec {
  std::string buffer, name;
  Dims shape;
  at::ScalarType dtype;
};

// Tensors of all types, 0 to 4 dimensions, sizes coprime with the layouts.
std::vector<TensorSpec> small_model();
std::vector<TensorSpec> model_of(at::ScalarType dtype, const Dims& shape);

// What each rank holds.
using Layout = std::vector<std::vector<StateChunk>>;

class Cutter {
 public:
  explicit Cutter(uint64_t seed) : rng_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  // Boxes that cover the shape once, in random order.
  std::vector<Box> cut(const Dims& shape, int cuts);
  // Each tensor's boxes over the ranks, with padding between them; filled with -999.
  Layout layout(const std::vector<TensorSpec>& model, int ranks);

 private:
  std::mt19937_64 rng_;
};

void fill(const Layout& layout, int64_t step);
// The first element that is not what fill() made, as text; "" where all are right.
std::string difference(const Layout& layout, int64_t step);

// Runs `rank` for each rank of a world of threads; returns what each threw ("" where nothing).
std::vector<std::string> run_ranks(int ranks, const std::function<void(Control&)>& rank);
std::vector<std::string> save_all(const SaveOptions& options, const Layout& layout, int64_t step);
// One rank saves; throws what it throws.
void save_alone(const SaveOptions& options, const Layout& layout, int64_t step);
TrainState state_of(int64_t step);

// The text of what `call` throws, "" where it returns.
std::string error_of(const std::function<void()>& call);

// A rank whose file something happens to, behind its writing and before another rank reads it.
class HarmedControl : public Control {
 public:
  HarmedControl(Control& control, std::function<void()> harm)
      : control_(control), harm_(std::move(harm)) {}
  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  std::vector<std::string> gather(const std::string& mine, std::chrono::seconds limit) override {
    if (++gathers_ == 2) harm_();  // the first one is about the directory
    return control_.gather(mine, limit);
  }
  std::unique_ptr<Control> channel(const std::string& name, int size) override {
    return control_.channel(name, size);
  }

 private:
  Control& control_;
  std::function<void()> harm_;
  int gathers_ = 0;
};

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  Layout filled(int ranks, int64_t step);
  // Reads the newest checkpoint at another layout; the text of what is wrong.
  std::string read_back(const fs::path& dir, int64_t step, int ranks = 2);

  fs::path dir_;
  Cutter cutter_{11};
  std::vector<TensorSpec> model_ = small_model();
};

}  // namespace neox
