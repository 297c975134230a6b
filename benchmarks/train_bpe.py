#!/usr/bin/env python3
"""Training a byte-level BPE: our trainer against the BpeTrainer of the Python library `tokenizers`, in the same run.

Both learn from the "text" of the same JSON lines on the same number of threads, in turns, each round in a process of its
own; vocab.json, merges.txt and tokenizer.json must be equal byte for byte. The peer has all texts in memory before its clock
starts; ours reads them from a file within the time. Prints each round and the ratios of the medians, of wall and of CPU time:
on a machine with other load only the second means something.

    python3 benchmarks/train_bpe.py corpus.jsonl --entries 52000 --threads 2 --rounds 3
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "oracle"), str(ROOT / "benchmarks")]
from harness import lines  # noqa: E402


def read_texts(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def peer(a):
    """One process of the peer."""
    from tokenizer_peer import train_peer
    texts = read_texts(a.corpus)
    begin, cpu = time.perf_counter(), time.process_time()
    made = train_peer(texts, a.entries, nfc=a.nfc, special=a.special)
    print(time.perf_counter() - begin, time.process_time() - cpu)
    made.save(os.path.join(a.peer, "tokenizer.json"))
    made.model.save(a.peer)


def timed(command, **options):
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, **options)
    return tuple(map(float, done.stdout.split()[-2:]))


def run_peer(a, folder):
    environment = dict(os.environ, RAYON_NUM_THREADS=str(a.threads), TOKENIZERS_PARALLELISM="true")
    arguments = [a.corpus, "--entries", a.entries, "--peer", folder, "--special", *a.special]
    return timed([sys.executable, __file__, *arguments, *(["--nfc"] if a.nfc else [])], env=environment)


def run_ours(a, folder, frames):
    with open(frames, "rb") as file:
        return timed([a.program, "train", folder, a.entries, 0, "nfc" if a.nfc else "none", a.threads, *a.special],
                     stdin=file)


def write_frames(texts, path):
    with open(path, "wb") as file:
        for text in texts:
            data = text.encode()
            file.write(struct.pack("<I", len(data)) + data)


def same(ours, theirs):
    return all((ours / name).read_bytes() == (theirs / name).read_bytes()
               for name in ("tokenizer.json", "vocab.json", "merges.txt"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="JSON lines with the key text")
    parser.add_argument("--entries", type=int, default=52000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nfc", action="store_true", help="with the normalizer NFC; GPT-2 has none")
    parser.add_argument("--special", nargs="+", default=["<|endoftext|>"])
    parser.add_argument("--program", default=str(ROOT / "build/release/tests/tokenizer_tool"))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.peer:
        return peer(a)
    if not os.path.exists(a.program):
        sys.exit(f"{a.program} is missing: build its target tokenizer_tool, or name another with --program")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:a.threads])
    sides = ("ours",) if a.no_peers else ("ours", "tokenizers")
    equal = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_frames(read_texts(a.corpus), folder / "frames")
        for number in range(a.rounds):
            for side in sides:
                (folder / side).mkdir(exist_ok=True)
                found = (run_ours(a, folder / side, folder / "frames") if side == "ours" else run_peer(a, folder / side))
                case = f"train a BPE of {a.entries} entries, {a.threads} thread{'s' * (a.threads > 1)}"
                for kind, value in zip(("", ", CPU time"), found):
                    lines.say(case=case + kind, who=side, metric="s", value=value, round=number, better="lower")
            equal &= a.no_peers or same(folder / "ours", folder / "tokenizers")
    if not a.no_peers:
        lines.note("the files are", "equal byte for byte" if equal else "DIFFERENT")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
