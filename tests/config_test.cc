// Reading and merging: files, spellings, overrides, the effective text.
#include "config_fixture.h"

#include "base/file.h"

namespace neox {
namespace {

TEST_F(ConfigTest, HyphensAndUnderscoresAreOne) {
  auto config = load(
      "num-layers: 3\noptimizer: {type: Adam, params: {lr: 0.5}}\nzero-optimization: "
      "{reduce-scatter: true, stage: 1}",
      {"num-attention-heads=2"});
  EXPECT_EQ(config.layout.zero_stage, 1);
}

TEST_F(ConfigTest, FlowStyleTakesCommentsAndTrailingCommas) {
  auto file = write("flow.yml", R"({
    # a comment
    "num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "seq-length": 32,
    "pos-emb": "rotary", # another
    "no-weight-tying": True, "train-iters": 1e2, "train-batch-size": 8,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.9, 0.95,],},},
  })");
  auto config = load_files({file});
  EXPECT_FALSE(config.model.tied_embedding);
  EXPECT_EQ(config.train.iters, 100);
  EXPECT_EQ(config.optimizer.lr, 1e-4);
  EXPECT_EQ(config.optimizer.beta2, 0.95);
}

TEST_F(ConfigTest, JsonIsRead) {
  auto file = write("a.json",
                    "{\n\t\"num_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,"
                    "\n\t\"seq_length\":32,\"pos_emb\":\"rotary\",\"train_iters\":100,"
                    "\"train_batch_size\":8,\"save\":null}");
  EXPECT_EQ(load_files({file}).model.layers, 2);
}

TEST_F(ConfigTest, NamesWithoutEndingAreYmlInTheDirectory) {
  write("1-4B.yml", complete(""));
  write("local.json", "{\"seed\": 5}");
  auto config = load_config({.files = {"1-4B", "local.json"}, .directory = dir_, .overrides = {}});
  EXPECT_EQ(config.train.seed, 5);
}

TEST_F(ConfigTest, MissingFileNamesTheNearest) {
  write("quickstart.yml", "");
  EXPECT_TRUE(has(fails_files({(dir_ / "quikstart").string()}), "did you mean quickstart.yml?"));
  EXPECT_TRUE(has(fails_files({dir_.string() + "/none.yml"}), "none.yml: no such file"));
  EXPECT_TRUE(has(fails_files({}), "no configuration file"));
}

TEST_F(ConfigTest, KeyTwiceInAFileNamesBothLines) {
  EXPECT_TRUE(starts(fails("seed: 1\nseed: 1"), "a.yml:2: 'seed' stands here and at line 1"));
  EXPECT_TRUE(starts(fails("log-interval: 1\nlog_interval: 2"),
                     "a.yml:2: 'log_interval' stands here and at line 1 as 'log-interval'"));
  EXPECT_TRUE(starts(fails("optimizer:\n  type: Adam\n  type: Adam"), "a.yml:3: 'type' stands"));
}

TEST_F(ConfigTest, EqualValuesInTwoFilesPass) {
  auto a = write("a.yml", complete("save: null\nno_weight_tying: True\nwarmup: 0.10"));
  auto b = write("b.yml", "no-weight-tying: true\nwarmup: 1e-1\nsave: ~\noptimizer: {}");
  EXPECT_FALSE(load_files({a, b}).model.tied_embedding);
}

TEST_F(ConfigTest, DifferentValuesInTwoFilesNameBothPlaces) {
  auto a = write("a.yml", complete("seed: 1"));
  auto b = write("b.yml", "# second\nseed: 2");
  EXPECT_EQ(fails_files({a, b}),
            "b.yml:2: seed is 2, but a.yml:1 says 1; keep it in one file, or override it with "
            "--set seed=VALUE");
}

