// What a run says of itself beside its losses: evaluations and generated samples.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <csignal>
#include <set>
#include <sstream>

#include "comm/thread.h"
#include "run_fixture.h"
#include "train/report.h"
#include "train/run.h"

namespace neox::testing {
namespace {

// What two ranks throw, of which the second finds other files on its node: those that its settings
// name. Two steps, with an evaluation and samples behind each.
std::string error_of_nodes(const Training& run, const Strings& settings, const Strings& second) {
  const Strings both =
      Strings{"save=null", "load=null", "eval_iters=1", "eval_interval=1", "train_iters=2"} +
      settings;
  std::vector<Config> configs;
  for (const Strings& mine : {both, both + second})
    configs.push_back(load_config({.files = {run.dir() / "tiny.yml"}, .overrides = mine}));
  StopFlag stop;
  RunPlace place{at::kCPU, stop, "life", std::nullopt};
  return error_of([&] {
    run_thread_ranks(2, [&](Communicator& world, Control& control) {
      train_rank(configs[static_cast<size_t>(control.rank())], world, control, place);
    });
  });
}

TEST(Reports, SamplesAndEvaluationsAreInTheMetrics) {
  Training run;
  Ended ended = run.train({"sample_prompts=[\"the and\"]", "maximum_tokens=5", "eval_interval=10",
                           "eval_iters=2", "tensorboard_dir=" + (run.dir() / "tb")});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(read_file(run.dir() / "log/metrics.jsonl"), R"("samples":"the and)"));
  for (const char* split : {"validation/lm_loss", "validation/lm_loss_ppl"})
    EXPECT_EQ(run.metric(split).size(), 2u) << split;
  EXPECT_EQ(run.metric("test/lm_loss").size(), 1u);
  EXPECT_EQ(run.metric("train/tokens").at(20), 20 * 5 * 16);
  for (int64_t step : run.saved()) EXPECT_GT(run.metric("runtime/save_time").at(step), 0) << step;
  RunLog events = load_runs({run.dir() / "tb"}).at(0);
  EXPECT_EQ(events.series.at("train/lm_loss").size(), 20u);
  EXPECT_TRUE(
      has(read_file(events.path / fs::directory_iterator(run.dir() / "tb")->path()), "the and"));
}

// fp16 overflows from the first layer on, in steps, evaluations and samples.
TEST(Reports, ASampleWithoutNumbersIsToldAndEndsNoRun) {
  for (const Strings& more : {Strings{}, Strings{"--spawn", "2"}}) {
    Training run;
    std::string stages = concat("pipe_parallel_size=", more.empty() ? 1 : 2);
    Ended ended =
        run.train({"precision=fp16", "init_method_std=1000", "eval_interval=10", "eval_iters=1",
                   "sample_prompts=[\"the and\"]", "maximum_tokens=5", stages},
                  more);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(has(ended.err, "sample: the and [the model's greatest logit is ")) << ended.err;
    EXPECT_EQ(run.saved().back(), 20);
  }
}

// The pipe holds fewer lines than there are samples.
TEST(Reports, AStopIsHeardBetweenSamplesAndTheNextStartMakesThem) {
  Training run;
  auto settings = [](int samples) {
    std::string prompts = "the";
    for (int i = 1; i < samples; ++i) prompts += concat(",the", i);
    return Strings{"eval_interval=10", "eval_iters=1", "maximum_tokens=5",
                   "sample_prompts=[" + prompts + "]"};
  };
  Child child = run.start(settings(300));
  ASSERT_TRUE(child.wait_for("| sample: "));
  child.signal(SIGTERM);
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_FALSE(has(ended.err, "sample: the299")) << ended.err;
  EXPECT_EQ(run.saved(), std::vector<int64_t>{10});
  EXPECT_TRUE(has(run.train(settings(3)).err, "step 10 | sample: the2"));
}

TEST(Reports, AStopIsHeardWithinASampleBehindTheSaveThatIsDue) {
  for (const Strings& more : {Strings{}, Strings{"--spawn", "4"}}) {
    Training run;
    Child child =
        run.start({"eval_interval=5", "eval_iters=1", "checkpoint_factor=5",
                   "max_position_embeddings=20000", "maximum_tokens=19000", "sample_prompts=[the]"},
                  more);
    ASSERT_TRUE(child.wait_for("saved ")) << child.end().err;
    child.signal(SIGTERM);
    Ended ended = child.end();
    EXPECT_EQ(ended.code, 75) << ended.err;
    EXPECT_TRUE(has(ended.err, "stopped at step 5 of")) << ended.err;
    EXPECT_FALSE(has(ended.err, "| sample: ")) << ended.err;
    EXPECT_EQ(run.saved(), std::vector<int64_t>{5});
  }
}

// A loss by character, and one by byte, as parts of that of a token.
TEST(Reports, LossesByCharacterAreTheSameAtEachLayout) {
  const Strings by_character = {"char_level_ppl=true", "eval_interval=10", "eval_iters=3"};
  auto measured = [&](const Strings& settings, const Strings& more, const char* name) {
    Training run;
    Ended ended = run.train(by_character + settings, more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(has(ended.err, ", by character ")) << ended.err;
    double loss = run.metric(concat(name, "/lm_loss")).at(20);
    double nats = std::log(run.metric(concat(name, "/lm_loss_char_lvl_ppl")).at(20));
    double bits = run.metric(concat(name, "/bits_per_byte")).at(20);
    return std::array{nats / loss, bits * std::log(2) / loss};
  };
  for (const char* name : {"validation", "test"}) {
    auto alone = measured({}, {}, name);
    EXPECT_LT(alone[0], 1);
    EXPECT_LT(alone[1], alone[0]);  // characters of the generated text are of several bytes
    EXPECT_GT(alone[1], 0.2);
    for (const char* layout : {"pipe_parallel_size=2", "model_parallel_size=2"}) {
      auto split = measured({layout}, {"--spawn", "4"}, name);
      for (size_t i : {0, 1}) EXPECT_NEAR(split[i], alone[i], 1e-9) << layout;
    }
  }
}

TEST(Reports, LossesByCharacterNeedATokenizerAndALossOfTokens) {
  Training run;
  Ended ended = run.train({"char_level_ppl=true", "vocab_file=null", "padded_vocab_size=300"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "--set: char_level_ppl needs a tokenizer (vocab_file)")) << ended.err;
}

TEST(Reports, SamplesAreTheSameWhereMatricesAreGatheredAroundTheirUse) {
  auto samples = [](const std::string& stage) {
    Training run;
    Ended ended = run.train({"sample_prompts=[\"the and\"]", "eval_interval=5", "eval_iters=1",
                             "zero_optimization.stage=" + stage},
                            {"--spawn", "2"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    Strings found;
    std::istringstream lines(read_file(run.dir() / "log/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (size_t at = line.find("\"samples\""); at != line.npos) found.push_back(line.substr(at));
    return found;
  };
  Strings whole = samples("1");
  EXPECT_EQ(whole.size(), 4u);
  EXPECT_EQ(samples("3"), whole);
}

TEST(Reports, ACurriculumIsInTheLogAndItsTokensAreCounted) {
  Training run;
  Ended ended = run.train({kCurriculum, "log_interval=10"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "8 tokens a sequence")) << ended.err;
  EXPECT_TRUE(has(ended.err, "16 tokens a sequence")) << ended.err;
  auto lengths = run.metric("curriculum_seqlen"), tokens = run.metric("train/tokens");
  EXPECT_EQ(lengths.at(3), 4);
  EXPECT_EQ(lengths.at(4), 8);
  EXPECT_EQ(lengths.at(16), 16);
  EXPECT_EQ(tokens.at(15), 5 * (3 * 4 + 12 * 8));
  EXPECT_EQ(tokens.at(20), 5 * (3 * 4 + 12 * 8 + 5 * 16));
  double rate = run.metric("runtime/tokens_per_sec").at(20),
         samples = run.metric("runtime/samples_per_sec").at(20);
  EXPECT_NEAR(rate / samples, (5 * 8 + 5 * 16) / 10.0, 1e-6);  // of steps 11 to 20
}

TEST(Reports, ABatchThatGrowsIsCountedAsItIs) {
  Training run;
  Ended ended = run.train(kRampUp + Strings{"log_interval=10"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "steps have 1 sample now and 5 from step 9 on")) << ended.err;
  EXPECT_TRUE(has(ended.err, "step 20/20")) << ended.err;
  EXPECT_TRUE(has(ended.err, " | batch 5 | ")) << ended.err;
  auto sizes = run.metric("batch_size"), tokens = run.metric("train/tokens");
  EXPECT_EQ(sizes.at(6), 1);
  EXPECT_EQ(sizes.at(7), 3);
  EXPECT_EQ(sizes.at(9), 5);
  EXPECT_EQ(tokens.at(7), 16 * 9);
  EXPECT_EQ(tokens.at(20), 16 * 72);
  double rate = run.metric("runtime/tokens_per_sec").at(10);
  EXPECT_NEAR(rate / run.metric("runtime/samples_per_sec").at(10), 16, 1e-6);
  double seconds = run.metric("runtime/iteration_time").at(10);
  EXPECT_NEAR(rate * seconds, 16 * (6 * 1 + 2 * 3 + 2 * 5) / 10.0, 1e-3 * rate * seconds);
}

TEST(Reports, TheTimeThatIsLeftCountsTheTokensToCome) {
  auto left = [](const Strings& more) {
    Training run;
    Config config = load_config(
        {.files = {run.dir() / "tiny.yml"}, .overrides = Strings{"log_interval=3"} + more});
    Report report(config, {.batch = {.global = 5, .micro = 5, .accumulation = 1},
                           .batches = batch_schedule(config, 5)});
    ::testing::internal::CaptureStderr();
    for (int64_t step = 1; step <= 3; ++step) report.step(step, {.loss = 5, .grad_norm = 1}, 60);
    std::string line = ::testing::internal::GetCapturedStderr();
    return line.substr(0, line.find(" left")).substr(line.rfind(" | ") + 3);
  };
  EXPECT_EQ(left({}), "17 min 0 s");
  // 3 minutes took 3 steps of 4 tokens; 12 of 8 are left, and 5 of 16.
  EXPECT_EQ(left({kCurriculum}), "44 min 0 s");
  // 3 minutes took 3 samples; 69 are left.
  EXPECT_EQ(left(kRampUp), "1 h 9 min");
}

TEST(Reports, EvaluationsUnderACurriculumAreOfWholeSamples) {
  const Strings still = {"optimizer={type: Adam, params: {lr: 1.0e-30}}", "min_lr=0",
                         "eval_interval=2", "eval_iters=3"};
  Training whole, growing;
  ASSERT_EQ(whole.train(still).code, 0);
  ASSERT_EQ(growing.train(still + Strings{kCurriculum}).code, 0);
  for (const char* name : {"validation/lm_loss", "test/lm_loss"})
    for (auto [step, loss] : whole.metric(name))
      EXPECT_NEAR(growing.metric(name).at(step), loss, 1e-6) << name << " " << step;
}

TEST(Reports, OfARunThatIsProlongedSayHowOftenTokensAreRead) {
  auto times = [](const Training& run, const char* iters) {
    Ended ended = run.train({concat("train_iters=", iters), "override_lr_scheduler=true"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    std::string said = ended.err.substr(ended.err.find("each token of the training data"));
    return said.substr(0, said.find('\n'));
  };
  Training prolonged;
  std::string few = times(prolonged, "2"), fresh = times(Training(), "60");
  EXPECT_NE(few, fresh);
  EXPECT_EQ(times(prolonged, "60"), fresh);
}

TEST(Reports, DataSetsThatAreReadAlikeHaveOneNumber) {
  for (int length : {50, 100}) {
    Training run;
    std::string a = run.dir().put("a", counting({50, 50}), 300),
                b = run.dir().put("b", counting({length, length}), 300);
    std::string paths = concat("train_data_paths=[", a, ", ", b, "]");
    Ended ended = run.train({"data_path=null", paths, "train_iters=2"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(has(ended.err, length == 50 ? "is read 0.80 times\n"
                                            : "0.40 to 0.80 times, by its dataset of the 2\n"))
        << ended.err;
  }
}

TEST(Reports, NormsOfTensorsAndTheNoiseOfGradientsAreInTheMetrics) {
  Training run;
  Ended ended =
      run.train({"log_grad_norm=true", "log_grad_pct_zeros=true", "log_param_norm=true",
                 "log_optimizer_states=true", "log_gradient_noise_scale=true", "log_interval=10",
                 "gradient_noise_scale_n_batches=4", "peak_theoretical_tflops=2"},
                {"--spawn", "2"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::string weight = "layers.1.attention.dense.weight";
  for (const std::string& name :
       {"gradient_norms/" + weight, "pct_grad_zeros/" + weight, "parameter_norms/" + weight,
        "optimizer_state_norms/" + weight + "_adam_v",
        std::string("runtime/model_flops_utilization")})
    EXPECT_EQ(run.metric(name).size(), 2u) << name;
  EXPECT_EQ(run.metric("train/lm_loss").size(), 20u);
  auto noise = run.metric("train/noise_scale");
  EXPECT_FALSE(noise.empty());
  for (const auto& [step, value] : noise) EXPECT_EQ(step % 4, 0) << value;
  EXPECT_NEAR(run.metric("runtime/model_flops_utilization").at(20),
              run.metric("runtime/flops_per_sec_per_gpu").at(20) / 2e10, 1e-9);
  EXPECT_TRUE(has(ended.err, "FLOP/s | MFU 0.")) << ended.err;

  Training plain;
  ASSERT_EQ(plain.train({"log_interval=10"}, {"--spawn", "2"}).code, 0);
  EXPECT_EQ(plain.losses(), run.losses());
}

TEST(Reports, StartsOfARunAreOneRunForWeightsAndBiases) {
  Training run;
  const Strings settings = {"use_wandb=true", "exit_interval=10"};
  std::set<std::string> ids;
  for (int start : {1, 2}) {
    Ended ended = run.train(settings);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(has(ended.err, "for Weights & Biases: wandb sync ")) << ended.err;
    int files = 0;
    for (const auto& entry : fs::directory_iterator(run.dir() / "log/wandb"))
      for (const auto& file : fs::directory_iterator(entry.path())) {
        ids.insert(file.path().filename());
        std::string records = read_file(file.path());
        size_t rows = records.find("padded_vocab_size");  // not given, but known
        ASSERT_NE(rows, records.npos);
        EXPECT_TRUE(has(records.substr(rows, 30), "300"));
        ++files;
      }
    EXPECT_EQ(files, start);
  }
  EXPECT_EQ(ids.size(), 1u);
}

TEST(Reports, SamplePromptsThatCannotBeContinuedEndTheRunAtItsStart) {
  Training run;
  Ended ended = run.train({"sample_prompts=[\"the" + std::string(300, '!') + "\"]"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "sample_prompts: the prompt 'the!!")) << ended.err;
  EXPECT_FALSE(fs::exists(run.dir() / "log"));
}

TEST(Reports, EvaluationsOfOtherDataOnANodeEndTheRunAtItsStart) {
  Training run;
  std::string text = Material::get() / "text";
  std::string other = run.dir().put("other", counting({40, 40}), 300);
  std::string none = run.dir().put("none", Documents{}, 300);
  auto evaluates = [](const std::string& split, const std::string& data) {
    return concat(split, "_data_paths=[", data, "]");
  };
  Strings settings = {"data_path=null", evaluates("train", text), evaluates("valid", text),
                      evaluates("test", text)};
  EXPECT_EQ(error_of_nodes(run, settings, {}), "");
  for (auto [split, name] : {std::pair{"valid", "validation"}, {"test", "test"}})
    for (const std::string& data : {other, none}) {
      std::string error = error_of_nodes(run, settings, {evaluates(split, data)});
      EXPECT_TRUE(error.starts_with("64: ")) << error;
      EXPECT_TRUE(has(error, concat("the ", name, " data that rank 1 on "))) << error;
    }
}

TEST(Reports, ARunOfNoStepsEvaluatesTheWeightsThatItIsGiven) {
  Training run, other;
  ASSERT_EQ(run.train({"eval_iters=2"}).code, 0);
  Ended ended =
      other.train({"train_iters=0", "finetune=true", "load=" + run.save(), "eval_iters=2"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "nothing is trained, only evaluated")) << ended.err;
  EXPECT_EQ(other.metric("validation/lm_loss").size(), 1u);
  EXPECT_EQ(other.metric("test/lm_loss")[0], run.metric("test/lm_loss")[20]);
  EXPECT_EQ(other.saved(), std::vector<int64_t>{});
}

// Megatron-Core's blend without weights has the samples of one epoch.
TEST(Reports, DataThatAFirstStartReadsMoreThanOnceIsNoRunThatGrew) {
  Training run;
  std::string paths;
  for (const char* name : {"a", "b"})
    paths += concat(paths.empty() ? "" : ", ", run.dir().put(name, counting({100, 100}), 300));
  Ended ended = run.train(
      {"data_path=null", concat("train_data_paths=[", paths, "]"), "data_order=megatron-core"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_FALSE(has(ended.err, "come again")) << ended.err;
}

// A node where any token is said to end a text.
TEST(Reports, ADryRunKnowsWhatIsThere) {
  Training run;
  EXPECT_FALSE(has(run.train({}, {"--dry-run"}).out, "there already"));
  ASSERT_EQ(run.train({"exit_interval=10"}).code, 0);
  std::string text = run.train({"train_batch_size=10"}, {"--dry-run"}).out;
  EXPECT_TRUE(has(text, "there already")) << text;
  EXPECT_TRUE(has(text, "5 samples")) << text;
}

TEST(Reports, ADryRunNamesRanksWithoutWork) {
  Training run;
  EXPECT_FALSE(has(run.train({}, {"--dry-run"}).out, "without work"));
  std::string text = run.train({}, {"--dry-run", "--spawn", "8"}).out;
  EXPECT_TRUE(has(text, "of 8 data-parallel ranks without work")) << text;
}

// Nobody sees why a step of minutes goes on, and a second Ctrl-C would lose what was learnt.
TEST(Reports, CtrlCIsAnsweredBeforeItTakesEffect) {
  const std::string answer = "a second Ctrl-C ends it at once";
  for (const Strings& settings : {Strings{}, Strings{"save=null", "load=null"}}) {
    Training run;
    Child child = run.start(settings + Strings{"train_iters=1000", "checkpoint_factor=1000"});
    ASSERT_TRUE(child.wait_for("step 1/"));
    child.signal(SIGINT);
    Ended ended = child.end();
    EXPECT_EQ(ended.code, 75) << ended.err;
    EXPECT_LT(ended.err.find(answer), ended.err.find("stopped at step")) << ended.err;
    EXPECT_EQ(has(ended.err, answer + ", without saving"), settings.empty()) << ended.err;
  }
}

TEST(Reports, SamplesEndAtWhatEndsTextsForRank0) {
  Training run;
  std::string tokenizer =
      run.dir().put("node/tokenizer.json", read_file(Material::get() / "tokenizer.json"));
  nlohmann::json ends;
  for (int id = 0; id < 300; ++id) ends["eos_token_id"].push_back(id);
  run.dir().put("node/generation_config.json", ends.dump());
  Strings settings = {"model_parallel_size=2", "sample_prompts=[\"the and\"]", "maximum_tokens=5"};
  EXPECT_EQ(error_of_nodes(run, settings, {"vocab_file=" + tokenizer}), "");
}

}  // namespace
}  // namespace neox::testing
