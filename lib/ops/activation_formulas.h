// The activations of the configuration and their derivatives, for CPU and CUDA kernels. Math: W,
// the type of an element, and exp(V) and erf(V), where V is W or several of them. All is inlined,
// because functions compiled for different CPUs pass vectors differently.
#pragma once
#include "config/config.h"
#include "ops/philox.h"

namespace neox {

template <class V>
struct Activated {
  V value, slope;
};

template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline V sigmoid_of(V x) {
  using W = typename Math::W;
  return W(1) / (W(1) + Math::exp(-x));
}

// 0.5 x (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> gelu_tanh(V x) {
  using W = typename Math::W;
  constexpr W kTwice = W(1.5957691216057307), kCubic = W(0.044715);
  V square = x * x, s = sigmoid_of<Math>(x * kTwice * (square * kCubic + W(1)));
  return {x * s, s + x * s * (W(1) - s) * kTwice * (square * (3 * kCubic) + W(1))};
}

template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> gelu_erf(V x) {
  using W = typename Math::W;
  V below = W(0.5) * (W(1) + Math::erf(x * W(0.70710678118654752)));
  V density = Math::exp(x * x * W(-0.5)) * W(0.39894228040143268);
  return {x * below, below + x * density};
}

// x tanh(log(1 + e^x)).
template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> mish(V x) {
  using W = typename Math::W;
  V e = Math::exp(x > W(20) ? V{} + W(20) : x), n = e * (e + W(2)), t = n / (n + W(2));
  return {x * t, t + x * (W(1) - t * t) * (e / (W(1) + e))};
}

template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> activate(Activation activation, V x) {
  using W = typename Math::W;
  switch (activation) {
    case Activation::kGeluErf:
      return gelu_erf<Math>(x);
    case Activation::kGeluTanh:
      return gelu_tanh<Math>(x);
    case Activation::kRelu:
      return {x < W(0) ? V{} : x, x > W(0) ? V{} + W(1) : V{}};
    case Activation::kSilu: {
      V s = sigmoid_of<Math>(x);
      return {x * s, s + x * s * (W(1) - s)};
    }
    case Activation::kSoftsign: {
      V a = (x < W(0) ? -x : x) + W(1);
      return {x / a, W(1) / (a * a)};
    }
    case Activation::kMish:
      return mish<Math>(x);
    case Activation::kSigmoid: {
      V s = sigmoid_of<Math>(x);
      return {s, s * (W(1) - s)};
    }
    case Activation::kIdentity:
      break;
  }
  return {x, V{} + W(1)};
}

}  // namespace neox
