// Recorded steps of few rows on a GPU in three kernels a layer, five where attention and MLP follow
// each other: products with norms, biases, activation and residual in them, and attention.
#include "model/decode_replay.h"
#include "model/gpt_neox.h"
#include "ops/cached_attention.h"
#include "ops/row_products.h"

namespace neox {

bool GptNeoX::takes_row_kernels(int64_t rows) const {
  bool fits = rows <= kMostProductRows && config_.hidden % kRowProductColumns == 0 &&
              config_.intermediate % kRowProductColumns == 0 &&
              config_.head_columns() % kRowProductColumns == 0 &&
              takes_cached_attention(config_.head_size());
  for (const auto& [name, place] : params_)
    fits = fits && takes_wide_loads(place.first->param(place.second).const_data_ptr());
  // Norms are read before the kernels in front have ended: also those that would make weights.
  fits = fits && config_.norm_weights != NormWeights::kOne;
  fits = fits && options_.device.is_cuda() && mesh_.tp().size() == 1 && !config_.qk_norm;
  return fits && row_products_fit(element_of("a model", options_.dtypes.param), rows);
}

// x [B, 1, hidden]: what step_output() gives.
Tensor GptNeoX::row_step(const Tensor& x, const Pass& pass) {
  // Norms are read before the kernel in front of that has ended: what makes one comes first.
  NormWeight norm = mesh_.last_stage() ? final_norm() : NormWeight();
  Tensor y = x.squeeze(1);
  for (int64_t l = first_layer_; l < last_layer_; ++l) y = row_layer(y, l, pass);
  if (!mesh_.last_stage()) return y.unsqueeze(1);
  RowTerm head{.x = y, .weight = head_weight(), .norm = norm};
  return row_products({{.terms = {head}}}, norm_options()).front();
}

// x [B, hidden]. Of two terms the MLP's is the first: it is there before attention is.
Tensor GptNeoX::row_layer(const Tensor& x, int64_t l, const Pass& pass) {
  std::string p = prefix(l);
  int64_t K = config_.groups(), G = config_.group_queries();
  NormWeight first = norm_weight(p + "input_layernorm"),
             second = config_.tied_norms ? first : norm_weight(p + "post_attention_layernorm");
  auto term = [&](const Tensor& of, const std::string& name, const NormWeight& norm = {}) {
    return RowTerm{of, param(p + name + ".weight"), bias(p + name + ".bias"), norm};
  };
  auto sum = [&](std::vector<RowTerm> terms, const Tensor& residual = {}) {
    return RowSum{.terms = std::move(terms), .residual = residual};
  };
  auto inner = [&](const Tensor& of) {
    return RowSum{.terms = {term(of, "mlp.dense_h_to_4h", second)},
                  .activation = config_.activation,
                  .gated = config_.gated};
  };
  auto attended = [&](const Tensor& qkv) {
    return term(cached_attention_(qkv.unsqueeze(1), {K, G}, rotary_, cache_step(l, pass)),
                "attention.dense");
  };
  auto run = [&](const std::vector<RowSum>& sums) { return row_products(sums, norm_options()); };
  RowSum heads = sum({term(x, "attention.query_key_value", first)});
  if (config_.parallel_residual) {
    std::vector<Tensor> both = run({heads, inner(x)});
    RowTerm mlp = term(both[1], "mlp.dense_4h_to_h");
    mlp.early = true;  // attention is launched behind `both`, and the sum behind attention
    return run({sum({mlp, attended(both[0])}, x)}).front();
  }
  Tensor y = run({sum({attended(run({heads}).front())}, x)}).front();
  return run({sum({term(run({inner(y)}).front(), "mlp.dense_4h_to_h")}, y)}).front();
}

}  // namespace neox
