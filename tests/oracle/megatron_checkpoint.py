#!/usr/bin/env python3
"""Peer of neox-convert's Megatron formats: checkpoints written as Megatron-LM and Megatron-DeepSpeed document theirs.

  megatron_checkpoint.py BIN_DIRECTORY LOGITS_TOOL [--only WORDS]

For each case: a small GPT (megatron_model.py) is cut into ranks and saved (megatron_writers.py); it becomes a checkpoint of
neox.cpp whose logits are its own, and those of Megatron-Core's GPTModel where that is the model; that checkpoint becomes Megatron-LM's and
Megatron-DeepSpeed's again, whose tensors, read here, are the same bit for bit. torch_dist is written by
torch.distributed.checkpoint, in one process and in two, and by Megatron-Core itself. What BigScience's fork wrote becomes
its own files again, and BLOOM's of transformers.
"""
import os

os.environ["OMP_NUM_THREADS"] = "1"
import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from megatron_model import NAMES, TYPES, Gpt, rank_part, split_qkv
from megatron_peer import core_logits
from megatron_writers import WRITERS, PositionEmbeddingType, numbers_of, rank_main

logging.disable_progress_bar()
BOUND = dict(fp32=2e-6, bf16=2e-2, fp16=4e-3)  # greatest ||a - b|| / ||b|| of logits

ROPE = dict(embedding="rope", tied=False)
BLOOM = dict(writer="deepspeed", bigscience=True, turns=True, embedding="alibi", embed_norm=True, ffn=96)
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
    dict(name="core, biases of queries, keys and values, tp 2", **LLAMA, names="core", qkv_bias=True, tp=2),
    dict(name="core, heads of another size", **LLAMA, names="core", size=10, pp=2),
    dict(name="deepspeed, module, tp 2", writer="deepspeed", pp=0, tp=2),
    dict(name="deepspeed, pipeline, tp 2 x pp 2", writer="deepspeed", pp=2, tp=2),
    dict(name="deepspeed, pipeline, llama", writer="deepspeed", **LLAMA, pp=2, tp=2),
    dict(name="deepspeed, thirds by args", writer="deepspeed", **ROPE, pp=1, tp=4, thirds="args"),
    dict(name="deepspeed, thirds by name", writer="deepspeed", pp=0, tp=2, thirds="name", source="megatron-deepspeed-thirds"),
    dict(name="deepspeed of 2022, pipeline, tp 2 x pp 2", writer="deepspeed", turns=True, pp=2, tp=2),
    dict(name="BLOOM, tp 2 x pp 2", **BLOOM, tp=2, pp=2),
    dict(name="BLOOM, six heads, tp 2, bf16", **BLOOM, heads=6, groups=6, tp=2, kind="bf16"),
    dict(name="BigScience's, a norm of embeddings, learned positions, erf", **BLOOM | dict(embedding="learned_absolute"),
         fused=False),
    dict(name="BigScience's, ALiBi alone", **BLOOM | dict(embed_norm=False, ffn=40), pp=4, eps=1e-6),
    dict(name="dist, stacked", writer="dist", **LLAMA),
    dict(name="dist, by layer, gates apart", writer="dist", **LLAMA, split_gates=True, by_layer=True),
    dict(name="dist, two processes", writer="dist", tp=2),
    dict(name="dist, common among the tensors", writer="dist", **ROPE, tp=2, common="object"),
    dict(name="dist of Megatron-Core, stacked", writer="core", **LLAMA),
    dict(name="dist of Megatron-Core, two processes", writer="core", tp=2, tied=True),
    dict(name="dist of Megatron-Core, two processes, by layer", writer="core", **LLAMA, tp=2, by_layer=True),
]


# ---- readers of what neox-convert wrote -----------------------------------------------------------

def flattened(tree, prefix=""):
    for key, x in tree.items():
        if isinstance(x, torch.Tensor):
            yield prefix + key, x
        elif isinstance(x, dict):
            yield from flattened(x, f"{prefix}{key}.")


