// The softmax of float rows on the CPU, step by step, for what computes its scores block by block
// and never holds them all. Sixteen columns at a time; a row's sums do not depend on the number of
// threads.
#pragma once
#include <cstdint>

namespace neox {

// The greatest of x [n]; -inf of none.
float row_max(const float* x, int64_t n);
// x = exp(scale x - top), of which the sum is returned. scale x - top must not be far above 0;
// values below e^-44 are 0.
float row_exp(float* x, int64_t n, float scale, float top);
void row_multiply(float* x, int64_t n, float factor);
// The same for bf16, by their bits, rounded to the nearest; and what rounds to them.
void row_multiply(uint16_t* x, int64_t n, float factor);
void row_round(const float* x, int64_t n, uint16_t* to);
// to = exp(x - log_sum) factor, in bf16.
void row_exp_round(const float* x, int64_t n, float log_sum, float factor, uint16_t* to);
// The softmax again and its gradient: x = exp(scale x - log_sum), dx = scale x (dx - dot), where
// dot is the sum of x dx over the row.
void row_exp_backward(float* x, float* dx, int64_t n, float scale, float log_sum, float dot);
float row_dot(const float* x, const float* y, int64_t n);

}  // namespace neox
