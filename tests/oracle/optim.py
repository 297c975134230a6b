#!/usr/bin/env python3
"""Writes tests/golden/model_optim.json for optim_test: learning rates by the formulas of GPT-NeoX
(1.0 and main) and of Megatron-Core, the loss scale by the rules of DeepSpeed's dynamic loss scaler,
AdamW, Adam and SGD by PyTorch, Lion by its paper (Algorithm 2), Muon and 1-bit Adam by
numpy.
"""
import json
import math
import random
from pathlib import Path

import numpy as np
import torch

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "model_optim.json"


def rate_v1(t, style, lr, min_lr, warmup, end):
    held = min(t, end - warmup)
    if warmup > 0 and t <= warmup:
        return lr * held / warmup
    n = held - warmup
    decayed = {"constant": lr, "linear": lr * (end - n) / end,
               "exponential": lr * math.exp(-0.693 * n / end),
               "cosine": lr / 2 * (math.cos(math.pi * n / end) + 1)}[style]
    return max(decayed, min_lr)


def rate_v2(t, style, lr, min_lr, warmup, end):
    if warmup > 0 and t <= warmup:
        return lr * max(1, t) / warmup
    n, period = t - warmup, end - warmup
    decayed = {"constant": lr, "linear": lr * (period - n) / period,
               "exponential": lr * math.exp(-0.693 * n / period),
               "cosine": min_lr + (lr - min_lr) / 2 * (math.cos(math.pi * n / period) + 1)}[style]
    return max(decayed, min_lr)


WSD = {"linear": lambda r: 1 - r, "cosine": lambda r: (math.cos(math.pi * r) + 1) / 2,
       "exponential": lambda r: 2 * 0.5**r - 1, "minus_sqrt": lambda r: 1 - r**0.5}


def rate_megatron(t, style, lr, min_lr, warmup, end, wsd_style=None, wsd_iters=0):
    """Counts steps where Megatron counts samples; the warm-up starts from 0."""
    if warmup > 0 and t <= warmup:
        return lr * t / warmup
    if style == "constant":
        return lr
    if t > end:
        return min_lr
    if style == "inverse-square-root":
        return max(min_lr, lr * max(warmup, 1)**0.5 / max(t, 1)**0.5)
    r, hold = (t - warmup) / (end - warmup), end - wsd_iters
    left = {"linear": lambda: 1 - r, "cosine": lambda: (math.cos(math.pi * r) + 1) / 2,
            "WSD": lambda: 1 if t <= hold else WSD[wsd_style]((t - hold) / wsd_iters)}[style]()
    return min_lr + left * (lr - min_lr)


# lr, min_lr, warm-up, iterations of decay
SCHEDULES = [(6e-4, 6e-5, 1430.0, 143000), (1e-3, 0.0, 0.0, 500), (2e-4, 2e-5, 2.5, 250)]


def rates():
    for formula, rate in (("v1", rate_v1), ("v2", rate_v2)):
        for style in ("constant", "linear", "cosine", "exponential"):
            for lr, min_lr, warmup, end in SCHEDULES:
                steps = looked_at(int(warmup), end)
                yield dict(formula=formula, style=style, lr=lr, min_lr=min_lr, warmup_iters=warmup,
                           decay_iters=end, steps=steps,
                           rates=[rate(t, style, lr, min_lr, warmup, end) for t in steps])
    kinds = [(style, None) for style in ("constant", "linear", "cosine", "inverse-square-root")]
    for style, wsd_style in kinds + [("WSD", s) for s in WSD]:
        for lr, min_lr, warmup, end in SCHEDULES:
            steps, wsd_iters = looked_at(int(warmup), end), end // 4
            yield dict(formula="megatron", style=style, lr=lr, min_lr=min_lr, warmup_iters=warmup,
                       decay_iters=end, wsd_style=wsd_style, wsd_iters=wsd_iters, steps=steps,
                       rates=[rate_megatron(t, style, lr, min_lr, warmup, end, wsd_style, wsd_iters)
                              for t in steps])


def looked_at(w, end):
    hold = end - end // 4
    return sorted({0, 1, 2, 3, w, w + 1, end // 3, end // 2, hold, hold + 1, end - end // 8, end - w,
                   end - w + 1, end, end + 1, end + 7000, end + 57000})


def scales(start, window, hysteresis, least, overflows):
    """One entry a step, after it. Patience is restored only by a full window."""
    scale, patience, last_overflow, after = start, hysteresis, -1, []
    for i, overflow in enumerate(overflows):
        if overflow:
            if hysteresis == 1 or patience == 1:
                scale = max(scale / 2, least)
            else:
                patience -= 1
            last_overflow = i
        elif (i - last_overflow) % window == 0:
            patience = hysteresis
            scale *= 2
        after.append(scale)
    return after


# initial scale, window, hysteresis, least scale, how often a step overflows
SCALERS = [(4096, 4, 2, 1, .3), (2.0**32, 7, 1, 1, .2), (16, 3, 3, 4, .6), (8, 1, 2, 1, .5),
           (64, 5, 2, 2, .1)]


def loss_scales():
    draw = random.Random(5)
    for start, window, hysteresis, least, often in SCALERS:
        overflows = [int(draw.random() < often) for _ in range(120)]
        yield dict(initial=start, window=window, hysteresis=hysteresis, min=least,
                   overflows=overflows,
                   scales=scales(start, window, hysteresis, least, overflows))


