#!/usr/bin/env python3
"""Peer of tests/model_test.cc and tests/oracle_model_test.cc: transformers and PyTorch (families.py).

  model.py --golden      writes tests/golden/model_sketches.json and model_trajectory.json
  model.py --live DIR    writes weights, logits, gradients and trajectories as safetensors into DIR

Weights and tokens are functions of (name, position) that tests/model_cases.h computes to the same
bits. A sketch of a tensor is its norm and 16 sums of its elements with random signs: the mean
square of the differences of two sketches' sums is an unbiased estimate of the square of the
tensors' distance.
"""
import argparse
import json
import math
import os
import re
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
import mup
import numpy as np
import torch
from safetensors.torch import save_file

import families
import mup_shapes

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SIGNS = 16

CASES = [
    dict(name="head32", layers=2, heads=2, hidden=64, vocab=96, batch=2, seq=16, rotary_pct=0.25,
         parallel_residual=True, tied_embedding=False, activation="gelu_tanh"),
    dict(name="head64", layers=2, heads=2, hidden=128, vocab=101, batch=2, seq=33, rotary_pct=1.0,
         parallel_residual=False, tied_embedding=True, activation="gelu"),
    dict(name="head80", layers=2, heads=2, hidden=160, vocab=107, batch=2, seq=48, rotary_pct=0.25,
         parallel_residual=True, tied_embedding=False, activation="gelu"),
]
LLAMA = dict(family="llama", layers=2, heads=4, kv_heads=2, hidden=56, vocab=96, batch=2, seq=24, intermediate=72,
             norm="rmsnorm", norm_eps=1e-6, activation="swiglu", attention_bias=False, mlp_bias=False)
SMALL = dict(family="decoder", layers=1, heads=2, hidden=20, vocab=31, batch=2, seq=9, intermediate=24)
# The other families and options; the golden files have those that are not `live`.
FAMILIES = [
    dict(name="gpt2", family="gpt2", layers=2, heads=4, hidden=48, vocab=97, batch=2, seq=20, pos_emb="learned",
         rotary_pct=0.0, tied_embedding=True, activation="gelu_tanh"),
    LLAMA | dict(name="llama"),
    SMALL | dict(name="alibi", layers=2, heads=6, kv_heads=3, hidden=60, seq=21, pos_emb="alibi", rotary_pct=0.0,
                 parallel_residual=True, tied_norms=True, mlp_bias=False, activation="geglu", window=7),
    SMALL | dict(name="mup", layers=2, kv_heads=1, activation="gelu",
                 mup=dict(width=4, score_temperature=0.5, logit_temperature=0.04, embedding=3.0)),
    SMALL | dict(name="experts", layers=3, activation="gelu", moe=dict(experts=5, top_k=2, interval=2, router="topk")),
    LLAMA | dict(name="sinkhorn", family="decoder", batch=1, parallel_residual=True,
                 moe=dict(experts=4, top_k=1, router="sinkhorn")),
    LLAMA | dict(name="llama3", layers=1, tied_embedding=True,
                 rope_scaling=dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=16)),
    LLAMA | dict(name="linear", layers=1, rope_scaling=dict(rope_type="linear", factor=3.0)),
    LLAMA | dict(name="yarn", layers=1, hidden=128, rope_scaling=dict(rope_type="yarn", factor=4.0,
                                                                      original_max_position_embeddings=80)),
    SMALL | dict(name="qk_norm", kv_heads=1, norm="rmsnorm", qk_norm=True, activation="silu", attention_bias=False),
    SMALL | dict(name="sinusoidal", pos_emb="sinusoidal", rotary_pct=0.0, activation="relu"),
    SMALL | dict(name="rpe", kv_heads=1, seq=15, pos_emb="rpe", rotary_pct=0.0, rpe_num_buckets=6, rpe_max_distance=9,
                 activation="gelu"),
    SMALL | dict(name="mup_learned", pos_emb="learned", rotary_pct=0.0, tied_embedding=True, activation="gelu",
                 mup=dict(width=2, embedding=2.0, positions=0.25)),
    SMALL | dict(name="scalenorm", layers=2, norm="scalenorm", norm_eps=1e-8, qk_norm=True, activation="gelu",
                 parallel_residual=True, tied_norms=True),
    SMALL | dict(name="non_parametric_layernorm", layers=2, norm="non_parametric_layernorm", qk_norm=True,
                 activation="swiglu", attention_bias=False, mlp_bias=False),
    LLAMA | dict(name="normalized", family="decoder", batch=1,
                 moe=dict(experts=4, top_k=3, router="topk", normalized=True), live=True),
    LLAMA | dict(name="sinkhorn_2", family="decoder", batch=1, moe=dict(experts=6, top_k=2, router="sinkhorn"), live=True),
    LLAMA | dict(name="mistral", family="mistral", window=6, live=True),
    SMALL | dict(name="qk_layernorm", heads=5, qk_norm=True, activation="reglu", live=True),
] + [SMALL | dict(name=name, activation=name, mlp_bias=name < "g", live=True)
     for name in ("softsign", "mish", "swish", "bilinear", "glu")]
