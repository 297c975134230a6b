"""The peers of model.py: models of transformers, and a decoder of this file for what transformers lacks.

Each peer's parameters are mapped to the names and layouts of lib/model/parameters.h by one function, which is applied to
values, to gradients and, for the way back, to the numbers of the elements.
"""
import math

import torch
from torch.nn import functional as F
from transformers import (GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM)

# What a case does not say.
DEFAULTS = dict(family="gpt_neox", pos_emb="rotary", rotary_pct=1.0, norm="layernorm", norm_eps=1e-5, kv_heads=0, window=0,
                parallel_residual=False, tied_embedding=False, attention_bias=True, mlp_bias=True, tied_norms=False,
                qk_norm=False, rope_scaling=None, intermediate=0, rpe_num_buckets=32, rpe_max_distance=128, mup=None, moe=None)
# Of muP, where a case has it: the model is so many times as wide as the one that was tuned.
MUP = dict(width=1, score_temperature=1.0, logit_temperature=1.0, embedding=1.0, positions=1.0)
GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "sigmoid", "bilinear": "identity"}


class Shape:
    """The case with its defaults, and what follows from it."""

    def __init__(self, case):
        for name, value in (DEFAULTS | case).items():
            setattr(self, name, value)
        self.groups = self.kv_heads or self.heads
        self.queries = self.heads // self.groups
        self.size = self.hidden // self.heads
        self.width = self.intermediate or 4 * self.hidden
        self.gated = self.activation in GATED
        self.mup = MUP | self.mup if self.mup else None

    def has_experts(self, layer):
        return bool(self.moe) and layer % self.moe.get("interval", 1) == 0


# ---- peers of transformers -----------------------------------------------------------------------

def gpt_neox(s):
    config = GPTNeoXConfig(
        vocab_size=s.vocab, hidden_size=s.hidden, num_hidden_layers=s.layers, num_attention_heads=s.heads,
        intermediate_size=s.width, hidden_act={"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}[s.activation],
        max_position_embeddings=s.seq, layer_norm_eps=s.norm_eps,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=s.rotary_pct),
        use_parallel_residual=s.parallel_residual, tie_word_embeddings=s.tied_embedding, attention_dropout=0.0,
        hidden_dropout=0.0, use_cache=False, attn_implementation="eager")
    return GPTNeoXForCausalLM(config)


def gpt2(s):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=s.vocab, n_positions=s.seq, n_embd=s.hidden, n_layer=s.layers, n_head=s.heads, n_inner=s.width,
        activation_function={"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}[s.activation], resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=s.norm_eps, tie_word_embeddings=s.tied_embedding,
        use_cache=False, attn_implementation="eager"))


def llama_options(s):
    rope = dict(rope_type="default", rope_theta=10000.0)
    if s.rope_scaling:
        rope |= dict(rope_type="llama3") | s.rope_scaling
    return dict(vocab_size=s.vocab, hidden_size=s.hidden, intermediate_size=s.width, num_hidden_layers=s.layers,
                num_attention_heads=s.heads, num_key_value_heads=s.groups, hidden_act="silu",
                max_position_embeddings=s.seq, rms_norm_eps=s.norm_eps, tie_word_embeddings=s.tied_embedding,
                rope_parameters=rope, attention_dropout=0.0, use_cache=False, attn_implementation="eager")


def llama(s):
    return LlamaForCausalLM(LlamaConfig(**llama_options(s), attention_bias=False, mlp_bias=False))


def mistral(s):
    return MistralForCausalLM(MistralConfig(**llama_options(s), sliding_window=s.window + 1))


# ---- the decoder of this file --------------------------------------------------------------------

