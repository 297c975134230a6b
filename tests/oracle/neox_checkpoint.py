#!/usr/bin/env python3
"""Peer of neox-convert for GPT-NeoX's checkpoints: small models of neox_model.py, saved by deepspeed_files.py.

  neox_checkpoint.py BIN_DIRECTORY LOGITS_TOOL [--case PART_OF_A_NAME]

For each model: what neox-convert makes of the checkpoint has its parameters, masters and moments bit for bit, and its
logits; a run that is trained here, saved and converted goes on in neox-train with the losses that it has here; and
what neox-convert writes for GPT-NeoX at another tensor-parallel size is read back exactly.
"""
import os

os.environ["OMP_NUM_THREADS"] = "1"
import argparse
import json
import math
import struct
import subprocess
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import deepspeed_files
import neox_model
from neox_model import Shape

TRAINED, MORE = 5, 10
BATCH = 4
SCHEDULE = dict(lr=2e-3, min_lr=2e-4, warmup=3.0, end=30)
BOUND = 1e-5  # of logits, and of losses

CASES = [
    dict(name="Pythia, fp16, ZeRO 1", kind="fp16", zero=1, dp=2),
    dict(name="sequential residual, tied, learned, 2 x 2, bf16", pos_emb="learned", parallel=False, tied=True,
         activation="gelu", kind="bf16", zero=1, tp=2, pp=2, dp=3, layers=3),
    dict(name="Llama, pipe 0", norm="rmsnorm", activation="swiglu", kv_heads=2, attention_bias=False, mlp_bias=False,
         parallel=False, tp=2, pp=0, width=44),
    dict(name="more padding than the last rank has, bf16", kind="bf16", zero=1, dp=64),
    dict(name="more padding than the last rank has, fp16", kind="fp16", zero=1, dp=64),
    dict(name="old names, old stage 1", names="legacy", kind="fp16", zero=1, layout="old", tp=4, dp=2),
    dict(name="ALiBi, one norm, gated with biases, 4 x 2, fp16", pos_emb="alibi", tied_norms=True, heads=12, hidden=48,
         kv_heads=4, activation="geglu", kind="fp16", tp=4, pp=2, layers=3),
    dict(name="relative positions, pipe 0, ZeRO 2 elastic", pos_emb="rpe", parallel=False, kind="fp16", zero=2, dp=2,
         layout="elastic", pp=0),
    dict(name="sinusoidal, old ZeRO 1 in 2 stages, tied", pos_emb="sinusoidal", tied=True, activation="relu",
         kind="fp16", zero=1, layout="old", pp=2, dp=2),
    dict(name="ScaleNorm, 2 x 2, ZeRO 1, fp16", norm="scalenorm", eps=1e-8, kind="fp16", zero=1, tp=2, pp=2, dp=2),
    dict(name="norms without weights, pipe 0, sequential", norm="non_parametric_layernorm", parallel=False, tied=True,
         pp=0, tp=2),
    dict(name="w1, w2, w3", names="llama", norm="rmsnorm", activation="swiglu", attention_bias=False, mlp_bias=False,
         parallel=False, no_state=True, kind="bf16", tp=2),
    dict(name="experts by Sinkhorn, 2 x 2, fp16", parallel=False, experts=4, router="sinkhorn", activation="gelu",
         kind="fp16", zero=1, dp=2, tp=2, pp=2, layers=3),
    dict(name="two experts of four in every second layer, pipe 0", parallel=False, experts=4, top_k=2, interval=2,
         norm="rmsnorm", activation="silu", tp=2, pp=0, layers=3),
    dict(name="trained, experts, 2 x 1, ZeRO 1", train=True, parallel=False, experts=4, top_k=2, zero=1, tp=2, dp=2),
    dict(name="trained, ZeRO 0", train=True),
    dict(name="trained, ZeRO 1 in fp32, 2 x 2, sequential", train=True, parallel=False, zero=1, tp=2, pp=2, dp=2),
    dict(name="trained, Llama, tied, 2 x 1, ZeRO 0", train=True, norm="rmsnorm", activation="swiglu", kv_heads=2,
         attention_bias=False, mlp_bias=False, tied=True, parallel=False, tp=2),
    dict(name="trained, parallel with biases, 4, ZeRO 1", train=True, zero=1, tp=4, dp=2, names="legacy"),
]


