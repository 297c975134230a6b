// A small language for tests of the programs: a tiny tokenizer, dataset and configuration made on
// the spot, programs as child processes with a time limit, and what a run leaves behind.
//
//   Training run;
//   EXPECT_EQ(run.train({"train_iters=20"}).code, 0);
//   EXPECT_EQ(run.losses(), other.losses());
#pragma once
#include <ATen/ops/empty.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "child.h"
#include "data_files.h"
#include "fault_preload.h"
#include "generated_text.h"
#include "metrics/run.h"
#include "tokenizer/tokenizer.h"

namespace neox::testing {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Strings = std::vector<std::string>;

inline Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Settings with which the first steps overflow, and more later.
inline const Strings kFp16 = {"precision=fp16", "fp16.initial_scale_power=22", "fp16.hysteresis=1",
                              "fp16.loss_scale_window=3", "warmup=0"};

// Sequences of 4 tokens in the first three steps, then of 8, from step 16 on of 16.
inline const std::string kCurriculum =
    "curriculum_learning={enabled: true, curriculum_type: seqlen, min_difficulty: 4, "
    "max_difficulty: 16, schedule_type: fixed_discrete, schedule_config: "
    "{difficulty: [4, 8, 16], max_step: [3, 15]}}";

// Steps of 1 sample until step 6, of 3 in two more, then of 5: 20 steps in all.
inline const Strings kRampUp = {"rampup_batch_size=[1, 2, 12]", "train_samples=72",
                                "train_iters=null"};

inline std::string program(const std::string& name) { return NEOX_BUILD_DIR "/bin/" + name; }

// Tokenizer and dataset, made once in a process: tokenizer.json (300 entries), text.{bin,idx}.
class Material {
 public:
  static const Directory& get() {
    static const Material material;
    return material.dir_;
  }

 private:
  Material() {
    auto texts = TextGenerator(7).documents(200, 60);
    write_tokenizer_json(dir_ / "tokenizer.json", train_bpe({.vocab_size = 300}, each(texts)));
    Tokenizer tokenizer = Tokenizer::from_json(dir_ / "tokenizer.json");
    Documents documents;
    for (const std::string& text : texts) documents.push_back(tokenizer.encode(text));
    dir_.put("text", documents, tokenizer.vocab_size());
  }
  Directory dir_;
};

// The tensors of a checkpoint, whole: "param/embed_in.weight", "adam_m/...".
using Tensors = std::map<std::string, at::Tensor>;

inline Tensors tensors_of(const fs::path& dir) {
  Checkpoint checkpoint(dir);
  std::vector<StateChunk> chunks;
  Tensors tensors;
  for (const auto& t : checkpoint.tensors()) {
    Box box{Dims(t.shape.size(), 0), t.shape};
    at::Tensor flat = at::empty({box.numel()}, t.dtype);
    chunks.push_back({t.name, t.state, flat, {{t.name, t.shape, box, 0}}});
    tensors[t.state + "/" + t.name] = flat;
  }
  checkpoint.read(chunks);
  return tensors;
}

// The first tensor that is not the same bits in both, or that only one has; "" where all are.
inline std::string difference(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return concat(a.size(), " and ", b.size(), " tensors");
  for (const auto& [name, t] : a)
    if (!b.contains(name) || !t.equal(b.at(name))) return name;
  return a.empty() ? "nothing to compare" : "";
}

// A directory with a configuration, in which neox-train saves to and loads from save/.
class Training {
 public:
  Training() {
    dir_.put("tiny.yml",
             "num_layers: 2\nhidden_size: 32\nnum_attention_heads: 4\nseq_length: 16\n"
             "max_position_embeddings: 48\npos_emb: rotary\nrotary_pct: 0.5\n"
             "no_weight_tying: true\ngpt_j_residual: true\n"
             "hidden_dropout: 0.1\nattention_dropout: 0.1\n"
             "data_path: " +
                 (Material::get() / "text") +
                 "\nsplit: \"90, 8, 2\"\n"
                 "tokenizer_type: HFTokenizer\n"
                 "vocab_file: " +
                 (Material::get() / "tokenizer.json") +
                 "\n"
                 "make_vocab_size_divisible_by: 4\n"
                 "train_batch_size: 5\ntrain_iters: 20\nlog_interval: 1\n"
                 "eval_interval: 1000\neval_iters: 0\n"
                 "optimizer: {type: Adam, params: {lr: 0.01, betas: [0.9, 0.95]}}\n"
                 "lr_decay_style: cosine\nwarmup: 0.1\nmin_lr: 0.001\n"
                 "weight_decay: 0.1\ngradient_clipping: 1.0\n"
                 "save: " +
                 save() + "\nload: " + save() + "\nlog_dir: " + (dir_ / "log") +
                 "\n"
                 "checkpoint_factor: 10\n");
  }

