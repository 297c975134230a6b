#include "convert/megatron_options.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "config/keys.h"
#include "convert/config_lines.h"
#include "convert/megatron_args.h"
#include "convert/megatron_command_line.h"
#include "tokenizer/tokenizer.h"

namespace neox {
namespace {

using Fate = MegatronOption::Fate;
using Json = nlohmann::json;

bool takes_no_value(const MegatronOption& option) {
  const KeyRow* key = option.fate == Fate::kKey ? find_key(option.words) : nullptr;
  return key ? key->type == KeyType::kBool : option.words == std::string_view(kSwitch);
}

// The numbers of a split as Megatron finds them in it, whatever stands between: scripts put it in
// quotes inside of a variable that is not quoted itself, and these stay.
std::string shares_of(std::string split) {
  std::erase_if(split, [](char c) { return c == '"' || c == '\''; });
  return split;
}

constexpr const char* kDefault = "Megatron's default";

class Translation {
 public:
  explicit Translation(const std::vector<std::string>& arguments) : args_(Json::object(), kWhere) {
    for (MegatronWords& given : split_command_line(arguments)) take(std::move(given));
    fill_in();
    args_ = MegatronArgs(given_, kWhere);
  }
  MegatronOptions result();

 private:
  static constexpr const char* kWhere = "pretrain_gpt.py's options";
  void take(MegatronWords given);
  void fill_in();
  void lose(const std::string& shown, const std::string& instead) {
    lost_.push_back(concat(shown, ": ", instead));
  }
  bool has(const std::string& name) const { return given_.contains(name); }
  std::string default_of(const std::string& name) const { return has(name) ? "" : kDefault; }
  double number(const std::string& name, double fallback) const {
    return args_.number(name.c_str(), fallback);
  }
  int64_t whole(const char* name, int64_t fallback) const {
    return std::llround(number(name, static_cast<double>(fallback)));
  }
  std::string word(const char* name, const char* fallback = "") const {
    return has(name) && given_[name].is_string() ? given_[name].get<std::string>() : fallback;
  }
  double batch() const;
  double steps(const char* kind, double fallback) const;
  void add_keys(std::initializer_list<const char*> keys);
  void add_model();
  void add_ramp_up();
  void add_length();
  void add_schedule();
  void add_optimizer();
  void add_layout();
  void add_precision();
  void add_data();
  void add_sets(const char* option, const char* set);
  void add_tokenizer();
  void add_reports();
  std::string head() const;

