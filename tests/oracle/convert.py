#!/usr/bin/env python3
"""Peer of neox-convert: random small models of transformers, there and back.

  convert.py BIN_DIRECTORY LOGITS_TOOL

For each model of GPTNeoX, GPT2, Llama, Mistral, Mixtral, Bloom, Qwen2, Qwen3, StableLm, Olmo, Falcon, OPT, GPTBigCode,
Starcoder2 and Phi3 (ForCausalLM): its safetensors or pytorch_model.bin become a checkpoint whose logits and greedy tokens
are those of transformers; the checkpoint becomes safetensors with the same tensors bit for bit, which transformers loads
and computes the same logits with. The same of LLaMA and Mistral in the form of Meta's files (meta_files.py), whose logits
Meta's model has.
"""
import os

os.environ["OMP_NUM_THREADS"] = "1"
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import meta_files
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (AutoModelForCausalLM, AutoTokenizer, BloomConfig, BloomForCausalLM, FalconConfig,
                          FalconForCausalLM, GPT2Config, GPT2LMHeadModel, GPTBigCodeConfig, GPTBigCodeForCausalLM,
                          GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, MixtralConfig, MixtralForCausalLM, OlmoConfig, OlmoForCausalLM, OPTConfig,
                          OPTForCausalLM, Phi3Config, Phi3ForCausalLM, PreTrainedTokenizerFast, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, StableLmConfig, StableLmForCausalLM,
                          Starcoder2Config, Starcoder2ForCausalLM)
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
NEW = 64
ENTRIES = 300
TEXT = "the quick brown fox jumps over the lazy dog and the cat sat on the mat with a hat "

# Greatest ||a - b|| / ||b|| of logits.
BOUND = dict(fp32=1e-5, bf16=2e-2, fp16=2e-2)
TYPES = dict(fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)

NEOX = dict(family="gpt_neox", hidden_size=64, num_attention_heads=4)
GPT2 = dict(family="gpt2", n_embd=60, n_head=3)
LLAMA = dict(family="llama", hidden_size=80, num_attention_heads=4, num_key_value_heads=2)
MISTRAL = LLAMA | dict(family="mistral", sliding_window=11)
BLOOM = dict(family="bloom", hidden_size=64, n_head=4)
MIXTRAL = LLAMA | dict(family="mixtral", num_local_experts=5, num_experts_per_tok=2)
FALCON = dict(family="falcon", hidden_size=80, num_attention_heads=5)
FALCON40 = FALCON | dict(hidden_size=96, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True)
OPT = dict(family="opt", hidden_size=60, num_attention_heads=3)
BIGCODE = GPT2 | dict(family="gpt_bigcode")
STARCODER2 = LLAMA | dict(family="starcoder2")
PHI3 = LLAMA | dict(family="phi3", pad_token_id=0)


def rope(theta=10000.0, **scaling):
    kind = scaling.pop("rope_type", "llama3" if scaling else "default")
    return dict(rope_parameters=dict(rope_theta=theta, rope_type=kind, **scaling))


LLAMA3 = rope(500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)

