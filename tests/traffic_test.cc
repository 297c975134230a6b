// What ranks send each other, how often, and beside what.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "base/error.h"
#include "model/tp.h"
#include "ops/product.h"
#include "tiny_run.h"

namespace neox {
namespace {

using Elements = std::map<std::string, std::vector<int64_t>>;  // of each call, by group and name

// Notes what a rank asks of it and of the groups that are split off, with types that are not
// double.
class NotingCommunicator : public Communicator {
 public:
  NotingCommunicator(std::unique_ptr<Communicator> own, Communicator& group, std::string name,
                     Elements& elements)
      : own_(std::move(own)), group_(group), name_(std::move(name)), elements_(elements) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void all_reduce(Tensor& t, Op op) override {
    note("all_reduce", t);
    group_.all_reduce(t, op);
  }
  void reduce_scatter(const Tensor& full, Tensor& mine) override {
    note("reduce_scatter", full);
    group_.reduce_scatter(full, mine);
  }
  void all_gather(const Tensor& mine, Tensor& full) override {
    note("all_gather", full);
    group_.all_gather(mine, full);
  }
  void broadcast(Tensor& t, int root) override { group_.broadcast(t, root); }
  void exchange(std::span<Transfer> transfers) override {
    for (const Transfer& t : transfers)
      if (t.kind == Transfer::kSend) note("send", t.tensor);
    group_.exchange(transfers);
  }
  std::unique_ptr<Communicator> split(int color, const std::string& name) override {
    auto part = group_.split(color, name);
    Communicator& group = *part;
    return std::make_unique<NotingCommunicator>(std::move(part), group, name, elements_);
  }
  void abort(const std::string& reason) override { group_.abort(reason); }

