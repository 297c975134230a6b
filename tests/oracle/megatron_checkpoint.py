#!/usr/bin/env python3
"""Peer of neox-convert's Megatron formats: checkpoints written as Megatron-LM and Megatron-DeepSpeed document theirs.

  megatron_checkpoint.py BIN_DIRECTORY LOGITS_TOOL [--only WORDS]

For each case: a small GPT of this file is cut into ranks and saved; it becomes a checkpoint of neox.cpp whose logits are those
of this file, and of Megatron-Core's GPTModel where that is the model; that checkpoint becomes Megatron-LM's and
Megatron-DeepSpeed's again, whose tensors, read here, are the same bit for bit. torch_dist is written by
torch.distributed.checkpoint, in one process and in two, and by Megatron-Core itself.
"""
import os

os.environ["OMP_NUM_THREADS"] = "1"
import argparse
import collections
import enum
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional as F

from megatron_peer import core_logits, save_core

BOUND = dict(fp32=2e-6, bf16=2e-2, fp16=4e-3)  # greatest ||a - b|| / ||b|| of logits
TYPES = dict(fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)

DEFAULTS = dict(layers=4, hidden=24, heads=4, groups=4, ffn=40, vocab=264, positions=32, embedding="learned_absolute",
                percent=1.0, base=10000, norm="LayerNorm", eps=1e-5, bias=True, swiglu=False, tied=True, fused=True,
                qk_norm=False, kind="fp32", names="classic", tp=1, pp=1, vp=1, version=3.0, writer="megatron", source=None)
ROPE = dict(embedding="rope", tied=False)
LLAMA = dict(ROPE, norm="RMSNorm", swiglu=True, bias=False, groups=2, ffn=52, eps=1e-6)

CASES = [
    dict(name="GPT-2"),
    dict(name="GPT-2, tp 2 x pp 2, erf", tp=2, pp=2, fused=False),
    dict(name="GPT-2, tp 4, version 0 and its names", tp=4, version=0, names="old"),
    dict(name="GPT-2, tp 2, version 1", tp=2, version=1.0),
    dict(name="GPT-2, tp 2, version 2, odd sizes", tp=2, version=2.0, hidden=20, heads=2, groups=2, ffn=22, layers=3),
    dict(name="rope, virtual stages", **ROPE, tp=2, pp=2, vp=2, percent=0.5, base=50000, hidden=32),
    dict(name="llama, tp 2", **LLAMA, tp=2),
    dict(name="llama, tp 2 x pp 2, fp16", **LLAMA, tp=2, pp=2, kind="fp16"),
    dict(name="tied llama, pp 4", **LLAMA | dict(tied=True), pp=4),
    dict(name="core names, tp 2 x pp 2", **LLAMA, tp=2, pp=2, names="core"),
    dict(name="core local names, tp 4, bf16", tp=4, names="core_local", kind="bf16"),
    dict(name="core, norms of queries and keys", **LLAMA | dict(tied=True), names="core", qk_norm=True, pp=2),
    dict(name="deepspeed, module, tp 2", writer="deepspeed", pp=0, tp=2),
    dict(name="deepspeed, pipeline, tp 2 x pp 2", writer="deepspeed", pp=2, tp=2),
    dict(name="deepspeed, pipeline, llama", writer="deepspeed", **LLAMA, pp=2, tp=2),
    dict(name="deepspeed, thirds by args", writer="deepspeed", **ROPE, pp=1, tp=4, thirds="args"),
    dict(name="deepspeed, thirds by name", writer="deepspeed", pp=0, tp=2, thirds="name", source="megatron-deepspeed-thirds"),
    dict(name="dist, stacked", writer="dist", **LLAMA),
    dict(name="dist, by layer, gates apart", writer="dist", **LLAMA, split_gates=True, by_layer=True),
    dict(name="dist, two processes", writer="dist", tp=2),
    dict(name="dist, common among the tensors", writer="dist", **ROPE, tp=2, common="object"),
    dict(name="dist of Megatron-Core, stacked", writer="core", **LLAMA),
    dict(name="dist of Megatron-Core, two processes", writer="core", tp=2, tied=True),
    dict(name="dist of Megatron-Core, two processes, by layer", writer="core", **LLAMA, tp=2, by_layer=True),
]