TEST_F(ConfigTest, NamesOfChoicesAreEqualInAnyCase) {
  auto a = write("a.yml", complete("lr_decay_style: cosine\noptimizer: {type: Adam}\nlog_dir: a"));
  auto b = write("b.yml", "lr_decay_style: Cosine\noptimizer: {type: adam}");
  EXPECT_EQ(load_files({a, b}).schedule.decay, LrDecay::kCosine);
  EXPECT_TRUE(has(fails_files({a, write("c.yml", "log_dir: A")}), "log_dir is \"A\", but a.yml"));
}

TEST_F(ConfigTest, DictionariesAreTakenWhole) {
  auto a = write("a.yml", complete("optimizer: {type: Adam, params: {lr: 1e-3}}"));
  auto b = write("b.yml", "optimizer:\n  type: Adam\n  params:\n    lr: 2e-3");
  EXPECT_TRUE(starts(fails_files({a, b}), "b.yml:4: optimizer.params.lr is 2e-3, but a.yml:1"));
  auto c = write("c.yml", "optimizer: {type: Adam}");
  EXPECT_TRUE(has(fails_files({a, c}), "taken whole"));
}

TEST_F(ConfigTest, OverridesEndWhatFilesDisagreeAbout) {
  auto a =
      write("a.yml", complete("seed: 1\noptimizer: {type: Adam, params: {lr: 1e-3, eps: 1e-6}}"));
  auto b = write("b.yml", "seed: 2\noptimizer: {type: Adam, params: {lr: 2e-3, eps: 1e-6}}");
  auto c = write("c.yml", "seed: 1\noptimizer: {type: Adam, params: {lr: 2e-3, eps: 1e-7}}");
  auto load = [&](const std::string& last, const Strings& overrides) {
    return load_config({.files = {a, last}, .overrides = overrides});
  };
  Config config = load(b, {"seed=3", "optimizer.params.lr=5e-4"});
  EXPECT_EQ(config.train.seed, 3);
  EXPECT_EQ(config.optimizer.lr, 5e-4);
  EXPECT_EQ(config.optimizer.eps, 1e-6);
  EXPECT_EQ(load(c, {"optimizer={type: Adam, params: {lr: 5e-4}}"}).optimizer.lr, 5e-4);
  EXPECT_TRUE(has(fails_files({a, b}, {"seed=3"}), "b.yml:2: optimizer.params.lr is 2e-3"));
  EXPECT_TRUE(has(fails_files({a, c}, {"optimizer.params.lr=5e-4"}), "params.eps is 1e-7"));
}

TEST_F(ConfigTest, OverridesWinAndTheLastOneMost) {
  auto config =
      load("seed: 1\noptimizer: {type: Adam, params: {lr: 1e-3, eps: 1e-6}}",
           {"seed=2", "seed = 3", "optimizer.params.lr=5e-4", "zero-optimization.stage=1"});
  EXPECT_EQ(config.train.seed, 3);
  EXPECT_EQ(config.optimizer.lr, 5e-4);
  EXPECT_EQ(config.optimizer.eps, 1e-6);
  EXPECT_EQ(config.layout.zero_stage, 1);
  EXPECT_EQ(config.where("optimizer.params.lr"), "--set");
}

// Checkpoints, which hold the configuration as JSON, could not be written.
TEST_F(ConfigTest, TextsAreUtf8) {
  EXPECT_TRUE(
      starts(fails("seed: 1\nlog_dir: \"a\xff\""), "a.yml:2: 'a\xEF\xBF\xBD' is not UTF-8"));
  EXPECT_TRUE(has(fails("seed: 1", {"log_dir=a\xff"}), "--set log_dir"));
}

TEST_F(ConfigTest, OverrideWithNullRemoves) {
  EXPECT_TRUE(load("load: somewhere", {"load=null"}).checkpoint.load.empty());
  EXPECT_TRUE(load("load: somewhere", {"load="}).checkpoint.load.empty());
}