def shapes(s):
    """Names and shapes of the parameters, as lib/model/parameters.h has them."""
    def norm(name, size):
        if s.norm == "non_parametric_layernorm":
            return {}
        weight = {name + ".weight": (1,) if s.norm == "scalenorm" else (size,)}
        return weight | ({name + ".bias": (size,)} if s.norm == "layernorm" else {})

    def linear(name, rows, columns, bias):
        return {name + ".weight": (rows, columns)} | ({name + ".bias": (rows,)} if bias else {})

    all_ = {"embed_in.weight": (s.vocab, s.hidden)}
    if s.pos_emb == "learned":
        all_["embed_positions.weight"] = (s.seq, s.hidden)
    if s.pos_emb == "rpe":
        all_["relative_attention_bias.weight"] = (s.rpe_num_buckets, s.heads)
    for n in range(s.layers):
        p = f"layers.{n}."
        all_ |= norm(p + "input_layernorm", s.hidden)
        if not s.tied_norms:
            all_ |= norm(p + "post_attention_layernorm", s.hidden)
        if s.qk_norm:
            all_ |= norm(p + "attention.query_layernorm", s.size) | norm(p + "attention.key_layernorm", s.size)
        all_ |= linear(p + "attention.query_key_value", (s.heads + 2 * s.groups) * s.size, s.hidden, s.attention_bias)
        all_ |= linear(p + "attention.dense", s.hidden, s.hidden, s.attention_bias)
        inner = s.width * (2 if s.gated else 1)
        if s.has_experts(n):
            experts = s.moe["experts"]
            all_ |= {p + "mlp.router.weight": (experts, s.hidden),
                     p + "mlp.experts.dense_h_to_4h.weight": (experts, inner, s.hidden),
                     p + "mlp.experts.dense_4h_to_h.weight": (experts, s.hidden, s.width)}
            continue
        all_ |= linear(p + "mlp.dense_h_to_4h", inner, s.hidden, s.mlp_bias)
        all_ |= linear(p + "mlp.dense_4h_to_h", s.hidden, s.width, s.mlp_bias)
    all_ |= norm("final_layer_norm", s.hidden)
    return all_ if s.tied_embedding else all_ | {"embed_out.weight": (s.vocab, s.hidden)}


