// Steps with shorter sequences: what is cut off counts nowhere.
#include <gtest/gtest.h>

#include "rerun_recorder.h"
#include "tiny_run.h"

namespace neox {
namespace {

// The lengths rise, and steps of one length are recorded and repeated.
int64_t rising(int64_t step) { return step < 5 ? 3 : step < 6 ? 5 : 7; }
constexpr int64_t kGrowing = 10;

TinyOptions without_dropout() {
  TinyOptions options;
  options.model.hidden_dropout = options.model.attention_dropout = 0;
  options.seq_of_step = rising;
  return options;
}

// With attention to what comes before alone, a token of weight 0 at the end is as none.
TEST(Curriculum, AShortStepIsOneWhoseOtherTokensDoNotCount) {
  for (auto change : {+[](TinyOptions&) {}, +[](TinyOptions& o) { like_gpt2(o); },
                      +[](TinyOptions& o) { with_relative_positions(o); },
                      +[](TinyOptions& o) { o.end_of_document = 3; }}) {
    TinyOptions options = without_dropout();
    change(options);
    TinyResult cut = TinyRun({}, options).train(0, kGrowing);
    options.cut = false;
    TinyResult whole = TinyRun({}, options).train(0, kGrowing);
    EXPECT_LE(distance(cut.steps, whole.steps), 1e-12);
    EXPECT_LE(distance(cut.state, whole.state), 1e-11);
    options.seq_of_step = {};
    EXPECT_GT(distance(cut.steps, TinyRun({}, options).train(0, kGrowing).steps), 1e-3);
  }
}

TEST(Curriculum, IsTheSameAtEveryLayout) {
  TinyOptions options;
  options.seq_of_step = rising;
  TinyResult one = TinyRun({}, options).train(0, kGrowing);
  for (Layout layout : {Layout{.tp = 2}, {.pp = 2}, {.shard = 2}, {.pp = 3, .shard = 2, .tp = 2}}) {
    TinyResult many = TinyRun(layout, options).train(0, kGrowing);
    EXPECT_LE(distance(many.steps, one.steps), 1e-12) << to_string(layout);
    EXPECT_LE(distance(many.state, one.state), 1e-12) << to_string(layout);
    EXPECT_EQ(many.copies_differ, "") << to_string(layout);
  }
  options.recompute = 2;
  EXPECT_LE(distance(TinyRun({}, options).train(0, kGrowing).state, one.state), 1e-12);
}

TEST(Curriculum, SequencesThatAreSharedOutAreTheSame) {
  TinyOptions options;
  options.model.seq = options.model.positions = 8;
  options.seq_of_step = [](int64_t step) -> int64_t { return step < 4 ? 2 : step < 6 ? 4 : 8; };
  TinyResult one = TinyRun({}, options).train(0, kGrowing);
  options.splits_tokens = true;
  TinyResult two = TinyRun({.tp = 2}, options).train(0, kGrowing);
  EXPECT_LE(distance(two.steps, one.steps), 1e-12);
  EXPECT_LE(distance(two.state, one.state), 1e-12);
}

TEST(Curriculum, EachLengthIsRecordedAnew) {
  for (Layout layout : {Layout{}, {.pp = 2}}) {
    TinyOptions options;
    options.seq_of_step = rising;
    TinyResult plain = TinyRun(layout, options).train(0, kGrowing);
    RerunRecorder::Calls calls, one_length;
    options.recorder = [&] { return std::make_unique<RerunRecorder>(calls); };
    TinyResult recorded = TinyRun(layout, options).train(0, kGrowing);
    EXPECT_EQ(distance(recorded.steps, plain.steps), 0) << to_string(layout);
    EXPECT_EQ(distance(recorded.state, plain.state), 0) << to_string(layout);
    options.seq_of_step = {};
    options.recorder = [&] { return std::make_unique<RerunRecorder>(one_length); };
    TinyRun(layout, options).train(0, kGrowing);
    EXPECT_GT(calls.recorded, one_length.recorded) << to_string(layout);
  }
}

TEST(Curriculum, NothingIsRecordedWhileLengthsAreToCome) {
  TinyOptions options;
  options.seq_of_step = rising;
  TinyResult plain = TinyRun({}, options).train(0, kGrowing);
  RerunRecorder::Calls calls;
  GraphRecorder* recorder = nullptr;
  std::vector<int> recorded;
  options.recorder = [&] {
    auto made = std::make_unique<RerunRecorder>(calls);
    made->waits = true;
    recorder = made.get();
    return made;
  };
  options.after_step = [&](TrainStep&, Communicator&) {
    recorded.push_back(calls.recorded);
    recorder->waits = recorded.size() < 6;  // the seventh step has the last length
  };
  TinyResult waited = TinyRun({}, options).train(0, kGrowing);
  EXPECT_EQ(distance(waited.steps, plain.steps), 0);
  EXPECT_EQ(distance(waited.state, plain.state), 0);
  EXPECT_EQ(recorded[5], 0);
  EXPECT_GT(recorded.back(), 0);
}

}  // namespace
}  // namespace neox
