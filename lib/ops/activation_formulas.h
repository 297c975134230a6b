// The activations of the configuration and their derivatives, for CPU and CUDA kernels. Math: W,
// the type of an element, and exp(V), erf(V) and inverse(V), where V is W or several of them. All
// is inlined, because functions compiled for different CPUs pass vectors differently.
#pragma once
#include <type_traits>

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
  return Math::inverse(W(1) + Math::exp(-x));
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
  V e = Math::exp(x > W(20) ? V{} + W(20) : x), n = e * (e + W(2)), t = n * Math::inverse(n + W(2));
  return {x * t, t + x * (W(1) - t * t) * (e * Math::inverse(W(1) + e))};
}

template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> relu(V x) {
  using W = typename Math::W;
  return {x < W(0) ? V{} : x, x > W(0) ? V{} + W(1) : V{}};
}

template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> silu(V x) {
  using W = typename Math::W;
  V s = sigmoid_of<Math>(x);
  return {x * s, s + x * s * (W(1) - s)};
}

template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> softsign(V x) {
  using W = typename Math::W;
  V inverse = Math::inverse((x < W(0) ? -x : x) + W(1));
  return {x * inverse, inverse * inverse};
}

template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> sigmoid(V x) {
  using W = typename Math::W;
  V s = sigmoid_of<Math>(x);
  return {s, s * (W(1) - s)};
}

// Activation A, known where code is compiled.
template <Activation A, class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> activate(V x) {
  using W = typename Math::W;
  if constexpr (A == Activation::kGeluErf)
    return gelu_erf<Math>(x);
  else if constexpr (A == Activation::kGeluTanh)
    return gelu_tanh<Math>(x);
  else if constexpr (A == Activation::kRelu)
    return relu<Math>(x);
  else if constexpr (A == Activation::kSilu)
    return silu<Math>(x);
  else if constexpr (A == Activation::kSoftsign)
    return softsign<Math>(x);
  else if constexpr (A == Activation::kMish)
    return mish<Math>(x);
  else if constexpr (A == Activation::kSigmoid)
    return sigmoid<Math>(x);
  else
    return {x, V{} + W(1)};
}

template <Activation A>
using Known = std::integral_constant<Activation, A>;

// work(Known<A>), so that loops in it do not choose for each element.
template <class Work>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline auto with_activation(Activation a,
                                                                    const Work& work) {
  switch (a) {
    case Activation::kGeluErf:
      return work(Known<Activation::kGeluErf>());
    case Activation::kGeluTanh:
      return work(Known<Activation::kGeluTanh>());
    case Activation::kRelu:
      return work(Known<Activation::kRelu>());
    case Activation::kSilu:
      return work(Known<Activation::kSilu>());
    case Activation::kSoftsign:
      return work(Known<Activation::kSoftsign>());
    case Activation::kMish:
      return work(Known<Activation::kMish>());
    case Activation::kSigmoid:
      return work(Known<Activation::kSigmoid>());
    case Activation::kIdentity:
      break;
  }
  return work(Known<Activation::kIdentity>());
}

template <class Math, class V>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline Activated<V> activate(Activation activation, V x) {
  return with_activation(
      activation, [x](auto known) __attribute__((always_inline)) {
        return activate<decltype(known)::value, Math>(x);
      });
}

}  // namespace neox
