#!/usr/bin/env python3
"""The operations of kernels.cc as torch.compile makes them, timed alike: on a GPU recorded as CUDA graphs. Prints the lines of
harness/lines.py; an operation that does not compile is such a line too.

    python3 benchmarks/kernels.py --device cuda --dtype bf16
"""
import argparse
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "benchmarks"))
from harness import lines  # noqa: E402
from harness.shapes import SHAPES  # noqa: E402

VOCAB, SEQ = 50304, 2048
RUNS = 5       # of a function in one CUDA graph
COMPILED = {}  # of each name, shape and number of tokens


def norms(x, added, bias, w1, b1, w2, b2):
    total = x + (added + bias)
    size = (x.size(-1),)
    return total, F.layer_norm(total, size, w1, b1), F.layer_norm(total, size, w2, b2)


def bias_gelu(x, bias):
    return (F.gelu(x + bias, approximate="tanh"),)


def swiglu(x, bias):
    gate, up = (x + bias).unflatten(-1, (-1, 2)).unbind(-1)
    return (F.silu(gate) * up,)


def dropped(x, y, bias):
    return (x + F.dropout(y + bias, 0.1),)


def heads(qkv, cos, sin, count):
    q, k, v = (t.transpose(1, 2) for t in qkv.unflatten(-1, (count, 3, -1)).unbind(3))

    def turned(x):
        y = x[..., :cos.size(1)]
        a, b = y.chunk(2, -1)
        return torch.cat((y * cos + torch.cat((-b, a), -1) * sin, x[..., y.size(-1):]), -1)
    return turned(q), turned(k), v


def cross_entropy(logits, targets):
    """The losses of rows, and their gradients, as one function."""
    x = logits.float()
    total = x.logsumexp(-1, keepdim=True)
    onehot = torch.arange(x.shape[-1], device=x.device) == targets[:, None]
    losses = total.squeeze(-1) - x.gather(-1, targets[:, None]).squeeze(-1)
    return losses, (((x - total).exp() - onehot.float()) * 1e-3).to(logits.dtype)


def adamw(p, grad, m, v, copy):
    m.lerp_(grad, 0.1)
    v.mul_(0.95).addcmul_(grad, grad, value=0.05)
    p.mul_(1 - 1e-5).sub_(1e-4 * (m / 0.271) / ((v / 0.142625).sqrt() + 1e-8))
    if copy is not None:
        copy.copy_(p)
    return ()


def head_loss(x, weight, targets):
    return F.cross_entropy(F.linear(x, weight).float(), targets)


