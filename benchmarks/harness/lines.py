"""The lines in which benchmarks say what they measured: one JSON object each.

    {"case": "70m, seq 2048, 1 thread", "who": "ours fp32", "metric": "tokens/s", "value": 372.0, "round": 0}

`who` begins with "ours" for ours. Other keys are free; what the tables know of: `better` ("lower" or "higher"),
`phase` ("sweep", or a round below 0: a setting that was tried, not compared), `error` (instead of value), `flops` (of a unit of the value),
`dtype` (whose matmul rate is the ceiling), `micro` (samples of a step), `peak_bytes`, `per_cpu_second` (the value by CPU time),
`of ceiling` (the share of what memory, or the products alone, give in the same program), `note`. An error outside of "sweep" makes
benchmarks/run end with 70.
"""
import json
import os
import statistics
import sys

LESS_IS_BETTER = {"s", "ms", "us", "bytes", "MB", "GB"}  # where a line does not say `better`


def say(**line):
    print(json.dumps(line), flush=True)


def note(*words):
    print(*words, file=sys.stderr, flush=True)


def parse(text):
    """The line, or None where a program printed something else."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "case" in line and "who" in line else None


def read(path):
    """The lines of a file; none where there is no file."""
    if not path or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [line for line in map(parse, file) if line]


def is_ours(line):
    return line["who"].startswith("ours")


def higher_is_better(line):
    return line.get("better", "lower" if line.get("metric") in LESS_IS_BETTER else "higher") == "higher"


def spread(values):
    """(median, least, greatest)"""
    return statistics.median(values), min(values), max(values)