TEST_F(ConfigTest, DefaultsHoldWhereNobodyMentionsTheKeyOrItsPartner) {
  auto load_with = [&](const std::string& lines, const Strings& overrides = {}) {
    return load_config({.files = {write("a.yml", complete(lines))},
                        .overrides = overrides,
                        .defaults = {"save=/d", "load=/d", "data-path=/x", "checkpoint_factor=9"}});
  };
  Config all = load_with("");
  EXPECT_EQ(all.checkpoint.save, "/d");
  EXPECT_EQ(all.checkpoint.load, "/d");
  EXPECT_EQ(all.data.data_path, "/x");
  EXPECT_EQ(all.where("save"), "--default");
  Config some = load_with("save: /mine\ncheckpoint_factor: 5", {"train_data_paths=[/y]"});
  EXPECT_EQ(some.checkpoint.save, "/mine");
  EXPECT_EQ(some.checkpoint.load, "");
  EXPECT_EQ(some.checkpoint.factor, 5);
  EXPECT_EQ(some.data.data_path, "");
  for (const char* side : {"", "pos_", "neg_"})
    for (const char* split : {"train", "valid", "test"})
      EXPECT_EQ(load_config({.files = {write("a.yml", complete(""))},
                             .overrides = {concat(side, split, "_data_paths=[]")},
                             .defaults = {"data_path=/x"}})
                    .data.data_path,
                "")
          << side << split;
  EXPECT_EQ(load_with("data_path: null").data.data_path, "");
  EXPECT_THROW(load_config({.files = {write("a.yml", complete(""))}, .defaults = {"fp16.type=x"}}),
               Error);
}

TEST_F(ConfigTest, ADefaultPrecisionYieldsToTheDictionariesToo) {
  auto load_with = [&](const std::string& lines, const Strings& overrides = {}) {
    return load_config({.files = {write("a.yml", complete(lines))},
                        .overrides = overrides,
                        .defaults = {"precision=bf16"}});
  };
  EXPECT_EQ(load_with("").precision.type, Precision::kBf16);
  for (const Config& config :
       {load_with("fp16: {enabled: true}"), load_with("", {"fp16.enabled=true"})}) {
    EXPECT_EQ(config.precision.type, Precision::kFp16);
    EXPECT_EQ(config.notes, load("fp16: {enabled: true}").notes);
  }
}

TEST_F(ConfigTest, BadOverridesAreNamed) {
  EXPECT_TRUE(has(fails("", {"seed"}), "--set seed: write --set key=value"));
  EXPECT_TRUE(has(fails("", {"=3"}), "write --set key=value"));
  EXPECT_TRUE(has(fails("", {"seed.x=3"}), "seed") && !fails("", {"seed.x=3"}).empty());
  EXPECT_TRUE(has(fails("seed: 1", {"seed.x=3"}), "cannot be set inside 1 (a.yml:1)"));
  EXPECT_TRUE(has(fails("", {"optimizer..lr=3"}), "empty part"));
  EXPECT_TRUE(has(fails("", {"split=[1"}), "--set split: "));
  for (const char* cut : {"save=/a #1", "save=#1", "save=/it's #1", "save=/a\t#1", "split=[1 #"})
    EXPECT_TRUE(has(fails("", {cut}), "would be a comment; write the text in quotes")) << cut;
  EXPECT_EQ(load("", {"load=/a#1", "save=/a#1", "checkpoint_factor=1"}).checkpoint.save, "/a#1");
  EXPECT_TRUE(has(fails("", {"sed=1"}), "--set: unknown key 'sed'; did you mean 'seed'?"));
  EXPECT_TRUE(has(fails("", {"expert_interval=2"}), "; here it is moe_expert_interval"));
  EXPECT_TRUE(has(fails("", {"seed=x"}), "--set: seed is \"x\" (text); allowed is an integer"));
}