class Bench:
    def __init__(self, a, shape, tokens, number):
        self.a, self.shape, self.tokens, self.number, self.cuda = a, shape, tokens, number, a.device == "cuda"
        self.dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32

    def make(self, *size, dtype=None):
        return torch.randn(*size, device=self.a.device, dtype=dtype or self.dtype)

    def settle(self):
        if self.cuda:
            torch.cuda.synchronize()

    def compiled(self, name, function):
        return COMPILED.setdefault((name, self.shape, self.tokens), torch.compile(function, dynamic=False))

    def recorded(self, run):
        """Work that does so many runs at once, and how many; on a CPU, and where it cannot be recorded, one."""
        if not self.cuda:
            return run, 1
        for _ in range(3):
            run()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                for _ in range(RUNS):
                    run()
        except RuntimeError as e:
            lines.note(f"not recorded: {str(e).splitlines()[0]}")
            torch.cuda.synchronize()
            return run, 1
        return graph.replay, RUNS

    def seconds_of(self, run):
        """Of one run: the best of three spells of at least 0.05 s, after warming up."""
        work, runs = self.recorded(run)
        return self.best_of_spells(work) / runs

    def best_of_spells(self, run):
        def spell(runs):
            self.settle()
            start = time.perf_counter()
            for _ in range(runs):
                run()
            self.settle()
            return time.perf_counter() - start
        run()
        runs = int(min(1000, max(1, 0.05 / spell(1))))
        return min(spell(runs) for _ in range(3)) / runs

    def attempt(self, name, work):
        try:
            work()
        except Exception as e:  # compilers fail in many ways; the next operation may not
            self.say(name, "GB/s", error=f"{type(e).__name__}: {' '.join(str(e).split())}"[:300])

    def say(self, name, metric, **more):
        lines.say(suite="kernels", case=f"{name} {self.shape} {self.tokens} tokens", who=f"torch.compile {torch.__version__}", metric=metric,
                  round=self.number, **more)

    def report(self, name, amount, seconds):
        self.say(name, "GB/s", value=amount / seconds * 1e-9, microseconds=seconds * 1e6, bytes=amount)

    def cases(self):
        """Name, bytes forward and backward, function, inputs."""
        _, hidden, count, _ = SHAPES[self.shape]
        tokens, make, wide, size = self.tokens, self.make, 4 * hidden, self.make(1).element_size()
        rotary = hidden // count // 4
        angle = torch.outer(torch.arange(SEQ), 1e4 ** (-torch.arange(0, rotary, 2) / rotary)).repeat(1, 2)
        cos, sin = (t.to(make(1)) for t in (angle.cos(), angle.sin()))
        row = tokens * hidden * size
        yield ("sum and two LayerNorms", 5 * row, 5 * row, norms,
               [make(tokens, hidden), make(tokens, hidden)] + [make(hidden) for _ in range(5)])
        yield "bias and GELU", 8 * row, 12 * row, bias_gelu, [make(tokens, wide), make(wide)]
        yield "SwiGLU", 12 * row, 20 * row, swiglu, [make(tokens, 2 * wide), make(2 * wide)]
        yield ("rotary in the split of heads", row, 6 * row, lambda x: heads(x, cos, sin, count),
               [make(tokens // SEQ, SEQ, 3 * hidden)])
        yield ("residual, bias and dropout", 3 * row, 2 * row, dropped,
               [make(tokens, hidden), make(tokens, hidden), make(hidden)])

    def cases_without_backward(self):
        layers, hidden, _, _ = SHAPES[self.shape]
        rows, n, size = 2048 if self.cuda else 160, 12 * layers * hidden * hidden, self.make(1).element_size()
        targets = torch.randint(VOCAB, (rows,), device=self.a.device)
        yield ("softmax cross entropy and its gradient", 2 * rows * VOCAB * size, lambda x: cross_entropy(x, targets),
               [self.make(rows, VOCAB)])
        flat = [self.make(n, dtype=torch.float32) for _ in range(4)]
        flat[3].square_()
        copy = self.make(n) if self.dtype != torch.float32 else None
        yield "AdamW", n * (28 + (2 if copy is not None else 0)), adamw, [*flat, copy]
        yield "norm of gradients", 4 * n, lambda x: x.square().sum(), [self.make(n, dtype=torch.float32)]

    def run(self, first):
        for case in self.cases():
            self.attempt(case[0], lambda: self.both_ways(*case))
        self.attempt("LM head and loss", self.head)
        if not first:  # these do not depend on the tokens
            return
        for case in self.cases_without_backward():
            self.attempt(case[0], lambda: self.forward(*case))

    def forward(self, name, amount, function, inputs):
        compiled = self.compiled(name, function)
        with torch.no_grad():
            self.report(name + " forward", amount, self.seconds_of(lambda: compiled(*inputs)))

    def both_ways(self, name, forward, backward, function, inputs):
        self.forward(name, forward, function, inputs)
        compiled = self.compiled(name, function)
        for t in inputs:
            t.requires_grad_(True)
        outputs = compiled(*inputs)
        grads = [torch.randn_like(t) for t in outputs]
        self.report(name + " backward", backward,
                    self.seconds_of(lambda: torch.autograd.grad(outputs, inputs, grads, retain_graph=True)))

    def head(self):
        _, hidden, _, _ = SHAPES[self.shape]
        rows = self.tokens if self.cuda else 512
        x, weight = self.make(rows, hidden).requires_grad_(), (self.make(VOCAB, hidden) * 0.02).requires_grad_()
        targets = torch.randint(VOCAB, (rows,), device=self.a.device)
        compiled = self.compiled("head", head_loss)

        def run():
            x.grad = weight.grad = None
            compiled(x, weight, targets).backward()
        seconds = self.seconds_of(run)
        self.say("LM head and loss", "TFLOP/s", value=6e-12 * rows * hidden * VOCAB / seconds)
        if self.cuda:
            x.grad = weight.grad = None
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            run()
            self.settle()
            self.say("LM head and loss, extra memory", "MB", value=(torch.cuda.max_memory_allocated() - before) * 1e-6)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    p.add_argument("--shapes", default="70m,410m,1.4b")
    p.add_argument("--tokens", default="2048,16384")
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    torch._dynamo.config.recompile_limit = 1000  # of functions that are compiled for each size
    tokens = [int(n) for n in a.tokens.split(",")]
    if a.device == "cuda":  # one that can be recorded: backward runs on the stream of forward
        torch.cuda.set_stream(torch.cuda.Stream())
    for number in range(a.rounds):
        for shape in a.shapes.split(","):
            for n in tokens:
                Bench(a, shape, n, number).run(n == tokens[0])


if __name__ == "__main__":
    main()
