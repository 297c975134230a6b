// The trees in which DeepSpeed keeps an optimizer's state, brought to one form: for each group of
// parameters the shares of its flat vector, in order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torchfile/torch_file.h"

namespace neox {

struct FlatShare {
  std::optional<torchfile::Value> master;  // fp32 parameters
  torchfile::Value state;                  // dict: "exp_avg" ...; none where it never stepped
  int64_t padding = 0;  // elements at the end of the whole vector, of the last share
  const torchfile::TorchFile* file = nullptr;

  std::optional<torchfile::Value> find(const std::string& key) const;  // "master": the master
};
using FlatShares = std::vector<FlatShare>;

// Of the zero_pp_rank files of one mp_rank, by data-parallel rank: ZeRO stages 1 and 2 (also the
// stage 1 of before 0.3.17, with its communication intervals) and bf16.
std::vector<FlatShares> zero_shares(const std::vector<torchfile::TorchFile>& files);
// Of an mp_rank file, without ZeRO: fp16 with flat masters, or each parameter by itself. Empty
// where it holds no optimizer.
std::vector<FlatShares> plain_shares(const torchfile::TorchFile& file);

// How often the optimizer stepped, as it counts itself; 0 where it does not say.
int64_t optimizer_step(const torchfile::TorchFile& file, const std::vector<FlatShares>& groups);

// The dynamic loss scaler, or the optimizer that has the same attributes (cur_scale, cur_iter ...).
std::optional<torchfile::Value> loss_scaler(const torchfile::TorchFile& file);

}  // namespace neox