def adamw():
    torch.manual_seed(7)
    for dtype, decay in ((torch.float64, 0.1), (torch.float64, 0.0), (torch.float32, 0.1)):
        start = torch.randn(11, dtype=dtype)
        p = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.AdamW([p], lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
        grads, params = [], []
        for step in range(5):
            p.grad = torch.randn(11, dtype=dtype) * 10.0 ** (-step)
            p.grad[step] = 0
            grads.append(p.grad.tolist())
            optimizer.step()
            params.append(p.tolist())
        state = optimizer.state[p]
        yield dict(dtype=str(dtype).removeprefix("torch."), weight_decay=decay, lr=3e-3,
                   beta1=0.9, beta2=0.95, eps=1e-8, start=start.tolist(), grads=grads,
                   params=params, m=state["exp_avg"].tolist(), v=state["exp_avg_sq"].tolist())


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of arXiv 2302.06675."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
            for p in group["params"]:
                state = self.state[p]
                m = state.setdefault("m", torch.zeros_like(p))
                c = b1 * m + (1 - b1) * p.grad
                p.copy_(p - lr * (torch.sign(c) + decay * p))
                state["m"] = b2 * m + (1 - b2) * p.grad


SGD = [dict(momentum=0.0), dict(momentum=0.9), dict(momentum=0.9, nesterov=True),
       dict(momentum=0.8, dampening=0.3)]


def updates(make, cases, state_key):
    """Five updates of 13 elements by make([parameter], **case), in fp64 and fp32."""
    torch.manual_seed(11)
    for dtype in (torch.float64, torch.float32):
        for case in cases:
            start = torch.randn(13, dtype=dtype)
            p = torch.nn.Parameter(start.clone())
            optimizer = make([p], **case)
            grads, params = [], []
            for step in range(5):
                p.grad = torch.randn(13, dtype=dtype) * 10.0 ** (-step)
                p.grad[step] = 0
                grads.append(p.grad.tolist())
                optimizer.step()
                params.append(p.tolist())
            m = optimizer.state[p].get(state_key)
            yield dict(dtype=str(dtype).removeprefix("torch."), **case, start=start.tolist(),
                       grads=grads, params=params, m=None if m is None else m.tolist())


# Shapes of matrices, and learning rates of Muon's.
MATRICES = [(6, 4), (4, 6), (5, 5)]


def muon():
    """Momentum with Nesterov's step, made orthogonal by five steps of Newton and Schulz, in fp64."""
    draw = np.random.default_rng(3)
    lr, decay, mu = 2e-2, 0.1, 0.95
    for shape in MATRICES:
        start = draw.normal(size=shape)
        p, m, grads, params = start.copy(), np.zeros(shape), [], []
        for _ in range(3):
            g = draw.normal(size=shape)
            m = mu * m + (1 - mu) * g
            x = mu * m + (1 - mu) * g
            x = x / (np.linalg.norm(x) + 1e-7)
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
            p = p * (1 - lr * decay) - lr * max(1, shape[0] / shape[1])**0.5 * x
            grads.append(g.ravel().tolist())
            params.append(p.ravel().tolist())
        yield dict(shape=shape, lr=lr, weight_decay=decay, momentum=mu, start=start.ravel().tolist(),
                   grads=grads, params=params, m=m.ravel().tolist())


def one_bit(ranks=3, n=37, freeze=2, steps=6):
    """1-bit Adam on `ranks` ranks with gradients of their own, parts of the sum being signs and a
    scale: padded to a multiple of 8 elements a rank."""
    draw = np.random.default_rng(4)
    lr, decay, b1, b2, eps = 2e-2, 0.1, 0.9, 0.95, 1e-3
    part = -(-n // (8 * ranks)) * 8
    start = draw.normal(size=n)
    p, m, v = start.copy(), np.zeros(n), np.zeros(n)
    own, server = np.zeros((ranks, n)), [np.zeros(max(0, min(part, n - part * r)))
                                         for r in range(ranks)]
    sign = lambda x: np.where(x >= 0, 1.0, -1.0)
    grads, params = [], []
    for step in range(1, steps + 1):
        g = draw.normal(size=(ranks, n))
        if step <= freeze:
            m = b1 * m + (1 - b1) * g.sum(0)
            v = b2 * v + (1 - b2) * g.sum(0)**2
        else:
            x = b1 * m + (1 - b1) * g * ranks + own
            scale = np.linalg.norm(x, axis=1, keepdims=True) / n**0.5
            sent = scale * sign(x)
            own = x - sent
            m = np.zeros(n)
            for r in range(ranks):
                y = sent[:, part * r:part * (r + 1)].mean(0) + server[r]
                if y.size:
                    m[part * r:part * (r + 1)] = np.linalg.norm(y) / y.size**0.5 * sign(y)
                    server[r] = y - m[part * r:part * (r + 1)]
        p = p - lr * (m / (np.sqrt(v) + eps) + decay * p)
        grads.append(g.tolist())
        params.append(p.tolist())
    yield dict(ranks=ranks, freeze_step=freeze, lr=lr, weight_decay=decay, beta1=b1, beta2=b2,
               eps=eps, start=start.tolist(), grads=grads, params=params, m=m.tolist())


def main():
    decay = dict(lr=3e-3, weight_decay=0.1)
    golden = dict(
        rates=list(rates()), loss_scales=list(loss_scales()), adamw=list(adamw()),
        adam=list(updates(torch.optim.Adam, [dict(betas=(0.9, 0.95), **decay)], "exp_avg")),
        sgd=list(updates(torch.optim.SGD, [dict(**case, **decay) for case in SGD],
                         "momentum_buffer")),
        lion=list(updates(Lion, [dict(betas=(0.9, 0.99), **decay)], "m")),
        muon=list(muon()),
        one_bit=[case for sizes in ((3, 37), (2, 5), (4, 64)) for case in one_bit(*sizes)])
    parts = (f' "{k}": [\n' + ",\n".join("  " + json.dumps(x) for x in v) + "\n ]"
             for k, v in golden.items())
    GOLDEN.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    print(f"{GOLDEN}: {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    main()
