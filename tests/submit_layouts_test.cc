// neox-submit layouts: each row is a job that neox-submit takes, costs are the arithmetic that
// docs/slurm.md has, and what cannot be answered is refused.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "jobs/layouts.h"
#include "submit_fixture.h"

namespace neox {
namespace {

constexpr int64_t kEntries = 50277;

Config pythia(const std::string& name, const Strings& overrides = {}) {
  return load_config({.files = {(kTree / "configs/pythia" / name).string()},
                      .directory = {},
                      .overrides = overrides});
}

Gpus h100s(int64_t nodes) {
  return {.nodes = nodes, .per_node = 8, .room = 72e9, .rates = gpu_rates("h100").value()};
}

LayoutCost cost_of(const Config& config, int64_t nodes) {
  return layout_cost(config, h100s(nodes), padded_vocab(config, kEntries));
}

TEST_F(SubmitTest, EachLayoutThatIsFoundIsAJobThatIsTaken) {
  for (auto [name, nodes] : {std::pair{"160M.yml", 1}, {"6-9B.yml", 2}, {"12B.yml", 4}}) {
    Config config = pythia(name);
    std::vector<LayoutChoice> found = find_layouts(config, h100s(nodes), kEntries);
    ASSERT_GT(found.size(), 3U) << name;
    std::set<std::pair<int64_t, int64_t>> shapes;
    double before = 0;
    for (const LayoutChoice& layout : found) {
      const Estimate& e = layout.cost.estimate;
      EXPECT_LE(static_cast<double>(e.memory_bytes), 72e9);
      EXPECT_EQ(e.batch.global, 1024);
      EXPECT_LE(before, layout.cost.seconds);
      before = layout.cost.seconds;
      EXPECT_TRUE(shapes.insert({layout.config.layout.tensor, layout.config.layout.pipe}).second);
      Strings words = {"--nodes", concat(nodes), "--gpus-per-node", "h100:8"};
      for (const std::string& key : layout_keys(layout, config))
        words.insert(words.end(), {"--set", key});
      EXPECT_EQ(refusal(name, words), "") << join(words, " ");
      Config again = pythia(name, layout_keys(layout, config));
      EXPECT_EQ(cost_of(again, nodes).seconds, layout.cost.seconds) << join(words, " ");
    }
  }
}

// 12 layers of 768, 2048 tokens a sample, bf16, without anything that is shared out.
Strings plain(const Strings& more) {
  Strings all = {"precision=bfloat16",
                 "train_batch_size=256",
                 "model_parallel_size=1",
                 "pipe_parallel_size=1",
                 "train_micro_batch_size_per_gpu=8",
                 "gradient_accumulation_steps=null",
                 "zero_optimization.stage=0",
                 "checkpoint_activations=false"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(LayoutCost, CountsWhatRanksSendAndWaitFor) {
  Config alone = pythia("160M.yml", plain({}));
  LayoutCost data = cost_of(alone, 1);
  auto n = static_cast<double>(data.estimate.rank_parameters);
  EXPECT_DOUBLE_EQ(data.link_bytes, n * (4 + 4) * 7 / 8);  // gradients in fp32, to and fro
  EXPECT_EQ(data.network_bytes, 0);
  EXPECT_EQ(data.idle, 0);
  LayoutCost zero = cost_of(pythia("160M.yml", plain({"zero_optimization.stage=1"})), 2);
  EXPECT_DOUBLE_EQ(zero.network_bytes, n * (4 + 2) * 15 / 16);  // and weights in bf16
  EXPECT_EQ(zero.link_bytes, 0);
  LayoutCost two = cost_of(pythia("160M.yml", plain({"zero_optimization.stage=2"})), 1);
  EXPECT_DOUBLE_EQ(two.link_bytes, n * (4 * 4 + 2) * 7 / 8);  // 4 micro-batches
  LayoutCost three = cost_of(pythia("160M.yml", plain({"zero_optimization.stage=3"})), 1);
  auto layers = static_cast<double>(three.estimate.blocks);
  EXPECT_DOUBLE_EQ(three.link_bytes, (n * (4 * 4 + 2) + layers * (2 * 4 - 1) * 2) * 7 / 8);

  // Stages lie farthest apart: the first of them is the first node.
  const double rows = 8 * 2048 * 768 * 2;  // bytes of a micro-batch's activations
  LayoutCost pipe = cost_of(pythia("160M.yml", plain({"pipe_parallel_size=2"})), 2);
  EXPECT_DOUBLE_EQ(pipe.network_bytes, 4 * rows);
  EXPECT_DOUBLE_EQ(pipe.idle, 1.0 / (4 + 1));
}

TEST(LayoutCost, TakesAsLongAsTheWorkWhereNothingIsSent) {
  Config config = pythia("160M.yml", plain({"train_batch_size=8"}));
  LayoutCost cost = layout_cost(
      config,
      {.nodes = 1, .per_node = 1, .room = 72e9, .rates = {.tflops = 100, .link = 1, .network = 1}},
      padded_vocab(config, kEntries));
  EXPECT_DOUBLE_EQ(cost.seconds, cost.estimate.flops_per_token * 8 * 2048 / 50e12);
  EXPECT_EQ(cost.link_bytes + cost.network_bytes, 0);
}

// GPT-NeoX-20B was trained on 12 nodes of 8 A100 of 40 GB with tp 2 and pp 4 (arXiv 2204.06745).
TEST(FindLayouts, FindsThatOfGptNeox20B) {
  Config config =
      load_config({.files = {(kTree / "configs/neox/20B.yml").string()}, .directory = {}});
  Gpus gpus{.nodes = 12, .per_node = 8, .room = 36e9, .rates = gpu_rates("a100").value()};
  LayoutChoice first = find_layouts(config, gpus, kEntries).at(0);
  EXPECT_EQ(first.config.layout.tensor, 2);
  EXPECT_EQ(first.config.layout.pipe, 4);
  EXPECT_EQ(first.config.layout.zero_stage, 1);
}

TEST_F(SubmitTest, ShowsLayoutsAsATable) {
  std::ostringstream out;
  carry_out(
      request({"layouts", config("12B.yml"), "--nodes", "4", "--gpus-per-node", "h100:8"}, env()),
      out);
  std::string text = out.str();
  for (const char* part :
       {"A step of 1,024 samples, 2,097,152 tokens, on 4 nodes of 8 GPUs, each with room for 72.0 "
        "GB",
        "tp", "between", "1.00", "494.5 TFLOP/s", "450 and 50 GB/s", "\nThe first: --set "})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
}

TEST_F(SubmitTest, TheNetworkIsThatOfTheGpuOrAsGiven) {
  auto first = [&](const Strings& more) {
    Strings words = {"layouts", config("6-9B.yml"), "--nodes", "8", "--gpus-per-node", "a100:8"};
    words.insert(words.end(), more.begin(), more.end());
    std::ostringstream out;
    carry_out(request(words, env()), out);
    return out.str();
  };
  EXPECT_NE(first({}).find("300 and 6.25 GB/s"), std::string::npos);
  EXPECT_NE(first({"--network", "25"}).find("300 and 25 GB/s"), std::string::npos);
}

// The files of GPT-2 are two, and the script's default is one of another kind.
TEST_F(SubmitTest, LayoutsNeedNoTokenizer) {
  SubmitRequest asked = request({"layouts", (kTree / "configs/neox/13B.yml").string(), "--nodes",
                                 "4", "--gpus-per-node", "h100:8"},
                                env());
  ASSERT_EQ(asked.notes.size(), 1U);
  EXPECT_NE(asked.notes[0].find("those of GPT-2, since no vocab_file is given"), std::string::npos)
      << asked.notes[0];
}

TEST_F(SubmitTest, SaysThatNoLayoutFits) {
  std::ostringstream out;
  carry_out(
      request({"layouts", config("12B.yml"), "--nodes", "1", "--gpus-per-node", "h100:1"}, env()),
      out);
  EXPECT_NE(out.str().find("No layout of 1 ranks fits: a GPU has room for 72.0 GB"),
            std::string::npos)
      << out.str();
}

// On 7 GPUs there are 7 data-parallel ranks, whatever the layout.
TEST(LayoutTable, SaysThatTheBatchDoesNotShareOut) {
  auto table = [](const std::string& batch, double room) {
    Gpus gpus{.nodes = 1, .per_node = 7, .room = room, .rates = gpu_rates("h100").value()};
    return layout_table(pythia("160M.yml", plain({"train_batch_size=" + batch})), gpus, kEntries,
                        [](const Strings&) { return true; });
  };
  EXPECT_EQ(table("3", 72e9),
            "No layout of 7 ranks fits: the batch of 3 samples does not share out over them. Take "
            "fewer GPUs, or a larger train_batch_size (7).\n");
  EXPECT_NE(table("8", 72e9).find("larger train_batch_size (14)"), std::string::npos);
  EXPECT_EQ(table("7", 72e9).find("No layout"), std::string::npos);
  EXPECT_NE(table("7", 1e6).find("a rank of each needs more"), std::string::npos);
}

TEST_F(SubmitTest, LayoutsThatCannotBeFoundAreRefused) {
  auto refused = [&](Strings words, const std::string& says) {
    try {
      request(words, env());
      ADD_FAILURE() << says;
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::kUsage);
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
    }
  };
  std::string file = config("160M.yml");
  refused({"layouts"}, "layouts needs a configuration");
  refused({"layouts", file}, "layouts for GPUs: give a type that is known");
  refused({"layouts", file, "--gpus-per-node", "foo:8"}, "layouts for foo: give a type");
  refused({"layouts", file, "--gpus-per-node", "0"}, "on CPUs");
  refused({"layouts", file, "--gpus-per-node", "h100:8", "--nodes", "2-4"},
          "one number of nodes, not 2-4");
  refused({"layouts", file, "--gpus-per-node", "h100:8", "--submit"}, "nothing to submit");
  refused({"layouts", file, "--gpus-per-node", "h100:8", "--network", "0"}, "--network 0");
}

}  // namespace
}  // namespace neox