LOSS_SCALE = 1024
TRAINING = dict(steps=20, lr=1e-3, min_lr=1e-4, warmup_iters=4, decay_iters=20, beta1=0.9,
                beta2=0.95, eps=1e-8, weight_decay=0.1, gradient_clipping=1.0)


# ---- numbers that both languages compute ---------------------------------------------------------

def hashes(name, n):
    """splitmix64 of (FNV-1a of the name, position), as uint64 [n]."""
    key = 14695981039346656037
    for c in name.encode():
        key = (key ^ c) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    with np.errstate(over="ignore"):
        x = np.uint64(key) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def uniform(name, n):
    """Multiples of 2^-15 in [-1, 1): exact in float, also when scaled by a power of two."""
    return (hashes(name, n) >> np.uint64(48)).astype(np.float64) / 32768 - 1


def made_up(case, name, shape):
    u = uniform(f"{case['name']}/{name}", math.prod(shape)).reshape(shape)
    if "norm" in name and name.endswith(".weight"):
        return 1 + u / 4
    return u / (2 if name == "embed_in.weight" else 8)


def tokens(case, step):
    """[B, T + 1]: inputs and, one further, targets."""
    n = case["batch"] * (case["seq"] + 1)
    h = hashes(f"{case['name']}/tokens", (step + 1) * n)[step * n:]
    return torch.from_numpy((h % np.uint64(case["vocab"])).astype(np.int64)).view(case["batch"], -1)


def sketch(name, tensor):
    t = tensor.detach().double().numpy().ravel()
    h = hashes(name + "/signs", t.size)
    signs = [np.where((h >> np.uint64(k)) & np.uint64(1), t, -t) for k in range(SIGNS)]
    return [float(np.linalg.norm(t))] + [math.fsum(s) for s in signs]


# ---- the peer ------------------------------------------------------------------------------------

def softmax_in_double():
    """transformers' eager attention takes its softmax in float; a double stays double here."""
    softmax = torch.nn.functional.softmax

    def wide(x, dim=None, dtype=None, **rest):
        return softmax(x, dim=dim, dtype=x.dtype if x.dtype == torch.float64 else dtype, **rest)
    torch.nn.functional.softmax = wide


def peer(case, dtype):
    return families.build(case, lambda name, shape: made_up(case, name, shape)).to(dtype)


def of_parameters(case, model, what):
    """what(p) of each parameter, by our names and in our layouts."""
    return families.ours(case, {name: what(p) for name, p in model.named_parameters()})


def named(model):
    """(our name, parameter) of a GPTNeoXForCausalLM; a tied head is the embedding."""
    seen = [(n.removeprefix("gpt_neox."), p) for n, p in model.named_parameters()]
    return [(("embed_out.weight" if n == "lm_head.weight" else n), p) for n, p in seen]


def loss_of(model, batch):
    logits = model(input_ids=batch[:, :-1]).logits
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return logits, torch.nn.functional.cross_entropy(wide.flatten(0, 1), batch[:, 1:].flatten())


def gradients(case, dtype):
    """Weights, logits (of generation, where experts differ from training's), mean loss, and the
    gradient of each parameter."""
    model = peer(case, dtype)
    logits, _ = loss_of(model.eval(), tokens(case, 0))
    _, loss = loss_of(model.train(), tokens(case, 0))
    loss.backward()
    return model, logits, loss


