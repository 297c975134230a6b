#!/usr/bin/env python3
"""Writes tests/golden/model_optim.json for optim_test: learning rates by the formulas of GPT-NeoX
(1.0 and main), the loss scale by the rules of DeepSpeed's dynamic loss scaler, AdamW by PyTorch.
"""
import json
import math
import random
from pathlib import Path

import torch

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "model_optim.json"


def rate_v1(t, style, lr, min_lr, warmup, end):
    held = min(t, end - warmup)
    if warmup > 0 and t <= warmup:
        return lr * held / warmup
    n = held - warmup
    decayed = {"constant": lr, "linear": lr * (end - n) / end,
               "cosine": lr / 2 * (math.cos(math.pi * n / end) + 1)}[style]
    return max(decayed, min_lr)


def rate_v2(t, style, lr, min_lr, warmup, end):
    if warmup > 0 and t <= warmup:
        return lr * max(1, t) / warmup
    n, period = t - warmup, end - warmup
    decayed = {"constant": lr, "linear": lr * (period - n) / period,
               "cosine": min_lr + (lr - min_lr) / 2 * (math.cos(math.pi * n / period) + 1)}[style]
    return max(decayed, min_lr)


# lr, min_lr, warm-up, iterations of decay
SCHEDULES = [(6e-4, 6e-5, 1430.0, 143000), (1e-3, 0.0, 0.0, 500), (2e-4, 2e-5, 2.5, 250)]


def rates():
    for formula, rate in (("v1", rate_v1), ("v2", rate_v2)):
        for style in ("constant", "linear", "cosine"):
            for lr, min_lr, warmup, end in SCHEDULES:
                w = int(warmup)
                steps = sorted({0, 1, 2, 3, w, w + 1, end // 3, end // 2, end - w, end - w + 1, end,
                                end + 7000, end + 57000})
                yield dict(formula=formula, style=style, lr=lr, min_lr=min_lr, warmup_iters=warmup,
                           decay_iters=end, steps=steps,
                           rates=[rate(t, style, lr, min_lr, warmup, end) for t in steps])


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


def main():
    golden = dict(rates=list(rates()), loss_scales=list(loss_scales()), adamw=list(adamw()))
    parts = (f' "{k}": [\n' + ",\n".join("  " + json.dumps(x) for x in v) + "\n ]"
             for k, v in golden.items())
    GOLDEN.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    print(f"{GOLDEN}: {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    main()
