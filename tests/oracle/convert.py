#!/usr/bin/env python3
"""Peer of neox-convert: random small GPTNeoXForCausalLM of transformers, there and back.

  convert.py BIN_DIRECTORY LOGITS_TOOL

For each model: its safetensors become a checkpoint whose logits and greedy tokens are those of
transformers; the checkpoint becomes safetensors with the same tensors bit for bit, which
transformers loads and computes the same logits with.
"""
import os

os.environ["OMP_NUM_THREADS"] = "1"
import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
NEW = 64
ENTRIES = 300
TEXT = "the quick brown fox jumps over the lazy dog and the cat sat on the mat with a hat "

# Greatest ||a - b|| / ||b|| of logits.
BOUND = dict(fp32=1e-5, bf16=2e-2, fp16=2e-2)
TYPES = dict(fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)

CASES = [
    dict(name="head16", hidden_size=64, num_attention_heads=4, rotary_pct=0.25),
    dict(name="odd head size", hidden_size=39, num_attention_heads=3, rotary_pct=0.5),
    dict(name="tied", hidden_size=40, num_attention_heads=2, rotary_pct=1.0,
         tie_word_embeddings=True, hidden_act="gelu_new"),
    dict(name="sequential, sharded", hidden_size=60, num_attention_heads=5, rotary_pct=0.5,
         use_parallel_residual=False, hidden_act="gelu_fast", shard="60KB", layers=3),
    dict(name="rotary base, odd sizes", hidden_size=22, num_attention_heads=2, rotary_pct=0.4,
         rotary_emb_base=50000, intermediate_size=37, vocab_size=311, layer_norm_eps=1e-6),
    dict(name="bf16", hidden_size=64, num_attention_heads=4, rotary_pct=0.25, kind="bf16"),
    dict(name="fp16", hidden_size=64, num_attention_heads=4, rotary_pct=0.25, kind="fp16"),
]


def build(case, seed):
    case = dict(case)
    kind, layers = case.pop("kind", "fp32"), case.pop("layers", 2)
    shard = case.pop("shard", "5GB")
    name = case.pop("name")
    defaults = dict(vocab_size=ENTRIES + 4, intermediate_size=3 * case["hidden_size"],
                    bos_token_id=0, eos_token_id=0, num_hidden_layers=layers,
                    max_position_embeddings=128)
    config = GPTNeoXConfig(**{**defaults, **case})
    torch.manual_seed(seed)
    model = GPTNeoXForCausalLM(config).eval()
    with torch.no_grad():
        for parameter_name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() == 1 else 1.5 / p.shape[-1] ** 0.5))
            if "norm" in parameter_name and parameter_name.endswith("weight"):
                p.add_(1)
    return name, model.to(TYPES[kind]), kind, shard


def tokenizer(folder):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([TEXT * 3], trainers.BpeTrainer(
        vocab_size=ENTRIES, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|endoftext|>").save_pretrained(folder)
    return t


def run(*arguments, stdin=""):
    done = subprocess.run([str(a) for a in arguments], input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stderr}"
    return done.stdout


def tensors(folder):
    """Of all files, the head by one name."""
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            found["embed_out.weight" if name == "lm_head.weight" else name] = tensor
    return found


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def apart(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@torch.no_grad()
def greedy(model, batch):
    for _ in range(NEW):
        batch = torch.cat([batch, model(batch).logits[:, -1:].argmax(-1)], dim=1)
    return batch[0, -NEW:].tolist()


def check_case(options, case, seed, folder):
    name, model, kind, shard = build(case, seed)
    hf, ours, back = folder / "hf", folder / "ours", folder / "back"
    model.save_pretrained(hf, max_shard_size=shard)
    bpe = tokenizer(hf)
    assert (len(list(hf.glob("*.safetensors"))) > 1) == (shard != "5GB"), "number of shards"
    run(options.bin / "neox-convert", "--to", "neox.cpp", hf, ours)

    prompt = bpe.encode("the quick dog sat on a fox").ids
    batch = torch.tensor([prompt])
    with torch.no_grad():
        want = model(batch).logits[0].float().numpy()
    tokens = greedy(model, batch)
    words = run(options.tool, ours, {"bf16": "bfloat16"}.get(kind, kind), NEW, folder / "logits",
                stdin=" ".join(map(str, prompt)))
    got = np.fromfile(folder / "logits", np.float32).reshape(len(prompt), -1)
    distance = apart(got, want)
    assert distance <= BOUND[kind], f"{name}: logits are {distance} apart"
    if kind == "fp32":
        assert [int(w) for w in words.split()] == tokens, f"{name}: greedy tokens differ"

    run(options.bin / "neox-convert", "--to", "hf", ours, back, "--max-shard-size", shard)
    a, b = tensors(hf), tensors(back)
    assert a.keys() == b.keys(), f"{name}: {a.keys() ^ b.keys()}"
    for tensor_name in a:
        assert same_bits(a[tensor_name], b[tensor_name]), f"{name}: {tensor_name} differs"
    again, info = GPTNeoXForCausalLM.from_pretrained(
        back, dtype=TYPES[kind], output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    with torch.no_grad():
        logits = again.eval()(batch).logits[0].float().numpy()
    if case.get("hidden_act") == "gelu_fast":  # comes back as gelu_new, the same with other rounding
        assert apart(logits, want) <= 1e-6, f"{name}: {apart(logits, want)} after the way back"
    else:
        assert np.array_equal(logits, want), f"{name}: logits after the way back differ"
    state = model.state_dict()
    for key, value in again.state_dict().items():
        assert same_bits(value, state[key]), f"{name}: state dict: {key}"
    assert AutoTokenizer.from_pretrained(back).encode(TEXT) == bpe.encode(TEXT).ids, "tokenizer"
    print(f"{name}: logits {distance:.1e} apart, {len(a)} tensors equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=Path)
    parser.add_argument("tool", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed, case in enumerate(CASES):
        with tempfile.TemporaryDirectory() as folder:
            check_case(options, case, seed, Path(folder))
    print(f"{len(CASES)} models, there and back")


if __name__ == "__main__":
    main()