# ---- training ------------------------------------------------------------------------------------

def learning_rate(t, c):
    """GPT-NeoX main: linear warm-up, then a cosine down to min_lr."""
    w, end = c["warmup_iters"], c["decay_iters"]
    if t <= w:
        return c["lr"] * max(1, t) / w
    return c["min_lr"] + (c["lr"] - c["min_lr"]) * (1 + math.cos(math.pi * (t - w) / (end - w))) / 2


def without_inert_rows(case, name, tensor):
    """Softmax does not see the bias of keys where rotary embedding leaves them as they are: its
    gradient is rounding, which Adam scales up to whole steps. Those rows are left out where
    rounding differs."""
    if not name.endswith("query_key_value.bias"):
        return tensor
    shape = families.Shape(case)
    rows = tensor.detach().clone().view(shape.groups, shape.queries + 2, shape.size)
    rows[:, shape.queries, int(shape.size * shape.rotary_pct):] = 0
    return rows.view(-1)


def adamw(case, params, c):
    """PyTorch's, or for muP that of Microsoft's package."""
    groups = [dict(params=[p for p in params if p.dim() > 1], weight_decay=c["weight_decay"]),
              dict(params=[p for p in params if p.dim() == 1], weight_decay=0.0)]
    options = dict(lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["eps"])
    if "mup" not in case:
        return torch.optim.AdamW(groups, **options)
    mup_shapes.annotate(case, params)
    return mup.MuAdamW(groups, **options)


def train(case, dtype, c):
    """Losses, gradient norms, final parameters. bfloat16 and float16 train a float copy of their
    parameters, float16 with a static scale of the loss."""
    half = dtype in (torch.bfloat16, torch.float16)
    scale = LOSS_SCALE if dtype == torch.float16 else 1
    model = peer(case, torch.float64)
    masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()] if half else None
    model = model.to(dtype)
    names, params = zip(*model.named_parameters())
    masters = masters or params
    optimizer = adamw(case, masters, c)
    shares = [group["lr"] / c["lr"] for group in optimizer.param_groups]  # 1 but for muP
    losses, norms = [], []
    for step in range(c["steps"]):
        model.zero_grad()
        _, loss = loss_of(model, tokens(case, step))
        (loss * scale).backward()
        for master, p in zip(masters, params):
            master.grad = p.grad.to(master.dtype) / scale
        norms.append(torch.nn.utils.clip_grad_norm_(masters, c["gradient_clipping"]).item())
        for group, share in zip(optimizer.param_groups, shares):
            group["lr"] = learning_rate(step, c) * share
        optimizer.step()
        if half:
            with torch.no_grad():
                for master, p in zip(masters, params):
                    p.copy_(master)
        losses.append(loss.item())
    return losses, norms, families.ours(case, {n: p.detach() for n, p in zip(names, masters)})


# ---- files ---------------------------------------------------------------------------------------

