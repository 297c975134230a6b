"""A small GPT-NeoX in PyTorch, written after megatron/model of GPT-NeoX: parameters by its names, shared out over
tensor-parallel ranks as its layers share them out, and a forward pass that computes from the ranks' parts.
"""
import math

import torch
from torch.nn import functional as F

DEFAULTS = dict(layers=2, heads=4, kv_heads=0, hidden=32, vocab=264, seq=16, width=0, pos_emb="rotary", rotary_pct=0.5,
                norm="layernorm", eps=1e-5, parallel=True, tied_norms=False, tied=False, activation="gelu_tanh",
                attention_bias=True, mlp_bias=True, buckets=6, distance=9, experts=0, top_k=1, interval=1, router="topk")
GATED = {"swiglu": F.silu, "geglu": F.gelu, "reglu": F.relu, "glu": torch.sigmoid, "bilinear": lambda x: x}
PLAIN = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu, "silu": F.silu}


class Shape:
    def __init__(self, options):
        for name, value in (DEFAULTS | options).items():
            setattr(self, name, value)
        self.size = self.hidden // self.heads
        self.groups = self.kv_heads or self.heads
        self.gqa = self.groups != self.heads
        self.gated = self.activation in GATED
        self.width = self.width or 3 * self.hidden
        self.up = 2 * self.width if self.gated else self.width

    def has_experts(self, layer):
        """Of the pipeline, of which the first two are none of the model."""
        return self.experts and (layer - 2) % self.interval == 0


