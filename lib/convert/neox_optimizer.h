// The optimizer's state in a GPT-NeoX checkpoint: moments and fp32 masters, parameter by parameter
// as a tensor-parallel rank has them.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "config/config.h"
#include "convert/flat_groups.h"
#include "convert/neox_files.h"
#include "convert/neox_shares.h"

namespace neox {

class NeoxOptimizer {
 public:
  // Of files that have one. Throws (74) where pieces are missing or do not add up to the
  // parameters.
  NeoxOptimizer(std::shared_ptr<const NeoxFiles> files, const Config& config);

  // Why there is nothing that training could go on from; "" where there is.
  const std::string& absent() const { return absent_; }
  // The states by our names: "param" (the master, where there is one), "adam_m" ...
  const std::vector<std::string>& states() const { return states_; }
  // Throws (74) where the parameter has no state of its size.
  void check(const NeoxTensor& parameter) const { place_of(parameter); }
  // A rank's, fp32, flat.
  at::Tensor read(const std::string& state, const NeoxTensor& parameter) const;
  // Steps as the optimizer itself counts them; 0 where it does not.
  int64_t step() const { return step_; }
  // One that has what each of them has, such as the loss scale.
  const torchfile::TorchFile& first_file() const;

 private:
  struct Param {
    int64_t layer = 0;
    std::string name;
    int64_t elements = 0;
  };
  using Params = std::vector<std::vector<Param>>;  // of each group
  struct Place {
    const FlatShares* group = nullptr;
    std::vector<int64_t> sizes;  // of the shares, without padding
    int64_t first = 0, elements = 0;
  };

  const Place& place_of(const NeoxTensor& parameter) const;
  void open(const Config& config);
  std::vector<Params> all_params(const Config& config) const;                    // by mp_rank
  std::vector<Params> derived_params(const Config& config, int64_t rank) const;  // by stage
  Params listed_params(size_t mp_rank) const;
  std::vector<GroupSizes> sizes_of_stages(int64_t rank) const;
  Params layer_params(int64_t layer, int64_t rank, size_t groups) const;
  void add_params(size_t mp_rank, const Params& params);
  void check_slices(size_t mp_rank, size_t group, const std::vector<Param>& params,
                    const std::vector<int64_t>& sizes) const;

  std::shared_ptr<const NeoxFiles> files_;
  std::vector<std::vector<torchfile::TorchFile>> partitions_;  // [mp_rank][data-parallel rank]
  std::string absent_;
  std::vector<std::string> states_;
  std::map<std::string, std::string> keys_;  // theirs by our state
  int64_t step_ = 0;
  std::vector<std::vector<FlatShares>> shares_;                        // [mp_rank][group]
  std::map<std::tuple<int64_t, int64_t, std::string>, Place> places_;  // by rank, layer, name
};

}  // namespace neox