def write_json(path, value):
    """A list of numbers takes one line."""
    text = re.sub(r"\[[^\[\]{}]*\]", lambda numbers: re.sub(r"\s+", "", numbers[0]),
                  json.dumps(value, indent=1))
    path.write_text(text + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


def write_golden():
    sketches, trajectories = [], []
    for case in CASES + [case for case in FAMILIES if "live" not in case]:
        model, logits, loss = gradients(case, torch.float64)
        tensors = {"logits": logits} | of_parameters(case, model, lambda p: p.grad)
        sketches.append(case | dict(
            loss=loss.item(), sketches={n: sketch(n, t) for n, t in tensors.items()}))
        if case["layers"] < 2:
            continue
        losses, norms, params = train(case, torch.float64, TRAINING)
        bf16_losses, _, _ = train(case, torch.bfloat16, TRAINING)
        kept = {n: without_inert_rows(case, n, t) for n, t in params.items()}
        trajectories.append(case | dict(
            losses=losses, grad_norms=norms, bf16_losses=bf16_losses,
            sketches={n: sketch(n, t) for n, t in kept.items()}))
    write_json(GOLDEN / "model_sketches.json", dict(cases=sketches))
    write_json(GOLDEN / "preference.json", PAIRS | preference(PAIRS, torch.float64))
    write_json(GOLDEN / "kto.json", ANSWERS | kto(ANSWERS, torch.float64))
    write_json(GOLDEN / "scores.json", SCORES | scores(SCORES, torch.float64))
    write_json(GOLDEN / "model_trajectory.json", dict(training=TRAINING, cases=trajectories))


PAIRS = CASES[0] | dict(name="pairs", batch=4)
BETA = 0.3


def counted(case):
    """Three of four tokens, [B, T]."""
    h = hashes(f"{case['name']}/weights", case["batch"] * case["seq"])
    return torch.from_numpy((h % np.uint64(4) != 0).astype(np.float64)).view(case["batch"], -1)


def log_probabilities(model, batch, weights):
    logits = model(input_ids=batch[:, :-1]).logits
    return -(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
             .view(weights.shape) * weights).sum(1)


def preference(case, dtype):
    """The loss of GPT-NeoX's train_impl: dpo, a mean over pairs; rows are chosen and rejected in turn."""
    model, reference = peer(case, dtype), peer(case | dict(name="reference"), dtype)
    batch, weights = tokens(case, 0), counted(case)
    with torch.no_grad():
        before = log_probabilities(reference, batch, weights)
    now = log_probabilities(model, batch, weights)
    margins = (now[0::2] - now[1::2]) - (before[0::2] - before[1::2])
    loss = -torch.nn.functional.logsigmoid(BETA * margins).mean()
    loss.backward()
    rewards = BETA * (now - before).detach()
    measures = dict(reward_acc=(rewards[0::2] > rewards[1::2]).double(), chosen_rewards=rewards[0::2],
                    rejected_rewards=rewards[1::2], margins=rewards[0::2] - rewards[1::2])
    return dict(beta=BETA, loss=loss.item(), measures={n: x.mean().item() for n, x in measures.items()},
                sketches={n: sketch(n, t) for n, t in of_parameters(case, model, lambda p: p.grad).items()})


ANSWERS = CASES[0] | dict(name="answers", batch=6)
REWARDS, DESIRABLE, UNDESIRABLE = [1, -1, 2, -1, 1, 1], 1.5, 0.75


def neox_kto_loss(now, before, rewards, tokens):
    """As GPT-NeoX writes it (megatron/training.py, train_impl: kto), for weights of 1: rows of `tokens` tokens without padding."""
    halves = [torch.chunk(x, 2) for x in (now - before, rewards.unsqueeze(1).expand(-1, tokens))]
    divergences = [torch.clamp(ratios, min=0).mean().detach() for ratios in halves[0]]
    losses = [0.5 * (1 - torch.sigmoid(BETA * r.mean(-1) * (ratios - kl)))
              for ratios, r, kl in zip(*halves, reversed(divergences))]
    return sum(losses).mean()


def kto_loss(now, before, rewards, desirable, undesirable):
    """Kahneman-Tversky optimization (arXiv 2402.01306, equations 7 and 8), KL being that of the other half of the rows."""
    ratios, half = now - before, len(now) // 2
    divergence = [ratios[part].clamp(min=0).mean().detach() for part in (slice(half, None), slice(half))]
    values = [torch.sigmoid(BETA * abs(r) * ((ratio - divergence[i // half]) * (1 if r > 0 else -1)))
              for i, (ratio, r) in enumerate(zip(ratios, rewards.tolist()))]
    weights = [desirable if r > 0 else undesirable for r in rewards]
    return sum(weight * (1 - value) for weight, value in zip(weights, values)) / len(now)


def kto(case, dtype):
    """The loss of train_impl: kto, a mean over answers, and what is measured, as means."""
    model, reference = peer(case, dtype), peer(case | dict(name="reference"), dtype)
    batch, weights, rewards = tokens(case, 0), counted(case), torch.tensor(REWARDS, dtype=dtype)
    with torch.no_grad():
        before = log_probabilities(reference, batch, weights)
    now = log_probabilities(model, batch, weights)
    torch.testing.assert_close(kto_loss(now, before, rewards, 1, 1), neox_kto_loss(now, before, rewards, case["seq"]))
    loss = kto_loss(now, before, rewards, DESIRABLE, UNDESIRABLE)
    loss.backward()
    now, good, bad = now.detach(), rewards > 0, rewards < 0
    moved = BETA * rewards * (now - before)
    measures = dict(reward_acc=(moved > 0).double(), policy_rewards=moved, ref_logp=before, policy_logp=now,
                    pos_ref_logp=before * good, neg_ref_logp=before * bad, pos_policy_logp=now * good,
                    neg_policy_logp=now * bad, kl=(now - before) / weights.sum() * len(now))
    return dict(beta=BETA, desirable=DESIRABLE, undesirable=UNDESIRABLE, rewards=REWARDS, loss=loss.item(),
                measures={n: x.mean().item() for n, x in measures.items()},
                sketches={n: sketch(n, t) for n, t in of_parameters(case, model, lambda p: p.grad).items()})


SCORES, Z_LOSS = CASES[0] | dict(name="scores", batch=6), 0.125


def scores(case, dtype):
    """The loss of GPT-NeoX's train_impl: rm, a mean over pairs: each row has the value of its last token that counts."""
    model, batch, weights = peer(case, dtype), tokens(case, 0), counted(case)
    head = torch.nn.Parameter(torch.from_numpy(made_up(case, "score.weight", [1, case["hidden"]])).to(dtype))
    values = (model.gpt_neox(input_ids=batch[:, :-1]).last_hidden_state @ head.T).squeeze(-1)
    last = [int(row.nonzero().max()) for row in weights]
    pos, neg = (torch.stack([values[b, last[b]] for b in range(first, len(last), 2)]) for first in (0, 1))
    loss = -torch.nn.functional.logsigmoid(pos - neg).mean() + (Z_LOSS * (pos**2 + neg**2)).mean()
    loss.backward()
    measures = dict(accuracy=(pos > neg).double(), pos_values=pos, neg_values=neg, margin=pos - neg)
    gradients = of_parameters(case, model, lambda p: torch.zeros_like(p) if p.grad is None else p.grad)
    del gradients["embed_out.weight"]
    return dict(z_loss=Z_LOSS, loss=loss.item(), measures={n: x.mean().item() for n, x in measures.items()},
                sketches={n: sketch(n, t) for n, t in (gradients | {"score.weight": head.grad}).items()})


def write_live(folder):
    folder.mkdir(parents=True, exist_ok=True)
    dtypes = dict(fp64=torch.float64, fp32=torch.float32, bf16=torch.bfloat16,
                  fp16=torch.float16)
    for case in CASES + FAMILIES:
        training = TRAINING | dict(steps=50, decay_iters=50)
        for kind, dtype in dtypes.items():
            start = peer(case, torch.float64)
            start = {"weight/" + n: t for n, t in of_parameters(case, start, lambda p: p.detach().clone()).items()}
            meta = dict(case=json.dumps(case), training=json.dumps(training))
            if kind in ("fp64", "fp32"):
                model, logits, loss = gradients(case, dtype)
                tensors = start | {"tokens": tokens(case, 0), "logits": logits.detach(),
                                   "loss": loss.detach()}
                grads = of_parameters(case, model, lambda p: p.grad)
                tensors |= {"grad/" + n: t for n, t in grads.items()}
                write_tensors(folder / f"{case['name']}.{kind}.safetensors", tensors, meta)
            losses, norms, params = train(case, dtype, training)
            steps = torch.stack([tokens(case, s) for s in range(training["steps"])])
            tensors = start | {"tokens": steps, "losses": torch.tensor(losses, dtype=torch.float64),
                               "grad_norms": torch.tensor(norms, dtype=torch.float64)}
            tensors |= {"param/" + n: t for n, t in params.items()}
            write_tensors(folder / f"{case['name']}.{kind}.trajectory.safetensors", tensors, meta)


def write_tensors(path, tensors, metadata):
    save_file({n: t.contiguous() for n, t in tensors.items()}, path, metadata)
    print(path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--golden", action="store_true")
    parser.add_argument("--live", type=Path, metavar="DIR")
    options = parser.parse_args()
    torch.set_num_threads(1)
    softmax_in_double()
    if options.golden:
        write_golden()
    if options.live:
        write_live(options.live)


if __name__ == "__main__":
    main()
