// One configuration of each optimizer, for the tests that all of them must pass.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "tiny_run.h"

namespace neox {

struct OptimizerCase {
  std::string name;
  OptimizerConfig optimizer;
};

inline std::ostream& operator<<(std::ostream& out, const OptimizerCase& c) { return out << c.name; }

inline std::vector<OptimizerCase> optimizer_cases() {
  OptimizerConfig base{.lr = 1e-3, .beta2 = 0.95, .weight_decay = 0.1, .gradient_clipping = 0.5};
  OptimizerConfig coupled = base, sgd = base, plain = base, lion = base, muon = base;
  coupled.decay = DecayKind::kCoupled;
  coupled.bias_correction = false;
  sgd.kind = plain.kind = OptimizerKind::kSgd;
  sgd.momentum = 0.9;
  sgd.nesterov = true;
  lion.kind = OptimizerKind::kLion;
  muon.kind = OptimizerKind::kMuon;
  muon.momentum = 0.95;
  muon.muon_lr_factor = 5;
  OptimizerConfig one_bit = base;
  one_bit.kind = OptimizerKind::kOneBitAdam;
  one_bit.freeze_step = 2;
  one_bit.eps = 1e-3;  // rows of the embedding that are new after the freeze have a variance of 0
  return {{"AdamWithCoupledDecay", coupled},
          {"SgdWithMomentum", sgd},
          {"SgdWithout", plain},
          {"Lion", lion},
          {"Muon", muon},
          {"OneBitAdam", one_bit}};
}

inline OptimizerCase optimizer_case(const std::string& name) {
  auto cases = optimizer_cases();
  return *std::ranges::find(cases, name, &OptimizerCase::name);
}

// 1-bit Adam depends on how many ranks send signs, and has no state to cut.
inline bool has_layout(const OptimizerCase& c, const Layout& layout) {
  return c.optimizer.kind != OptimizerKind::kOneBitAdam || layout.replicate * layout.shard == 1;
}

// Where every gradient is more than rounding: the sign of one that is not, such as that of a bias
// of keys without a rotation, is arbitrary, and Lion goes by signs.
inline TinyOptions tiny_options(const OptimizerCase& c) {
  TinyOptions options;
  options.model.hidden = 24;
  options.model.intermediate = 96;
  options.model.rotary_pct = 1;
  options.optimizer = c.optimizer;
  return options;
}

}  // namespace neox