# ---- the model -----------------------------------------------------------------------------------

class Gpt:
    """Parameters whole, queries, keys, values, gate and up by themselves."""

    def __init__(self, case, seed):
        self.c = c = SimpleNamespace(**DEFAULTS | dict(thirds=None, split_gates=False, by_layer=False, common=None) | case)
        g = torch.Generator().manual_seed(seed)
        D, h = c.hidden // c.heads, c.hidden
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
                if c.bias:
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
        c, D, T = self.c, self.c.hidden // self.c.heads, x.shape[0]
        q, k, v = (self.linear(x, l + n).view(T, -1, D) for n in "qkv")
        if c.qk_norm:
            q, k = self.norm(q, l + "qnorm"), self.norm(k, l + "knorm")
        if c.embedding == "rope":
            q, k = self.rotate(q), self.rotate(k)
        k, v = (y.repeat_interleave(c.heads // c.groups, 1) for y in (k, v))
        scores = torch.einsum("thd,shd->hts", q, k) / D ** 0.5
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


def rows(x):
    return x.reshape(-1, *x.shape[-1:]) if x.dim() > 2 else x.reshape(-1)


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


# ---- writers -------------------------------------------------------------------------------------

class ModelType(enum.Enum):
    encoder_or_decoder = 1


def args_of(c, deepspeed=False):
    """A command line as it is saved, with much that says nothing of the model."""
    args = argparse.Namespace(
        num_layers=c.layers, hidden_size=c.hidden, num_attention_heads=c.heads, kv_channels=c.hidden // c.heads,
        ffn_hidden_size=c.ffn, max_position_embeddings=c.positions, seq_length=c.positions // 2, padded_vocab_size=c.vocab,
        layernorm_epsilon=c.eps, swiglu=c.swiglu, bias_gelu_fusion=c.fused and c.bias, add_bias_linear=c.bias,
        untie_embeddings_and_output_weights=not c.tied, hidden_dropout=0.1, attention_dropout=0.1, init_method_std=0.02,
        rotary_percent=c.percent, apply_layernorm_1p=False, squared_relu=False, openai_gelu=False, onnx_safe=None,
        tensor_model_parallel_size=c.tp, pipeline_model_parallel_size=max(c.pp, 1), tokenizer_type="GPT2BPETokenizer",
        vocab_file="/nowhere/vocab.json", merge_file="/nowhere/merges.txt", model_type=ModelType.encoder_or_decoder,
        params_dtype=TYPES[c.kind], lr=1e-3, data_path=["x"], iteration=5, world_size=max(c.tp * c.pp, 1), rank=0,
        consumed_train_samples=80, moe_aux_loss_coeff=0.0, num_experts=[1] if deepspeed else None)
    if deepspeed:
        args.normalization = c.norm.lower()
        args.num_key_value_heads = c.groups
        args.use_rotary_position_embeddings = c.embedding == "rope"
        args.add_position_embedding = c.embedding != "rope"
        args.rope_theta = c.base
        if c.thirds == "args":
            args.ds_sequence_parallel_fpdt = False
    else:
        args.normalization = c.norm
        args.position_embedding_type = c.embedding
        args.add_position_embedding = True
        args.use_rotary_position_embeddings = False
        args.rotary_base = c.base
        args.group_query_attention = c.groups != c.heads
        args.num_query_groups = c.groups if c.groups != c.heads else 1
        args.qk_layernorm = c.qk_norm
        args.spec = None
    if c.names == "old":  # of 2020
        for name in ("position_embedding_type", "normalization", "swiglu", "add_bias_linear", "group_query_attention",
                     "tensor_model_parallel_size", "pipeline_model_parallel_size", "kv_channels", "ffn_hidden_size",
                     "use_rotary_position_embeddings", "untie_embeddings_and_output_weights"):
            delattr(args, name)
        args.model_parallel_size = c.tp
        args.ffn_hidden_size = c.ffn
    return args


def client_state(c, deepspeed=False):
    state = dict(args=args_of(c, deepspeed), iteration=5, checkpoint_version=c.version, rng_state=[dict(
        random_rng_state=random.getstate(), np_rng_state=np.random.get_state(), torch_rng_state=torch.get_rng_state(),
        rng_tracker_states={"model-parallel-rng": torch.get_rng_state()})],
        opt_param_scheduler=dict(max_lr=1e-3, num_steps=80))
    if c.version == 0:
        del state["checkpoint_version"]
    return state


def stages_of(c):
    """Layers of each (pipeline stage, virtual stage), in the order of the model: virtual stages first."""
    each = c.layers // (c.pp * c.vp)
    order = [(p, v) for v in range(c.vp) for p in range(c.pp)]
    return {place: range(i * each, (i + 1) * each) for i, place in enumerate(order)}


def write_megatron(model, folder):
    c = model.c
    stages = stages_of(c)
    last = list(stages)[-1]
    for p in range(c.pp):
        for t in range(c.tp):
            state = client_state(c)
            for v in range(c.vp):
                flat = rank_part(model, t, c.tp, stages[p, v], (p, v) == (0, 0), (p, v) == last, order_of(c), c.names)
                if c.names.startswith("core"):
                    tree = collections.OrderedDict((k, x.clone()) for k, x in flat.items())
                    tree["decoder.layers.0.mlp.linear_fc1._extra_state"] = torch.zeros(t, dtype=torch.uint8) if v else None
                else:
                    tree = nested(flat)
                state[f"model{v}" if c.vp > 1 else "model"] = tree
            state["optimizer"] = dict(param_groups=[dict(lr=0.1, params=[0])], state={0: dict(step=torch.tensor(3.0))})
            place = folder / "iter_0000005" / (f"mp_rank_{t:02d}_{p:03d}" if c.pp > 1 else f"mp_rank_{t:02d}")
            place.mkdir(parents=True)
            torch.save(state, place / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("5")


def write_deepspeed(model, folder):
    c = model.c
    step = folder / "global_step5"
    step.mkdir(parents=True)
    order = order_of(c)
    for mp in range(c.tp * max(c.pp, 1)):
        module = None
        if not c.pp:
            module = nested(rank_part(model, mp, c.tp, range(c.layers), True, True, order, "classic"))
            module["language_model"]["moe_state_dict"] = {}
        torch.save(dict(module=module, buffer_names=[], optimizer=None, param_shapes=None, lr_scheduler=None,
                        skipped_steps=0, global_steps=5, global_samples=80, dp_world_size=2, mp_world_size=c.tp,
                        ds_config=dict(train_batch_size=2), ds_version="0.10.0", **client_state(c, True)),
                   step / f"mp_rank_{mp:02d}_model_states.pt")
    for t in range(c.tp if c.pp else 0):
        def save(layer, tensors):
            torch.save(collections.OrderedDict((k, x.clone()) for k, x in tensors.items()),
                       step / f"layer_{layer:02d}-model_{t:02d}-model_states.pt")

        head = {"word_embeddings.weight": model.p["embedding"].chunk(c.tp)[t]}
        if "positions" in model.p:
            head["position_embeddings.weight"] = model.p["positions"]
        save(1, head)
        for n in range(c.layers):
            part = layer_part(model, n, t, c.tp, order)
            save(n + 2, {NAMES["classic"][name] + end: x for (name, end), x in part.items()})
        save(c.layers + 2, {end: model.p[f"final.{end}"] for end in ("weight", "bias") if f"final.{end}" in model.p})
        if not c.tied:
            save(c.layers + 3, {"lm_head.weight": model.p["head"].chunk(c.tp)[t]})
    (folder / "latest").write_text("global_step5")
    (folder / "latest_checkpointed_iteration.txt").write_text("5")


def dist_tensors(model):
    """Whole tensors by Megatron-Core's names, gate and up one after the other."""
    c = model.c
    flat = rank_part(model, 0, 1, range(c.layers), True, True, "groups", "core")
    prefix, layers, whole = NAMES["core"]["layers"], collections.defaultdict(list), {}
    for name, x in flat.items():
        if not name.startswith(prefix) or c.by_layer:
            whole[name] = x
        else:
            layers[name[len(prefix):].split(".", 1)[1]].append(x)
    whole |= {prefix + name: torch.stack(xs) for name, xs in layers.items()}
    if c.split_gates:
        for name in [n for n in whole if "linear_fc1.weight" in n]:
            whole[name + "_w"], whole[name + "_v"] = whole.pop(name).chunk(2)
    whole["optimizer.state.exp_avg.embedding.word_embeddings.weight"] = torch.zeros(c.vocab, c.hidden)
    return whole


def save_dist(rank, world, model, place):
    """In each of the processes of a group."""
    state = dist_tensors(model)
    if world > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard
        mesh = init_device_mesh("cpu", (world,))
        for name, x in list(state.items()):
            dim = x.dim() - 1 if "linear_proj.weight" in name or "fc2.weight" in name else 0
            state[name] = DTensor.from_local(x.tensor_split(world, dim)[rank].contiguous(), mesh, [Shard(dim)],
                                             shape=x.shape, stride=x.stride())
    state["rng_state/shard_0_1"] = dict(random_rng_state=random.getstate())
    if model.c.common == "object":
        state["common_state/shard_0_1"] = [client_state(model.c)]
    dcp.save(state, storage_writer=dcp.FileSystemWriter(place, thread_count=2),
             planner=dcp.DefaultSavePlanner(flatten_state_dict=False))
    if rank == 0:
        if model.c.common != "object":
            torch.save(client_state(model.c), place / "common.pt")
        (place / "metadata.json").write_text(json.dumps(dict(sharded_backend="torch_dist", sharded_backend_version=1)))


def write_dist(model, folder):
    """Processes of this script, one for each rank."""
    c = model.c
    place = folder / "iter_0000005"
    place.mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("5")
    torch.save(model.p, folder / "parameters.pt")
    logs = [folder / f"rank{r}.log" for r in range(c.tp)]
    ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(r), "--case", json.dumps(vars(c)), folder, place],
                              stdout=log.open("w"), stderr=subprocess.STDOUT) for r, log in enumerate(logs)]
    try:
        assert not any(rank.wait(timeout=300) for rank in ranks), "\n".join(log.read_text() for log in logs)
    finally:
        for rank in ranks:
            rank.kill()


