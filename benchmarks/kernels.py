#!/usr/bin/env python3
"""The operations of kernels.cc as torch.compile makes them, timed alike: one JSON object per line.

    python3 benchmarks/kernels.py --device cuda --dtype bf16
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F

SHAPES = {"70m": (6, 512, 8), "410m": (24, 1024, 16), "1.4b": (24, 2048, 16)}  # layers, hidden, heads
VOCAB, SEQ = 50304, 2048


def seconds_of(device, run):
    """Of one run: the best of three spells of at least 0.05 s, after warming up."""
    def spell(runs):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(runs):
            run()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start
    run()
    runs = int(min(1000, max(1, 0.05 / spell(1))))
    return min(spell(runs) for _ in range(3)) / runs


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


def cases(shape, tokens, make):
    """Name, bytes forward and backward, function, inputs."""
    _, hidden, count = SHAPES[shape]
    wide, size = 4 * hidden, make(1).element_size()
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


def measure(a, shape, tokens, round_):
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32

    def make(*size):
        return torch.randn(*size, device=a.device, dtype=dtype)

    def report(name, amount, seconds):
        print(json.dumps({"case": f"{name} {shape} {tokens} tokens", "who": f"torch.compile {torch.__version__}",
                          "metric": "GB/s", "value": amount / seconds * 1e-9, "round": round_,
                          "microseconds": seconds * 1e6, "bytes": amount}), flush=True)
    for name, forward, backward, function, inputs in cases(shape, tokens, make):
        compiled = torch.compile(function)
        with torch.no_grad():
            report(name + " forward", forward, seconds_of(a.device, lambda: compiled(*inputs)))
        for t in inputs:
            t.requires_grad_(True)
        outputs = compiled(*inputs)
        grads = [torch.randn_like(t) for t in outputs]
        report(name + " backward", backward,
               seconds_of(a.device, lambda: torch.autograd.grad(outputs, inputs, grads, retain_graph=True)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    p.add_argument("--shapes", default="70m,410m,1.4b")
    p.add_argument("--tokens", default="2048,16384")
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    for round_ in range(a.rounds):
        for shape in a.shapes.split(","):
            for tokens in map(int, a.tokens.split(",")):
                measure(a, shape, tokens, round_)


if __name__ == "__main__":
    main()
