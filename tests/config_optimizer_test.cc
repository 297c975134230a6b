// What the keys of optimizer and learning rate mean.
#include "base/text.h"
#include "config_fixture.h"

namespace neox {
namespace {

TEST_F(ConfigTest, OptimizerComesFromItsDictionary) {
  auto adam = load(
                  "optimizer: {type: AdamW, params: {lr: 6e-4, betas: [0.9, 0.95], eps: 1e-7}}\n"
                  "weight_decay: 0.01\ngradient_clipping: 0.5")
                  .optimizer;
  EXPECT_EQ(adam.lr, 6e-4);
  EXPECT_EQ(adam.beta2, 0.95);
  EXPECT_EQ(adam.eps, 1e-7);
  EXPECT_EQ(adam.weight_decay, 0.01);
  EXPECT_EQ(adam.gradient_clipping, 0.5);
  auto plain = load("").optimizer;
  EXPECT_EQ(plain.lr, 1e-3);
  EXPECT_EQ(plain.beta2, 0.999);
  EXPECT_EQ(plain.weight_decay, 0.1);
}

TEST_F(ConfigTest, GradientsAreSentInTheTypeThatIsAsked) {
  auto sent = [&](const std::string& text) { return load(text).precision.gradient_sums; };
  const std::string key = "\ncommunication_data_type: ";
  EXPECT_EQ(sent("precision: bf16"), std::nullopt);
  EXPECT_EQ(sent("precision: bf16" + key + "fp32\nfp32_allreduce: true"), std::nullopt);
  EXPECT_EQ(sent("precision: bf16" + key + "bf16"), Precision::kBf16);
  EXPECT_EQ(sent("precision: fp32" + key + "bfp16"), Precision::kBf16);
  EXPECT_EQ(sent("precision: fp16" + key + "fp16"), Precision::kFp16);
  EXPECT_TRUE(has(fails("precision: bf16" + key + "fp16"), "65504"));
  EXPECT_TRUE(has(fails("precision: fp64" + key + "bf16"), "fp64"));
  EXPECT_TRUE(has(fails("fp32_allreduce: true\nprecision: bf16" + key + "bf16"), ":1"));
}

TEST_F(ConfigTest, GradientsAreAccumulatedInTheTypeThatIsAsked) {
  auto precision = [&](const std::string& type, const std::string& more) {
    return load("precision: bf16\ndata_types: {grad_accum_dtype: " + type + "}" + more).precision;
  };
  for (const char* wide : {"fp32", "float", "null"}) EXPECT_FALSE(precision(wide, "").gradients);
  for (const char* type : {"bf16", "bfloat16"}) {
    EXPECT_EQ(precision(type, "").gradients, Precision::kBf16);
    EXPECT_EQ(precision(type, "").gradient_sums, std::nullopt);
  }
  for (const char* sent : {"\ncommunication_data_type: fp32", "\nfp32_allreduce: true"})
    EXPECT_EQ(precision("bf16", sent).gradient_sums, Precision::kFp32);
  EXPECT_EQ(load("precision: fp16\ndata_types: {grad_accum_dtype: half}").precision.gradients,
            Precision::kFp16);
  const std::string bf16 = "data_types: {grad_accum_dtype: bf16}";
  for (const char* other : {"precision: fp32", "precision: fp16", "precision: fp64"}) {
    std::string text = fails(std::string(other) + "\n" + bf16);
    EXPECT_TRUE(has(text, ":2")) << text;
    EXPECT_TRUE(has(text, "is bf16, but precision is fp")) << text;
  }
  auto gradients = [&](const std::string& text) {
    return estimate(load("num_layers: 40\nhidden_size: 64\nprecision: bf16\n" + text), 8, 1)
        .gradient_bytes;
  };
  EXPECT_NEAR(static_cast<double>(gradients(bf16)) / static_cast<double>(gradients("")), 0.5, 0.01);
}

TEST_F(ConfigTest, RatesOfMuonStayWhereTheScheduleIsThatOfTheCheckpoint) {
  auto of = [&](const std::string& lr) {
    return load("optimizer: {type: Muon, params: {lr: " + lr + ", muon_lr: 0.04}}");
  };
  Config config = of("0.02"), saved = of("0.01");
  take_schedule(config, saved);
  EXPECT_DOUBLE_EQ(config.optimizer.lr, 0.01);
  EXPECT_DOUBLE_EQ(config.optimizer.muon_lr_factor, 4);
  EXPECT_DOUBLE_EQ(config.optimizer.adam_lr_factor, 1);
}

TEST_F(ConfigTest, OptimizersHaveParametersOfTheirOwn) {
  auto optimizer = [&](const std::string& text) { return load("optimizer: " + text).optimizer; };
  EXPECT_EQ(optimizer("{type: Lion}").beta2, 0.99);
  EXPECT_EQ(optimizer("{type: SGD, params: {momentum: 0.9, nesterov: true}}").momentum, 0.9);
  EXPECT_EQ(optimizer("{type: Adam, params: {adam_w_mode: false}}").decay, DecayKind::kCoupled);
  auto muon = optimizer("{type: Muon, params: {lr: 0.01, muon_lr: 0.02, adam_lr: 0.001}}");
  EXPECT_EQ(muon.eps, 1e-10);
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_DOUBLE_EQ(muon.muon_lr_factor, 2);
  EXPECT_DOUBLE_EQ(muon.adam_lr_factor, 0.1);
  EXPECT_EQ(optimizer("{type: OneBitAdam, params: {freeze_step: 40}}").freeze_step, 40);
  EXPECT_TRUE(has(fails("optimizer: {type: onebitadam}\nzero_optimization: {stage: 1}"), "to 0"));
  EXPECT_TRUE(has(fails("optimizer: {type: onebitadam}\nenable_cuda_graph: true"),
                  "summing these; remove one"));
  EXPECT_TRUE(
      has(fails("optimizer: {type: muon}\nzero_optimization: {cpu_offload: true}"), "host"));
  EXPECT_EQ(optimizer("{type: cpu_adam}").place, StatePlace::kHost);
  EXPECT_TRUE(has(fails("optimizer: {params: {momentum: 0.9}}"),
                  "momentum is a parameter of SGD and Muon; optimizer.type is adam (default)"));
  EXPECT_TRUE(
      has(fails("optimizer: {type: sgd, params: {betas: [0.9, 0.9]}}"), "of Adam, Lion and"));
  EXPECT_TRUE(has(fails("optimizer: {type: sgd, params: {nesterov: true}}"), "needs a momentum"));
}

TEST_F(ConfigTest, OffloadedOptimizersKeepTheirStateOnTheHost) {
  for (const char* zero : {"{cpu_offload: true}", "{stage: 1, offload_optimizer: {device: cpu}}"})
    EXPECT_EQ(load(std::string("zero_optimization: ") + zero).optimizer.place, StatePlace::kHost);
  for (const char* zero : {"{stage: 1}", "{offload_optimizer: {device: none, pin_memory: true}}"})
    EXPECT_EQ(load(std::string("zero_optimization: ") + zero).optimizer.place, StatePlace::kDevice);
}

TEST_F(ConfigTest, MegatronsSchedulesHaveMegatronsFormula) {
  auto wsd = load("lr_decay_style: WSD\nlr_wsd_decay_iters: 20\nlr_wsd_decay_style: minus_sqrt");
  EXPECT_EQ(wsd.schedule.formula, LrFormula::kMegatron);
  EXPECT_EQ(wsd.schedule.wsd_decay, WsdDecay::kMinusSqrt);
  EXPECT_EQ(wsd.schedule.wsd_decay_iters, 20);
  EXPECT_EQ(load("lr_decay_style: inverse-square-root").schedule.formula, LrFormula::kMegatron);
  EXPECT_TRUE(
      starts(fails("lr_decay_style: WSD"),
             "a.yml:1: lr_decay_style: WSD needs lr_wsd_decay_iters, how many of the last"));
  EXPECT_TRUE(has(fails("lr_decay_style: WSD\nlr_wsd_decay_iters: 100"), "there are 99 steps"));
  EXPECT_TRUE(has(fails("lr_wsd_decay_iters: 9"), "is for lr_decay_style: WSD alone"));
  EXPECT_TRUE(has(fails("lr_schedule_compat: v1\nlr_decay_style: inverse-square-root"), "remove"));
  EXPECT_TRUE(has(fails("lr_schedule_compat: megatron\nlr_decay_style: exponential"), "remove"));
}

TEST_F(ConfigTest, ScheduleIsComparedWithAndTakenFromAnother) {
  Config config = load("lr_decay_style: cosine\nmin_lr: 1e-5"), saved = load("min_lr: 2e-5");
  EXPECT_EQ(schedule_difference(config, config), "");
  EXPECT_EQ(schedule_difference(config, saved), "min_lr");
  take_schedule(config, saved);
  EXPECT_EQ(schedule_difference(config, saved), "");
  EXPECT_EQ(config.schedule.min_lr, 2e-5);
  EXPECT_TRUE(has(config.text(), "lr_decay_style: linear\n"));
  EXPECT_EQ(load("override_lr_scheduler: true").schedule.on_resume, ScheduleOnResume::kOfConfig);
  EXPECT_TRUE(has(fails("override_lr_scheduler: true\nuse_checkpoint_lr_scheduler: true"), "keep"));
}

TEST_F(ConfigTest, GradientClippingWinsOverClipGrad) {
  auto config = load("clip_grad: 0.5");
  EXPECT_EQ(config.optimizer.gradient_clipping, 1.0);
  EXPECT_TRUE(has(config.notes.at(0), "clip_grad: 0.5 has no effect, as in NeoX"));
}

TEST_F(ConfigTest, DecayAndWarmUpFollowTrainIters) {
  auto schedule = load("train_iters: 143000\nlr_decay_style: cosine").schedule;
  EXPECT_EQ(schedule.decay_iters, 143000);
  EXPECT_DOUBLE_EQ(schedule.warmup_iters, 1430.0);
  EXPECT_EQ(schedule.formula, LrFormula::kV2);
  EXPECT_EQ(load("warmup: 1").schedule.warmup_iters, 100.0);
  for (const char* lines : {"warmup: 1\nlr_decay_iters: 50", "warmup: 1\nlr_schedule_compat: v1",
                            "warmup: 1.5", "warmup: -1"})
    EXPECT_TRUE(has(fails(lines), "a share of lr_decay_iters")) << lines;
  auto part = load("train_iters: 99\nlr_decay_fraction: 0.9\nwarmup: 0.1\nlr_schedule_compat: v1");
  EXPECT_EQ(part.schedule.decay_iters, 89);
  EXPECT_DOUBLE_EQ(part.schedule.warmup_iters, 8.9);
  EXPECT_EQ(part.schedule.formula, LrFormula::kV1);
  EXPECT_TRUE(has(fails("lr_decay_iters: 5\nlr_decay_fraction: 0.5"), "exclude each other"));
}

TEST_F(ConfigTest, ALearningRateThatEndsAtZeroIsNoted) {
  const std::string zero = "the learning rate is 0, and nothing is learnt";
  auto notes = [&](const std::string& lines) {
    const auto all = load("lr_decay_iters: 60\n" + lines).notes;  // of 100
    return std::ranges::any_of(all, [&](const std::string& note) { return has(note, zero); });
  };
  EXPECT_TRUE(notes("lr_decay_style: linear"));
  EXPECT_TRUE(notes("lr_decay_style: cosine\nlr_schedule_compat: megatron"));
  EXPECT_FALSE(notes("lr_decay_style: linear\nmin_lr: 1e-5"));
  EXPECT_FALSE(notes("lr_decay_style: cosine"));  // it rises again
  EXPECT_FALSE(notes("lr_decay_style: constant\nlr_schedule_compat: megatron"));
  EXPECT_FALSE(notes("lr_decay_style: linear\nlr_schedule_compat: v1"));
  EXPECT_FALSE(notes("lr_decay_style: linear\ntrain_iters: 60"));
}

TEST_F(ConfigTest, AFileOfTheFirstGptNeoxIsToldOfItsSchedule) {
  EXPECT_TRUE(has(load("gas: 1").notes.at(0), "lr_schedule_compat: v1; those of today (v2)"));
  EXPECT_TRUE(load("gas: 1\nlr_schedule_compat: v2").notes.empty());
  EXPECT_TRUE(load("gas: 1\nlr_decay_style: constant").notes.empty());
}

TEST_F(ConfigTest, CosineThatRisesAgainIsSaid) {
  const std::string lines = "lr_decay_style: cosine\nlr_decay_iters: 50";
  EXPECT_TRUE(has(load(lines).notes.at(0), "rise again"));
  EXPECT_TRUE(load(lines + "\nlr_schedule_compat: v1").notes.empty());
}

TEST_F(ConfigTest, MupTakesTheNarrowModelsWidth) {
  auto c = load(
      "use_mup: true\nmup_base_hidden_size: 16\nmup_init_scale: 2\nmup_attn_temp: 0.25\n"
      "mup_output_temp: 0.5\nmup_embedding_mult: 3\nmup_rp_embedding_mult: 4\npos_emb: learned");
  ASSERT_TRUE(c.model.mup);
  EXPECT_EQ(c.model.mup->width, 4);  // hidden_size 64
  EXPECT_EQ(c.model.mup->init_scale, 2);
  EXPECT_EQ(c.optimizer.width, 4);
  EXPECT_EQ(c.model.score_scale(), 1 / (16 * 0.25));
  EXPECT_EQ(c.model.logit_scale(), 1 / (4 * 0.5));
  EXPECT_EQ(c.model.embedding_scale(), 3);
  EXPECT_EQ(c.model.position_scale(), 4);
  auto turned =
      load("use_mup: true\nmup_base_hidden_size: 16\nmup_rp_embedding_mult: 4\npos_emb: rotary");
  EXPECT_EQ(turned.model.position_scale(), 1);  // which embeddings have not
  auto without = load("mup_init_scale: 1.0\nmup_attn_temp: 1.0\nuse_mup: false");
  EXPECT_FALSE(without.model.mup);
  EXPECT_EQ(without.model.score_scale(), 0.25);
  EXPECT_EQ(without.optimizer.width, 1);
}

TEST_F(ConfigTest, MupWithoutWhatItNeedsIsRefused) {
  const std::string mup = "\nuse_mup: true\nmup_base_hidden_size: 8";
  const std::pair<std::string, const char*> cases[] = {
      {"use_mup: true", "use_mup needs mup_base_hidden_size"},
      {"mup_base_hidden_size: 8", "mup_base_hidden_size needs use_mup: true"},
      {"mup_init_scale: 2", "mup_init_scale is 2, but use_mup is false"},
      {"mup_base_hidden_size: 0\nuse_mup: true", "must be at least 1"},
      {"mup_attn_temp: 0" + mup, "mup_attn_temp is 0; it must be positive"},
      {"init_method: orthogonal" + mup, "does not go with use_mup (a.yml:2)"},
      {"save_base_shapes: true" + mup, "mup_base_hidden_size says it"},
      {"use_mup: true\nmup_base_hidden_size: 8\noptimizer: {type: Lion, params: {lr: 1e-3}}",
       "use_mup is for Adam and SGD, as in NeoX; optimizer.type is lion (a.yml:3)"}};
  for (const auto& [text, message] : cases) {
    std::string error = fails(text);
    EXPECT_TRUE(starts(error, "a.yml:1: ")) << error;
    EXPECT_TRUE(has(error, message)) << error;
  }
}

}  // namespace
}  // namespace neox