TEST_F(ConfigTest, EmptyFilesAreRefusedByName) {
  for (const char* text : {"", "\n# only a comment\n", "null", "---\n"})
    EXPECT_TRUE(starts(fails_files({write("e.yml", text)}), "e.yml: the file is empty")) << text;
  EXPECT_TRUE(has(fails_files({write("l.yml", "[1, 2]")}), "l.yml:1: found [1, 2]"));
  EXPECT_TRUE(has(fails_files({write("s.yml", "word")}), "s.yml:1: found \"word\""));
}

TEST_F(ConfigTest, WhatFollowsTheDocumentIsRefused) {
  for (const char* text : {"{seed: 1}\n}", "{seed: 1}\n{seed: 2}", "seed: 1\n---\nlog_interval: 2",
                           "{seed: 1}\njunk", "{seed: 1} ]"})
    EXPECT_TRUE(starts(fails_files({write("t.yml", text)}), "t.yml:")) << text;
}

TEST_F(ConfigTest, BrokenYamlNamesTheLine) {
  EXPECT_TRUE(starts(fails("seed: 1\n  split: 3: 4"), "a.yml:"));
  EXPECT_TRUE(has(fails_files({write("c.yml", "{\"a\": 1,\n \"b\": 2\n \"c\": 3}")}), "c.yml:"));
  EXPECT_TRUE(has(fails_files({write("q.yml", "a: \"x")}), "missing comma, colon, quote"));
  EXPECT_TRUE(has(fails_files({write("z.yml", std::string("a: \0b", 5))}), "zero byte"));
}

TEST_F(ConfigTest, QuotesThatAreNotClosedAreNamedWhereTheyOpen) {
  for (const char* start : {"", "\xEF\xBB\xBF", "# caf\xC3\xA9\r\n"})
    for (const char* quote : {"\"", "'"}) {
      std::string text = concat(start, "save: ", quote, "first''run\nseed: 7\nlog_interval: 3\n");
      std::string line = *start == '#' ? "2" : "1";
      EXPECT_TRUE(has(fails_files({write("q.yml", text)}),
                      concat("q.yml:", line, ": the text that begins with ", quote)))
          << text;
    }
  for (const char* closed : {"save: \"a \\\" b\n  c\"\n", "save: 'it''s'\r\nseed: 7\r\n",
                             "save: \"caf\xC3\xA9\"\r\nload: 'x'", "{\"save\": 'a', 'seed': 7}",
                             "save: |\n  \"a\n", "save: >-\n  'a\n", "\"save\" : \"\"\n"})
    EXPECT_FALSE(has(fails_files({write("q.yml", closed)}), "no closing")) << closed;
}

TEST_F(ConfigTest, TabsAndForeignCommentsAreNamed) {
  EXPECT_TRUE(has(fails_files({write("t.yml", "seed: 7\nfp16:\n\tenabled: true\n")}),
                  "t.yml:3: not valid YAML or JSON: illegal map value (column 9)"));
  EXPECT_TRUE(has(fails_files({write("t.yml", "seed: 7\nfp16:\n\tenabled: true\n")}),
                  "this line begins with a tab"));
  EXPECT_TRUE(has(fails_files({write("c.json", "{\n // words\n \"seed\": 7\n}")}),
                  "a comment begins with #, not with //"));
}

TEST_F(ConfigTest, AnchorsTagsAndMergeKeysAreRefused) {
  EXPECT_TRUE(has(fails("seed: &s 1"), "a.yml:1: anchors"));
  EXPECT_TRUE(has(fails("seed: !!int 1"), "the tag"));
  EXPECT_TRUE(has(fails("<<: {seed: 1}"), "merge keys are not read"));
  EXPECT_TRUE(has(fails("? [a]\n: 1"), "a key must be a name"));
}

