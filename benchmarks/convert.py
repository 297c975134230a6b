#!/usr/bin/env python3
"""neox-convert against cp: a GPTNeoXForCausalLM of the Pythia-1.4B shape to a checkpoint of neox.cpp and back.

Each round copies the files of the model (cp, then fsync of each file), converts them, and converts the checkpoint back; before
each step the source is dropped from the page cache, and what a step wrote is removed after the next one. Prints the lines of
harness/lines.py.

    python3 benchmarks/convert.py --type fp32 --rounds 3 --folder /a/disk/with/room
"""
import argparse
import array
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
from harness import lines, process  # noqa: E402

SHAPES = {"160m": (12, 768, 12), "410m": (24, 1024, 16), "1.4b": (24, 2048, 16)}  # layers, hidden, heads
VOCAB = 50304
TYPES = {"fp32": ("F32", 4, "float32"), "bf16": ("BF16", 2, "bfloat16")}


def tensors(shape):
    """Names and shapes, in the order in which transformers writes them."""
    layers, h, _ = SHAPES[shape]
    found = {"embed_out.weight": [VOCAB, h], "gpt_neox.embed_in.weight": [VOCAB, h]}
    for n in range(layers):
        layer = {"attention.dense": [h, h], "attention.query_key_value": [3 * h, h], "input_layernorm": [h],
                 "mlp.dense_4h_to_h": [h, 4 * h], "mlp.dense_h_to_4h": [4 * h, h], "post_attention_layernorm": [h]}
        for name, dims in layer.items():
            found[f"gpt_neox.layers.{n}.{name}.weight"] = dims
            found[f"gpt_neox.layers.{n}.{name}.bias"] = dims[:1]
    found["gpt_neox.final_layer_norm.weight"] = found["gpt_neox.final_layer_norm.bias"] = [h]
    return dict(sorted(found.items()))


def write_file(path, part, kind, noise):
    """One safetensors file; the numbers are cut from the noise."""
    name, item, _ = TYPES[kind]
    header, end = {}, 0
    for tensor, dims in part.items():
        begin, end = end, end + math.prod(dims) * item
        header[tensor] = {"dtype": name, "shape": dims, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for n, dims in enumerate(part.values()):
            left = math.prod(dims) * item
            at = n * 4096 % (len(noise) // 2)
            while left > 0:
                piece = noise[at:at + left]
                f.write(piece)
                left, at = left - len(piece), 0


def make_model(folder, shape, kind, shard):
    layers, h, heads = SHAPES[shape]
    os.makedirs(folder)
    config = {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": h, "num_hidden_layers": layers,
              "num_attention_heads": heads, "intermediate_size": 4 * h, "max_position_embeddings": 2048, "vocab_size": VOCAB,
              "rotary_pct": 0.25, "rotary_emb_base": 10000, "hidden_act": "gelu", "torch_dtype": TYPES[kind][2]}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    draw = random.Random(1).gauss
    values = array.array("f", (draw(0, 1) for _ in range(1 << 20))).tobytes()
    noise = memoryview(values if kind == "fp32" else array.array("H", values)[1::2].tobytes())  # a bf16 is an fp32's upper half
    parts, size = [{}], 0
    for name, dims in tensors(shape).items():
        count = math.prod(dims) * TYPES[kind][1]
        if parts[-1] and size + count > shard:
            parts.append({})
            size = 0
        parts[-1][name] = dims
        size += count
    where = {}
    for n, part in enumerate(parts):
        file = f"model-{n + 1:05}-of-{len(parts):05}.safetensors"
        write_file(os.path.join(folder, file), part, kind, noise)
        where |= {name: file for name in part}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": where}, f)


def files_of(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]


def settle(folder, forget):
    """Everything is on the disk; forget: and not in memory."""
    for path in files_of(folder):
        f = os.open(path, os.O_RDONLY)
        os.fsync(f)
        if forget:
            os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(f)


def timed(command, target=None):
    """Seconds, peak memory; target: what is still to be flushed."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=process.end_with_parent)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command}: {child.returncode}\n{errors}")
    if target:
        settle(target, forget=False)
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def main():
    process.end_with_parent()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"))
    parser.add_argument("--folder", default=ROOT, help="on the disk to measure")
    parser.add_argument("--shape", choices=SHAPES, default="1.4b")
    parser.add_argument("--type", choices=TYPES, default="fp32")
    parser.add_argument("--shard-gb", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    convert = os.path.join(a.bin, "neox-convert")
    with process.own_folder(a.folder, "convert-benchmark") as folder:
        hf, copy, ours, back = (os.path.join(folder, name) for name in ("hf", "copy", "ours", "back"))
        make_model(hf, a.shape, a.type, a.shard_gb * 1e9)
        size = sum(os.path.getsize(path) for path in files_of(hf))
        case = f"convert {a.shape}, {a.type}, {size / 1e9:.2f} GB in {len(files_of(hf)) - 2} files"
        steps = [("cp and fsync", hf, copy, ["cp", "-r", "--reflink=never", hf, copy]),
                 ("ours, from Hugging Face", hf, ours, [convert, "--to", "neox.cpp", hf, ours]),
                 ("ours, to Hugging Face", ours, back, [convert, "--to", "hf", ours, back, "--max-shard-size", "2GB"])]
        for number in range(a.rounds):
            for name, source, target, command in steps:
                settle(source, forget=True)
                seconds, peak = timed(command, target)
                lines.say(case=case, who=name, metric="bytes/s", value=size / seconds, round=number,
                          peak_bytes=peak if name.startswith("ours") else 0)
                if target != ours:
                    shutil.rmtree(target)
            shutil.rmtree(ours)


if __name__ == "__main__":
    main()