def run(*arguments, stdin=""):
    done = subprocess.run([str(a) for a in arguments], input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stderr}\n{done.stdout}"
    return done.stdout


def tokenizer(path):
    words = {word: i for i, word in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE({"<|endoftext|>": len(words)} | words, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    made.save(str(path))


def dataset(prefix, vocab):
    """A .bin and .idx of GPT-NeoX (megatron/data/indexed_dataset.py)."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(20, 90, 40)
    tokens = [np.minimum(rng.geometric(0.12, n), vocab - 3).astype(np.uint16) for n in lengths]
    Path(f"{prefix}.bin").write_bytes(b"".join(t.tobytes() for t in tokens))
    starts = np.concatenate([[0], np.cumsum(lengths[:-1])]) * 2
    Path(f"{prefix}.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1) +
        lengths.astype(np.int32).tobytes() + starts.astype(np.int64).tobytes() +
        np.arange(len(lengths) + 1, dtype=np.int64).tobytes())


def read_ours(folder):
    """{(state, name): tensor} of a checkpoint of neox.cpp, each in one box, as neox-convert writes them."""
    found = {}
    (step,) = folder.glob("global_step*")
    kinds = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    index = h5py.File(step / "index.h5")["catalog"]

    def texts(column):
        return [value.decode() for value in index[column][()]]
    dims = index["tensors/dims"][()]
    shapes = index["tensors/shape"][()].reshape(len(dims), -1)
    files, sets = texts("files/name"), index["datasets/file"][()]
    at, offsets = index["datasets/offset"][()], index["boxes/offset"][()]
    names = list(zip(texts("tensors/state"), texts("tensors/name"), texts("tensors/dtype")))
    for t, d, o in zip(index["boxes/tensor"][()], index["boxes/dataset"][()], offsets):
        state, name, kind = names[t]
        shape = [int(n) for n in shapes[t][:dims[t]]]
        data = (step / files[sets[d]]).read_bytes()
        made = torch.frombuffer(bytearray(data), dtype=kinds[kind], count=math.prod(shape),
                                offset=int(at[d] + o * kinds[kind].itemsize))
        assert (state, name) not in found, f"{state} of {name} twice"
        found[state, name] = made.view(shape)
    return found, json.loads((step / "train_state.json").read_text())


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


def learning_rate(t):
    """AnnealingLR of GPT-NeoX."""
    c = SCHEDULE
    if t <= c["warmup"]:
        return c["lr"] * max(1, t) / c["warmup"]
    part = (t - c["warmup"]) / (c["end"] - c["warmup"])
    return c["min_lr"] + (c["lr"] - c["min_lr"]) / 2 * (math.cos(math.pi * part) + 1)


class Training:
    """Adam on the whole parameters, with the forward pass of the ranks' parts."""

    def __init__(self, s, parameters, tp):
        self.s, self.tp = s, tp
        self.parameters = {layer: {n: p.clone().requires_grad_() for n, p in names.items()}
                           for layer, names in parameters.items()}
        both = [(n, p) for names in self.parameters.values() for n, p in names.items()]
        self.adam = torch.optim.AdamW(
            [dict(params=[p for n, p in both if neox_model.decays(n)], weight_decay=0.1),
             dict(params=[p for n, p in both if not neox_model.decays(n)], weight_decay=0.0)],
            betas=(0.9, 0.95), eps=1e-8)

    def step(self, t, batch):
        for group in self.adam.param_groups:
            group["lr"] = learning_rate(t)
        self.adam.zero_grad()
        logits = neox_model.forward(self.s, neox_model.parts(self.s, self.parameters, self.tp), batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for g in self.adam.param_groups for p in g["params"]], 1.0)
        self.adam.step()
        return loss.item()

    def of_state(self, key):
        return {layer: {n: self.adam.state[p][key].clone() for n, p in names.items()}
                for layer, names in self.parameters.items()}

    def values(self):
        return {layer: {n: p.detach().clone() for n, p in names.items()} for layer, names in self.parameters.items()}


def configs(s, case, folder):
    """The files of a run; keys with hyphens as the oldest have them."""
    tp, pp = case.get("tp", 1), case.get("pp", 1)
    training = {"train-iters": TRAINED + MORE, "lr-decay-iters": SCHEDULE["end"], "warmup": 0.1,
                "lr_decay_style": "cosine", "min_lr": SCHEDULE["min_lr"], "weight_decay": 0.1, "gradient_clipping": 1.0,
                "optimizer": dict(type="Adam", params=dict(lr=SCHEDULE["lr"], betas=[0.9, 0.95], eps=1e-8)),
                "train_micro_batch_size_per_gpu": BATCH // 2, "gradient_accumulation_steps": 2,
                "hidden_dropout": 0, "attention_dropout": 0, "log_interval": 1, "eval_iters": 0}
    if case.get("kind") == "fp16":
        training["fp16"] = dict(enabled=True, loss_scale=0, loss_scale_window=1000, hysteresis=2, initial_scale_power=12)
    if case.get("kind") == "bf16":
        training["bf16"] = dict(enabled=True)
        training["precision"] = "bfloat16"
    local = dict(data_path=str(folder / "data"), data_impl="mmap", tokenizer_type="HFTokenizer",
                 vocab_file=str(folder / "tokenizer.json"), split="100,0,0", save=str(folder / "neox"),
                 checkpoint_factor=1000)
    return {"model.yml": neox_model.config(s, tp, pp), "training.yml": training, "local.yml": local}


def own_config(s, case, folder):
    """For neox-train, on one rank."""
    keys = {}
    for part in configs(s, case, folder).values():
        keys |= {k.replace("-", "_"): v for k, v in part.items()}
    keys |= dict(model_parallel_size=1, pipe_parallel_size=1, make_vocab_size_divisible_by=s.vocab, precision="fp32",
                 load=str(folder / "ours"), save=str(folder / "more"), log_dir=str(folder / "board"),
                 extra_save_iters=[], data_cache_path=str(folder / "cache"))
    (folder / "own.yml").write_text(json.dumps(keys))
    return folder / "own.yml"


def batches(options, config):
    """The samples of each step, in GPT-NeoX's order (sample_order.py compares it)."""
    made = []
    for step in range(1, TRAINED + MORE + 1):
        lines = run(options.bin / "neox-data", "show", config, "--step", step).splitlines()
        rows = [[int(n) for n in line.split(":")[1].split()] for line in lines if line.startswith("  ids:")]
        assert len(rows) == BATCH, f"{len(rows)} samples in step {step}"
        made.append(torch.tensor(rows))
    return made


def check_tensors(case, s, saved, folder):
    """Parameters and state of the converted checkpoint, bit for bit."""
    found, state = read_ours(folder / "ours")
    wanted = {}
    with_state = not case.get("no_state")
    exact = dict(fp32=torch.float32, fp16=torch.float16, bf16=torch.bfloat16)[case.get("kind", "fp32")]
    for key, values in (("param", saved.parameters), ("adam_m", saved.m), ("adam_v", saved.v)):
        for name, value in neox_model.ours(s, values).items():
            if with_state:
                wanted[key, name] = value
            elif key == "param":
                wanted[key, name] = value.to(exact)
    assert found.keys() == wanted.keys(), f"{case['name']}: {sorted(found.keys() ^ wanted.keys())[:6]}"
    for key in wanted:
        assert same_bits(found[key], wanted[key]), f"{case['name']}: {key} differs"
    told = {k: state[k] for k in ("iteration", "optimizer_steps", "consumed_samples", "global_batch",
                                  "dataset_samples", "padded_vocab", "loss_scale", "growth", "hysteresis")}
    if with_state:
        fp16 = case.get("kind") == "fp16"
        assert told == dict(iteration=saved.iteration, optimizer_steps=saved.steps, padded_vocab=s.vocab,
                            consumed_samples=saved.iteration * BATCH, global_batch=BATCH,
                            dataset_samples=(TRAINED + MORE) * BATCH,
                            loss_scale=saved.scale if fp16 else 1,
                            growth=(saved.iteration - 1 - saved.last_overflow) % saved.window if fp16 else 0,
                            hysteresis=1 if fp16 else 0), told
    return len(wanted)


def check_logits(options, case, s, saved, folder):
    prompt = torch.randint(0, s.vocab - 2, (1, s.seq - 2), generator=torch.Generator().manual_seed(1))
    parts = neox_model.parts(s, saved.parameters, saved.tp)
    if case.get("no_state"):
        parts = [{layer: {n: p.to(saved.dtype).float() for n, p in names.items()} for layer, names in rank.items()}
                 for rank in parts]
    with torch.no_grad():
        want = neox_model.forward(s, parts, prompt)[0].numpy()
    run(options.tool, folder / "ours", "fp32", 1, folder / "logits", stdin=" ".join(map(str, prompt[0].tolist())))
    got = np.fromfile(folder / "logits", np.float32).reshape(want.shape)
    distance = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    assert distance <= BOUND, f"{case['name']}: logits are {distance} apart"
    return distance


def read_back(folder, s, tp, pp):
    """What GPT-NeoX would load: whole parameters of the layers' files or of the mp_rank files."""
    tag = (folder / "latest").read_text()
    step = folder / tag
    ranks = []
    for rank in range(tp):
        state = torch.load(step / f"mp_rank_{rank:02d}_model_states.pt", weights_only=True)
        assert (state["mp_world_size"], state["dp_world_size"]) == (tp * max(pp, 1), 1)
        assert state["args"]["padded_vocab_size"] == s.vocab and state["args"]["model_parallel_size"] == tp
        assert tag == f"global_step{state['iteration']}"
        layers = {}
        if pp == 0:
            for name, value in state["module"].items():
                _, layer, inner = name.split(".", 2)
                layers.setdefault(int(layer), {})[inner] = value
        else:
            assert state["module"] is None
            for path in sorted(step.glob(f"layer_*-model_{rank:02d}-model_states.pt")):
                layers[int(path.name[6:8])] = torch.load(path, weights_only=True)
        ranks.append(layers)
    return ranks


BUFFERS = ("attention.alibi_embed.slopes", "position_embeddings.inv_freq")


def check_export(options, case, s, saved, folder):
    for tp, pp in ((2, 1), (1, 0)):
        target = folder / f"back{tp}{pp}"
        run(options.bin / "neox-convert", "--to", "neox", folder / "ours", target, "--tensor-parallel", tp,
            "--pipeline-parallel", pp)
        ranks = read_back(target, s, tp, pp)
        for rank, layers in enumerate(ranks):
            wanted = {layer: {n: neox_model.part(s, n, v, rank, tp) for n, v in names.items()}
                      for layer, names in saved.parameters.items() if names or pp}
            assert layers.keys() == wanted.keys(), f"{case['name']}: layers {layers.keys() ^ wanted.keys()}"
            for layer, names in wanted.items():
                there = {n: v for n, v in layers[layer].items() if n not in BUFFERS}
                assert there.keys() == names.keys(), f"{case['name']}: layer {layer}: {there.keys() ^ names.keys()}"
                for n, value in names.items():
                    if s.tied_norms and n.startswith("post_"):
                        continue
                    value = value.to(saved.dtype) if case.get("no_state") else value
                    assert same_bits(there[n], value), f"{case['name']}: {layer}.{n} differs"
        if s.pos_emb == "alibi":
            n = s.heads // tp
            for rank, layers in enumerate(ranks):
                want = torch.tensor(neox_model.slopes(s.heads))[rank * n:(rank + 1) * n]
                torch.testing.assert_close(layers[2][BUFFERS[0]], want)
    # And what it reads of its own.
    run(options.bin / "neox-convert", "--to", "neox.cpp", folder / "back21", folder / "again")
    first, again = read_ours(folder / "ours")[0], read_ours(folder / "again")[0]
    for (state, name), value in again.items():
        assert same_bits(value, first[state, name]), f"{case['name']}: {name} after there and back"


def losses_apart(options, config, folder, wanted):
    """Greatest relative distance of the losses of neox-train, which goes on from the converted checkpoint."""
    run(options.bin / "neox-train", config)
    losses = {}
    for path in (folder / "board").rglob("metrics.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "train/lm_loss" in entry:
                losses[entry["step"]] = entry["train/lm_loss"]
    assert sorted(losses) == list(range(TRAINED + 1, TRAINED + len(wanted) + 1)), sorted(losses)
    return max(abs(losses[TRAINED + 1 + i] - loss) / loss for i, loss in enumerate(wanted))


def check_training(options, case, folder, config, training, made):
    wanted = [training.step(TRAINED + i, made[TRAINED + i]) for i in range(MORE)]
    apart = losses_apart(options, config, folder, wanted)
    assert apart <= BOUND, f"{case['name']}: losses are {apart} apart\n{wanted}"
    return apart


def check_case(options, case, seed, folder):
    s = Shape({k: v for k, v in case.items() if k in neox_model.DEFAULTS})
    parameters = neox_model.random_parameters(s, seed)
    tokenizer(folder / "tokenizer.json")
    dataset(folder / "data", s.vocab)
    how = {k: case[k] for k in ("tp", "pp", "dp", "zero", "kind", "names", "layout") if k in case}
    config, training, made = own_config(s, case, folder), None, None
    if case.get("train"):
        parameters = {layer: {n: p * (0.3 if p.dim() > 1 else 1) for n, p in names.items()}
                      for layer, names in parameters.items()}
        made = batches(options, config)
        training = Training(s, parameters, case.get("tp", 1))
        for t in range(TRAINED):
            training.step(t, made[t])
        saved = deepspeed_files.Run(s, training.values(), training.of_state("exp_avg"),
                                    training.of_state("exp_avg_sq"), iteration=TRAINED, steps=TRAINED, **how)
    else:
        m, v = (neox_model.random_parameters(s, seed + 100 * i) for i in (1, 2))
        saved = deepspeed_files.Run(s, parameters, m, v, iteration=9, steps=7, last_overflow=5, window=2, **how)
    deepspeed_files.save(saved, folder / "neox", configs(s, case, folder))
    if case.get("no_state"):
        for path in (folder / "neox").rglob("*optim_states.pt"):
            path.unlink()
    table = run(options.bin / "neox-convert", "--to", "neox.cpp", folder / "neox", folder / "ours")
    assert "random_rng_state" in table and "random numbers are functions" in table, table
    n = check_tensors(case, s, saved, folder)
    distance = check_logits(options, case, s, saved, folder)
    check_export(options, case, s, saved, folder)
    words = ""
    if training:
        words = f", {MORE} losses {check_training(options, case, folder, config, training, made):.1e} apart"
    print(f"{case['name']}: {n} tensors equal, logits {distance:.1e} apart{words}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=Path)
    parser.add_argument("tool", type=Path)
    parser.add_argument("--case", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed, case in enumerate(CASES):
        if options.case not in case["name"]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            check_case(options, case, seed, Path(folder))
    print(f"{len(CASES)} checkpoints of GPT-NeoX, there and back")


if __name__ == "__main__":
    main()