def load(path):
    with torch.serialization.safe_globals([argparse.Namespace, PositionEmbeddingType]):
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
    for end in ("weight", "bias"):
        if N["embed_norm"] + end in left:
            p[f"embed_norm.{end}"] = take(N["embed_norm"] + end, "copy")
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
            if f"{stem}{N['fc1']}{end}" not in left:
                continue
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
    first, norm = numbers_of(SimpleNamespace(layers=c.layers, turns=c.bigscience))
    step = folder / (folder / "latest").read_text()
    for mp in range(tp * max(pp, 1)):
        state = load(step / f"mp_rank_{mp:02d}_model_states.pt")
        assert state["args"].hidden_size == c.hidden and (state["module"] is None) == (pp > 0)
        sizes = (state["args"].tensor_model_parallel_size, state["args"].pipeline_model_parallel_size)
        assert (state["mp_world_size"], *sizes) == (tp * max(pp, 1), tp, max(pp, 1))
        if not pp:
            flats.append(dict(flattened(state["module"])))
    for t in range(tp if pp else 0):
        flat = {}
        for path in sorted(step.glob(f"layer_*-model_{t:02d}-model_states.pt")):
            layer = int(path.name[6:8])
            stem = ("language_model.embedding." if layer == 1 else N["final"] if layer == norm
                    else "language_model." if layer == norm + 1 else f"{N['layers']}{layer - first}.")
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
    if c.kind != "fp32" or c.thirds or c.version < 2 or not 0 < c.tp or c.bigscience:
        return
    flat = rank_part(model, 0, 1, range(c.layers), True, True, "groups", "core_local")
    logits = core_logits(c, flat, prompt).numpy()
    apart = float(np.linalg.norm(logits - want) / np.linalg.norm(want))
    assert apart <= 1e-5, f"{c.name}: Megatron-Core's logits are {apart} apart"


def check_transformers(model, want, prompt, export):
    """The forward pass of its BloomForCausalLM."""
    c = model.c
    if c.embedding != "alibi" or not c.embed_norm:
        return
    bloom = AutoModelForCausalLM.from_pretrained(export("hf"), dtype=TYPES[c.kind]).eval()
    assert type(bloom).__name__ == "BloomForCausalLM"
    with torch.no_grad():
        logits = bloom(torch.tensor([prompt])).logits[0].double().numpy()
    apart = float(np.linalg.norm(logits - want) / np.linalg.norm(want))
    assert apart <= BOUND[c.kind], f"{c.name}: transformers' logits are {apart} apart"


def check_case(options, case, seed, folder):
    model = Gpt(case, seed)
    c, convert = model.c, options.bin / "neox-convert"
    WRITERS[c.writer](model, folder / "theirs")
    write_tokenizer(folder / "theirs" / "tokenizer")
    from_ = ["--from", c.source] if c.source else []
    run(convert, *from_, "--to", "neox.cpp", folder / "theirs", folder / "ours")
    apart, want, prompt = check_logits(options, model, folder)
    check_core(model, want, prompt)

    def export(name, *more):
        run(convert, "--to", name, *more, folder / "ours", folder / f"back-{name}-{'-'.join(map(str, more))}")
        return folder / f"back-{name}-{'-'.join(map(str, more))}"

    if c.bigscience:
        for tp, pp in ((2, 1), (1, 2)):
            back = export("megatron-deepspeed", "--tensor-parallel", tp, "--pipeline-parallel", pp)
            check_same(c.name, read_deepspeed(model, back, tp, pp, "groups"), model.p)
        check_transformers(model, want, prompt, export)
        print(f"{c.name}: logits {apart:.1e} apart, {len(model.p)} tensors equal", flush=True)
        return
    for tp, pp in ((2, 1), (1, 2 if c.layers % 2 == 0 else 1)):
        sizes = ("--tensor-parallel", tp, "--pipeline-parallel", pp)
        check_same(c.name, read_megatron(model, export("megatron", *sizes), tp, pp, 0), model.p)
    if not c.qk_norm and not c.qkv_bias:
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