SCALED = dict(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
META = LLAMA | dict(num_attention_heads=8, num_key_value_heads=4, meta=dict(ranks=4))

# file: "bin" for pytorch_model.bin; spelling: 4 for config.json as transformers 4 writes it; meta: in Meta's files.
CASES = [
    NEOX | dict(name="neox: head16", rotary_pct=0.25),
    NEOX | dict(name="neox: odd head size", hidden_size=39, num_attention_heads=3, rotary_pct=0.5),
    NEOX | dict(name="neox: tied", hidden_size=40, num_attention_heads=2, rotary_pct=1.0,
                tie_word_embeddings=True, hidden_act="gelu_new"),
    NEOX | dict(name="neox: sequential, sharded", hidden_size=60, num_attention_heads=5, rotary_pct=0.5,
                use_parallel_residual=False, hidden_act="gelu_fast", shard="60KB", layers=3),
    NEOX | dict(name="neox: rotary base, odd sizes", hidden_size=22, num_attention_heads=2, rotary_pct=0.4,
                rotary_emb_base=50000, intermediate_size=37, vocab_size=311, layer_norm_eps=1e-6),
    NEOX | dict(name="neox: no biases of attention, relu, bin", attention_bias=False, hidden_act="relu", file="bin"),
    NEOX | dict(name="neox: bf16", rotary_pct=0.25, kind="bf16"),
    NEOX | dict(name="neox: fp16", rotary_pct=0.25, kind="fp16"),
    NEOX | dict(name="neox: linear scaling", rotary_pct=0.5) | rope(rope_type="linear", factor=2.5,
                                                                   partial_rotary_factor=0.5),
    NEOX | dict(name="neox: YaRN, transformers 4", hidden_size=128, rotary_pct=0.5, spelling=4) |
    rope(rope_type="yarn", factor=8.0, original_max_position_embeddings=64, partial_rotary_factor=0.5),
    GPT2 | dict(name="gpt2: head20, tied"),
    GPT2 | dict(name="gpt2: untied, sharded, odd sizes", n_embd=39, n_head=3, tie_word_embeddings=False, n_inner=50,
                vocab_size=311, layer_norm_epsilon=1e-6, activation_function="gelu", shard="60KB", layers=3),
    GPT2 | dict(name="gpt2: bin", file="bin", n_embd=72),
    GPT2 | dict(name="gpt2: bin, sharded, bf16", file="bin", shard="60KB", kind="bf16"),
    LLAMA | dict(name="llama: head20, grouped"),
    LLAMA | dict(name="llama: head24, one group, tied, sharded", hidden_size=72, num_attention_heads=3,
                 num_key_value_heads=1, tie_word_embeddings=True, shard="60KB", layers=3),
    LLAMA | dict(name="llama: as many groups as heads, bin, transformers 4", num_key_value_heads=4, file="bin",
                 spelling=4),
    LLAMA | dict(name="llama: biases, llama3, odd sizes", attention_bias=True, mlp_bias=True, intermediate_size=51,
                 vocab_size=311, rms_norm_eps=1e-5) | LLAMA3,
    LLAMA | dict(name="llama: llama3, transformers 4, sharded", spelling=4, shard="60KB") | LLAMA3,
    LLAMA | dict(name="llama: YaRN with all its numbers", hidden_size=256) |
    rope(rope_type="yarn", factor=5.0, beta_fast=20.0, beta_slow=2.0, mscale=0.707, mscale_all_dim=0.4, truncate=False,
         original_max_position_embeddings=64),
    LLAMA | dict(name="llama: bf16", kind="bf16"),
    LLAMA | dict(name="llama: fp16, gelu", kind="fp16", hidden_act="gelu"),
    MISTRAL | dict(name="mistral: window, head20"),
    MISTRAL | dict(name="mistral: no window, one group, bin", sliding_window=None, num_key_value_heads=1, file="bin"),
    MISTRAL | dict(name="mistral: base, tied, transformers 4, sharded", tie_word_embeddings=True, spelling=4,
                   shard="60KB") | rope(1e6),
    MISTRAL | dict(name="mistral: bf16", kind="bf16"),
    MIXTRAL | dict(name="mixtral: two of five experts"),
    MIXTRAL | dict(name="mixtral: window, tied, sharded, transformers 4", sliding_window=11, tie_word_embeddings=True,
                   spelling=4, shard="60KB", num_local_experts=3, num_experts_per_tok=3) | rope(1e6),
    MIXTRAL | dict(name="mixtral: bf16", kind="bf16"),
    LLAMA | dict(name="llama: head24 by head_dim", head_dim=24),
    LLAMA | dict(name="qwen2: grouped", family="qwen2", max_window_layers=1),
    LLAMA | dict(name="qwen2: tied, sharded, transformers 4", family="qwen2", tie_word_embeddings=True, spelling=4,
                 shard="60KB", layers=3, num_key_value_heads=1) | rope(1e6),
    LLAMA | dict(name="qwen2: bf16, bin", family="qwen2", kind="bf16", file="bin"),
    LLAMA | dict(name="qwen3: head_dim 12", family="qwen3", head_dim=12),
    LLAMA | dict(name="qwen3: head_dim 28, biases, YaRN, transformers 4", family="qwen3", head_dim=28, spelling=4,
                 attention_bias=True, rms_norm_eps=1e-5) |
    rope(1e6, rope_type="yarn", factor=4.0, original_max_position_embeddings=64),
    LLAMA | dict(name="stablelm", family="stablelm", hidden_size=64),
    LLAMA | dict(name="stablelm: biases, sharded, transformers 4", family="stablelm", hidden_size=96, use_qkv_bias=True,
                 spelling=4, shard="60KB", layer_norm_eps=1e-6) |
    rope(1e5, rope_type="default", partial_rotary_factor=0.5),
    LLAMA | dict(name="stablelm: bf16", family="stablelm", hidden_size=64, kind="bf16", use_qkv_bias=True),
    LLAMA | dict(name="olmo: grouped", family="olmo"),
    LLAMA | dict(name="olmo: biases, tied, sharded, transformers 4", family="olmo", attention_bias=True,
                 tie_word_embeddings=True, spelling=4, shard="60KB", layers=3) | rope(5e4),
    LLAMA | dict(name="olmo: bf16, linear scaling, bin", family="olmo", kind="bf16", file="bin") |
    rope(rope_type="linear", factor=2.5),
    BLOOM | dict(name="bloom: head16"),
    BLOOM | dict(name="bloom: seven heads, untied, sharded", hidden_size=56, n_head=7, tie_word_embeddings=False,
                 shard="60KB", layers=3, vocab_size=311, layer_norm_epsilon=1e-6),
    BLOOM | dict(name="bloom: bin, bf16", file="bin", kind="bf16"),
    FALCON | dict(name="falcon: one norm, one head of keys and values"),
    FALCON | dict(name="falcon: one norm, as many as queries, biases, untied, odd sizes, sharded, transformers 4",
                  multi_query=False, bias=True, tie_word_embeddings=False, ffn_hidden_size=51, vocab_size=311,
                  layer_norm_epsilon=1e-6, shard="60KB", layers=3, spelling=4) | rope(1e5),
    FALCON40 | dict(name="falcon: two norms, two groups"),
    FALCON40 | dict(name="falcon: two norms, one group, linear scaling, bin, bf16", num_kv_heads=1, kind="bf16",
                    file="bin") | rope(rope_type="linear", factor=2.5),
    FALCON40 | dict(name="falcon: one norm, two groups, relu", num_ln_in_parallel_attn=1, activation="relu"),
    OPT | dict(name="opt: head20"),
    OPT | dict(name="opt: no biases, untied, gelu, odd sizes, sharded", enable_bias=False, tie_word_embeddings=False,
               activation_function="gelu", ffn_dim=51, vocab_size=311, shard="60KB", layers=3),
    OPT | dict(name="opt: fp16, bin", kind="fp16", file="bin"),
    BIGCODE | dict(name="gpt_bigcode: one head of keys and values"),
    BIGCODE | dict(name="gpt_bigcode: as many as queries, untied, gelu, odd sizes, sharded", multi_query=False, n_embd=39,
                   tie_word_embeddings=False, n_inner=50, vocab_size=311, layer_norm_epsilon=1e-6,
                   activation_function="gelu", shard="60KB", layers=3),
    BIGCODE | dict(name="gpt_bigcode: bin, bf16", file="bin", kind="bf16", n_embd=72),
    STARCODER2 | dict(name="starcoder2: window, two groups", sliding_window=11),
    STARCODER2 | dict(name="starcoder2: no biases, untied, gelu, sharded, transformers 4", use_bias=False, spelling=4,
                      tie_word_embeddings=False, hidden_act="gelu", num_key_value_heads=1, norm_epsilon=1e-6,
                      shard="60KB", layers=3) | rope(1e6),
    STARCODER2 | dict(name="starcoder2: bf16", kind="bf16"),
    PHI3 | dict(name="phi3: as many groups as heads, window", num_key_value_heads=4, sliding_window=11),
    PHI3 | dict(name="phi3: two groups, a part rotated, tied, sharded, transformers 4", spelling=4, shard="60KB",
                layers=3, tie_word_embeddings=True, rms_norm_eps=1e-6) |
    rope(1e6, rope_type="default", partial_rotary_factor=0.7),
    PHI3 | dict(name="phi3: bf16, bin", kind="bf16", file="bin"),
    META | dict(name="meta: LLaMA 1, one file", num_key_value_heads=8, meta=dict(), vocab_size=311, rms_norm_eps=1e-6),
    META | dict(name="meta: LLaMA 2, two ranks, grouped", meta=dict(ranks=2)),
    META | dict(name="meta: LLaMA 2, four ranks, fp16", kind="fp16", layers=3, intermediate_size=52),
    META | dict(name="meta: Code LLaMA, four ranks, as many groups as heads", num_key_value_heads=8) | rope(1e6),
    META | dict(name="meta: LLaMA 3, two ranks, bf16", kind="bf16", meta=dict(ranks=2, embedding="rows")) | rope(500000.0),
    META | dict(name="meta: LLaMA 3.1, four ranks", meta=dict(ranks=4, embedding="rows")) |
    rope(500000.0, factor=8.0, **SCALED),
    META | dict(name="meta: LLaMA 3.2, tied", tie_word_embeddings=True, meta=dict(embedding="rows")) |
    rope(500000.0, factor=32.0, **SCALED),
    META | dict(name="meta: factor 3", num_key_value_heads=2, meta=dict(ranks=2)) | rope(1e4, factor=3.0, **SCALED),
    META | dict(name="meta: Mistral, window, safetensors, head_dim 14", family="mistral", sliding_window=11, head_dim=14,
                meta=dict(form="safetensors")),
    META | dict(name="meta: Mistral, window, pth, bf16", family="mistral", sliding_window=9, kind="bf16",
                meta=dict(form="mistral.pth")) | rope(1e6),
]

FAMILIES = dict(gpt_neox=(GPTNeoXConfig, GPTNeoXForCausalLM), gpt2=(GPT2Config, GPT2LMHeadModel),
                llama=(LlamaConfig, LlamaForCausalLM), mistral=(MistralConfig, MistralForCausalLM),
                mixtral=(MixtralConfig, MixtralForCausalLM), bloom=(BloomConfig, BloomForCausalLM),
                qwen2=(Qwen2Config, Qwen2ForCausalLM), qwen3=(Qwen3Config, Qwen3ForCausalLM),
                stablelm=(StableLmConfig, StableLmForCausalLM), olmo=(OlmoConfig, OlmoForCausalLM),
                falcon=(FalconConfig, FalconForCausalLM),
                opt=(OPTConfig, OPTForCausalLM), gpt_bigcode=(GPTBigCodeConfig, GPTBigCodeForCausalLM),
                starcoder2=(Starcoder2Config, Starcoder2ForCausalLM), phi3=(Phi3Config, Phi3ForCausalLM))


def build(case, seed):
    case = {name: value for name, value in case.items() if name not in ("name", "shard", "file", "spelling", "meta")}
    kind, layers, family = case.pop("kind", "fp32"), case.pop("layers", 2), case.pop("family")
    defaults = dict(vocab_size=ENTRIES + 4, bos_token_id=0, eos_token_id=0)
    if family in ("gpt2", "gpt_bigcode"):
        defaults |= dict(n_layer=layers, n_positions=128)
    elif family == "bloom":
        defaults |= dict(n_layer=layers, seq_length=128)
    elif family in ("falcon", "opt"):
        defaults |= dict(num_hidden_layers=layers, max_position_embeddings=128)
    else:
        defaults |= dict(num_hidden_layers=layers, max_position_embeddings=128,
                         intermediate_size=3 * case["hidden_size"])
    make_config, make_model = FAMILIES[family]
    torch.manual_seed(seed)
    spread = 1.5 if kind == "fp32" else 1.0  # far from uniform, but of 16 bits rounding must leave something
    model = make_model(make_config(**{**defaults, **case})).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() == 1 else spread / p.shape[-1] ** 0.5))
            if ("norm" in name or "ln_" in name) and name.endswith("weight"):
                p.add_(1)
    return model.to(TYPES[kind]), kind


