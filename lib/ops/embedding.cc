#include "ops/embedding.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>
#include <vector>

#include "ops/lanes.h"
#include "ops/leaf_gradient.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kCopyGrain = 16384;  // elements that are worth a thread

// Of a table, or of a rank's part of one.
struct Part {
  Tensor table;
  int64_t first;
  bool has(int64_t row) const { return row >= first && row - first < table.size(0); }
};

// rows [...]: [..., columns].
Tensor rows_of(const Part& part, const Tensor& rows) {
  const Tensor& table = part.table;
  int64_t n = rows.numel(), C = table.size(1);
  std::vector<int64_t> shape = rows.sizes().vec();
  shape.push_back(C);
  Tensor out = at::empty(shape, table.options());
  const auto* at = rows.const_data_ptr<int64_t>();
  if (table.is_cuda()) {
    embedding_rows_cuda({element_of("an embedding", table.scalar_type()), n, C, part.first,
                         table.size(0), at, table.const_data_ptr(), out.mutable_data_ptr()});
    return out;
  }
  auto bytes = static_cast<size_t>(C) * table.element_size();
  const auto* from = static_cast<const char*>(table.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(
      0, n, kCopyGrain / std::max<int64_t>(C, 1) + 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          char* row = to + static_cast<size_t>(i) * bytes;
          if (part.has(at[i]))
            std::memcpy(row, from + static_cast<size_t>(at[i] - part.first) * bytes, bytes);
          else
            std::memset(row, 0, bytes);
        }
      });
  return out;
}

// Each thread takes some columns of all tokens, so sums have one order.
template <class T>
void add_on_cpu(const Part& part, const Tensor& rows, const Tensor& dy) {
  using W = lanes::Wide<T>;
  int64_t n = rows.numel(), C = part.table.size(1);
  const auto* at = rows.const_data_ptr<int64_t>();
  const T* from = dy.const_data_ptr<T>();
  W* to = part.table.mutable_data_ptr<W>();
  at::parallel_for(0, C, kCopyGrain / std::max<int64_t>(n, 1) + 1,
                   [&](int64_t first, int64_t last) {
                     for (int64_t i = 0; i < n; ++i) {
                       if (!part.has(at[i])) continue;
                       W* sum = to + (at[i] - part.first) * C;
                       for (int64_t c = first; c < last; ++c)
                         sum[c] += static_cast<W>(from[i * C + c]);
                     }
                   });
}

// Sizes do not depend on which rows they are, and nothing asks the device, so it can be recorded.
void add_on_gpu(const Part& part, const Tensor& rows, const Tensor& dy) {
  const Tensor& table = part.table;
  int64_t n = rows.numel(), C = table.size(1), pieces = (n + kEmbeddingPiece - 1) / kEmbeddingPiece;
  auto [ids, order] = at::sort(rows.to(at::kInt), std::optional<bool>(true), 0);
  Tensor edges = at::empty({pieces, 2, C}, table.options());
  embedding_gradient_cuda({element_of("an embedding's gradient", dy.scalar_type()), n, C,
                           part.first, table.size(0), ids.const_data_ptr<int32_t>(),
                           order.const_data_ptr<int64_t>(), dy.const_data_ptr(),
                           table.mutable_data_ptr(), edges.mutable_data_ptr()});
}

// rows [n], dy [n, columns]; table is of the type in which sums of dy's are taken.
void add_rows(const Part& part, const Tensor& rows, const Tensor& dy) {
  if (dy.is_cuda()) return add_on_gpu(part, rows, dy);
  lanes::with_cpu_type(element_of("an embedding's gradient", dy.scalar_type()),
                       [&]<class T>(T*) { add_on_cpu<T>(part, rows, dy); });
}

// ATen's gradient is a table of its own, mostly zeros, that is added to the kept one. Here one is
// made only where none is kept.
class Embedding : public torch::autograd::Function<Embedding> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& rows,
                        int64_t first) {
    context->saved_data["first"] = first;
    Tensor at = rows.contiguous();
    context->save_for_backward({weight, at});
    return rows_of({weight, first}, at);
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto saved = context->get_saved_variables();
    Tensor dy = grad[0].reshape({-1, saved[0].size(1)}).contiguous();
    at::ScalarType type = at::toOpMathType(dy.scalar_type());
    Tensor kept = kept_gradient(saved[0], type), table = kept;
    if (!kept.defined()) table = at::zeros(saved[0].sizes(), dy.options().dtype(type));
    int64_t first = context->saved_data["first"].toInt();
    add_rows({table, first}, saved[1].flatten(), dy);
    return {kept.defined() ? Tensor() : table, Tensor(), Tensor()};
  }
};

}  // namespace

at::Tensor embedding_rows(const Tensor& weight, const Tensor& rows, int64_t first) {
  return Embedding::apply(weight, rows, first);
}

}  // namespace neox