 private:
  void note(const char* operation, const Tensor& t) {
    std::string type = t.scalar_type() == at::kDouble ? "" : concat(" ", t.scalar_type());
    if (size() > 1) elements_[name_ + " " + operation + type].push_back(t.numel());
  }
  std::unique_ptr<Communicator> own_;
  Communicator& group_;
  std::string name_;
  Elements& elements_;
};

// Of rank 0 in the second step of a run.
Elements sent(Layout layout, const TinyOptions& given) {
  at::set_num_threads(1);
  TinyOptions options = given;
  std::vector<Elements> of_rank(static_cast<size_t>(layout.size()));
  options.world = [&](Communicator& threads, Control&) {
    return std::make_unique<NotingCommunicator>(nullptr, threads, "world",
                                                of_rank[static_cast<size_t>(threads.rank())]);
  };
  options.batch = layout.replicate * layout.shard;  // one micro-batch a step
  TinyRun run(layout, options);
  run.train(0, 1);
  Elements one = std::move(of_rank[0]);
  of_rank.assign(of_rank.size(), {});
  run.train(0, 2);
  Elements two = std::move(of_rank[0]);
  for (auto& [name, calls] : two)
    calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(one[name].size()));
  return two;
}

int64_t count(const std::vector<int64_t>& calls, int64_t elements) {
  return std::ranges::count(calls, elements);
}

constexpr int64_t kHiddenState = 7 * 20;  // T * hidden of a TinyRun

// Two sums of hidden states for each layer where attention and MLP have one input, four where they
// follow each other; the embedding's and that of the gradient behind the last norm.
TEST(TensorParallel, SumsOncePerPassWhatTwoNormsLeadTo) {
  TinyOptions parallel, sequential;
  parallel.model.hidden_dropout = sequential.model.hidden_dropout = 0;
  sequential.model.parallel_residual = false;
  EXPECT_EQ(count(sent({.tp = 2}, parallel)["tp all_reduce"], kHiddenState), 2 * 5 + 2);
  EXPECT_EQ(count(sent({.tp = 2}, sequential)["tp all_reduce"], kHiddenState), 4 * 5 + 2);
  TinyOptions tied = parallel;
  tied.model.tied_norms = true;
  EXPECT_EQ(count(sent({.tp = 2}, tied)["tp all_reduce"], kHiddenState), 2 * 5 + 2);
}

TEST(TensorParallel, SumsVectorsOnceAStep) {
  TinyOptions options;
  Elements all = sent({.tp = 2}, options);
  int64_t vectors = 5 * (4 + 2) * 20 + 2 * 20;  // two norms and two biases a layer, the last norm
  EXPECT_EQ(count(all["tp all_reduce"], vectors), 1);
}

TEST(TensorParallel, SharesOutWhatStagesSend) {
  TinyOptions options;
  Elements all = sent({.pp = 2, .tp = 2}, options);
  EXPECT_EQ(all["pp send"], std::vector<int64_t>{kHiddenState / 2});
  EXPECT_EQ(count(all["tp all_gather"], kHiddenState), 1);
}

TEST(DataParallel, SumsABucketALayer) {
  TinyOptions options;
  EXPECT_EQ(sent({.shard = 2}, options)["shard reduce_scatter"].size(), 1u + 5 + 2 + 1);
}

TEST(DataParallel, SumsGradientsInTheTypeThatIsAsked) {
  TinyOptions options;
  TinyResult exact = TinyRun({}, options).train(0, 4);
  options.dtypes.sent = at::kBFloat16;
  for (Keeping keeping : {Keeping::kAll, Keeping::kParameters}) {
    options.keeping = keeping;
    Elements all = sent({.replicate = 2, .shard = 2}, options);
    EXPECT_EQ(all["shard reduce_scatter BFloat16"].size(), 9u);
    EXPECT_EQ(all["replicate all_reduce BFloat16"].size(), 9u);
    for (Layout layout : {Layout{.shard = 2}, {.replicate = 2}, {.replicate = 2, .shard = 2}}) {
      TinyResult rounded = TinyRun(layout, options).train(0, 4);
      EXPECT_LT(distance(rounded.steps, exact.steps), 1e-2) << to_string(layout);
      EXPECT_GT(distance(rounded.steps, exact.steps), 1e-9) << to_string(layout);
      EXPECT_EQ(rounded.copies_differ, "") << to_string(layout);
    }
  }
}

// Notes when sums begin, and when they are waited for.
class NotingStream : public SideStream {
 public:
  explicit NotingStream(std::vector<std::string>& notes) : SideStream(at::kCPU), notes_(notes) {}
  Work run(const Work& work) override {
    notes_.push_back("sum begins");
    return [this, work] {
      work();
      notes_.push_back("sum joined");
    };
  }

 private:
  std::vector<std::string>& notes_;
};

class NotingHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit NotingHook(std::vector<std::string>& notes) : notes_(notes) {}
  void operator()(const torch::autograd::Variable&) override { notes_.push_back("weight"); }

 private:
  std::vector<std::string>& notes_;
};

TEST(TensorParallel, ComputesGradientsOfWeightsBesideTheSum) {
  run_thread_ranks(2, [](Communicator& world, Control&) {
    std::vector<std::string> notes;
    TensorParallel tp(world, std::make_shared<NotingStream>(notes));
    auto leaf = [](at::IntArrayRef shape) { return at::ones(shape).set_requires_grad(true); };
    Tensor x = leaf({3, 4}), scale = leaf({4}), weights[2] = {leaf({5, 4}), leaf({2, 4})};
    for (Tensor& w : weights)
      torch::autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<NotingHook>(notes));
    Tensor first = weights[0], second = weights[1];
    ResidualSum in = tp.enter({x * 2, x}, {&first, &second});
    auto [sum, z, w] = add_norms(in, {scale}, {scale}, {});
    Tensor y = tp.counted_once(sum).sum() + product(z, first).sum() + product(w, second).sum();
    y.backward();
    EXPECT_EQ(notes, (std::vector<std::string>{"sum begins", "weight", "weight", "sum joined"}));
    EXPECT_TRUE(x.grad().allclose(at::ones({3, 4}) * 3));  // the norms' part is 0: all are equal
    for (const Tensor& weight : weights) EXPECT_TRUE(weight.grad().defined());
  });
}

}  // namespace
}  // namespace neox