def write_as_bin(model, folder):
    """pytorch_model.bin in place of safetensors, in as many files."""
    files = sorted(folder.glob("*.safetensors"))
    state = model.state_dict()
    names = list(state)
    share = -(-len(names) // len(files))
    where = {}
    for n in range(len(files)):
        file = f"pytorch_model-{n + 1:05}-of-{len(files):05}.bin" if len(files) > 1 else "pytorch_model.bin"
        part = names[n * share:(n + 1) * share]
        torch.save({name: state[name] for name in part}, folder / file)
        where |= {name: file for name in part}
    for path in [*files, folder / "model.safetensors.index.json"]:
        path.unlink(missing_ok=True)
    if len(files) > 1:
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(dict(metadata={}, weight_map=where)))


def respell(folder):
    """config.json as transformers 4 wrote it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    config["rope_scaling"] = None if scaling == dict(rope_type="default") else scaling
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


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


@torch.no_grad()
def logits_of(model, batch):
    return model(batch).logits[0].float().numpy()


def check_case(options, case, seed, folder):
    name, shard = case["name"], case.get("shard", "5GB")
    model, kind = build(case, seed)
    hf, ours, back = folder / "hf", folder / "ours", folder / "back"
    model.save_pretrained(hf, max_shard_size=shard)
    # Of a model that was made in fp32, .to() would round the rotary frequencies too.
    model = AutoModelForCausalLM.from_pretrained(hf, dtype=TYPES[kind]).eval()
    bpe, saved = tokenizer(hf), tensors(hf)
    assert (len(list(hf.glob("*.safetensors"))) > 1) == (shard != "5GB"), "number of shards"
    if case.get("file") == "bin":
        write_as_bin(model, hf)
    if case.get("spelling") == 4:
        respell(hf)
    prompt = bpe.encode("the quick dog sat on a fox").ids
    batch = torch.tensor([prompt])
    want, likeliest = logits_of(model, batch), greedy(model, batch)
    meta = case.get("meta")
    if meta is not None:
        params, state = meta_files.write(model, folder / "meta", **meta)
        (folder / "meta/tokenizer.model").write_bytes(meta_files.pieces(TEXT))
        distance = apart(meta_files.logits(params, state, prompt), want)
        assert distance <= BOUND[kind], f"{name}: logits of Meta's model are {distance} apart"
    run(options.bin / "neox-convert", "--to", "neox.cpp", hf if meta is None else folder / "meta", ours)

    words = run(options.tool, ours, {"bf16": "bfloat16"}.get(kind, kind), NEW, folder / "logits",
                stdin=" ".join(map(str, prompt)))
    got = np.fromfile(folder / "logits", np.float32).reshape(len(prompt), -1)
    distance = apart(got, want)
    assert distance <= BOUND[kind], f"{name}: logits are {distance} apart"
    if kind == "fp32":
        assert [int(w) for w in words.split()] == likeliest, f"{name}: greedy tokens differ"

    run(options.bin / "neox-convert", "--to", "hf", ours, back, "--max-shard-size", shard)
    check_back(name, back, saved, model, kind, case)
    again = AutoModelForCausalLM.from_pretrained(back, dtype=TYPES[kind]).eval()
    logits = logits_of(again, batch)
    if case.get("hidden_act") == "gelu_fast":  # comes back as gelu_new, the same with other rounding
        assert apart(logits, want) <= 1e-6, f"{name}: {apart(logits, want)} after the way back"
    else:
        assert np.array_equal(logits, want), f"{name}: logits after the way back differ"
    ids = bpe.encode(TEXT).ids if meta is None else meta_files.ids(folder / "meta/tokenizer.model", TEXT)
    alone = meta is not None and case["family"] == "mistral"  # whose pieces transformers 5 reads without the space in front
    assert alone or AutoTokenizer.from_pretrained(back).encode(TEXT) == ids, "tokenizer"
    print(f"{name}: logits {distance:.1e} apart, {len(saved)} tensors equal")


def used(name, tensor):
    """Without OPT's two rows of positions that padding alone has."""
    return tensor[2:] if name.endswith("decoder.embed_positions.weight") else tensor


def check_back(name, back, saved, model, kind, case):
    """The files have the same tensors, and transformers makes the same model of them."""
    found = tensors(back)
    assert saved.keys() == found.keys(), f"{name}: {saved.keys() ^ found.keys()}"
    for tensor_name in saved:
        assert same_bits(used(tensor_name, saved[tensor_name]), used(tensor_name, found[tensor_name])), \
            f"{name}: {tensor_name} differs"
    again, info = AutoModelForCausalLM.from_pretrained(back, dtype=TYPES[kind], output_loading_info=True)
    assert type(again) is FAMILIES[case["family"]][1], f"{name}: came back as {type(again).__name__}"
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    state = model.state_dict()
    assert state.keys() == again.state_dict().keys(), name
    for key, value in again.state_dict().items():
        assert same_bits(used(key, value), used(key, state[key])), f"{name}: state dict: {key}"


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