  Json given_ = Json::object(), keys_ = Json::object();  // of options that are keys
  std::vector<std::string> lost_, unknown_, idle_;
  std::string gated_;  // the activation of a gated MLP
  MegatronArgs args_;
  ConfigLines lines_;
};

void Translation::take(MegatronWords given) {
  const MegatronOption* option = find_megatron_option(given.name);
  if (!option) return unknown_.push_back(given.shown());
  Json value = given.value();
  bool lost =
      option->fate == Fate::kLost || option->fate == Fate::kNothing || option->fate == Fate::kOff;
  check_usage(lost || !given.words.empty() || takes_no_value(*option), given.spelled,
              " has no value; is it a variable that is not set?");
  switch (option->fate) {
    case Fate::kNothing:
      return idle_.push_back(given.spelled);
    case Fate::kLost:
      if (value == "rope" || value == "vanilla" || value == "softmax") return;  // the defaults
      return lose(given.shown(), option->words);
    case Fate::kOff:
      given_[option->words] = false;
      return;
    case Fate::kKey:
      if (option->words == std::string("split") || given.words.size() > 1)
        value = join(given.words, " ");
      keys_[option->words] = value;
      return;
    default:
      given_[given.name] = value;
  }
}

// What Megatron's own checks make of the options before it keeps them (validate_args).
void Translation::fill_in() {
  args_ = MegatronArgs(given_, kWhere);
  int64_t hidden = args_.integer("hidden_size");
  if (has("glu_activation")) gated_ = word("glu_activation");
  if (has("geglu")) gated_ = "geglu";
  if (has("swiglu")) gated_ = "swiglu";
  if (args_.flag("swiglu", false) && !has("ffn_hidden_size"))
    given_["ffn_hidden_size"] = static_cast<int64_t>(4.0 * hidden * 2 / 3 / 64) * 64;
  if (has("use_llama2_rotary_position_embeddings")) given_["use_rotary_position_embeddings"] = true;
  if (has("rotary_position_embeddings_theta"))
    given_["rotary_base"] = given_["rotary_position_embeddings_theta"];
  if (!has("position_embedding_type")) given_["position_embedding_type"] = "learned_absolute";
  if (has("use_alibi_mask")) given_["position_embedding_type"] = "alibi";
  if (!gated_.empty()) given_["swiglu"] = true;
  if (has("window_size"))
    given_["window_size"] = MegatronWords{"", "", split(word("window_size"), ',')}.value();
  if (!has("max_position_embeddings") && has("seq_length"))
    given_["max_position_embeddings"] = given_["seq_length"];
  for (const char* switched : {"fp16", "bf16"})
    if (has(switched) && given_[switched] != true) given_.erase(switched);
}

// Samples of a step; 0: not given.
double Translation::batch() const {
  Json size = keys_.value("train_batch_size", Json(0));
  return size.is_number() ? size.get<double>() : 0;
}

// Steps by what is given: steps, samples or tokens; not rounded.
double Translation::steps(const char* kind, double fallback) const {
  std::string tokens = concat(kind, "_tokens"), samples = concat(kind, "_samples");
  check_usage(batch() > 0 || !(has(tokens) || has(samples)),
              "--global-batch-size is missing, by which --", kind,
              "-samples and -tokens are divided");
  if (number(tokens, 0) > 0) return number(tokens, 0) / batch() / number("seq_length", 1);
  if (number(samples, 0) > 0) return number(samples, 0) / batch();
  return number(concat(kind, "_iters"), fallback);
}

void Translation::add_keys(std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (keys_.contains(key)) lines_.add(key, keys_[key]);
}

// The lines of megatron_yaml(), with a remark where the option was not given.
void Translation::add_model() {
  static constexpr std::string_view kDefaults[] = {"hidden_dropout", "attention_dropout",
                                                   "init_method_std"};
  lines_.begin("Model");
  Json model = given_;
  for (const char* own : {"num_experts", "glu_activation"}) model.erase(own);
  for (const std::string& line : split(trim(megatron_yaml(MegatronArgs(model, kWhere))), '\n')) {
    std::string key = line.substr(0, line.find(':')), remark;
    if (std::ranges::find(kDefaults, key) != std::end(kDefaults)) remark = default_of(key);
    if (key == "intermediate_size" && args_.flag("swiglu", false))
      remark = "both halves and the way back";
    if (key == "bias_gelu_fusion" && line.ends_with("true")) remark = "the tanh formula of GELU";
    Json value = Json::parse(line.substr(line.find(':') + 1));
    if (!gated_.empty() && key == "activation") value = gated_;
    lines_.add(key, value, remark);
  }
  const Json given = given_.value("num_experts", Json(1));
  int64_t experts = given.is_number_integer() ? given.get<int64_t>() : 1;
  if (!given.is_number()) lose("--num-experts " + given.dump(), "all layers have as many experts");
  if (experts > 1) {
    lines_.add("moe_num_experts", experts);
    const char* top = has("topk") ? "topk" : "moe_router_topk";
    lines_.add("moe_top_k", whole(top, has("deepspeed") ? 1 : 2));
    add_keys({"moe_expert_interval"});
  }
  if (word("mlp_type", "standard") != "standard")
    lose("--mlp-type " + word("mlp_type"), "another model: experts alone");
}

// Three numbers, which may be one word in quotes.
void Translation::add_ramp_up() {
  if (!has("rampup_batch_size")) return;
  Json numbers = given_["rampup_batch_size"];
  if (numbers.is_string())
    numbers = MegatronWords{"", "", split(trim(numbers.get<std::string>()), ' ')}.value();
  lines_.add("rampup_batch_size", numbers);
}

// In samples where the run's length is, so that nothing is rounded; tokens end it with the step
// that comes to them.
void Translation::add_length() {
  bool tokens = number("train_tokens", 0) > 0, samples = !tokens && number("train_samples", 0) > 0;
  bool in_samples = batch() > 0 && (has("rampup_batch_size") || samples);
  double total = steps("train", 0), least = in_samples ? 1 / batch() : 1;
  total = tokens ? std::ceil(total) : in_samples ? total : std::floor(total);
  double decay = std::max(least, steps("lr_decay", std::max(least, total)));
  auto add = [&](const char* key, double length) {
    lines_.add(key, static_cast<int64_t>(in_samples ? std::llround(length * batch()) : length));
  };
  if (total > 0) add(in_samples ? "train_samples" : "train_iters", total);
  if (total <= 0) lose("--train-iters", "it is missing; give train_iters");
  add(in_samples ? "lr_decay_samples" : "lr_decay_iters", decay);
  lines_.add("lr_decay_style", word("lr_decay_style", "linear"), default_of("lr_decay_style"));
  if (!in_samples) decay = std::floor(decay);
  double share = has("lr_warmup_fraction") ? number("lr_warmup_fraction", 0)
                 : has("warmup")           ? number("warmup", 0)
                                           : steps("lr_warmup", 0) / decay;
  std::string remark = concat("share of lr_decay_", in_samples ? "samples" : "iters");
  lines_.add("warmup", std::min(share, 1.0), share == 0 ? kDefault : remark);
}

void Translation::add_schedule() {
  lines_.begin("Batch and schedule");
  add_keys({"train_batch_size", "train_micro_batch_size_per_gpu"});
  add_ramp_up();
  add_length();
  lines_.add("min_lr", number("min_lr", 0), default_of("min_lr"));
  lines_.add("lr_schedule_compat", "megatron");
  if (number("lr_warmup_init", 0) != 0) lose("--lr-warmup-init", "warm-up begins at 0");
  add_keys({"lr_wsd_decay_style", "lr_wsd_decay_iters", "override_lr_scheduler",
            "use_checkpoint_lr_scheduler", "seed"});
}

void Translation::add_optimizer() {
  lines_.begin("Optimizer");
  std::string type = word("optimizer", "adam");
  if (type != "adam") lose("--optimizer " + type, "Adam is taken");
  Json params = {{"lr", number("lr", 0)},
                 {"betas", {number("adam_beta1", 0.9), number("adam_beta2", 0.999)}},
                 {"eps", number("adam_eps", 1e-8)}};
  if (!has("lr")) lose("--lr", "it is missing; give optimizer.params.lr");
  lines_.add("optimizer", Json{{"type", "Adam"}, {"params", params}});
  lines_.add("weight_decay", number("weight_decay", 0.01), default_of("weight_decay"));
  lines_.add("gradient_clipping", number("clip_grad", 1.0), default_of("clip_grad"));
}

void Translation::add_layout() {
  lines_.begin("Layout");
  add_keys({"model_parallel_size"});
  bool pipeline = has("pipeline_model_parallel_size") && !has("no_pipeline_parallel");
  lines_.add("pipe_parallel_size", pipeline ? whole("pipeline_model_parallel_size", 1) : 1);
  add_keys({"sequence_parallel"});
  int64_t stage = whole("zero_stage", has("use_distributed_optimizer") ? 1 : 0);
  Json zero = {{"stage", stage}};
  if (has("cpu_optimizer") || has("optimizer_cpu_offload"))
    zero["offload_optimizer"] = {{"device", "cpu"}};
  lines_.add("zero_optimization", zero);
  bool recomputes = has("checkpoint_activations") || has("activations_checkpoint_method") ||
                    word("recompute_granularity") == "full";
  lines_.add("checkpoint_activations", recomputes);
  add_keys({"checkpoint_num_layers"});
}

void Translation::add_precision() {
  lines_.begin("Precision");
  if (has("bf16")) {
    if (has("fp16")) lose("--fp16", "--bf16 is taken");
    lines_.add("precision", "bf16");
    if (has("grad_reduce_in_bf16"))  // they are accumulated in what they are reduced in
      lines_.add("data_types", Json{{"grad_accum_dtype", "bf16"}});
    return;
  }
  if (!has("fp16")) return lines_.add("precision", "fp32", kDefault);
  auto power = std::lround(std::log2(std::max(1.0, number("initial_loss_scale", 0x1p32))));
  lines_.add("fp16", Json{{"enabled", true},
                          {"loss_scale", number("loss_scale", 0)},
                          {"initial_scale_power", power},
                          {"loss_scale_window", whole("loss_scale_window", 1000)},
                          {"hysteresis", whole("hysteresis", 2)},
                          {"min_loss_scale", number("min_loss_scale", 1)}});
}

// A prefix, or weights and prefixes.
void Translation::add_sets(const char* option, const char* set) {
  if (!has(option)) return;
  Json words = given_[option].is_array() ? given_[option] : Json::array({given_[option]});
  bool weighted = words.size() > 1 && words[0].is_number();
  Json paths = Json::array(), weights = Json::array();
  for (size_t i = 0; i < words.size(); ++i)
    (weighted && i % 2 == 0 ? weights : paths).push_back(words[i]);
  lines_.add(concat(set, "_data_paths"), paths);
  if (weighted) lines_.add(concat(set, "_data_weights"), weights);
}

void Translation::add_data() {
  lines_.begin("Data and tokenizer");
  if (has("data_path")) {
    const Json& words = given_["data_path"];
    std::vector<std::string> texts;
    for (const Json& word : words.is_array() ? words : Json::array({words}))
      texts.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    lines_.add("data_path", join(texts, " "));
  }
  add_sets("train_data_path", "train");
  add_sets("valid_data_path", "valid");
  add_sets("test_data_path", "test");
  bool older = has("deepspeed") || has("data_impl") || has("zero_stage");
  lines_.add("data_order", older ? "megatron" : "megatron-core",
             older ? "Megatron-LM's from autumn 2023 on is megatron-core"
                   : "Megatron-LM's until autumn 2023 is megatron");
  keys_["split"] = shares_of(keys_.value("split", Json("969, 30, 1")).get<std::string>());
  add_keys(
      {"split", "data_cache_path", "reset_position_ids", "reset_attention_mask", "eod_mask_loss"});
  if (word("dataloader_type", "single") != "single")
    lose("--dataloader-type " + word("dataloader_type"), "samples come in the order of single");
  add_tokenizer();
}

void Translation::add_tokenizer() {
  static const std::set<std::string> kOurs = {"GPT2BPETokenizer", "HFTokenizer", "Llama2Tokenizer"};
  std::string type = word("tokenizer_type",
                          has("tokenizer_name_or_path") ? "PretrainedFromHF" : "GPT2BPETokenizer");
  std::string model = word("tokenizer_model", word("tokenizer_name_or_path").c_str());
  if (model.empty()) model = word("vocab_file");
  std::string ours = type == "TikTokenizer" ? "TiktokenTokenizer" : Tokenizer::same_type(type);
  if (ours == type && !kOurs.contains(type)) {
    ours = model.ends_with(".model") ? "SPMTokenizer" : "";
    lose("--tokenizer-type " + type, "give tokenizer_type and vocab_file, or padded_vocab_size");
  }
  if (ours == "HFTokenizer" && !model.empty() && !model.ends_with(".json"))
    model += "/tokenizer.json";
  if (!ours.empty()) lines_.add("tokenizer_type", ours);
  if (!ours.empty() && !model.empty()) lines_.add("vocab_file", model);
  if (!ours.empty()) add_keys({"merge_file"});
  if (has("vocab_size") && !keys_.contains("padded_vocab_size"))
    lose("--vocab-size", "give padded_vocab_size, a multiple of 128 x model_parallel_size");
  add_keys({"make_vocab_size_divisible_by", "padded_vocab_size"});
}

void Translation::add_reports() {
  lines_.begin("Checkpoints and reports");
  add_keys({"save", "load", "checkpoint_factor", "no_load_optim", "finetune", "async_save",
            "exit_interval", "exit_duration_in_mins", "log_interval", "eval_interval", "eval_iters",
            "tensorboard_dir"});
  if (!word("wandb_project").empty() && !keys_.contains("use_wandb")) keys_["use_wandb"] = true;
  add_keys({"use_wandb"});
  if (!word("wandb_project").empty()) lines_.add("wandb_project", given_["wandb_project"]);
  add_keys({"wandb_run_name", "wandb_group", "wandb_team", "log_param_norm", "log_grad_pct_zeros",
            "profile", "profile_step_start", "profile_step_stop"});
}

std::string Translation::head() const {
  std::string text = "# Made of a command line of pretrain_gpt.py by neox-convert options.\n";
  auto add = [&](const char* words, const std::vector<std::string>& options) {
    if (options.empty()) return;
    text += concat("#\n# ", words, "\n");
    for (const std::string& option : options) text += concat("#   ", option, "\n");
  };
  add("CHANGES THE RUN, and is not available:", lost_);
  add("UNKNOWN, left out:", unknown_);
  if (!idle_.empty()) add("Left out, since nothing here depends on them:", {join(idle_, " ")});
  if (has("deepspeed_config"))
    text += concat("#\n# DeepSpeed's file wins over this one: --deepspeed-config ",
                   word("deepspeed_config", "FILE"), "\n");
  return text;
}

MegatronOptions Translation::result() {
  add_model();
  add_optimizer();
  add_schedule();
  add_layout();
  add_precision();
  add_data();
  add_reports();
  MegatronOptions made{.yaml = head() + lines_.text(), .warnings = lost_};
  for (const std::string& option : unknown_)
    made.warnings.push_back(option + ": unknown, left out");
  return made;
}

}  // namespace

MegatronOptions read_megatron_options(const std::vector<std::string>& arguments) try {
  return Translation(arguments).result();
} catch (const Error& e) { fail(Exit::kUsage, e.what()); }

}  // namespace neox
