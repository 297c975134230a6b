// Saving and reading back: any writers, any readers, all types.
#include "checkpoint/checkpoint.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "checkpoint/layout.h"
#include "checkpoint_support.h"
#include "launch/process_info.h"

namespace neox {
namespace {

using testing::Test;
using Texts = std::vector<std::string>;

bool all_contain(const Texts& errors, const std::string& text) {
  for (const std::string& error : errors)
    if (error.find(text) == std::string::npos) return false;
  return true;
}

TEST_F(CheckpointTest, AnyReadersReadWhatAnyWritersWrote) {
  for (int64_t step = 1; step <= 30; ++step) {
    int writers = 1 + static_cast<int>(cutter_.below(7));
    ASSERT_EQ(save_all({.dir = dir_}, filled(writers, step), step), Texts(size_t(writers)));
    fs::path found = find_checkpoint(dir_).value();
    ASSERT_EQ(found, dir_ / step_name(step));
    ASSERT_EQ(read_back(found, step, 1 + static_cast<int>(cutter_.below(7))), "");
  }
}

TEST_F(CheckpointTest, ConvertsTheTypeWhereTheTargetHasAnother) {
  at::ScalarType types[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};
  for (at::ScalarType stored : types)
    for (at::ScalarType wanted : types) {
      model_ = model_of(stored, {13, 7});
      ASSERT_EQ(save_all({.dir = dir_}, filled(3, 4), 4), Texts(3));
      model_ = model_of(wanted, {13, 7});
      EXPECT_EQ(read_back(dir_ / "global_step4", 4), "") << stored << " as " << wanted;
    }
}

TEST_F(CheckpointTest, BlocksAroundThePageCacheAndTheirTailsAreWritten) {
  model_ = model_of(at::kFloat, {3001, 3001});  // 36 MB: blocks and a piece, of several boxes
  Layout layout(1);
  for (const char* state : {"param", "adam_m"})
    layout[0].push_back({"b",
                         state,
                         at::full({3001 * 3001}, 0, at::kFloat),
                         {{"w", {3001, 3001}, whole({3001, 3001}), 0}}});
  fill(layout, 6);
  save_alone({.dir = dir_}, layout, 6);
  EXPECT_EQ(read_back(dir_ / "global_step6", 6), "");
}

TEST_F(CheckpointTest, ListsItsTensors) {
  save_all({.dir = dir_}, filled(3, 1), 1);
  std::map<std::string, Checkpoint::TensorInfo> infos;
  for (const auto& info : Checkpoint(dir_ / "global_step1").tensors())
    infos[info.state + "/" + info.name] = info;
  EXPECT_EQ(infos.size(), 2 * model_.size());
  EXPECT_EQ(infos["param/layers.0.qkv.weight"].shape, (Dims{5, 3, 4, 7}));
  EXPECT_EQ(infos["adam_m/layers.1.mlp.weight"].dtype, at::kHalf);
  EXPECT_EQ(infos["param/final.scale"].shape, Dims{});
}

TEST_F(CheckpointTest, HolesAreRefusedOnEveryRank) {
  auto rows = [](int64_t from, int64_t count) {
    return StateChunk{"b",
                      "param",
                      at::full({count * 4}, 1, at::kFloat),
                      {{"w", {6, 4}, {{from, 0}, {count, 4}}, 0}}};
  };
  Layout layout = {{rows(0, 3)}, {rows(5, 1)}};
  Texts errors = save_all({.dir = dir_}, layout, 1);
  EXPECT_TRUE(all_contain(errors,
                          "param of w [6, 4]: 8 of 24 elements were written by no rank, "
                          "among them [3:5, 0:4]"))
      << errors[0];
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(CheckpointTest, AnyLostBoxIsNoticed) {
  for (int i = 0; i < 20; ++i) {
    Layout layout = filled(2, 1);
    auto& chunks = layout[size_t(cutter_.below(2))];
    auto& placements = chunks[size_t(cutter_.below(int64_t(chunks.size())))].placements;
    Placement lost = placements.back();
    if (lost.box == whole(lost.shape)) continue;  // a tensor that nobody knows of
    placements.pop_back();
    Texts errors = save_all({.dir = dir_}, layout, 1);
    ASSERT_TRUE(all_contain(errors, lost.name)) << errors[0];
    ASSERT_TRUE(all_contain(errors, "written by no rank")) << errors[0];
  }
}

TEST_F(CheckpointTest, OverlapsAreRefusedOnEveryRank) {
  Layout layout = filled(3, 1);
  StateChunk& chunk = layout[2][0];
  Placement again = chunk.placements[0];
  again.offset = chunk.data.numel();
  chunk.data = at::full({2 * again.offset}, 0, chunk.data.options());
  chunk.placements.push_back(again);
  Texts errors = save_all({.dir = dir_}, layout, 1);
  EXPECT_TRUE(all_contain(errors, again.name)) << errors[0];
  EXPECT_TRUE(all_contain(errors, to_string(again.box) + " was written twice"));
  EXPECT_TRUE(all_contain(errors, "rank_00002.h5"));
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(CheckpointTest, RanksThatDisagreeAboutATensorAreNamed) {
  Layout layout(2);
  for (int64_t rank : {0, 1})
    layout[size_t(rank)].push_back({"b",
                                    "param",
                                    at::full({6}, 1, at::kFloat),
                                    {{"w", {2, 6 + rank}, {{rank, 0}, {1, 6}}, 0}}});
  Texts errors = save_all({.dir = dir_}, layout, 1);
  EXPECT_TRUE(all_contain(errors, "float32 [2, 6] in rank_00000.h5, but float32 [2, 7] in rank_"))
      << errors[0];
}

TEST_F(CheckpointTest, ARankThatFailsIsNamedOnAll) {
  Layout layout = filled(3, 1);
  layout[1][0].data = layout[1][0].data.to(at::kLong);
  Texts errors = save_all({.dir = dir_}, layout, 1);
  EXPECT_TRUE(all_contain(errors, concat("rank 1 on ", host_name(),
                                         ": a checkpoint cannot hold elements of type Long")))
      << errors[0];
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(CheckpointTest, RanksMustSaveTheSameStep) {
  Layout layout = filled(2, 1);
  Texts errors = run_ranks(2, [&](Control& control) {
    save_checkpoint({.dir = dir_}, layout[0], state_of(7 + control.rank()), control);
  });
  EXPECT_TRUE(all_contain(errors, "rank 1 saves ")) << errors[0];
}

TEST_F(CheckpointTest, BufferNamesMayHaveSlashesAndRanksMayOwnNothing) {
  model_ = model_of(at::kFloat, {9});
  Layout layout = filled(1, 1);
  for (StateChunk& chunk : layout[0]) chunk.buffer = "stage 1/layers.0-3";
  layout.resize(3);
  EXPECT_EQ(save_all({.dir = dir_}, layout, 1), Texts(3));
  EXPECT_FALSE(fs::exists(dir_ / "global_step1/rank_00002.h5"));
  EXPECT_EQ(read_back(dir_ / "global_step1", 1), "");
}

TEST_F(CheckpointTest, ReplacesOneOfTheSameName) {
  save_all({.dir = dir_}, filled(4, 1), 1);
  Layout other = cutter_.layout(model_, 2);
  fill(other, 77);
  AloneControl control;
  Texts errors = run_ranks(2, [&](Control& c) {
    save_checkpoint({.dir = dir_}, other[size_t(c.rank())], state_of(1), c);
  });
  EXPECT_EQ(errors, Texts(2));
  Layout back = cutter_.layout(model_, 1);
  Checkpoint(dir_ / "global_step1").read(back[0]);
  EXPECT_EQ(difference(back, 77), "");
  EXPECT_FALSE(fs::exists(dir_ / "global_step1/rank_00003.h5"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 2);  // it and `latest`
}

TEST_F(CheckpointTest, KeepsTheLastAndTheOneJustWritten) {
  auto save = [&](int64_t step) {
    save_all({.dir = dir_, .keep_last = 2}, filled(1, step), step);
    std::vector<int64_t> steps;
    for (const auto& entry : fs::directory_iterator(dir_))
      if (auto found = step_of(entry.path().filename().string())) steps.push_back(*found);
    std::ranges::sort(steps);
    return steps;
  };
  fs::create_directories(dir_ / "global_step0");  // not complete: not ours to remove
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(save(10), (Steps{0, 10}));
  EXPECT_EQ(save(20), (Steps{0, 10, 20}));
  EXPECT_EQ(save(30), (Steps{0, 20, 30}));
  EXPECT_EQ(save(5), (Steps{0, 5, 30}));
  EXPECT_EQ(read_file(dir_ / "latest"), "global_step5");
}

TEST_F(CheckpointTest, LeftoversOfOldLivesGoWhenTheyAreOld) {
  for (const char* name : {"global_step3.tmp-a.0", "global_step3.tmp-b.0",
                           "global_step2.deleting-a.0", "mine.tmp-a"}) {
    fs::create_directories(dir_ / name);
    write_file_atomically(dir_ / name / "rank_00000.h5", "x");
  }
  auto yesterday = fs::file_time_type::clock::now() - std::chrono::hours(25);
  for (const char* name : {"global_step3.tmp-a.0", "mine.tmp-a"}) {
    fs::last_write_time(dir_ / name / "rank_00000.h5", yesterday);
    fs::last_write_time(dir_ / name, yesterday);
  }
  save_all({.dir = dir_}, filled(1, 4), 4);
  EXPECT_FALSE(fs::exists(dir_ / "global_step3.tmp-a.0"));
  EXPECT_TRUE(fs::exists(dir_ / "global_step3.tmp-b.0"));
  EXPECT_FALSE(fs::exists(dir_ / "global_step2.deleting-a.0"));
  EXPECT_TRUE(fs::exists(dir_ / "mine.tmp-a"));
}

TEST_F(CheckpointTest, LeftoversOfOtherLivesGoAtOnceWhereThisOneIsTheOwner) {
  RunClaim claim(dir_, "own");
  for (const char* name : {"global_step3.tmp-killed", "global_step3.tmp-own"}) {
    fs::create_directories(dir_ / name);
    write_file_atomically(dir_ / name / "rank_00000.h5", "x");
  }
  save_all({.dir = dir_, .life = "own"}, filled(1, 4), 4);
  EXPECT_FALSE(fs::exists(dir_ / "global_step3.tmp-killed"));
  EXPECT_TRUE(fs::exists(dir_ / "global_step3.tmp-own"));
}

TEST_F(CheckpointTest, ARunThatWasTakenOverEndsForGood) {
  RunClaim claim(dir_, "later");
  Texts errors = save_all({.dir = dir_, .life = "earlier"}, filled(1, 4), 4);
  EXPECT_TRUE(all_contain(errors, "was taken over by a later run (later)")) << errors[0];
  EXPECT_FALSE(fs::exists(dir_ / "global_step4"));
  Exit exit = Exit::kDone;
  try {
    check_claim(dir_, "earlier");
  } catch (const Error& e) { exit = e.exit(); }
  EXPECT_EQ(exit, Exit::kUsage);  // a requeued job would take the directory back
}

TEST_F(CheckpointTest, OneRunAtATimeHasTheDirectory) {
  auto refusal = [&](const std::string& life) -> std::string {
    try {
      RunClaim claim(dir_, life);
      return "";
    } catch (const Error& e) { return e.exit() == Exit::kUsage ? e.what() : "another code"; }
  };
  {
    RunClaim claim(dir_, "7.0.0");
    EXPECT_TRUE(refusal("node-99").find("is in use: the run 7.0.0 is saving there") !=
                std::string::npos);
    EXPECT_TRUE(refusal("8.0.1").find("is in use") != std::string::npos);
    EXPECT_TRUE(refusal("77.0.1").find("is in use") != std::string::npos);
    check_claim(dir_, "7.0.0");
    RunClaim restarted(dir_, "7.0.1");  // the same job, whose process of before is not yet gone
    EXPECT_THROW(check_claim(dir_, "7.0.0"), Error);
    EXPECT_TRUE(refusal("8.0.0").find("the run 7.0.1 is saving") != std::string::npos);
    EXPECT_EQ(refusal("7.1.0"), "");  // another step of the job
  }
  EXPECT_EQ(refusal("node-99"), "");
  for (const char* where : {"node.cluster.org-", "10.0.0.1-", "prterun-node.org-7-", "exp.of.7-"}) {
    RunClaim claim(dir_, concat(where, "1"));  // no restart of a job, though with dots
    EXPECT_TRUE(refusal(concat(where, "2")).find("is in use") != std::string::npos) << where;
  }
  EXPECT_EQ(refusal("node-99"), "");
  EXPECT_TRUE(sees_claim(dir_, "node-99", std::chrono::seconds(0)));
  EXPECT_FALSE(sees_claim(dir_, "node-98", std::chrono::seconds(0)));
  EXPECT_FALSE(sees_claim(dir_ / "none", "node-99", std::chrono::seconds(1)));
}

TEST_F(CheckpointTest, AReaderOfAnotherArchitectureIsTold) {
  save_all({.dir = dir_}, filled(2, 1), 1);
  Checkpoint checkpoint(dir_ / "global_step1");
  auto read = [&](const char* state, const char* name, const Dims& shape) {
    std::vector<StateChunk> chunks = {{"b",
                                       state,
                                       at::full({num_elements(shape)}, 0, at::kFloat),
                                       {{name, shape, whole(shape), 0}}}};
    return error_of([&] { checkpoint.read(chunks); });
  };
  EXPECT_NE(read("param", "embed.weight", {28, 21}).find("is [28, 20], but [28, 21] is asked for"),
            std::string::npos);
  EXPECT_NE(read("param", "embed.weigth", {28, 20}).find("holds no param of embed.weigth"),
            std::string::npos);
  EXPECT_NE(read("param", "embed.weigth", {28, 20}).find("it has one of embed.weight"),
            std::string::npos);
  EXPECT_NE(read("adam_v", "embed.weight", {28, 20}).find("holds no adam_v of embed.weight"),
            std::string::npos);
}

TEST_F(CheckpointTest, ThreadsMayReadOneCheckpointAtOnce) {
  save_all({.dir = dir_}, filled(3, 8), 8);
  Checkpoint checkpoint(dir_ / "global_step8");
  Layout layout = cutter_.layout(model_, 6);
  Texts errors = run_ranks(6, [&](Control& c) { checkpoint.read(layout[size_t(c.rank())]); });
  EXPECT_EQ(errors, Texts(6));
  EXPECT_EQ(difference(layout, 8), "");
}

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  return ::pclose(pipe) == 0 ? text : "";
}

TEST_F(CheckpointTest, H5dumpReadsIt) {
  if (output_of("h5dump --version").empty()) GTEST_SKIP() << "h5dump is not installed";
  for (at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    model_ = model_of(type, {3});
    Layout layout(1);
    layout[0].push_back({"b", "param", at::full({3}, -1.5, type), {{"w", {3}, whole({3}), 0}}});
    save_alone({.dir = dir_}, layout, 1);
    std::string file = (dir_ / "global_step1/rank_00000.h5").string();
    std::string text = output_of("h5dump -d /b/param " + file);
    EXPECT_NE(text.find("(0): -1.5, -1.5, -1.5"), std::string::npos) << text;
  }
}

TEST_F(CheckpointTest, H5pyReadsIt) {
  const char* named = std::getenv("NEOX_TEST_PYTHON");
  std::string python = named ? named : "python3";
  if (output_of(python + " -c 'import h5py; print(1)'") != "1\n")
    GTEST_SKIP() << python << " has no h5py; NEOX_TEST_PYTHON may name one that has";
  save_all({.dir = dir_}, filled(3, 5), 5);
  std::string text = output_of(python + " " NEOX_SOURCE_DIR "/tests/oracle/checkpoint_h5py.py " +
                               (dir_ / "global_step5").string());
  for (const char* state : {"param", "adam_m"})
    for (const TensorSpec& spec : model_) {
      std::vector<StateChunk> chunk = {{"b",
                                        state,
                                        at::full({num_elements(spec.shape)}, 0, at::kDouble),
                                        {{spec.name, spec.shape, whole(spec.shape), 0}}}};
      Checkpoint(dir_ / "global_step5").read(chunk);
      double sum = 0;
      for (int64_t i = 0; i < chunk[0].data.numel(); ++i)
        sum += chunk[0].data.const_data_ptr<double>()[i] * static_cast<double>(i + 1);
      std::string shape;
      for (int64_t n : spec.shape) shape += (shape.empty() ? "" : "x") + std::to_string(n);
      std::string line = concat(state, " ", spec.name, " ", dtype_name(spec.dtype), " ", shape, " ",
                                static_cast<int64_t>(sum), "\n");
      EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
}

// Tensors of several blocks in memory that begins `shift` elements after a page, where the disk can
// take and put whole blocks (0) or not; `gap` elements lie behind each. Filled with `rest`.
Layout large_layout(int64_t shift, int64_t gap, float rest) {
  StateChunk chunk{"large", "param", {}, {}};
  int64_t end = 0;
  for (auto [name, size] : {std::pair{"a", int64_t{3} << 20},
                            {"b", int64_t{1031}},
                            {"c", int64_t{2} << 20},
                            {"d", (int64_t{3} << 20) + 5}}) {
    chunk.placements.push_back({name, {size}, whole({size}), end});
    end += size + gap;
  }
  auto bytes = static_cast<size_t>(end + shift) * sizeof(float);
  void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  chunk.data = at::from_blob(memory, {end + shift}, std::free, at::kFloat).fill_(rest);
  chunk.data = chunk.data.narrow(0, shift, end);
  return {{chunk}};
}

TEST_F(CheckpointTest, LargeTensorsComeBackWhereverTheyLie) {
  for (int64_t shift : {0, 3})
    for (int64_t gap : {0, 1024, 1}) {
      Layout saved = large_layout(shift, gap, -999);
      fill(saved, 7);
      save_alone({.dir = dir_}, saved, 7);
      for (auto [to, apart] : {std::pair{int64_t{0}, gap}, {0, 2048}, {1, gap}}) {
        SCOPED_TRACE(concat(shift, " ", gap, " to ", to, " ", apart));
        Layout read = large_layout(to, apart, -1);
        Checkpoint(find_checkpoint(dir_).value()).read(read[0]);
        EXPECT_EQ(difference(read, 7), "");
        for (const Placement& p : read[0][0].placements) {
          at::Tensor behind = read[0][0].data.narrow(0, p.offset + p.box.numel(), apart);
          EXPECT_TRUE(behind.eq(-1).all().item<bool>()) << p.name;
        }
      }
    }
}

TEST(TrainStateTest, NumbersComeBackExactly) {
  TrainState state = state_of(3);
  for (double scale : {0.1, 1.0 / 3, 65536.0, 5e-324, 1.7976931348623157e308, -0.0}) {
    state.loss_scale = scale;
    state.dataset_samples = INT64_MAX;
    state.growth = INT64_MIN;
    EXPECT_EQ(train_state_from_json(to_json(state), "x"), state);
  }
}

TEST(TrainStateTest, WhatJsonCannotHoldIsRefused) {
  EXPECT_NE(error_of([] { to_json({.loss_scale = INFINITY}); }).find("inf"), std::string::npos);
  EXPECT_NE(error_of([] { to_json({.config = "\xff"}); }).find("UTF-8"), std::string::npos);
  EXPECT_NE(error_of([] { train_state_from_json("{}", "x"); }).find("x lacks iteration"),
            std::string::npos);
  std::string text = to_json({});
  text.replace(text.find(": 0"), 3, ": 0.5");
  EXPECT_NE(error_of([&] { train_state_from_json(text, "x"); }).find("iteration is 0.5"),
            std::string::npos);
}

}  // namespace
}  // namespace neox
