#!/usr/bin/env python3
"""Training on the CPU: neox-train against transformers' eager GPTNeoXForCausalLM on PyTorch, in the same run.

A step is forward, backward, clipping to 1.0 and AdamW on 2048 tokens of the Pythia-70M shape. Both sides run alternately, each
round in a process of its own, on the same cores. The peer's bf16 is autocast over fp32 weights; ours is bf16 weights with fp32
masters. Prints a line for each process and a table with the best, the median and the spread of the rounds.

    python3 benchmarks/train.py --rounds 3 --threads 1
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHAPES = {"14m": (6, 128, 4), "70m": (6, 512, 8), "160m": (12, 768, 12)}  # layers, hidden, heads
VOCAB = 50304


def flops_per_token(shape, seq):
    """6 N + 6 L h T with N the parameters of blocks and head, attention counted causal."""
    layers, hidden, _ = SHAPES[shape]
    return 6 * (layers * (12 * hidden * hidden + 13 * hidden) + VOCAB * hidden) + 6 * layers * hidden * seq


def pin(threads):
    cpus = sorted(os.sched_getaffinity(0))[-threads:]
    os.sched_setaffinity(0, cpus)
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)


def peer(a):
    """One process of the peer: prints a JSON line."""
    start = time.time()
    pin(a.threads)
    import resource
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(a.threads)
    layers, hidden, heads = SHAPES[a.shape]
    config = transformers.GPTNeoXConfig(
        vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden,
        rotary_pct=0.25, max_position_embeddings=2048, use_parallel_residual=True, hidden_act="gelu_pytorch_tanh",
        tie_word_embeddings=False, attention_dropout=0.0, hidden_dropout=0.0)
    model = transformers.GPTNeoXForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    ids = torch.randint(0, VOCAB, (1, a.seq), generator=torch.Generator().manual_seed(1))
    ready = time.time() - start
    seconds, cpu = [], []
    for _ in range(a.steps + 1):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.precision == "bf16"):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"tok_s": a.seq / min(seconds[1:]), "tok_cpu_s": a.seq * a.threads / min(cpu[1:]), "peak": peak,
                      "ready": ready}))


def write_data(prefix, tokens):
    """A dataset of one document of pseudo-random tokens."""
    state, out = 1, bytearray()
    for _ in range(tokens):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out += struct.pack("<H", (state >> 8) % VOCAB)
    with open(prefix + ".bin", "wb") as f:
        f.write(out)
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<i", tokens) + struct.pack("<qqq", 0, 0, 1))


def ours(a, folder):
    """One process of neox-train: the same numbers from its metrics."""
    layers, hidden, heads = SHAPES[a.shape]
    log = tempfile.mkdtemp(dir=folder)
    config = {
        "num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "seq_length": a.seq,
        "max_position_embeddings": 2048, "pos_emb": "rotary", "rotary_pct": 0.25, "no_weight_tying": True, "gpt_j_residual": True,
        "bias_gelu_fusion": True, "train_batch_size": 1, "train_micro_batch_size_per_gpu": 1, "train_iters": a.steps + 1,
        "padded_vocab_size": VOCAB, "data_path": os.path.join(folder, "data"), "split": "1,0,0", "eval_iters": 0, "log_interval": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8}}, "lr_decay_style": "constant",
        "weight_decay": 0.01, "gradient_clipping": 1.0, "log_dir": log,
        "precision": "bfloat16" if a.precision == "bf16" else "fp32"}
    path = os.path.join(log, "config.json")
    with open(path, "w") as f:
        json.dump(config, f)
    before = os.times()
    run = subprocess.run([a.program, path], capture_output=True, text=True, preexec_fn=lambda: pin(a.threads))
    after = os.times()
    if run.returncode != 0:
        sys.exit(run.stderr)
    seconds = {}
    with open(os.path.join(log, "metrics.jsonl")) as f:
        for line in map(json.loads, f):
            if "runtime/iteration_time" in line:
                seconds[line["step"]] = line["runtime/iteration_time"]
    cpu = (after.children_user + after.children_system - before.children_user - before.children_system) / (a.steps + 1)
    ready = next(l.split("ready after ")[1] for l in run.stderr.splitlines() if "ready after" in l)
    peak = next(l.split("peak memory ")[1] for l in run.stderr.splitlines() if "peak memory" in l)
    number, unit = peak.split()
    return {"tok_s": a.seq / min(seconds[s] for s in seconds if s > 1), "tok_cpu_s": a.seq * a.threads / cpu,
            "peak": float(number) * {"MB": 1e6, "GB": 1e9}[unit], "ready": float(ready.split()[0])}


def table(rows, a):
    print(f"\n{a.shape}, {a.seq} tokens a step, {a.threads} thread(s), {a.rounds} rounds, best (median, min..max of the rounds)")
    for precision in a.precisions.split(","):
        best = {}
        for side in ("neox-train", "transformers"):
            mine = [r for r in rows if r["side"] == side and r["precision"] == precision]
            rates = [r["tok_s"] for r in mine]
            best[side] = max(rates)
            print(f"  {precision} {side:13} {max(rates):7.0f} tokens/s ({statistics.median(rates):.0f}, {min(rates):.0f}..{max(rates):.0f})"
                  f"  {max(rates) * flops_per_token(a.shape, a.seq) / 1e9:6.1f} GFLOP/s  {max(r['tok_cpu_s'] for r in mine):6.0f} tokens per CPU second"
                  f"  peak {max(r['peak'] for r in mine) / 1e9:.2f} GB  ready after {min(r['ready'] for r in mine):.2f} s")
        pairs = [r["tok_s"] / p["tok_s"] for r, p in zip([r for r in rows if r["side"] == "neox-train" and r["precision"] == precision],
                                                         [r for r in rows if r["side"] == "transformers" and r["precision"] == precision])]
        print(f"  {precision} ratio of the best {best['neox-train'] / best['transformers']:.2f}, of the pairs {min(pairs):.2f}..{max(pairs):.2f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", default="70m", choices=SHAPES)
    p.add_argument("--seq", type=int, default=2048)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--precisions", default="fp32,bf16")
    p.add_argument("--precision", default="fp32", help=argparse.SUPPRESS)
    p.add_argument("--program", default=os.path.join(ROOT, "build/release/bin/neox-train"))
    p.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        return peer(a)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_data(os.path.join(folder, "data"), 50 * a.seq)
        for _ in range(a.rounds):
            for precision in a.precisions.split(","):
                a.precision = precision
                command = [sys.executable, os.path.abspath(__file__), "--peer", "--shape", a.shape, "--seq", str(a.seq), "--steps",
                           str(a.steps), "--threads", str(a.threads), "--precision", precision]
                other = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
                for side, result in (("neox-train", ours(a, folder)), ("transformers", other)):
                    rows.append({"side": side, "precision": precision, **result})
                    print(json.dumps(rows[-1]), flush=True)
    table(rows, a)


if __name__ == "__main__":
    main()