def rank_main(rank, case, folder, place):
    model = Gpt(case, 0)
    model.p = torch.load(folder / "parameters.pt")
    c = model.c
    store = torch.distributed.FileStore(str(folder / "store"), c.tp)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=c.tp)
    if c.writer == "core":
        part = rank_part(model, rank, c.tp, range(c.layers), True, True, "groups", "core_local")
        state = client_state(c)
        del state["rng_state"]  # each rank's own
        save_core(c, part, state, place, TYPES[c.kind])
    else:
        save_dist(rank, c.tp, model, place)
    torch.distributed.destroy_process_group()


# ---- readers of what neox-convert wrote -----------------------------------------------------------

def flattened(tree, prefix=""):
    for key, x in tree.items():
        if isinstance(x, torch.Tensor):
            yield prefix + key, x
        elif isinstance(x, dict):
            yield from flattened(x, f"{prefix}{key}.")


def load(path):
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(path, weights_only=True)


def joined(model, flats, order):
    """Parameters of the model from the flat classic names of all ranks, layers numbered over all stages."""
    c, N, p = model.c, NAMES["classic"], {}
    tp = len(flats)
    assert all(f.keys() == flats[0].keys() for f in flats)
    left = dict.fromkeys(flats[0])

    def take(name, how):
        left.pop(name)
        parts = [f[name] for f in flats]
        if how == "copy":
            assert all(torch.equal(x, parts[0]) for x in parts), name
            return parts[0]
        return torch.cat(parts, 1 if how == "columns" else 0)

    p["embedding"] = take(N["embedding"], "rows")
    if N["positions"] in left:
        p["positions"] = take(N["positions"], "copy")
    for n in range(c.layers):
        stem = f"{N['layers']}{n}."
        for end in ("weight", "bias"):
            for ours in ("norm1", "norm2", "qnorm", "knorm"):
                if f"{stem}{N[ours]}{end}" in left:
                    p[f"{n}.{ours}.{end}"] = take(f"{stem}{N[ours]}{end}", "copy")
            if f"{stem}{N['qkv']}{end}" not in left:
                continue
            left.pop(f"{stem}{N['qkv']}{end}")
            parts = [split_qkv(f[f"{stem}{N['qkv']}{end}"], c.heads // tp, c.groups // tp, order) for f in flats]
            for x, ranks in zip("qkv", zip(*parts)):
                p[f"{n}.{x}.{end}"] = torch.cat(ranks)
            left.pop(f"{stem}{N['fc1']}{end}")
            halves = [f[f"{stem}{N['fc1']}{end}"].chunk(2 if c.swiglu else 1) for f in flats]
            for x, ranks in zip(["gate", "up"] if c.swiglu else ["up"], zip(*halves)):
                p[f"{n}.{x}.{end}"] = torch.cat(ranks)
            for ours, theirs in (("dense", "dense"), ("down", "fc2")):
                p[f"{n}.{ours}.{end}"] = take(f"{stem}{N[theirs]}{end}", "columns" if end == "weight" else "copy")
    for end in ("weight", "bias"):
        if N["final"] + end in left:
            p[f"final.{end}"] = take(N["final"] + end, "copy")
    if N["head"] in left:
        p["head"] = take(N["head"], "rows")
    assert not left, f"not read: {list(left)}"
    return p


def read_megatron(model, folder, tp, pp, iteration):
    place = folder / (f"iter_{iteration:07d}" if iteration else "release")
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == (str(iteration) if iteration else "release")
    each, flats = model.c.layers // pp, []
    for t in range(tp):
        flat = {}
        for p in range(pp):
            state = load(place / (f"mp_rank_{t:02d}_{p:03d}" if pp > 1 else f"mp_rank_{t:02d}") / "model_optim_rng.pt")
            args = state["args"]
            assert (state["checkpoint_version"], state["iteration"], args.num_layers) == (3.0, iteration, model.c.layers)
            assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (tp, pp)
            for name, x in flattened(state["model"]):
                stem = NAMES["classic"]["layers"]
                if name.startswith(stem):
                    number, rest = name[len(stem):].split(".", 1)
                    name = f"{stem}{int(number) + p * each}.{rest}"
                if name == "word_embeddings_for_head.weight":
                    assert torch.equal(x, flat[NAMES["classic"]["embedding"]]) and p == pp - 1 > 0
                    continue
                assert name not in flat
                flat[name] = x
        flats.append(flat)
    return joined(model, flats, "groups")


def read_deepspeed(model, folder, tp, pp, order):
    c, N, flats = model.c, NAMES["classic"], []
    step = folder / (folder / "latest").read_text()
    for mp in range(tp * max(pp, 1)):
        state = load(step / f"mp_rank_{mp:02d}_model_states.pt")
        assert state["args"].hidden_size == c.hidden and (state["module"] is None) == (pp > 0)
        if not pp:
            flats.append(dict(flattened(state["module"])))
    for t in range(tp if pp else 0):
        flat = {}
        for path in sorted(step.glob(f"layer_*-model_{t:02d}-model_states.pt")):
            layer = int(path.name[6:8])
            stem = ("language_model.embedding." if layer == 1 else N["final"] if layer == c.layers + 2
                    else "language_model." if layer == c.layers + 3 else f"{N['layers']}{layer - 2}.")
            for name, x in load(path).items():
                flat[(stem + name).replace("lm_head", "output_layer")] = x
        flats.append(flat)
    return joined(model, flats, order)


# ---- checks --------------------------------------------------------------------------------------

def run(*arguments, stdin=""):
    done = subprocess.run([str(a) for a in arguments], input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def write_tokenizer(folder):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator([], trainers.BpeTrainer(vocab_size=257, special_tokens=["<|endoftext|>"], show_progress=False,
                                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder.mkdir()
    t.save(str(folder / "tokenizer.json"))


def check_same(name, got, want):
    assert got.keys() == want.keys(), f"{name}: {got.keys() ^ want.keys()}"
    for key, x in want.items():
        assert got[key].dtype == x.dtype and torch.equal(got[key], x), f"{name}: {key} differs"


def check_logits(options, model, folder):
    c, prompt = model.c, [7, 1, 250, 3, 3, 112, 44, 0, 9]
    want = model.logits(torch.tensor(prompt)).numpy()
    run(options.tool, folder / "ours", {"bf16": "bfloat16"}.get(c.kind, c.kind), 1, folder / "logits",
        stdin=" ".join(map(str, prompt)))
    got = np.fromfile(folder / "logits", np.float32).reshape(len(prompt), -1)
    apart = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    assert apart <= BOUND[c.kind], f"{c.name}: logits are {apart} apart"
    return apart, want, prompt


def check_core(model, want, prompt):
    """Megatron-Core's own forward pass."""
    c = model.c
    if c.kind != "fp32" or c.thirds or c.version < 2 or not 0 < c.tp:
        return
    flat = rank_part(model, 0, 1, range(c.layers), True, True, "groups", "core_local")
    logits = core_logits(c, flat, prompt).numpy()
    apart = float(np.linalg.norm(logits - want) / np.linalg.norm(want))
    assert apart <= 1e-5, f"{c.name}: Megatron-Core's logits are {apart} apart"


def check_case(options, case, seed, folder):
    model = Gpt(case, seed)
    c, convert = model.c, options.bin / "neox-convert"
    {"megatron": write_megatron, "deepspeed": write_deepspeed, "dist": write_dist, "core": write_dist}[c.writer](
        model, folder / "theirs")
    write_tokenizer(folder / "theirs" / "tokenizer")
    from_ = ["--from", c.source] if c.source else []
    run(convert, *from_, "--to", "neox.cpp", folder / "theirs", folder / "ours")
    apart, want, prompt = check_logits(options, model, folder)
    check_core(model, want, prompt)

    def export(name, *more):
        run(convert, "--to", name, *more, folder / "ours", folder / f"back-{name}-{'-'.join(map(str, more))}")
        return folder / f"back-{name}-{'-'.join(map(str, more))}"

    for tp, pp in ((2, 1), (1, 2 if c.layers % 2 == 0 else 1)):
        sizes = ("--tensor-parallel", tp, "--pipeline-parallel", pp)
        check_same(c.name, read_megatron(model, export("megatron", *sizes), tp, pp, 0), model.p)
    if not c.qk_norm:
        for name, order in (("megatron-deepspeed", "groups"), ("megatron-deepspeed-thirds", "thirds")):
            if order == "thirds" and c.groups != c.heads:
                continue
            for pp in (0, 2 if c.layers % 2 == 0 else 1):
                back = export(name, "--tensor-parallel", 2, "--pipeline-parallel", pp)
                check_same(c.name, read_deepspeed(model, back, 2, pp, order), model.p)
        run(convert, "--to", "megatron", back, folder / "again")  # the format is found out
        check_same(c.name, read_megatron(model, folder / "again", 1, 1, 0), model.p)
    run(convert, *from_, "--to", "megatron", "--tensor-parallel", 2, folder / "theirs", folder / "direct")
    check_same(c.name, read_megatron(model, folder / "direct", 2, 1, 5), model.p)
    print(f"{c.name}: logits {apart:.1e} apart, {len(model.p)} tensors equal", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=Path)
    parser.add_argument("tool", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--case", type=json.loads)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.rank is not None:
        return rank_main(options.rank, options.case, options.bin, options.tool)
    cases = [case for case in CASES if options.only in case["name"]]
    for seed, case in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            check_case(options, case, seed, Path(folder))
    print(f"{len(cases)} checkpoints of Megatron, there and back")


if __name__ == "__main__":
    main()
