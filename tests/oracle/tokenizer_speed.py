#!/usr/bin/env python3
"""Speed of encoding on one thread, ours and the Python library's encode_batch_fast, on the same texts in one run.

Usage: tokenizer_speed.py TOKENIZER.json TEXT... [--repeats N]     prints MB/s: the best of N, and seconds to load
"""
import argparse
import os
import subprocess
import sys
import time
import pathlib

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tokenizer_peer import tool_path
from tokenizers import Tokenizer


def best_seconds(action, repeats):
    def once():
        start = time.perf_counter()
        action()
        return time.perf_counter() - start
    return min(once() for _ in range(repeats))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    start = time.perf_counter()
    peer = Tokenizer.from_file(options.tokenizer)
    print(f"load: theirs {time.perf_counter() - start:.3f} s")
    for path in options.texts:
        text = pathlib.Path(path).read_bytes()
        lines = text.decode("utf-8", errors="replace").splitlines(keepends=True)
        theirs = best_seconds(lambda: peer.encode_batch_fast(lines), options.repeats)
        done = subprocess.run([tool_path(), "bench", options.tokenizer, path, str(options.repeats)],
                              capture_output=True, check=True)
        load, ours = map(float, done.stdout.split())
        rate = lambda seconds: len(text) / seconds / 1e6
        print(f"{pathlib.Path(path).name}: ours {rate(ours):.1f} MB/s (load {load:.3f} s), "
              f"theirs {rate(theirs):.2f} MB/s, {theirs / ours:.1f} times")


if __name__ == "__main__":
    sys.exit(main())
