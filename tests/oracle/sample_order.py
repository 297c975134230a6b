"""Compares the samples of a run with independent implementations of the three orders on numpy's own RandomState, on
random cases: splits, blends of 1 to 300 data sets, several epochs, samples that are not packed, labels. The orders are in
sample_order_rules.py.

  sample_order.py TOOL [--cases 500] [--core]   TOOL: the program sample_order_tool of the build tree
                                                --core: also with megatron-core itself, where it is installed
  sample_order.py TOOL --seed 7 --case N        case N of them alone, whose files are kept
  sample_order.py --golden FILE                 writes the cases of tests/golden/sample_order.txt
"""
import argparse
import collections
import concurrent.futures
import functools
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy as np

from sample_order_cases import config_of, describe, random_case
from sample_order_core import compare_with_core
from sample_order_rules import Refused, endless, index, source

TIMEOUT = 600  # seconds that the program may take for a case on a busy machine


def number_shown(seq):
    """So many samples of each split are compared: about 20000 tokens, 3000 samples, and 60 at least."""
    return max(60, min(3000, 20000 // (seq + 1)))


def expected(samples, shown):
    if samples is None:
        return "-"
    size = max(1, len(samples))
    lines = [str(size)]
    for i in range(shown):
        tokens, labels = samples.take(i % size)
        weights = np.where(labels[1:] >= 0, "1", "0")
        lines.append(" ".join(map(str, tokens.tolist())) + " : " + " ".join(weights.tolist()))
    return " | ".join(lines)


def first_difference(found, wanted):
    for split, (a, b) in enumerate(zip(found + ["nothing"] * 3, wanted)):
        for i, (x, y) in enumerate(zip(a.split(" | ") + ["nothing"], b.split(" | "))):
            if x != y:
                where = f"sample {i - 1}" if i else "number of samples"
                return f"{('train', 'valid', 'test')[split]}, {where}:\n found  {x[:300]}\n wanted {y[:300]}"
    return f"{len(found)} lines, not {len(wanted)}"


def run_case(tool, seed, core, number, directory=None):
    """What was compared in a case, and in "differs" where it is not equal."""
    if directory is None:
        with tempfile.TemporaryDirectory() as directory:
            return run_case(tool, seed, core, number, directory)
    case = random_case(random.Random(f"{seed}/{number}"), directory)
    config = f"{directory}/config.yml"
    config_of(case, config)
    shown = number_shown(case["seq"])
    line = " ".join(map(str, (config, shown, *case["counts"])))
    run = subprocess.run([tool], input=line + "\n", capture_output=True, text=True, timeout=TIMEOUT)
    rule = case["order"] + ("" if case["packing"] == "packed" else f" {case['packing']}")
    result = {"number": number, "rule": rule, "line": line, "what": describe(case), "error": run.stderr[-500:],
              "differs": "", "blends": [], "epochs": [], "core": ""}
    try:
        sources = [source(case, split) for split in range(3)]
    except Refused as reason:
        result["rule"] += " refused"
        if run.returncode != 64 or str(reason) not in run.stderr:
            result["differs"] = f"exit status {run.returncode}, not 64 and \"{reason}\""
        return result
    wanted = [expected(samples, shown) for samples in sources]
    parts = [samples.parts for samples in sources if samples]
    result["blends"] = [len(p) for p in parts if len(p) > 1]
    result["epochs"] = [each.epochs for p in parts for each in p]
    if run.stdout.splitlines() != wanted:
        result["differs"] = first_difference(run.stdout.splitlines(), wanted)
    elif core and case["order"] == "megatron-core":
        result["core"], result["differs"] = ("never ends", "") if endless(case) else compare_with_core(case, wanted)
    return result


class Counts:
    """What the cases were, for the summary."""

    def __init__(self):
        self.rules, self.core = collections.Counter(), collections.Counter()
        self.blends, self.epochs, self.wrong = [], [], 0

    def add(self, result, command):
        self.rules[result["rule"]] += 1
        self.blends += result["blends"]
        self.epochs += result["epochs"]
        if result["core"]:
            self.core[result["core"]] += 1
        if result["differs"]:
            self.wrong += 1
            if self.wrong <= 3:
                print(f"case {result['number']} differs: {result['differs']}\n {result['what']}\n {result['error']}"
                      f" again: {command} --case {result['number']}", flush=True)

    def text(self):
        lines = [", ".join(f"{n} {rule}" for rule, n in sorted(self.rules.items()))]
        ranges = ((2, 9), (10, 99), (100, 199), (200, 300))
        lines.append("blends: " + ", ".join(f"{sum(a <= n <= b for n in self.blends)} of {a} to {b} data sets"
                                            for a, b in ranges) + f", the largest of {max([0] + self.blends)}")
        ranges = ((1, 1), (2, 2), (3, 10), (11, max([11] + self.epochs)))
        lines.append("epochs: " + ", ".join(f"{sum(a <= n <= b for n in self.epochs)} data sets with "
                                            + (str(a) if a == b else f"{a} to {b}") for a, b in ranges))
        lines += [f"megatron-core: {n} {what}" for what, n in sorted(self.core.items())]
        return "\n".join(lines)


def check(tool, cases, seed, core):
    counts, start, said = Counts(), time.monotonic(), 0
    print(f"seed {seed}", flush=True)
    command = f"{sys.argv[0]} {tool} --seed {seed}" + (" --core" if core else "")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for done, result in enumerate(pool.map(functools.partial(run_case, tool, seed, core), range(cases)), 1):
            counts.add(result, command)
            taken = time.monotonic() - start
            if taken - said >= 10:
                said = taken
                print(f"{done} of {cases} cases, {taken:.0f} s, {taken / done * (cases - done):.0f} s left", flush=True)
    print(counts.text())
    also = f", {counts.core['equal']} megatron-core itself" if core else ""
    print(f"{cases - counts.wrong} of {cases} cases of seed {seed} equal numpy {np.__version__}{also}")
    return 1 if counts.wrong else 0


def check_one(tool, number, seed, core):
    result = run_case(tool, seed, core, number, tempfile.mkdtemp())
    counts = Counts()
    counts.add(result, f"{sys.argv[0]} {tool} --seed {seed}")
    print(f"{result['what']}\n{counts.text()}\nthe program's case: {result['line']}")
    return 1 if counts.wrong else 0


# ---- golden cases of the index alone

def golden_line(rng):
    order = rng.choice(["neox", "megatron"])
    longest = rng.choice([3, 9, 40])
    lengths = [rng.randrange(0, longest + 1) for _ in range(rng.randrange(1, 13))]
    lengths[0] += not any(lengths)
    seq, seed = rng.choice([1, 2, 7, 16, 64]), rng.choice([0, 1, 42, 1234, 2**32 - 1])
    samples = min(rng.randrange(0, 30), 40 * sum(lengths) // seq + 1)
    documents, total, shuffle, _ = index(order, range(len(lengths)), lengths, seq, samples, seed)
    place = [(d, t) for d, document in enumerate(documents) for t in range(lengths[document])]
    positions = [(0, 0)] + [place[k * seq] for k in range(1, total + 1)]
    flat = [n for position in positions for n in position]
    return " | ".join(" ".join(map(str, part)) for part in ((order, seq, samples, seed), lengths, documents, flat, shuffle))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tool", nargs="?")
    options.add_argument("--cases", type=int, default=500)
    options.add_argument("--case", type=int)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--core", action="store_true")
    options.add_argument("--golden")
    args = options.parse_args()
    if args.golden:
        rng = random.Random(args.seed)
        pathlib.Path(args.golden).write_text("".join(golden_line(rng) + "\n" for _ in range(40)))
        return 0
    if args.case is not None:
        return check_one(args.tool, args.case, args.seed, args.core)
    return check(args.tool, args.cases, args.seed, args.core)


if __name__ == "__main__":
    sys.exit(main())
