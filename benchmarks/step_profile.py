#!/usr/bin/env python3
"""Where the time of a step of neox-train goes: its log, with its own table of kernels, for each shape.

    python3 benchmarks/step_profile.py --device cuda --shapes 70m,410m
"""
import argparse
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from harness import arguments, process  # noqa: E402
from harness.ours import NeoxTrain  # noqa: E402
from peers import settings  # noqa: E402

FIRST, LAST = 9, 12  # steps, behind those in which the step is recorded as graphs
PROFILE = {"profile": True, "profile_step_start": FIRST - 1, "profile_step_stop": LAST}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", default="70m,410m")
    p.add_argument("--seq", type=int, default=2048)
    arguments.add_program(p, "neox-train")
    a = p.parse_args()
    a.program = arguments.program_of(a, "bin/neox-train", "build it (env/build.sh)")
    return a


def main():
    process.end_with_parent()
    a = options()
    until, failed = time.monotonic() + a.budget, False
    with tempfile.TemporaryDirectory(prefix="neox-profile-") as folder:
        ours = NeoxTrain(a.program, a.device, 0, a.seq, folder)
        for shape in a.shapes.split(","):
            micro = settings.MICROS[a.device].get(shape, [1])[0]
            found = ours.run(shape, micro, "bf16", LAST, until, PROFILE)
            print(f"== {shape}, {micro} x {a.seq} tokens\n{found['log']}", flush=True)
            failed |= "error" in found
    return 70 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
