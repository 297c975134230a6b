// The optimizer.
#include <algorithm>

#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

// What optimizer.type names.
struct Named {
  const char* word;
  const char* name;  // as it is recorded
  OptimizerKind kind;
  StatePlace place;
  std::vector<double> betas = {0.9, 0.999};  // defaults
  double eps = 1e-8, momentum = 0;
};

const std::vector<Named>& optimizers() {
  using enum OptimizerKind;
  using enum StatePlace;
  static const std::vector<Named> all = {
      {"adam", "adam", kAdam, kDevice},
      {"adamw", "adam", kAdam, kDevice},
      {"cpu_adam", "cpu_adam", kAdam, kHost},
      {"cpu_torch_adam", "cpu_adam", kAdam, kHost},
      {"sgd", "sgd", kSgd, kDevice},
      {"lion", "lion", kLion, kDevice, {0.9, 0.99}},
      {"onebitadam", "onebitadam", kOneBitAdam, kDevice},
      {"muon", "muon", kMuon, kDevice, {0.9, 0.95}, 1e-10, 0.95},
  };
  return all;
}

const Named& named(const std::string& word) {
  auto same = [&](const Named& n) { return equal_words(word, n.word); };
  return *std::find_if(optimizers().begin(), optimizers().end(), same);
}

// Which optimizers have a parameter; lr and weight_decay are everyone's.
struct Owned {
  const char* key;
  std::vector<OptimizerKind> of;
  const char* words;
};

const std::vector<Owned>& parameters() {
  using enum OptimizerKind;
  static const std::vector<Owned> all = {
      {"betas", {kAdam, kLion, kMuon, kOneBitAdam}, "Adam, Lion and Muon"},
      {"eps", {kAdam, kMuon, kOneBitAdam}, "Adam and Muon"},
      {"bias_correction", {kAdam}, "Adam"},
      {"adam_w_mode", {kAdam}, "Adam"},
      {"momentum", {kSgd, kMuon}, "SGD and Muon"},
      {"dampening", {kSgd}, "SGD"},
      {"nesterov", {kSgd}, "SGD"},
      {"muon_lr", {kMuon}, "Muon"},
      {"adam_lr", {kMuon}, "Muon"},
      {"freeze_step", {kOneBitAdam}, "1-bit Adam"},
      {"cuda_aware", {kOneBitAdam}, "1-bit Adam"},
      {"comm_backend_name", {kOneBitAdam}, "1-bit Adam"},
      {"ns_method", {kMuon}, "Muon"},
  };
  return all;
}

std::string param_key(const std::string& name) { return "optimizer.params." + name; }

bool has(OptimizerKind kind, const std::string& name) {
  for (const Owned& p : parameters())
    if (name == p.key) return std::find(p.of.begin(), p.of.end(), kind) != p.of.end();
  return true;
}

void check_parameters(KeyReader& keys, const Named& asked) {
  for (const Owned& p : parameters())
    keys.require(has(asked.kind, p.key) || !keys.given(param_key(p.key)), param_key(p.key),
                 param_key(p.key), " is a parameter of ", p.words, "; optimizer.type is ",
                 asked.name, " (", keys.where("optimizer.type"), ")");
}

void read_betas(KeyReader& keys, OptimizerConfig& optimizer, const std::vector<double>& fallback) {
  const std::string key = "optimizer.params.betas";
  auto betas = keys.given(key) ? keys.numbers(key) : fallback;
  if (!keys.given(key))
    keys.derive(key, concat("[", shortest(fallback[0]), ", ", shortest(fallback[1]), "]"),
                "optimizer.type");
  bool good = betas.size() == 2;
  for (double beta : betas) good &= beta >= 0 && beta < 1;
  keys.require(good, "optimizer.params.betas",
               "optimizer.params.betas must be two numbers of at least 0 and less than 1, such as "
               "[0.9, 0.95]; found ",
               keys.given("optimizer.params.betas") ? keys.given("optimizer.params.betas")->show()
                                                    : std::string());
  optimizer.beta1 = betas[0], optimizer.beta2 = betas[1];
}

void read_sgd(KeyReader& keys, OptimizerConfig& optimizer) {
  optimizer.dampening = keys.number_in(param_key("dampening"), 0, 1);
  optimizer.nesterov = keys.flag(param_key("nesterov"));
  bool plain = optimizer.momentum > 0 && optimizer.dampening == 0;
  keys.require(!optimizer.nesterov || plain, param_key("nesterov"), param_key("nesterov"),
               " needs a momentum above 0 and no dampening");
}

void read_adam(KeyReader& keys, OptimizerConfig& optimizer) {
  optimizer.bias_correction = keys.flag(param_key("bias_correction"));
  optimizer.decay =
      keys.flag(param_key("adam_w_mode")) ? DecayKind::kDecoupled : DecayKind::kCoupled;
}

// The value of a key whose default depends on the optimizer.
double number_or(KeyReader& keys, const std::string& key, double fallback) {
  if (auto value = keys.maybe_number(key)) return *value;
  keys.derive(key, shortest(fallback), "optimizer.type");
  return fallback;
}

void read_eps(KeyReader& keys, OptimizerConfig& optimizer, double fallback) {
  const std::string eps = param_key("eps");
  optimizer.eps = number_or(keys, eps, fallback);
  keys.require(optimizer.eps > 0, eps, eps, " is ", shortest(optimizer.eps),
               "; it must be positive (usual: 1e-8)");
}

