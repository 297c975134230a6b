// The rows of a table, or of a rank's part of one; their gradient goes straight to the table's.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/element.h"

namespace neox {

// weight [V, hidden]: rows first .. first + V - 1 of the table; rows int64 [...]: [..., hidden],
// with zeros for rows that are in another rank's part.
at::Tensor embedding_rows(const at::Tensor& weight, const at::Tensor& rows, int64_t first = 0);

// What the CUDA kernels take.
struct EmbeddingRows {
  Element type;
  int64_t n, columns, first, table_rows;  // first: the number of the table's first row
  const int64_t* rows;                    // [n]
  const void* table;                      // [table_rows, columns]
  void* out;                              // [n, columns]
};

// dy is added to the table's rows. Ids are sorted, and equal ones are summed in the order in which
// they stand: first in pieces of kEmbeddingPiece, then the pieces of an id.
struct EmbeddingGradient {
  Element type;  // of dy; the table is float, or double where dy is
  int64_t n, columns, first, table_rows;
  const int32_t* ids;    // [n]
  const int64_t* order;  // [n]: where in dy they stand
  const void* dy;        // [n, columns]
  void* table;           // [table_rows, columns]
  void* edges;           // [pieces, 2, columns], as the table: room for ids that lie in more pieces
};
constexpr int kEmbeddingPiece = 16;

void embedding_rows_cuda(const EmbeddingRows& rows);
void embedding_gradient_cuda(const EmbeddingGradient& gradient);

}  // namespace neox
