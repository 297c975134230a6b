#!/usr/bin/env python3
"""Greedy generation on the CPU: ours (generate_ours) against transformers' GPTNeoXForCausalLM, in the same run.

Both decode behind prompts of equal length with random weights of a Pythia shape; each process has one shape and batch. The peer is
given its best setting: fp32 or bf16 weights, a dynamic or static cache, compiled or not, with malloc keeping memory and huge pages.
All settings are tried first; the best of each metric then alternates with ours. Ours also prints the rate at which as many threads
read memory, the ceiling of decoding. Prints one JSON object per line, and a table of ratios on stderr.

    cmake --build build/release --target generate_ours
    python3 benchmarks/generate.py --shapes 160m,410m --rounds 3
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHAPES = {"14m": (6, 128, 4), "70m": (6, 512, 8), "160m": (12, 768, 12), "410m": (24, 1024, 16), "1b": (16, 2048, 8)}
VOCAB = 50304
TUNED = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864"
SETTINGS = [f"{dtype}:{cache}" for dtype in ("bf16", "fp32") for cache in ("dynamic", "static", "static+compile")]


def environment(threads):
    cpus = sorted(os.sched_getaffinity(0))[-threads:]
    os.sched_setaffinity(0, cpus)
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)


def peer(a):
    """One process of the peer: prints its lines."""
    environment(a.threads)
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(a.threads)
    dtype, cache = a.peer.split(":")
    layers, hidden, heads = SHAPES[a.shape]
    config = transformers.GPTNeoXConfig(
        vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden,
        rotary_pct=0.25, max_position_embeddings=2048, use_parallel_residual=True, hidden_act="gelu", tie_word_embeddings=False)
    model = transformers.GPTNeoXForCausalLM._from_config(config, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32).eval()
    ids = torch.randint(0, VOCAB, (a.batch, a.prompt), generator=torch.Generator().manual_seed(1))
    options = dict(do_sample=False, pad_token_id=0, eos_token_id=None, attention_mask=torch.ones_like(ids))
    if cache != "dynamic":
        options["cache_implementation"] = "static"
    if cache == "static":
        options["disable_compile"] = True
    if cache == "static+compile":
        from transformers.generation.configuration_utils import CompileConfig
        options["compile_config"] = CompileConfig(mode=None, fullgraph=False, dynamic=False)
        options["compile_config"]._compile_all_devices = True

    @torch.no_grad()
    def seconds(tokens):
        start = time.perf_counter()
        if tokens == 0:
            model(input_ids=ids, use_cache=True, logits_to_keep=1)
        else:
            model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, **options)
        return time.perf_counter() - start

    short, long = 2, 2 + a.tokens
    for tokens in (0, short, long):  # warm
        seconds(tokens)
    for round in range(a.repeats):
        decode = a.batch * a.tokens / (seconds(long) - seconds(short))
        line = {"case": f"{a.shape} batch {a.batch}", "who": f"transformers {transformers.__version__} {a.peer}", "round": a.round + round}
        print(json.dumps({**line, "metric": "decode tokens/s", "value": decode}))
        print(json.dumps({**line, "metric": "prefill tokens/s", "value": a.batch * a.prompt / seconds(0)}))


def lines_of(command, environ=None):
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})})
    if run.returncode != 0:
        print(f"failed: {' '.join(command)}", file=sys.stderr)
        return []
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def peer_lines(a, shape, batch, setting, round, repeats):
    return lines_of([sys.executable, os.path.abspath(__file__), "--peer", setting, "--shape", shape, "--batch", str(batch), "--round", str(round),
                     "--threads", str(a.threads), "--prompt", str(a.prompt), "--tokens", str(a.tokens), "--repeats", str(repeats)],
                    {"GLIBC_TUNABLES": TUNED})


def our_lines(a, shape, batch, precision, round):
    lines = lines_of([a.program, "--shape", shape, "--batch", str(batch), "--precision", precision, "--prompt", str(a.prompt), "--tokens",
                      str(a.tokens), "--rounds", "2"])
    return [{**line, "case": f"{shape} batch {batch}", "who": f"ours {precision}", "round": round}
            for line in lines if line["round"] == 1 or line["metric"] != "prefill tokens/s"]  # the first prompt is a warm-up


def best_settings(lines):
    """The peer's setting with the best rate of each metric."""
    best = {}
    for line in lines:
        if line["value"] > best.get(line["metric"], (0, ""))[0]:
            best[line["metric"]] = (line["value"], line["who"].split()[-1])
    return {who for _, who in best.values()}


def table(rows):
    def values(case, who, metric):
        return [r["value"] for r in rows if r["case"] == case and r["who"].startswith(who) and r["metric"] == metric]
    for case in dict.fromkeys(r["case"] for r in rows):
        read = values(case, "ours", "memory read GB/s")
        used = [r["weights GB/s"] for r in rows if r["case"] == case and "weights GB/s" in r]
        for metric in ("decode tokens/s", "prefill tokens/s"):
            ours, theirs = values(case, "ours", metric), values(case, "transformers", metric)
            if not ours or not theirs:
                continue
            show = lambda v: f"{max(v):8.1f} ({statistics.median(v):.1f}, {min(v):.1f}..{max(v):.1f})"
            print(f"{case} {metric}: ours {show(ours)}, peer {show(theirs)}, ratio of the best {max(ours) / max(theirs):.2f}, of the medians "
                  f"{statistics.median(ours) / statistics.median(theirs):.2f}", file=sys.stderr)
        if read and used:
            print(f"{case} weights {max(used):.1f} GB/s (median {statistics.median(used):.1f}) of {max(read):.1f} (median "
                  f"{statistics.median(read):.1f}): {100 * max(used) / max(read):.0f} %", file=sys.stderr)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", default="160m,410m")
    p.add_argument("--batches", default="1,8")
    p.add_argument("--precision", default="bf16", help="of our weights")
    p.add_argument("--settings", default=",".join(SETTINGS), help="of the peer")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--prompt", type=int, default=128)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--program", default=os.path.join(ROOT, "build/release/benchmarks/generate_ours"))
    for name in ("--shape", "--peer"):
        p.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--batch", "--round", "--repeats"):
        p.add_argument(name, type=int, default=1, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        return peer(a)
    environment(a.threads)
    rows = []
    for shape in a.shapes.split(","):
        for batch in map(int, a.batches.split(",")):
            tried = [line for setting in a.settings.split(",") for line in peer_lines(a, shape, batch, setting, -1, 1)]
            for line in tried:
                print(json.dumps(line), flush=True)
            for round in range(a.rounds):
                mine = our_lines(a, shape, batch, a.precision, round)
                theirs = [line for setting in sorted(best_settings(tried)) for line in peer_lines(a, shape, batch, setting, round, 1)]
                for line in mine + theirs:
                    rows.append(line)
                    print(json.dumps(line), flush=True)
    table(rows)


if __name__ == "__main__":
    main()
