#!/usr/bin/env python3
"""Peer of tests/mup_test.cc: Microsoft's package mup 1.0.0 for models of families.Decoder.

  mup_shapes.py --golden     writes tests/golden/mup.json: of each parameter the standard deviation of its initial
                             values (or half the range of uniform ones, "xavier_uniform") by GPT-NeoX's methods, and
                             learning rate and weight decay by MuAdamW and MuSGD for 1 and 1
"""
import json
import math
import re
from pathlib import Path

import mup
import torch

import families

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "mup.json"
CASE = dict(family="decoder", name="wide", layers=2, heads=2, kv_heads=1, hidden=48, vocab=33, batch=1, seq=8,
            intermediate=60, pos_emb="learned", rotary_pct=0.0, activation="gelu", mup=dict(width=3))
SCALE, STD = 1.5, 0.02  # mup_init_scale, init_method_std


def narrow(case):
    width = case["mup"]["width"]
    return case | dict(hidden=case["hidden"] // width,
                       intermediate=families.Shape(case).width // width)


def annotate(case, params):
    """Tells mup which sides of the parameters, in the order of families.shapes(), are widths."""
    wide, base = families.shapes(families.Shape(case)), families.shapes(families.Shape(narrow(case)))
    for p, name in zip(params, wide, strict=True):
        assert tuple(p.shape) == tuple(wide[name]), name
        p.infshape = mup.zip_infshape(base[name], wide[name])


def deviations(case, params):
    """By GPT-NeoX's methods at the narrow model's width, as mup asks for."""
    layers, hidden = case["layers"], narrow(case)["hidden"]
    methods = dict(normal=STD, scaled_normal=STD / math.sqrt(2 * layers), small_init=math.sqrt(2 / (5 * hidden)),
                   wang_init=2 / layers / math.sqrt(hidden))
    found = {}

    def record(tensor, *values):
        tensor.used = values[-1]
        return tensor

    mup.init._no_grad_normal_ = lambda tensor, mean, std: record(tensor, std)
    mup.init._no_grad_uniform_ = lambda tensor, low, high: record(tensor, high)
    for method in [*methods, "xavier_normal", "xavier_uniform"]:
        found[method] = {}
        for name, p in params.items():
            if p.dim() != 2:
                continue
            if method in methods:
                mup.init.normal_(p, mean=0.0, std=methods[method])
            else:
                getattr(mup.init, method + "_")(p)
            found[method][name] = p.used * SCALE
    return found


def rates(optimizer, params):
    of = {id(p): dict(lr=g["lr"], weight_decay=g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}
    return {name: of[id(p)] for name, p in params.items()}


def main():
    names = families.shapes(families.Shape(CASE))
    params = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in names.items()}
    annotate(CASE, params.values())
    groups = lambda: [dict(params=list(params.values()))]
    golden = dict(case=CASE, init_scale=SCALE, init_std=STD, deviations=deviations(CASE, params),
                  adam=rates(mup.MuAdamW(groups(), lr=1.0, weight_decay=1.0), params),
                  sgd=rates(mup.MuSGD(groups(), lr=1.0, weight_decay=1.0), params))
    text = re.sub(r"\{[^{}]*\}", lambda flat: re.sub(r"\s+", " ", flat[0]) if len(flat[0]) < 110 else flat[0],
                  json.dumps(golden, indent=1))
    GOLDEN.write_text(text + "\n")
    print(f"{GOLDEN}: {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    main()
