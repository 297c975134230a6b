// The fused operations beside the same made of ATen's, forward and backward, at the shapes of
// Pythia, on a GPU recorded as CUDA graphs: time, bytes that must be moved, and their share of the
// copy rate measured in the same round; the LM head with its loss beside its three products alone,
// and the memory that it takes; on a GPU also the kernels of generation's steps. One JSON object
// per line.
//   kernels [--device cuda] [--dtype bf16] [--shapes 70m,410m,1.4b] [--tokens 2048,16384] [--rounds
//   3] [--only rotary]
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/program.h"
#include "comm/communicator.h"
#include "extra_memory.h"
#include "kernel_timing.h"
#include "model/head.h"
#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/norm.h"
#include "ops/rotary.h"

namespace {

using namespace neox;
using at::Tensor;
using Tensors = std::vector<Tensor>;
using Shape = KernelShape;
using Setting = KernelSetting;
using Operation = std::function<Tensors(const Tensors&)>;

const Shape kShapes[] = {{"70m", 6, 512, 8}, {"410m", 24, 1024, 16}, {"1.4b", 24, 2048, 16}};
constexpr int64_t kVocab = 50304, kSeq = 2048;

// The operation's elements are moved forward and backward at least once.
struct Case {
  std::string name;
  double forward, backward;  // bytes
  Tensors inputs;            // floating ones get gradients where there is a backward pass
  Operation ours, aten;
};

Tensors with_gradients(const Tensors& tensors) {
  Tensors chosen;
  for (const Tensor& t : tensors)
    if (t.requires_grad()) chosen.push_back(t);
  return chosen;
}

// Gradients of our vectors, of weights and biases, are float, as where a model keeps them.
void keep_float_gradients(const Tensors& inputs, bool ours) {
  for (const Tensor& t : inputs)
    if (t.dim() == 1 && t.requires_grad() && t.is_cuda())
      Tensor(t).set_grad_dtype(ours ? at::kFloat : t.scalar_type());
}

void measure(const Setting& s, const Case& c, const char* who, const Operation& operation) {
  at::Device device = s.options.device();
  {
    at::NoGradGuard no_grad;
    report(s, c.name + " forward", who, c.forward,
           recorded_seconds_of(device, [&] { operation(c.inputs); }));
  }
  if (c.backward == 0) return;
  keep_float_gradients(c.inputs, who == std::string("ours"));
  Tensors outputs = with_gradients(operation(c.inputs)), inputs = with_gradients(c.inputs), grads;
  for (const Tensor& y : outputs) grads.push_back(at::randn_like(y));
  report(s, c.name + " backward", who, c.backward,
         recorded_seconds_of(device, [&] { torch::autograd::grad(outputs, inputs, grads, true); }));
}

void run_case(const Setting& s, Case c) {
  if (!s.wants(c.name)) return;
  if (c.backward > 0)
    for (Tensor& t : c.inputs)
      if (t.is_floating_point()) t.set_requires_grad(true);
  measure(s, c, "ours", c.ours);
  measure(s, c, "ATen", c.aten);
}

// GB/s. Not recorded: a CUDA graph leaves copies to an engine with two thirds of the rate (H200).
double copy_rate(const at::TensorOptions& options) {
  int64_t n = options.device().is_cuda() ? int64_t{1} << 30 : int64_t{1} << 24;
  Tensor a = at::randn({n}, options.dtype(at::kFloat)), b = at::empty_like(a);
  return static_cast<double>(8 * n) * 1e-9 / seconds_of(options.device(), [&] { b.copy_(a); });
}

Case norms(const Setting& s, double row) {
  int64_t C = s.shape.hidden;
  auto vector = [&] { return s.random({C}); };
  Tensors in{s.random({s.tokens, C}), s.random({s.tokens, C})};
  for (int i = 0; i < 5; ++i) in.push_back(vector());
  double bytes = 5 * row * static_cast<double>(C);
  return {
      "sum and two LayerNorms",
      bytes,
      bytes,
      in,
      [](const Tensors& x) -> Tensors {
        auto [sum, a, b] = add_norms({x[0], x[1], x[2]}, {x[3], x[4]}, {x[5], x[6]}, {});
        return {sum, a, b};
      },
      [C](const Tensors& x) -> Tensors {
        Tensor sum = x[0] + (x[1] + x[2]);
        return {sum, at::layer_norm(sum, {C}, x[3], x[4]), at::layer_norm(sum, {C}, x[5], x[6])};
      }};
}

Case bias_gelu(const Setting& s, double row) {
  int64_t F = 4 * s.shape.hidden;
  double bytes = row * static_cast<double>(F);
  return {
      "bias and GELU",
      2 * bytes,
      3 * bytes,
      {s.random({s.tokens, F}), s.random({F})},
      [](const Tensors& x) -> Tensors { return {activated(x[0], x[1], Activation::kGeluTanh)}; },
      [](const Tensors& x) -> Tensors { return {at::gelu(x[0] + x[1], "tanh")}; }};
}

Case swiglu(const Setting& s, double row) {
  int64_t F = 4 * s.shape.hidden;
  double bytes = row * static_cast<double>(F);
  return {"SwiGLU",
          3 * bytes,
          5 * bytes,
          {s.random({s.tokens, 2 * F}), s.random({2 * F})},
          [](const Tensors& x) -> Tensors { return {gated(x[0], x[1], Activation::kSilu)}; },
          [F](const Tensors& x) -> Tensors {
            auto parts = (x[0] + x[1]).view({-1, F, 2}).unbind(2);
            return {at::silu(parts[0]) * parts[1]};
          }};
}

// Forward, a quarter of queries and keys is read and written; backward, all is.
Case heads(const Setting& s, double row) {
  int64_t h = s.shape.hidden, H = s.shape.heads, D = h / H, B = s.tokens / kSeq, half = D / 8;
  RotaryTable table = rotary_table(kSeq, {.rotary = 2 * half}, s.options.device());
  double bytes = row * static_cast<double>(h);
  auto turned = [=](const Tensor& x) {
    Tensor c = table.cos.to(x.scalar_type()), t = table.sin.to(x.scalar_type());
    Tensor cos = at::cat({c, c}, 1), sin = at::cat({t, t}, 1), y = x.narrow(3, 0, 2 * half);
    Tensor other = at::cat({-y.narrow(3, half, half), y.narrow(3, 0, half)}, 3);
    return at::cat({y * cos + other * sin, x.narrow(3, 2 * half, D - 2 * half)}, 3);
  };
  return {"rotary in the split of heads",
          bytes,
          6 * bytes,
          {s.random({B, kSeq, 3 * h})},
          [=](const Tensors& x) -> Tensors {
            auto [q, k, v] = rotated_heads_(x[0], {H}, table);
            return {q, k, v};
          },
          [=](const Tensors& x) -> Tensors {
            Tensors parts = x[0].view({B, kSeq, H, 3, D}).unbind(3);
            for (Tensor& t : parts) t = t.transpose(1, 2);
            return {turned(parts[0]), turned(parts[1]), parts[2]};
          }};
}

// Of what dropout there is.
Case dropped(const Setting& s, double row) {
  int64_t C = s.shape.hidden;
  double bytes = row * static_cast<double>(C);
  return {
      "residual, bias and dropout",
      3 * bytes,
      2 * bytes,
      {s.random({s.tokens, C}), s.random({s.tokens, C}), s.random({C})},
      [](const Tensors& x) -> Tensors { return {dropped_sum(x[0], x[1], x[2], 0.1, {.key = 5})}; },
      [](const Tensors& x) -> Tensors { return {x[0] + at::dropout(x[1] + x[2], 0.1, true)}; }};
}

// A chunk of 2048 tokens' logits turns into gradients: read and written once.
Case cross_entropy(const Setting& s) {
  int64_t rows = s.options.device().is_cuda() ? 2048 : 160;
  Tensor targets = at::randint(kVocab, {rows}, s.options.dtype(at::kLong));
  Tensor factor = at::full({rows}, 1e-3, s.options.dtype(at::kFloat));
  auto bytes =
      static_cast<double>(2 * rows * kVocab) * static_cast<double>(s.options.dtype().itemsize());
  return {"softmax cross entropy and its gradient",
          bytes,
          0,
          {s.random({rows, kVocab})},
          [=](const Tensors& x) -> Tensors {
            Tensor logits = x[0];
            return {cross_entropy_(logits, targets, factor)};
          },
          [=](const Tensors& x) -> Tensors {
            at::AutoGradMode with_grad(true);
            Tensor logits = x[0].detach().set_requires_grad(true);
            Tensor loss = at::cross_entropy_loss(logits, targets);
            loss.backward();
            return {loss, logits.grad()};
          }};
}

Case adamw_step(const Setting& s) {
  int64_t n = 12 * s.shape.layers * s.shape.hidden * s.shape.hidden;
  auto flat = s.options.dtype(at::kFloat);
  Tensors in;
  for (int i = 0; i < 4; ++i) in.push_back(at::randn({n}, flat));
  in[3].square_();
  auto scalar = [&](double x) { return at::full({}, x, flat.dtype(at::kDouble)); };
  UpdateScalars scalars{scalar(1e-4), scalar(0.5), scalar(3), scalar(1)};
  Tensor copy = at::empty({n}, s.options), step = at::full({}, 3, flat);
  bool copied = s.options.dtype() != flat.dtype();
  double bytes = static_cast<double>(n) * (28 + (copied ? 2 : 0));
  return {"AdamW",
          bytes,
          0,
          in,
          [=](const Tensors& x) -> Tensors {
            Tensor p = x[0], m = x[2], v = x[3];
            adamw(p, x[1], m, v, {0.9, 0.95, 1e-8, 0.1}, scalars, copied ? copy : Tensor());
            return {};
          },
          [=](const Tensors& x) -> Tensors {
            at::_fused_adamw_({x[0]}, {x[1]}, {x[2]}, {x[3]}, {}, {step}, 1e-4, 0.9, 0.95, 0.1,
                              1e-8, false, false);
            if (copied) Tensor(copy).copy_(x[0]);
            return {};
          }};
}

Case squares(const Setting& s) {
  int64_t n = 12 * s.shape.layers * s.shape.hidden * s.shape.hidden;
  return {"norm of gradients",
          4.0 * static_cast<double>(n),
          0,
          {at::randn({n}, s.options.dtype(at::kFloat))},
          [](const Tensors& x) -> Tensors { return {sum_of_squares({{x[0]}})}; },
          [](const Tensors& x) -> Tensors { return {at::dot(x[0], x[0])}; }};
}

// What the head's three products take without it: logits, and both gradients.
double seconds_of_products(const Setting& s, const Tensor& x, const Tensor& weight) {
  at::NoGradGuard no_grad;
  Tensor logits = at::empty({x.size(0), kVocab}, s.options), dx = at::empty_like(x),
         dweight = at::empty_like(weight);
  return recorded_seconds_of(s.options.device(), [&] {
    at::mm_out(logits, x, weight.t());
    at::mm_out(dx, logits, weight);
    at::mm_out(dweight, logits.t(), x);
  });
}

// Forward and backward. Ours adds to the weight's gradient where it is kept, in float.
void run_head(const Setting& s) {
  at::Device device = s.options.device();
  int64_t h = s.shape.hidden, N = device.is_cuda() ? s.tokens : 512;
  Tensor x = s.random({N, h}), weight = s.random({kVocab, h}) * 0.02, plain = weight.clone();
  Tensor targets = at::randint(kVocab, {N}, s.options.dtype(at::kLong));
  double products = seconds_of_products(s, x, weight);
  for (Tensor* leaf : {&x, &weight, &plain}) leaf->set_requires_grad(true);
  weight.set_grad_dtype(at::kFloat);
  weight.mutable_grad() = at::zeros(weight.sizes(), s.options.dtype(at::kFloat));
  auto world = self_communicator();
  HeadTargets counted{targets, at::ones({N}, s.options.dtype(at::kFloat)),
                      at::full({}, 1.0 / static_cast<double>(N), s.options.dtype(at::kDouble))};
  auto measured = [&](const char* who, const std::function<void()>& run) {
    double seconds = recorded_seconds_of(device, run),
           work = 6e-12 * static_cast<double>(N * h * kVocab);
    say(s, "LM head and loss", who,
        {{"metric", "TFLOP/s"}, {"value", work / seconds}, {"of ceiling", products / seconds}});
    x.mutable_grad() = plain.mutable_grad() = Tensor();
    say(s, "LM head and loss, extra memory", who,
        {{"metric", "MB"}, {"value", extra_bytes(device, run) * 1e-6}});
  };
  measured("ours", [&] {
    x.mutable_grad() = Tensor();
    head_loss(x, weight, counted, *world).backward();
  });
  measured("ATen", [&] {
    x.mutable_grad() = plain.mutable_grad() = Tensor();
    at::cross_entropy_loss(at::linear(x, plain).to(at::kFloat), targets).backward();
  });
}

void run_setting(Setting s, bool once) {
  s.copy_rate = copy_rate(s.options);
  report(s, "copy", "ATen", 1e9 * s.copy_rate, 1);
  double row = static_cast<double>(s.tokens) * static_cast<double>(s.options.dtype().itemsize());
  for (auto make : {norms, bias_gelu, swiglu, heads, dropped}) run_case(s, make(s, row));
  if (s.wants("LM head and loss")) run_head(s);
  if (!once) return;  // these do not depend on the tokens
  for (auto make : {cross_entropy, adamw_step, squares}) run_case(s, make(s));
  if (s.options.device().is_cuda() && s.wants("decoding")) run_decoding(s);
}

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> found;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) found.push_back(word);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("kernels", [&] {
    Program program({"kernels", "Times the fused operations beside ATen's.", "[options]", "", ""});
    auto text = [](const char* value) {
      return boost::program_options::value<std::string>()->default_value(value);
    };
    program.options().add_options()("device", text("cpu"), "cpu or cuda")(
        "dtype", text("fp32"), "fp32 or bf16")("shapes", text("70m,410m,1.4b"), "of Pythia")(
        "tokens", text("2048,16384"), "multiples of 2048")(
        "only", text(""), "cases whose name contains this, such as rotary or decoding")(
        "rounds", boost::program_options::value<int>()->default_value(3), "of all cases");
    if (!program.parse(argc, argv)) return 0;
    auto type = program.get<std::string>("dtype") == "bf16" ? at::kBFloat16 : at::kFloat;
    auto name = program.get<std::string>("device");
    check_usage(name == "cpu" || name == "cuda", "--device ", name, ": expected cpu or cuda");
    at::Device device = name == "cpu" ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
    auto options = at::dtype(type).device(device);
    // From here on a stream that can be recorded: autograd runs backward on that of forward.
    graph_recorder(device);
    auto shapes = words(program.get<std::string>("shapes"));
    auto tokens = words(program.get<std::string>("tokens"));
    for (int round = 0; round < program.get<int>("rounds"); ++round)
      for (const Shape& shape : kShapes)
        for (const std::string& n : tokens)
          if (std::ranges::find(shapes, shape.name) != shapes.end())
            run_setting({options, shape, std::stoll(n), round, 0, program.get<std::string>("only")},
                        n == tokens.front());
    return 0;
  });
}