void read_momentum(KeyReader& keys, OptimizerConfig& optimizer, double fallback) {
  const std::string key = param_key("momentum");
  optimizer.momentum = number_or(keys, key, fallback);
  keys.require(optimizer.momentum >= 0 && optimizer.momentum < 1, key, key, " is ",
               shortest(optimizer.momentum), "; it must be at least 0 and less than 1");
}

// Muon's two learning rates, as shares of lr, which the schedule moves.
void read_muon(KeyReader& keys, OptimizerConfig& optimizer) {
  double lr = keys.number(param_key("lr"));
  for (auto [name, factor] : {std::pair{"muon_lr", &optimizer.muon_lr_factor},
                              std::pair{"adam_lr", &optimizer.adam_lr_factor}}) {
    const std::string key = param_key(name);
    double rate = number_or(keys, key, lr);
    keys.check_positive(key, rate);
    *factor = rate / lr;
  }
}

// DeepSpeed's ways to say that state lies on the host.
StatePlace read_place(KeyReader& keys, const Named& asked) {
  const std::string device = "zero_optimization.offload_optimizer.device";
  const std::string old = "zero_optimization.cpu_offload";
  bool offload =
      (keys.given(device) && keys.choice(device) == "cpu") || (keys.given(old) && keys.flag(old));
  bool elementwise = asked.kind != OptimizerKind::kMuon && asked.kind != OptimizerKind::kOneBitAdam;
  keys.require(!offload || elementwise, keys.given(old) ? old : device,
               "optimizer.type: ", asked.name, " (", keys.where("optimizer.type"),
               ") with its state in host memory is not supported yet; remove this key");
  return offload ? StatePlace::kHost : asked.place;
}

void read_width(KeyReader& keys, OptimizerConfig& optimizer, const MupConfig& mup) {
  bool known = optimizer.kind == OptimizerKind::kAdam || optimizer.kind == OptimizerKind::kSgd;
  keys.require(known, "use_mup", "use_mup is for Adam and SGD, as in NeoX; optimizer.type is ",
               keys.choice("optimizer.type"), " (", keys.where("optimizer.type"), ")");
  optimizer.width = mup.width;
}

OptimizerConfig read_kind(KeyReader& keys) {
  const Named& asked = named(keys.choice("optimizer.type"));
  keys.record("optimizer.type", asked.name);
  std::string copy = keys.text("optimizer_type");
  keys.mark("optimizer_type", Effect::kInput);
  bool agrees = !keys.given("optimizer_type") || equal_words(copy, asked.word) ||
                equal_words(copy, asked.name);
  keys.require(agrees, "optimizer_type", "optimizer_type is a copy of optimizer.type, which is ",
               asked.word, " (", keys.where("optimizer.type"), "), not ", copy,
               "; set that one and remove this");
  OptimizerConfig optimizer{.kind = asked.kind, .place = read_place(keys, asked)};
  check_parameters(keys, asked);
  if (has(asked.kind, "betas")) read_betas(keys, optimizer, asked.betas);
  if (has(asked.kind, "eps")) read_eps(keys, optimizer, asked.eps);
  if (has(asked.kind, "momentum")) read_momentum(keys, optimizer, asked.momentum);
  if (has(asked.kind, "adam_w_mode")) read_adam(keys, optimizer);
  if (has(asked.kind, "dampening")) read_sgd(keys, optimizer);
  if (has(asked.kind, "freeze_step"))
    optimizer.freeze_step = keys.integer_from(param_key("freeze_step"), 1);
  return optimizer;
}

}  // namespace

OptimizerConfig read_optimizer(KeyReader& keys, const ModelConfig& model) {
  OptimizerConfig optimizer = read_kind(keys);
  optimizer.lr = keys.positive("optimizer.params.lr");
  check_copy(keys, "lr", "optimizer.params.lr", optimizer.lr);
  if (has(optimizer.kind, "muon_lr")) read_muon(keys, optimizer);
  optimizer.weight_decay = keys.number("weight_decay");
  if (!keys.given("weight_decay") && keys.given("optimizer.params.weight_decay")) {
    optimizer.weight_decay = keys.number("optimizer.params.weight_decay");
    keys.derive("weight_decay", shortest(optimizer.weight_decay), "optimizer.params.weight_decay");
  }
  check_copy(keys, "optimizer.params.weight_decay", "weight_decay", optimizer.weight_decay);
  keys.require(optimizer.weight_decay >= 0, "weight_decay", "weight_decay is ",
               shortest(optimizer.weight_decay), "; it must not be negative");
  optimizer.gradient_clipping = keys.number("gradient_clipping");
  keys.require(optimizer.gradient_clipping >= 0, "gradient_clipping", "gradient_clipping is ",
               shortest(optimizer.gradient_clipping), "; it must not be negative (0: none)");
  const Value* clip = keys.given("clip_grad");
  if (clip && clip->number() != optimizer.gradient_clipping)
    keys.note(concat(clip->place.text(), ": clip_grad: ", clip->text,
                     " has no effect, as in NeoX: gradient_clipping is ",
                     shortest(optimizer.gradient_clipping), " (", keys.where("gradient_clipping"),
                     "); set gradient_clipping instead"));
  if (model.mup) read_width(keys, optimizer, *model.mup);
  return optimizer;
}

}  // namespace neox