def config(s, tp, pp):
    """The keys of GPT-NeoX that describe the model."""
    keys = dict(num_layers=s.layers, hidden_size=s.hidden, num_attention_heads=s.heads, seq_length=s.seq,
                max_position_embeddings=s.seq, pos_emb=s.pos_emb, norm=s.norm, gpt_j_residual=s.parallel,
                gpt_j_tied=s.tied_norms, no_weight_tying=not s.tied, use_bias_in_attn_linear=s.attention_bias,
                use_bias_in_mlp=s.mlp_bias, intermediate_size=3 * s.width if s.gated else s.width,
                activation=s.activation.removesuffix("_tanh"), bias_gelu_fusion=s.activation == "gelu_tanh",
                model_parallel_size=tp, pipe_parallel_size=pp, make_vocab_size_divisible_by=s.vocab // tp)
    keys[{"rmsnorm": "rms_norm_epsilon", "scalenorm": "scalenorm_epsilon"}.get(s.norm, "layernorm_epsilon")] = s.eps
    if s.gqa:
        keys["num_kv_heads"] = s.groups
    if s.experts:
        keys |= dict(moe_num_experts=s.experts, moe_top_k=s.top_k, moe_expert_interval=s.interval,
                     moe_router_type=s.router)
    if s.pos_emb == "rotary":
        keys["rotary_pct"] = s.rotary_pct
    if s.pos_emb == "rpe":
        keys |= dict(rpe_num_buckets=s.buckets, rpe_max_distance=s.distance)
    return keys


# ---- parameters ----------------------------------------------------------------------------------

def norm_shapes(s, name):
    if s.norm == "non_parametric_layernorm":
        return {}
    if s.norm == "scalenorm":
        return {name + ".g": (1,)}
    if s.norm == "rmsnorm":
        return {name + ".scale": (s.hidden,)}
    return {name + ".weight": (s.hidden,), name + ".bias": (s.hidden,)}


def shapes(s):
    """{layer of the pipeline: {name: shape}} without tensor parallelism, in the order of the modules."""
    h, n = s.hidden, (s.heads + 2 * s.groups) * s.size
    layers = {0: {"word_embeddings.weight": (s.vocab, h)}}
    if s.pos_emb == "learned":
        layers[0]["position_embeddings.weight"] = (s.seq, h)
    for layer in range(2, s.layers + 2):
        block = norm_shapes(s, "input_layernorm")
        if s.pos_emb == "rpe":
            block["attention.rpe.weight"] = (s.buckets, s.heads)
        for name, rows, columns, bias in (("attention.query_key_value", n, h, s.attention_bias),
                                          ("attention.dense", h, h, s.attention_bias)):
            block[name + ".weight"] = (rows, columns)
            if bias:
                block[name + ".bias"] = (rows,)
        block |= norm_shapes(s, "post_attention_layernorm")
        layers[layer] = block
        if s.has_experts(layer):
            block |= {"mlp.router.layer.weight": (s.experts, h), "mlp.experts.mlp.w1": (s.experts * s.width, h),
                      "mlp.experts.mlp.w2": (s.experts * s.width, h)}
            continue
        for name, rows, columns in (("mlp.linear1", s.up, h), ("mlp.linear2", h, s.width)):
            block[name + ".weight"] = (rows, columns)
            if s.mlp_bias:
                block[name + ".bias"] = (rows,)
    layers[s.layers + 3] = norm_shapes(s, "norm")
    if not s.tied:
        layers[s.layers + 4] = {"final_linear.weight": (s.vocab, h)}
    return layers


def decays(name):
    return "norm" not in name and not name.endswith("bias")


def random_parameters(s, seed):
    torch.manual_seed(seed)
    made = {}
    for layer, names in shapes(s).items():
        made[layer] = {}
        for name, shape in names.items():
            value = torch.randn(shape) * (0.3 if len(shape) == 1 else 1.2 / shape[-1] ** 0.5)
            made[layer][name] = value + 1 if name.endswith(("norm.weight", ".scale", ".g")) else value
        if s.pos_emb == "rpe" and layer > 2 and "attention.rpe.weight" in made[layer]:
            made[layer]["attention.rpe.weight"] = made[2]["attention.rpe.weight"]
    return made


def part(s, name, value, rank, tp, moment=False):
    """What a tensor-parallel rank has of a whole parameter, or of an optimizer's moment of it."""
    def run(x, dim=0):
        return x.chunk(tp, dim)[rank]
    if name in ("attention.dense.bias", "mlp.linear2.bias"):
        return value / tp if s.parallel and not moment else value
    if "norm" in name or name in ("position_embeddings.weight", "mlp.router.layer.weight"):
        return value
    if name in ("attention.dense.weight", "mlp.linear2.weight", "attention.rpe.weight"):
        return run(value, 1)
    if name.startswith("attention.query_key_value") and s.gqa:
        q, kv = s.heads * s.size, s.groups * s.size
        return torch.cat([run(x) for x in value.split([q, kv, kv])])
    if name.startswith("mlp.linear1") and s.gated:
        return torch.cat([run(x) for x in value.chunk(2)])
    return run(value)


def parts(s, parameters, tp):
    return [{layer: {name: part(s, name, value, rank, tp) for name, value in names.items()}
             for layer, names in parameters.items()} for rank in range(tp)]


def whole(s, name, values):
    """The way back from the parts of all ranks."""
    tp = len(values)
    if name in ("attention.dense.bias", "mlp.linear2.bias"):
        return sum(values[1:], values[0]) if s.parallel else values[0]
    if "norm" in name or name in ("position_embeddings.weight", "mlp.router.layer.weight"):
        return values[0]
    if name in ("attention.dense.weight", "mlp.linear2.weight", "attention.rpe.weight"):
        return torch.cat(values, 1)
    if name.startswith("attention.query_key_value") and s.gqa:
        q, kv = s.heads * s.size // tp, s.groups * s.size // tp
        return torch.cat([torch.cat(x) for x in zip(*(v.split([q, kv, kv]) for v in values))])
    if name.startswith("mlp.linear1") and s.gated:
        return torch.cat([torch.cat(x) for x in zip(*(v.chunk(2) for v in values))])
    return torch.cat(values)


# ---- names and layouts of neox.cpp ---------------------------------------------------------------

def ours(s, parameters):
    """{name: tensor} as docs/formats.md and lib/model/parameters.h of neox.cpp have them."""
    found = {}
    for layer, names in parameters.items():
        for name, value in names.items():
            if layer == 0:
                name = {"word_embeddings.weight": "embed_in.weight",
                        "position_embeddings.weight": "embed_positions.weight"}[name]
            elif layer == s.layers + 3:
                name = "final_layer_norm." + ("bias" if name.endswith("bias") else "weight")
            elif layer == s.layers + 4:
                name = "embed_out.weight"
            elif name == "attention.rpe.weight":
                name = "relative_attention_bias.weight"
            else:
                if s.tied_norms and name.startswith("post_"):
                    continue
                if name.startswith("attention.query_key_value") and s.gqa:
                    q, k, v = value.split([n * s.size for n in (s.heads, s.groups, s.groups)])
                    rest = value.shape[1:]
                    value = torch.cat([q.view(s.groups, -1, s.size, *rest), k.view(s.groups, 1, s.size, *rest),
                                       v.view(s.groups, 1, s.size, *rest)], 1).reshape(value.shape)
                if name.startswith("mlp.linear1") and s.gated:
                    up, gate = value.chunk(2)
                    value = torch.stack([gate, up], 1).reshape(value.shape)
                if name.startswith("mlp.experts.mlp."):
                    value = value.view(s.experts, s.width, s.hidden)
                    value = value.transpose(1, 2) if name.endswith("w2") else value
                name = name.replace("router.layer.", "router.").replace("experts.mlp.w1", "experts.linear1.weight")
                name = name.replace("experts.mlp.w2", "experts.linear2.weight")
                name = f"layers.{layer - 2}." + name.replace("linear1", "dense_h_to_4h").replace(
                    "linear2", "dense_4h_to_h").replace(".scale", ".weight").replace("norm.g", "norm.weight")
            found[name] = value
    return found


# ---- the forward pass ----------------------------------------------------------------------------

def norm(s, x, p, name):
    if s.norm == "rmsnorm":
        return p[name + ".scale"] * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + s.eps)
    if s.norm == "scalenorm":
        return x / torch.norm(x, dim=-1, keepdim=True).clamp(min=s.eps) * p[name + ".g"]
    if s.norm == "non_parametric_layernorm":
        return F.layer_norm(x, (s.hidden,), eps=s.eps)
    return F.layer_norm(x, (s.hidden,), p[name + ".weight"], p[name + ".bias"], s.eps)


