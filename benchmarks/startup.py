#!/usr/bin/env python3
"""Start-up: --help of each program, the time until the 70M shape can make its first forward pass, sizes.

Prints the lines of harness/lines.py. Ours is "ready after" of neox-train's log: from the start of the process until the first
step begins, with data and optimizer; the peer's is a Python process that imports, builds the model and an optimizer, and ends.

    python3 benchmarks/startup.py --bin build/release/bin --rounds 5
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from harness import lines, process  # noqa: E402
from harness.ours import NeoxTrain  # noqa: E402

PEER = """
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
config = GPTNeoXConfig(vocab_size=50304, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048)
with torch.device("DEVICE"):
    model = GPTNeoXForCausalLM(config)
torch.optim.AdamW(model.parameters(), fused=True)
"""


def wall(command):
    begin = time.perf_counter()
    status, _, errors, _ = process.run(command)
    if status:
        sys.exit(f"{command[0]} ended with {status}: {errors[-300:]}")
    return time.perf_counter() - begin


def say(case, who, value, number, metric="s"):
    lines.say(suite="startup", case=case, who=who, metric=metric, value=round(value, 4), round=number, better="lower")


def programs(folder):
    return sorted(p for p in pathlib.Path(folder).iterdir() if p.name.startswith("neox-") and os.access(p, os.X_OK))


def first_forward(a, shape, folder, number):
    case = f"start to the first forward, {shape}"
    ours = NeoxTrain(os.path.join(a.bin, "neox-train"), a.device, 0, a.seq, folder)
    found = ours.run(shape, 1, "fp32", 1, None)
    if "error" in found:
        sys.exit(found["error"])
    say(case, "ours", found["ready_s"], number)
    if "transformers" in a.versions and not a.quick:
        say(case, "transformers, until the model is built", wall([a.python, "-c", PEER.replace("DEVICE", a.device)]), number)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", default=str(ROOT / "build" / "release" / "bin"))
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seq", type=int, default=64)
    p.add_argument("--python", default=sys.executable, help="of the peers")
    p.add_argument("--versions", default="", help="of its packages; none: no peers")
    p.add_argument("--quick", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="neox-benchmark-") as folder:
        for number in range(a.rounds):
            for program in programs(a.bin):
                say(f"{program.name} --help", "ours", wall([str(program), "--help"]), number)
            first_forward(a, "tiny" if a.quick else "70m", folder, number)
    for program in programs(a.bin):
        say(f"{program.name}, size", "ours", program.stat().st_size, 0, "bytes")


if __name__ == "__main__":
    main()