def alibi_slopes(heads):
    """Press et al., "Train Short, Test Long": the function get_slopes of its code."""
    if math.log2(heads).is_integer():
        start = 2 ** (-8 / heads)
        return [start ** (i + 1) for i in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(below) + alibi_slopes(2 * below)[0::2][:heads - below]


def bucket(s, distance):
    """T5's, for decoders (Raffel et al., arXiv 1910.10683, and its code), in plain numbers."""
    exact = s.rpe_num_buckets // 2
    if distance < exact:
        return max(distance, 0)
    share = math.log(distance / exact) / math.log(s.rpe_max_distance / exact)
    return min(exact + int(share * (s.rpe_num_buckets - exact)), s.rpe_num_buckets - 1)


def waves(s, size, dtype):
    """Angles [T, size / 2] in float, then of the type of the computation."""
    frequency = 1.0 / (10000.0 ** (torch.arange(0, size, 2).float() / size))
    angle = torch.outer(torch.arange(s.seq).float(), frequency)
    return angle.cos().to(dtype), angle.sin().to(dtype)


ACTIVATIONS = dict(
    gelu=F.gelu, gelu_tanh=lambda x: F.gelu(x, approximate="tanh"), relu=F.relu, silu=F.silu, softsign=F.softsign,
    swish=lambda x: x * torch.sigmoid(x), mish=lambda x: x * torch.tanh(F.softplus(x)), sigmoid=torch.sigmoid,
    identity=lambda x: x)


def sinkhorn(logits):
    """The plan by GPT-NeoX's SinkhornRouter: each token, and each expert, has as much of it as any other, nearly."""
    tokens, experts = logits.shape
    cost = logits.exp()
    columns = 1 / (experts * cost.sum(0))
    for _ in range(3):
        rows = 1 / (tokens * ((cost * columns).sum(1) + 1e-8))
        before, columns = columns, 1 / (experts * ((cost * rows[:, None]).sum(0) + 1e-8))
        if (before - columns).abs().mean() < 1e-4:
            break
    return rows[:, None] * cost * columns


def widened(x):
    return x if x.dtype == torch.float64 else x.float()


class Decoder(torch.nn.Module):
    """A decoder in a few lines of plain tensor operations, its parameters in our own layouts."""

    def __init__(self, s):
        super().__init__()
        self.s, self.shapes = s, shapes(s)
        self.values = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in self.shapes.values()])

    def forward(self, input_ids):
        s, p = self.s, dict(zip(self.shapes, self.values))
        x, mup = p["embed_in.weight"][input_ids], s.mup or MUP
        if s.pos_emb == "learned":
            x = x + p["embed_positions.weight"] * mup["positions"]
        if s.pos_emb == "sinusoidal":
            cos, sin = waves(s, s.hidden, x.dtype)
            x = x + torch.cat([sin, cos], -1) * mup["positions"]
        x = x * mup["embedding"]
        for n in range(s.layers):
            layer = {name.removeprefix(f"layers.{n}."): t for name, t in p.items()}
            y = self.norm(layer, "input_layernorm", x)
            a = self.attention(p | layer, y)
            if not s.parallel_residual:
                x = x + a
                x = x + self.mlp(layer, self.norm(layer, "post_attention_layernorm", x))
            else:
                x = x + a + self.mlp(layer, y if s.tied_norms else self.norm(layer, "post_attention_layernorm", x))
        x = self.norm(p, "final_layer_norm", x) / mup["width"] / mup["logit_temperature"]
        self.logits = x @ p["embed_in.weight" if s.tied_embedding else "embed_out.weight"].T
        return self

    def norm(self, p, name, x):
        wide, weight, eps = widened(x), p.get(name + ".weight"), self.s.norm_eps
        if self.s.norm == "scalenorm":  # as GPT-NeoX's
            return (wide / wide.norm(dim=-1, keepdim=True).clamp(min=eps) * weight).to(x.dtype)
        if self.s.norm == "rmsnorm":
            return (wide / torch.sqrt((wide * wide).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)
        centred = wide - wide.mean(-1, keepdim=True)
        scale = torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
        if weight is None:
            return (centred / scale).to(x.dtype)
        return (centred / scale * weight + p[name + ".bias"]).to(x.dtype)

    @staticmethod
    def linear(p, name, x):
        return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))

    def attention(self, p, x):
        s, (batch, length, _) = self.s, x.shape
        qkv = self.linear(p, "attention.query_key_value", x).view(batch, length, s.groups, s.queries + 2, s.size)
        q, k, v = qkv.split([s.queries, 1, 1], 3)
        if s.qk_norm:
            q, k = self.norm(p, "attention.query_layernorm", q), self.norm(p, "attention.key_layernorm", k)
        if s.pos_emb == "rotary":
            q, k = self.rotated(q), self.rotated(k)
        k, v = k.expand_as(q), v.expand_as(q)
        scores = torch.einsum("btgqd,bsgqd->bgqts", q, k)
        scores = scores / (s.size * s.mup["score_temperature"] if s.mup else math.sqrt(s.size))
        distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        if s.pos_emb == "alibi":
            slopes = torch.tensor(alibi_slopes(s.heads), dtype=x.dtype).view(s.groups, s.queries, 1, 1)
            scores = scores - slopes * distance
        if s.pos_emb == "rpe":
            buckets = torch.tensor([[bucket(s, t - past) for past in range(length)] for t in range(length)])
            bias = p["relative_attention_bias.weight"][buckets].permute(2, 0, 1) * math.sqrt(s.size)
            scores = scores + bias.view(s.groups, s.queries, length, length)
        hidden = (distance < 0) | (distance > s.window if s.window else torch.zeros_like(distance, dtype=torch.bool))
        probabilities = widened(scores).masked_fill(hidden, float("-inf")).softmax(-1).to(x.dtype)
        y = torch.einsum("bgqts,bsgqd->btgqd", probabilities, v)
        return self.linear(p, "attention.dense", y.reshape(batch, length, s.hidden))

    def rotated(self, x):
        size = int(self.s.size * self.s.rotary_pct)
        cos, sin = (t[:, None, None, :] for t in waves(self.s, size, x.dtype))
        a, b, rest = x.split([size // 2, size // 2, self.s.size - size], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def mlp(self, p, x):
        if "mlp.router.weight" in p:
            return self.experts(p, x)
        return self.linear(p, "mlp.dense_4h_to_h", self.activated(self.linear(p, "mlp.dense_h_to_4h", x)))

    def activated(self, y):
        if not self.s.gated:
            return ACTIVATIONS[self.s.activation](y)
        gate, up = y.view(*y.shape[:-1], -1, 2).unbind(-1)
        return ACTIVATIONS[GATED[self.s.activation]](gate) * up

    def experts(self, p, x):
        """Every expert computes every token; those that the router did not choose count 0 times."""
        moe, logits = self.s.moe, widened(x @ p["mlp.router.weight"].T).flatten(0, 1)
        evenly = moe["router"] == "sinkhorn"
        chosen = (sinkhorn(logits.detach()) if evenly and self.training else logits).topk(moe["top_k"]).indices
        scores = logits.sigmoid() if evenly and moe["top_k"] == 1 else logits.softmax(-1)
        counts = torch.zeros_like(scores).scatter(1, chosen, scores.gather(1, chosen)).view(*x.shape[:2], -1)
        if moe.get("normalized"):
            counts = counts / counts.sum(-1, keepdim=True)
        ins, outs = p["mlp.experts.dense_h_to_4h.weight"], p["mlp.experts.dense_4h_to_h.weight"]
        results = [F.linear(self.activated(F.linear(x, i)), o) for i, o in zip(ins, outs)]
        return (torch.stack(results, -1) * counts.unsqueeze(2)).sum(-1).to(x.dtype)


# ---- layouts -------------------------------------------------------------------------------------

def ours_of_gpt_neox(s, p):
    renamed = {"lm_head.weight": "embed_out.weight"}
    return {renamed.get(n, n.removeprefix("gpt_neox.")): t for n, t in p.items()}


def ours_of_decoder(s, p):
    return dict(zip(shapes(s), p.values()))


def turned(t):
    """GPT-2 has its matrices the other way round."""
    return t.T if t.dim() == 2 else t


def ours_of_gpt2(s, p):
    found = {"embed_in.weight": p["transformer.wte.weight"], "embed_positions.weight": p["transformer.wpe.weight"]}
    for part in ("weight", "bias"):
        found["final_layer_norm." + part] = p["transformer.ln_f." + part]
        for n in range(s.layers):
            ours, theirs = f"layers.{n}.", f"transformer.h.{n}."
            for name, there in (("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"),
                                ("attention.dense", "attn.c_proj"), ("mlp.dense_h_to_4h", "mlp.c_fc"),
                                ("mlp.dense_4h_to_h", "mlp.c_proj")):
                found[f"{ours}{name}.{part}"] = turned(p[f"{theirs}{there}.{part}"])
            thirds = turned(p[f"{theirs}attn.c_attn.{part}"])
            by_head = thirds.reshape(3, s.heads, s.size, -1).transpose(0, 1)
            found[f"{ours}attention.query_key_value.{part}"] = by_head.reshape(thirds.shape)
    return found if s.tied_embedding else found | {"embed_out.weight": p["lm_head.weight"]}


def ours_of_llama(s, p):
    found = {"embed_in.weight": p["model.embed_tokens.weight"], "final_layer_norm.weight": p["model.norm.weight"]}
    for n in range(s.layers):
        ours, theirs = f"layers.{n}.", f"model.layers.{n}."
        for name, there in (("input_layernorm", "input_layernorm"),
                            ("post_attention_layernorm", "post_attention_layernorm"),
                            ("attention.dense", "self_attn.o_proj"), ("mlp.dense_4h_to_h", "mlp.down_proj")):
            found[f"{ours}{name}.weight"] = p[f"{theirs}{there}.weight"]
        q, k, v = (p[f"{theirs}self_attn.{x}_proj.weight"].reshape(s.groups, -1, s.hidden) for x in "qkv")
        found[f"{ours}attention.query_key_value.weight"] = torch.cat([q, k, v], 1).reshape(-1, s.hidden)
        gate, up = (p[f"{theirs}mlp.{x}_proj.weight"] for x in ("gate", "up"))
        found[f"{ours}mlp.dense_h_to_4h.weight"] = torch.stack([gate, up], 1).reshape(-1, s.hidden)
    return found if s.tied_embedding else found | {"embed_out.weight": p["lm_head.weight"]}


FAMILIES = dict(gpt_neox=(gpt_neox, ours_of_gpt_neox), gpt2=(gpt2, ours_of_gpt2), llama=(llama, ours_of_llama),
                mistral=(mistral, ours_of_llama), decoder=(Decoder, ours_of_decoder))


def ours(case, tensors):
    """Tensors by the peer's names -> by ours, in our layouts."""
    s = Shape(case)
    return FAMILIES[s.family][1](s, tensors)


def rms_norm_in_double(norm):
    """transformers norms in float; a double stays double here."""
    def forward(x):
        wide = x if x.dtype == torch.float64 else x.float()
        return norm.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)).to(x.dtype)
    norm.forward = forward


def build(case, values):
    """The peer in double; values(name, shape) are our tensors."""
    s = Shape(case)
    model = FAMILIES[s.family][0](s).double().train()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            rms_norm_in_double(module)
    params, numbers, first = dict(model.named_parameters()), {}, 0
    for name, p in params.items():
        numbers[name] = torch.arange(first, first + p.numel()).view(p.shape)
        first += p.numel()
    flat = torch.full((first,), float("nan"), dtype=torch.float64)
    for name, places in ours(case, numbers).items():
        flat[places.flatten()] = torch.from_numpy(values(name, tuple(places.shape))).flatten()
    assert not flat.isnan().any(), "a parameter of the peer that is not mapped"
    with torch.no_grad():
        for name, p in params.items():
            p.copy_(flat[numbers[name]])
    return model