def rotate(s, x):
    """[B, n, T, D]"""
    n = int(s.size * s.rotary_pct)
    frequencies = 1 / 10000 ** (torch.arange(0, n, 2).float() / n)
    angles = torch.outer(torch.arange(x.shape[2]).float(), frequencies)
    angles = torch.cat([angles, angles], -1)
    turned, rest = x[..., :n], x[..., n:]
    a, b = turned.chunk(2, -1)
    turned = turned * angles.cos() + torch.cat([-b, a], -1) * angles.sin()
    return torch.cat([turned.to(x.dtype), rest], -1)


def slopes(n):
    if math.log2(n).is_integer():
        start = 2 ** (-2 ** -(math.log2(n) - 3))
        return [start * start ** i for i in range(n)]
    power = 2 ** math.floor(math.log2(n))
    return slopes(power) + slopes(2 * power)[0::2][:n - power]


def bucket(s, n):
    """Of a distance."""
    exact = s.buckets // 2
    if n < exact:
        return n
    return min(exact + int(math.log(n / exact) / math.log(s.distance / exact) * (s.buckets - exact)), s.buckets - 1)


def attention(s, x, p, rank, tp):
    B, T, _ = x.shape
    n, groups = s.heads // tp, s.groups // tp
    mixed = F.linear(x, p["attention.query_key_value.weight"], p.get("attention.query_key_value.bias"))
    if s.gqa:
        q, k, v = (y.view(B, T, -1, s.size).transpose(1, 2) for y in
                   mixed.split([m * s.size for m in (n, groups, groups)], -1))
        k, v = k.repeat_interleave(n // groups, 1), v.repeat_interleave(n // groups, 1)
    else:
        q, k, v = (y.transpose(1, 2) for y in mixed.view(B, T, n, 3 * s.size).chunk(3, -1))
    if s.pos_emb == "rotary":
        q, k = rotate(s, q), rotate(s, k)
    scores = q @ k.transpose(-1, -2) / math.sqrt(s.size)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    if s.pos_emb == "alibi":
        of_rank = torch.tensor(slopes(s.heads))[rank * n:(rank + 1) * n]
        scores = scores - of_rank.view(-1, 1, 1) * distance
    if s.pos_emb == "rpe":
        buckets = torch.tensor([[bucket(s, max(i - j, 0)) for j in range(T)] for i in range(T)])
        scores = scores + p["attention.rpe.weight"][buckets].permute(2, 0, 1) * math.sqrt(s.size)
    mask = distance < 0
    context = scores.masked_fill(mask, float("-inf")).softmax(-1).to(v.dtype) @ v
    return F.linear(context.transpose(1, 2).reshape(B, T, -1), p["attention.dense.weight"])


def experts(s, x, p, rank, tp):
    """Of those that the rank has, as of GPT-NeoX's evaluation: each computes every token."""
    logits = F.linear(x, p["mlp.router.layer.weight"])
    chosen = logits.topk(s.top_k).indices
    scores = logits.sigmoid() if s.router == "sinkhorn" and s.top_k == 1 else logits.softmax(-1)
    counts = torch.zeros_like(scores).scatter(-1, chosen, scores.gather(-1, chosen)).chunk(tp, -1)[rank]
    matrices = (p[f"mlp.experts.mlp.{w}"].view(-1, s.width, s.hidden) for w in ("w1", "w2"))
    return sum(PLAIN[s.activation](x @ w1.T) @ w2 * count.unsqueeze(-1)
               for w1, w2, count in zip(*matrices, counts.unbind(-1)))


def mlp(s, x, p, rank, tp):
    if "mlp.router.layer.weight" in p:
        return experts(s, x, p, rank, tp)
    y = F.linear(x, p["mlp.linear1.weight"], p.get("mlp.linear1.bias"))
    if s.gated:
        up, gate = y.chunk(2, -1)
        y = GATED[s.activation](gate) * up
    else:
        y = PLAIN[s.activation](y)
    return F.linear(y, p["mlp.linear2.weight"])


def plus(x, bias):
    return x if bias is None else x + bias


def block(s, x, ps):
    """Of all ranks: with the parallel residual each adds its bias before the reduction."""
    tp = len(ps)
    if s.parallel:
        out = 0
        for rank, p in enumerate(ps):
            a = norm(s, x, p, "input_layernorm")
            b = a if s.tied_norms else norm(s, x, p, "post_attention_layernorm")
            out = out + plus(attention(s, a, p, rank, tp), p.get("attention.dense.bias"))
            out = out + plus(mlp(s, b, p, rank, tp), p.get("mlp.linear2.bias"))
        return x + out
    a = sum(attention(s, norm(s, x, p, "input_layernorm"), p, rank, tp) for rank, p in enumerate(ps))
    x = x + plus(a, ps[0].get("attention.dense.bias"))
    m = sum(mlp(s, norm(s, x, p, "post_attention_layernorm"), p, rank, tp) for rank, p in enumerate(ps))
    return x + plus(m, ps[0].get("mlp.linear2.bias"))


def forward(s, ranks, tokens):
    embedding = torch.cat([p[0]["word_embeddings.weight"] for p in ranks])
    x = embedding[tokens]
    T = tokens.shape[1]
    if s.pos_emb == "learned":
        x = x + ranks[0][0]["position_embeddings.weight"][:T]
    if s.pos_emb == "sinusoidal":
        angles = torch.outer(torch.arange(T).float(), 1 / 10000 ** (torch.arange(0, s.hidden, 2).float() / s.hidden))
        x = x + torch.cat([angles.sin(), angles.cos()], -1)
    for layer in range(2, s.layers + 2):
        x = block(s, x, [p[layer] for p in ranks])
    x = norm(s, x, ranks[0][s.layers + 3], "norm")
    if s.tied:
        return F.linear(x, embedding)
    return torch.cat([F.linear(x, p[s.layers + 4]["final_linear.weight"]) for p in ranks], -1)
