// A checkpoint of any layout is resumed at any other: losses, parameters and moments are those of
// one rank that was never interrupted.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "data_files.h"
#include "generate/load.h"
#include "optimizer_cases.h"
#include "tiny_run.h"
#include "train/trainer.h"

namespace neox {
namespace {

constexpr double kTolerance = 1e-12;
constexpr int64_t kSaved = 2, kSteps = 4;

struct Ranks {
  Layout layout;
  Keeping keeping = Keeping::kAll;
};

const std::vector<Ranks> kRanks = {
    {{}},
    {{.tp = 4}},
    {{.pp = 4}},
    {{.shard = 3}, Keeping::kParameters},
    {{.replicate = 2, .tp = 2}},
    {{.pp = 2, .shard = 3}, Keeping::kParameters},
    {{.shard = 2, .tp = 2}, Keeping::kChunks},
    {{.replicate = 2, .shard = 2}},
    {{.pp = 3, .replicate = 2, .tp = 2}},
};

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() { at::set_num_threads(1); }
  TinyRun run(const Ranks& ranks) const {
    TinyOptions options = options_;
    options.keeping = ranks.keeping;
    return TinyRun(ranks.layout, options);
  }
  // The first steps, saved.
  fs::path save(const Ranks& ranks) const {
    fs::path dir = dir_ / to_string(ranks.layout);
    run(ranks).train(0, kSaved, {}, [&](TrainStep& step, Control& control) {
      auto chunks = step.written();
      save_checkpoint(
          {.dir = dir}, chunks,
          {.iteration = kSaved, .optimizer_steps = step.optimizer_steps(), .padded_vocab = 28},
          control);
    });
    return find_checkpoint(dir).value();
  }
  // The steps after a resume.
  TinyResult resume(const Ranks& ranks, const fs::path& dir) const {
    return run(ranks).train(kSaved, kSteps, [&](TrainStep& step, Control& control) {
      Checkpoint checkpoint(dir);
      auto chunks = step.owned();
      check_states(checkpoint, chunks, {}, control);
      read_state(checkpoint, chunks, step.model());
      step.publish();
      step.restore(checkpoint.state().optimizer_steps);
    });
  }

  void expect_bitwise(const Ranks& ranks) const {
    TinyResult whole = run(ranks).train(0, kSteps), got = resume(ranks, save(ranks));
    std::vector<StepReport> wanted(whole.steps.begin() + kSaved, whole.steps.end());
    EXPECT_EQ(distance(got.steps, wanted), 0) << to_string(ranks.layout);
    EXPECT_EQ(distance(got.state, whole.state), 0) << to_string(ranks.layout);
  }

  TinyOptions options_;
  testing::Directory dir_;
};

class Resume : public ResumeTest, public ::testing::WithParamInterface<bool> {
 protected:
  Resume() { options_.model.tied_embedding = GetParam(); }
};

TEST_P(Resume, OfEveryLayoutFromEveryOtherIsTheUninterruptedRun) {
  TinyResult whole = run({}).train(0, kSteps);
  std::vector<StepReport> wanted(whole.steps.begin() + kSaved, whole.steps.end());
  for (const Ranks& saved : kRanks) {
    fs::path dir = save(saved);
    for (const Ranks& resumed : kRanks) {
      TinyResult got = resume(resumed, dir);
      std::string pair = to_string(saved.layout) + " -> " + to_string(resumed.layout);
      EXPECT_LE(distance(got.steps, wanted), kTolerance) << pair;
      EXPECT_LE(distance(got.state, whole.state), kTolerance) << pair;
      EXPECT_EQ(got.copies_differ, "") << pair;
    }
  }
}

TEST_P(Resume, AtTheSameLayoutIsBitwise) {
  for (const Ranks& ranks : {kRanks[0], kRanks[5], kRanks[7]}) expect_bitwise(ranks);
}

TEST_F(ResumeTest, EachOfTheReplicasReadsAPart) {
  Ranks ranks{{.replicate = 4}};
  fs::path dir = save(ranks);
  std::string file = (dir / "rank_00002.h5").string(), bytes = read_file(file);
  bytes.back() = static_cast<char>(~bytes.back());
  write_file_atomically(file, bytes);
  std::vector<std::string> errors(4);
  run(ranks).train(kSaved, kSaved, [&](TrainStep& step, Control& control) {
    auto chunks = step.owned();
    auto read = [&] {
      read_state(Checkpoint(dir), chunks, step.model(), [] { fail(Exit::kInternal, "met"); });
    };
    errors[static_cast<size_t>(control.rank())] = testing::error_of(read);
  });
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(errors[rank].find("is damaged") != std::string::npos, rank == 2) << errors[rank];
}

INSTANTIATE_TEST_SUITE_P(TiedEmbedding, Resume, ::testing::Bool());

class ResumeExperts : public ResumeTest, public ::testing::WithParamInterface<ModelOption> {};

TEST_P(ResumeExperts, AtOtherLayoutsIsTheUninterruptedRun) {
  GetParam().set(options_);
  options_.model.kv_heads = 0;  // four ranks share the heads out
  expect_bitwise(kRanks[6]);
  TinyResult whole = run({}).train(0, kSteps);
  for (const Ranks& saved : {kRanks[0], kRanks[1], kRanks[5], kRanks[6]}) {
    fs::path dir = save(saved);
    for (const Ranks& resumed : {kRanks[0], kRanks[4], kRanks[6]}) {
      TinyResult got = resume(resumed, dir);
      EXPECT_LE(distance(got.state, whole.state), kTolerance)
          << to_string(saved.layout) << " -> " << to_string(resumed.layout);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResumeExperts, ::testing::ValuesIn(kExpertOptions),
                         [](const auto& info) { return std::string(info.param.name); });

class ResumeOptimizer : public ResumeTest, public ::testing::WithParamInterface<OptimizerCase> {};

TEST_P(ResumeOptimizer, IsBitwise) {
  options_ = tiny_options(GetParam());
  expect_bitwise({{}});
  expect_bitwise({{.pp = 2, .tp = 2}});
  Ranks sharded{{.shard = 3}, Keeping::kParameters};
  if (has_layout(GetParam(), sharded.layout)) expect_bitwise(sharded);
}

// A stage in the middle owns no parameter that Muon leaves to AdamW.
TEST_F(ResumeTest, OfMuonWhereAStageOwnsMatricesAlone) {
  options_ = tiny_options(optimizer_case("Muon"));
  for (const ModelOption& option : kModelOptions)
    if (option.name == std::string("NothingButMatrices")) option.set(options_);
  expect_bitwise({{.pp = 3}});
  expect_bitwise({{.pp = 3, .shard = 3}, Keeping::kParameters});
}

// With five ranks and more some own nothing of a layer.
TEST_F(ResumeTest, OfMuonOnManyRanksFromFewAndBack) {
  options_ = tiny_options(optimizer_case("Muon"));
  TinyResult whole = run({}).train(0, kSteps);
  Ranks few{{.shard = 2}}, many{{.shard = 6}, Keeping::kChunks};
  for (auto [saved, resumed] : {std::pair(few, many), std::pair(many, few)})
    EXPECT_LE(distance(resume(resumed, save(saved)).state, whole.state), kTolerance);
  expect_bitwise(many);
}

INSTANTIATE_TEST_SUITE_P(All, ResumeOptimizer, ::testing::ValuesIn(optimizer_cases()));

}  // namespace
}  // namespace neox
