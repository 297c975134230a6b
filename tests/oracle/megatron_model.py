"""A GPT as Megatron computes it, and the parts that its tensor-parallel ranks have, for megatron_checkpoint.py."""
import collections
from types import SimpleNamespace

import torch
from torch.nn import functional as F

TYPES = dict(fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)

# What a case does not say.
DEFAULTS = dict(layers=4, hidden=24, heads=4, groups=4, ffn=40, vocab=264, positions=32, embedding="learned_absolute",
                percent=1.0, base=10000, norm="LayerNorm", eps=1e-5, bias=True, swiglu=False, tied=True, fused=True,
                qk_norm=False, qkv_bias=False, embed_norm=False, size=None, kind="fp32", names="classic", tp=1, pp=1, vp=1, version=3.0,
                writer="megatron", source=None, turns=False, bigscience=False)


def alibi_slopes(n):
    """Press et al.: a geometric series; of other numbers than powers of two, every second of the next series behind it."""
    power = 1 << (n.bit_length() - 1)
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return torch.tensor(slopes + [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (n - power), 2)], dtype=torch.float64)


class Gpt:
    """Parameters whole, queries, keys, values, gate and up by themselves."""

    def __init__(self, case, seed):
        self.c = c = SimpleNamespace(**DEFAULTS | dict(thirds=None, split_gates=False, by_layer=False, common=None) | case)
        g = torch.Generator().manual_seed(seed)
        c.size = c.size or c.hidden // c.heads
        D, h = c.size, c.hidden
        self.p = p = {}

        def weight(name, *shape):
            p[name] = torch.randn(*shape, generator=g) * 1.2 / shape[-1] ** 0.5

        def vector(name, *shape):
            p[name] = torch.randn(*shape, generator=g) * 0.3

        def norm(name, size):
            vector(name + ".weight", size)
            p[name + ".weight"] += 1
            if c.norm == "LayerNorm":
                vector(name + ".bias", size)

        weight("embedding", c.vocab, h)
        if c.embed_norm:
            norm("embed_norm", h)
        if c.embedding == "learned_absolute":
            weight("positions", c.positions, h)
        for n in range(c.layers):
            l = f"{n}."
            norm(l + "norm1", h)
            norm(l + "norm2", h)
            if c.qk_norm:
                norm(l + "qnorm", D)
                norm(l + "knorm", D)
            shapes = dict(q=(c.heads, D), k=(c.groups, D), v=(c.groups, D), up=(c.ffn,))
            if c.swiglu:
                shapes["gate"] = (c.ffn,)
            for name, rows in shapes.items():
                weight(f"{l}{name}.weight", *rows, h)
                if c.bias or c.qkv_bias and name in "qkv":
                    vector(f"{l}{name}.bias", *rows)
            weight(l + "dense.weight", h, c.heads * D)
            weight(l + "down.weight", h, c.ffn)
            if c.bias:
                vector(l + "dense.bias", h)
                vector(l + "down.bias", h)
        norm("final", h)
        if not c.tied:
            weight("head", c.vocab, h)
        for name in p:
            p[name] = p[name].to(TYPES[c.kind])

    def norm(self, x, name):
        w = self.p[name + ".weight"].double()
        if self.c.norm == "RMSNorm":
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.c.eps) * w
        return F.layer_norm(x, x.shape[-1:], w, self.p[name + ".bias"].double(), self.c.eps)

    def linear(self, x, name):
        w, b = self.p[name + ".weight"].double(), self.p.get(name + ".bias")
        y = x @ w.reshape(-1, w.shape[-1]).T
        return y if b is None else y + b.double().reshape(-1)

    def rotate(self, x):  # [T, heads, D]
        n = int(x.shape[-1] * self.c.percent)
        frequency = self.c.base ** -(torch.arange(0, n, 2).double() / n)
        angles = torch.outer(torch.arange(x.shape[0]).double(), frequency)
        angles = torch.cat([angles, angles], -1)[:, None]
        r, rest = x[..., :n], x[..., n:]
        turned = torch.cat([-r[..., n // 2:], r[..., :n // 2]], -1)
        return torch.cat([r * angles.cos() + turned * angles.sin(), rest], -1)

    def attention(self, x, l):
        c, D, T = self.c, self.c.size, x.shape[0]
        q, k, v = (self.linear(x, l + n).view(T, -1, D) for n in "qkv")
        if c.qk_norm:
            q, k = self.norm(q, l + "qnorm"), self.norm(k, l + "knorm")
        if c.embedding == "rope":
            q, k = self.rotate(q), self.rotate(k)
        k, v = (y.repeat_interleave(c.heads // c.groups, 1) for y in (k, v))
        scores = torch.einsum("thd,shd->hts", q, k) / D ** 0.5
        if c.embedding == "alibi":
            scores = scores + alibi_slopes(c.heads)[:, None, None] * torch.arange(T)
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        return self.linear(torch.einsum("hts,shd->thd", scores.softmax(-1), v).reshape(T, -1), l + "dense")

    def mlp(self, x, l):
        up = self.linear(x, l + "up")
        if self.c.swiglu:
            return self.linear(F.silu(self.linear(x, l + "gate")) * up, l + "down")
        return self.linear(F.gelu(up, approximate="tanh" if self.c.fused and self.c.bias else "none"), l + "down")

    def logits(self, tokens):
        p, c = self.p, self.c
        x = p["embedding"].double()[tokens]
        if c.embed_norm:
            x = self.norm(x, "embed_norm")
        if c.embedding == "learned_absolute":
            x = x + p["positions"].double()[:len(tokens)]
        for n in range(c.layers):
            x = x + self.attention(self.norm(x, f"{n}.norm1"), f"{n}.")
            x = x + self.mlp(self.norm(x, f"{n}.norm2"), f"{n}.")
        return self.norm(x, "final") @ p["embedding" if c.tied else "head"].double().T


# ---- parts of ranks ------------------------------------------------------------------------------

NAMES = dict(
    classic=dict(norm1="input_layernorm.", norm2="post_attention_layernorm.", qkv="self_attention.query_key_value.",
                 dense="self_attention.dense.", fc1="mlp.dense_h_to_4h.", fc2="mlp.dense_4h_to_h.",
                 qnorm="self_attention.q_layernorm.", knorm="self_attention.k_layernorm.",
                 layers="language_model.encoder.layers.", embedding="language_model.embedding.word_embeddings.weight",
                 positions="language_model.embedding.position_embeddings.weight",
                 embed_norm="language_model.embedding.word_embeddings.norm.",
                 final="language_model.encoder.final_layernorm.", head="language_model.output_layer.weight",
                 copy="word_embeddings_for_head.weight"),
    core=dict(norm1="self_attention.linear_qkv.layer_norm_", norm2="mlp.linear_fc1.layer_norm_",
              qkv="self_attention.linear_qkv.", dense="self_attention.linear_proj.", fc1="mlp.linear_fc1.",
              fc2="mlp.linear_fc2.", qnorm="self_attention.q_layernorm.", knorm="self_attention.k_layernorm.",
              layers="decoder.layers.", embedding="embedding.word_embeddings.weight",
              positions="embedding.position_embeddings.weight", final="decoder.final_layernorm.", head="output_layer.weight",
              copy="output_layer.weight"))
NAMES["core_local"] = NAMES["core"] | dict(norm1="input_layernorm.", norm2="pre_mlp_layernorm.")
NAMES["old"] = {k: v.replace("self_attention.", "attention.").replace("encoder.", "transformer.")
                for k, v in NAMES["classic"].items()}


def join_qkv(q, k, v, order):
    """Of one rank: [heads, D] or [heads, D, h] each."""
    if order == "thirds":
        parts = [q, k, v]
    elif order == "last":
        parts = [torch.stack([q, k, v], 2)]
    else:
        groups = q.unflatten(0, (k.shape[0], -1))
        parts = [torch.cat([groups, k[:, None], v[:, None]], 1)]
    tail = q.shape[2:]
    return torch.cat([part.reshape(-1, *tail) for part in parts])


def split_qkv(x, heads, groups, order):
    D, tail = x.shape[0] // (heads + 2 * groups), x.shape[1:]
    if order == "thirds":
        q, k, v = x.split([heads * D, groups * D, groups * D])
    else:
        y = x.reshape(groups, heads // groups + 2, D, *tail)
        q, k, v = y[:, :-2], y[:, -2], y[:, -1]
    return [part.reshape(-1, D, *tail) for part in (q, k, v)]


def order_of(c):
    if c.thirds or c.version == 0:
        return "thirds"
    return "last" if c.version == 1 else "groups"


def layer_part(model, n, rank, tp, order):
    """The names are norm1 .. fc2."""
    p, c, part = model.p, model.c, {}

    def mine(name, dim=0):
        return p[name].chunk(tp, dim)[rank]

    for end in ("weight", "bias"):
        for name in ("norm1", "norm2", "qnorm", "knorm"):
            if f"{n}.{name}.{end}" in p:
                part[name, end] = p[f"{n}.{name}.{end}"]
        if f"{n}.q.{end}" not in p:
            continue
        part["qkv", end] = join_qkv(*(mine(f"{n}.{x}.{end}") for x in "qkv"), order)
        if f"{n}.up.{end}" not in p:
            continue
        halves = [mine(f"{n}.{x}.{end}") for x in ("gate", "up") if f"{n}.{x}.{end}" in p]
        part["fc1", end] = torch.cat(halves)
        for ours, theirs in (("dense", "dense"), ("down", "fc2")):
            part[theirs, end] = mine(f"{n}.{ours}.weight", 1) if end == "weight" else p[f"{n}.{ours}.bias"]
    return part


def rank_part(model, rank, tp, layers, first, last, order, names):
    """Flat names of what a rank of a stage has; layers: the global numbers, which become 0, 1 ..."""
    p, c, N, part = model.p, model.c, NAMES[names], {}

    def rows_of(name):
        return p[name].chunk(tp, 0)[rank]

    if first:
        part[N["embedding"]] = rows_of("embedding")
        if "positions" in p:
            part[N["positions"]] = p["positions"]
    for local, n in enumerate(layers):
        for (name, end), x in layer_part(model, n, rank, tp, order).items():
            part[f"{N['layers']}{local}.{N[name]}{end}"] = x
    if last:
        for end in ("weight", "bias"):
            if f"final.{end}" in p:
                part[N["final"] + end] = p[f"final.{end}"]
        if not c.tied:
            part[N["head"]] = rows_of("head")
        elif not first:
            part[N["copy"]] = rows_of("embedding")
    return part


def nested(flat):
    """Dicts of dicts, the encoder's flat, as Megatron-LM's state_dict_for_save_checkpoint."""
    tree = {}
    for name, x in flat.items():
        parts = name.split(".")
        for i, word in enumerate(parts):
            if word in ("encoder", "transformer"):
                parts = parts[:i + 1] + [".".join(parts[i + 1:])]
                break
        at = tree
        for word in parts[:-1]:
            at = at.setdefault(word, collections.OrderedDict())
        at[parts[-1]] = x.clone()
    return tree