TEST_F(ConfigTest, DepthAndSizeAreBounded) {
  std::string lists, maps;
  for (int i = 0; i < 100; ++i) lists = "[" + lists + "]", maps = "{a: " + maps + "}";
  EXPECT_TRUE(has(fails_files({write("l.yml", "a: " + lists)}), "brackets deep"));
  EXPECT_TRUE(has(fails_files({write("m.yml", maps)}), "brackets deep"));
  std::string keys;
  for (int i = 0; i < 50000; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  EXPECT_TRUE(has(fails_files({write("k.yml", keys)}), "k.yml:2001: more than 2000 keys"));
  EXPECT_NE(fails_files({write("o.yml", "a: " + std::string(100000, '['))}), "");
  EXPECT_TRUE(has(fails_files({write("b.yml", std::string(2 << 20, '#'))}), "bytes"));
}

TEST_F(ConfigTest, GarbageFailsWithAMessageAndNeverCrashes) {
  uint32_t state = 1;
  const std::string alphabet = "{}[],:\"'#-\n abc019.&*!|>%@`~\\\t\xff\xc3";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525 + 1013904223;
      text += alphabet[(state >> 16) % alphabet.size()];
    }
    EXPECT_NE(fails_files({write("g.yml", text)}), "") << text;
  }
}

TEST_F(ConfigTest, EverySettingSaysWhereItComesFrom) {
  auto config = load("seed: 7\nnum_layers: 4");
  EXPECT_TRUE(config.where("seed").ends_with("a.yml:1"));
  EXPECT_EQ(config.where("log_interval"), "default");
  EXPECT_EQ(config.where("lr_decay_iters"), "derived from train_iters");
}

TEST_F(ConfigTest, TextIsTheSameForTheSameRun) {
  auto a = load("fp16: {enabled: true, loss_scale: 0.0}\npipe_parallel_size: 0\nwarmup: 1e-2");
  auto b = load("precision: FP16\nwarmup: 0.01\npipe-parallel-size: 1\nsteps_per_print: 3");
  EXPECT_EQ(a.text(), b.text());
  EXPECT_FALSE(has(a.text(), "null"));
  EXPECT_NE(a.text(), load("precision: fp16\nseed: 2").text());
}

TEST_F(ConfigTest, TextReadsBackAsTheSameConfig) {
  auto config = load(
      "fp16: {enabled: true}\nsave: \"a: b\"\ncheckpoint_factor: 10\n"
      "sample_prompts: [\"Once \\\"upon\\\"\\n\", \"123\", yes it is]\nsplit: 9,1\n"
      "optimizer: {type: adam, params: {lr: 3.3e-5, betas: [0.9, 0.95]}}\nextra_save_iters: [0, "
      "1]");
  auto again = load_files({write("back.yml", config.text())});
  EXPECT_EQ(again.text(), config.text());
  EXPECT_EQ(again.train.sample_prompts, config.train.sample_prompts);
  EXPECT_EQ(again.train.sample_prompts[0], "Once \"upon\"\n");
  EXPECT_EQ(again.checkpoint.save, "a: b");
  EXPECT_EQ(again.precision.type, Precision::kFp16);
}

TEST_F(ConfigTest, ExplainGroupsUsedDerivedAndIdle) {
  std::string text = explain(load("steps_per_print: 10\nseed: 3"));
  EXPECT_TRUE(has(text, "Used\n"));
  EXPECT_TRUE(has(text, "a.yml:2"));
  EXPECT_LT(text.find("seed"), text.find("Derived\n"));
  EXPECT_LT(text.find("Derived\n"), text.find("lr_decay_iters"));
  EXPECT_LT(text.find("Without effect here\n"), text.find("steps_per_print"));
  EXPECT_TRUE(has(text, "log_interval says when a line is logged"));
}

TEST_F(ConfigTest, QuickstartLoads) {
  auto config = load_files({NEOX_SOURCE_DIR "/configs/quickstart.yml"});
  config.model.vocab = padded_vocab(config, 4096);
  EXPECT_EQ(num_parameters(config.model), 5256704);
  EXPECT_TRUE(config.notes.empty()) << config.notes[0];
  EXPECT_EQ(config.checkpoint.keep_last, 2);
}

}  // namespace
}  // namespace neox