  // neox-train with --set for each of `settings`.
  Strings command(const Strings& settings) const {
    Strings arguments = {program("neox-train"), dir_ / "tiny.yml"};
    for (const std::string& setting : settings)
      arguments.insert(arguments.end(), {"--set", setting});
    return arguments;
  }
  // That, and more arguments.
  Child start(const Strings& settings = {}, const Strings& more = {},
              const ChildOptions& options = {}) const {
    Strings arguments = command(settings);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Child(arguments, options);
  }
  Ended train(const Strings& settings = {}, const Strings& more = {},
              const ChildOptions& options = {}) const {
    return start(settings, more, options).end();
  }
  // The same, killed (SIGKILL) as soon as it begins to save step `step`.
  Ended train_killed_at_save(int64_t step, const Strings& settings = {},
                             const Strings& more = {}) const {
    return train(settings, more,
                 {.environment = fault(step_dir(step), kFaultKill, "NEOX_FAULT_CALLS=0")});
  }
  // Environment that lets operations below `dir` fail with `error` at the limit. HDF5 and MPI leave
  // memory behind where they fail.
  static Strings fault(const std::string& dir, int error, const std::string& limit) {
    return {"LD_PRELOAD=" NEOX_BUILD_DIR "/tests/libfault_preload.so", "NEOX_FAULT_DIR=" + dir,
            concat("NEOX_FAULT_ERRNO=", error), limit,
            "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"};
  }

  const Directory& dir() const { return dir_; }
  std::string save() const { return dir_ / "save"; }
  std::string step_dir(int64_t step) const { return concat(save(), "/global_step", step); }
  TrainState state(int64_t step) const { return Checkpoint(step_dir(step)).state(); }
  Tensors tensors(int64_t step) const { return tensors_of(step_dir(step)); }
  // Steps of the checkpoints that are there and complete.
  std::vector<int64_t> saved() const {
    std::vector<int64_t> steps;
    const std::string prefix = "global_step";
    if (!fs::exists(save())) return steps;
    for (const auto& entry : fs::directory_iterator(save()))
      if (fs::exists(entry.path() / "COMPLETE"))
        steps.push_back(std::stoll(entry.path().filename().string().substr(prefix.size())));
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  // The values of a metric by step, over all lives of the run.
  std::map<int64_t, double> metric(const std::string& name) const {
    std::map<int64_t, double> values;
    RunLog log = read_metrics(read_file(dir_ / "log/metrics.jsonl"));
    for (const Point& point : log.series[name]) values[point.step] = point.value;
    return values;
  }
  std::map<int64_t, double> losses() const { return metric("train/lm_loss"); }

 private:
  Directory dir_;
};

// The prefix of a copy of the dataset, to be damaged.
inline std::string own_data(const Training& run) {
  std::string data = run.dir() / "own";
  for (const char* end : {".bin", ".idx"})
    fs::copy_file((Material::get() / "text") + end, data + end);
  return data;
}

// Puts a token that is none into the data, at that part of it; returns the bytes before.
inline std::string damage(const std::string& data, double part) {
  std::string good = read_file(data + ".bin"), bad = good;
  bad.replace(static_cast<size_t>(static_cast<double>(bad.size()) * part) & ~size_t{1}, 2,
              "\xff\xee");
  write_file_atomically(data + ".bin", bad);
  return good;
}

}  // namespace neox::testing
