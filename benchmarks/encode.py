#!/usr/bin/env python3
"""Rates of encoding on one and two threads: ours with cold caches, `tokenizers` and tiktoken, on the same texts in one run.

Usage: encode.py TOKENIZER.json CORPUS.jsonl [--mb 200] [--ids-mb N] [--rounds 5] [--peer-mb 8] [--threads 1,2] [--program FILE]
                 [--no-peers]
Prints the lines of harness/lines.py.

Needs tokenizers and tiktoken, but for --no-peers, and the target `encode` of a build. Ids are compared document by document over all of
--mb with `tokenizers`; any difference ends with 1. In each round ours encodes everything, from empty caches in new
threads, and each peer a part of --peer-mb (another one each round; peers have no memory from one text to the next that
a greater part would fill). A rate is text over wall time, and over CPU time for machines that do other things meanwhile.
Ratios are of the same round. tiktoken, of byte-level tokenizers, is made exact: NFC, and blank runs that are tokens are cut out before.
"""
import argparse
import glob
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import lines  # noqa: E402


def read_texts(path, limit):
    texts, size = [], 0
    with open(path, encoding="utf-8") as f:
        for line in f:
            texts.append(json.loads(line)["text"])
            size += len(texts[-1].encode())
            if size >= limit:
                break
    return texts


def byte_spelling():
    """GPT-2's printable stand-ins for bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling, more = {chr(b): b for b in keep}, 0
    for b in range(256):
        if b not in keep:
            spelling[chr(256 + more)] = b
            more += 1
    return spelling


class Tiktoken:
    """The tokenizer's vocabulary in tiktoken, with what a user must add to get the same ids."""

    def __init__(self, path):
        import tiktoken
        with open(path, encoding="utf-8") as f:
            described = json.load(f)
        vocab, spelling = described["model"]["vocab"], byte_spelling()
        special = {t: i for t, i in vocab.items() if any(c not in spelling for c in t) or t.startswith("<|")}
        ranks = {bytes(spelling[c] for c in t): i for t, i in vocab.items() if t not in special}
        pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
        self.encoding = tiktoken.Encoding("exact", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        self.added = {len(t["content"]): t["id"] for t in described["added_tokens"] if not t["special"]}
        self.runs = re.compile(" {%d,%d}" % (min(self.added), max(self.added))) if self.added else None
        self.nfc = (described["normalizer"] or {}).get("type") == "NFC"

    def encode(self, text):
        ids, at = [], 0
        if self.nfc:
            text = unicodedata.normalize("NFC", text)
        for run in self.runs.finditer(text) if self.runs else ():
            if run.start() > at:
                ids += self.encoding.encode_ordinary(text[at:run.start()])
            ids.append(self.added[run.end() - run.start()])
            at = run.end()
        return ids + self.encoding.encode_ordinary(text[at:]) if at < len(text) else ids


class Ours:
    def __init__(self, program, tokenizer, frames):
        self.process = subprocess.Popen([program, tokenizer, frames], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("the program ended early")
        return answer.split()

    def seconds(self, threads):
        wall, cpu, _ = self.ask(str(threads))
        return float(wall), float(cpu) / threads

    def ids(self, path):
        self.ask(f"ids {path}")
        data, at = pathlib.Path(path).read_bytes(), 0
        while at < len(data):
            size, = struct.unpack_from("<I", data, at)
            yield data[at + 4:at + 4 + size]
            at += 4 + size


def timed(action, threads):
    """Wall and CPU seconds of a thread."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, (time.process_time() - cpu) / threads


def count_differences(ours, peer, texts, limit, path):
    """(different, compared) documents of the first `limit` bytes."""
    different = compared = size = 0
    batches = [texts[i:i + 256] for i in range(0, len(texts), 256)]
    found = ours.ids(path)
    for batch in batches:
        if size >= limit:
            break
        size += sum(len(t.encode()) for t in batch)
        compared += len(batch)
        for text, encoding in zip(batch, peer.encode_batch_fast(batch)):
            if next(found) != struct.pack(f"<{len(encoding.ids)}i", *encoding.ids):
                different += 1
                lines.note(f"DIFFERENT ids: {text[:80]!r}...")
    return different, compared


def peers_and_differences(options, ours, texts, path):
    """In how many documents ours gives other ids, and name -> (threads it can use, how it encodes a batch)."""
    import tokenizers
    peer = tokenizers.Tokenizer.from_file(options.tokenizer)
    different, compared = count_differences(ours, peer, texts, options.ids_mb * 1e6, path)
    lines.note(f"{len(texts)} documents; of {compared} compared, the ids of {different} differ from tokenizers {tokenizers.__version__}")
    peers = {f"tokenizers {tokenizers.__version__}, encode_batch_fast": (max(options.threads), peer.encode_batch_fast)}
    if "ByteLevel" in json.dumps(json.loads(pathlib.Path(options.tokenizer).read_text())["pre_tokenizer"]):
        import tiktoken
        exact = Tiktoken(options.tokenizer)
        peers[f"tiktoken {tiktoken.__version__}, made exact"] = (1, lambda batch: [exact.encode(t) for t in batch])
        if [exact.encode(t) for t in texts[:200]] != [e.ids for e in peer.encode_batch_fast(texts[:200])]:
            lines.note("tiktoken gives other ids than tokenizers")
    return different, peers


def parts(texts, size):
    """Consecutive parts of at least `size` bytes."""
    part, bytes_ = [], 0
    for text in texts:
        part.append(text)
        bytes_ += len(text.encode())
        if bytes_ >= size:
            yield part, bytes_
            part, bytes_ = [], 0


def measure(ours, peers, texts, options, threads):
    size = sum(len(t.encode()) for t in texts)
    cut = list(parts(texts, options.peer_mb * 1e6)) or [(texts, size)]
    for turn in range(options.rounds):
        part, part_size = cut[turn % len(cut)]
        batches = [part[i:i + 64] for i in range(0, len(part), 64)]
        times = {"ours": (size, ours.seconds(threads))}
        for name, encode in peers.items():
            times[name] = part_size, timed(lambda: [encode(b) for b in batches], threads)
        for name, (bytes_, seconds) in times.items():
            for kind, one in zip(("", ", per CPU second of a thread"), seconds):
                lines.say(case=f"encode, {threads} thread{'s' * (threads > 1)}{kind}", who=name, metric="MB/s",
                          value=round(bytes_ / one / 1e6, 3), round=turn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("corpus")
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--ids-mb", type=float, default=1e9, help="compare ids up to here only")
    parser.add_argument("--peer-mb", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=lambda text: [int(t) for t in text.split(",")], default=[1, 2])
    parser.add_argument("--program")
    parser.add_argument("--no-peers", action="store_true", help="ours alone, whose ids are compared with nothing")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ["RAYON_NUM_THREADS"] = str(max(options.threads))
    build = pathlib.Path(__file__).resolve().parents[1] / "build"
    program = options.program or (glob.glob(f"{build}/*/benchmarks/encode") or sys.exit("build the target encode first"))[0]
    texts = read_texts(options.corpus, options.mb * 1e6)
    cpus = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        frames = f"{folder}/texts"
        with open(frames, "wb") as f:
            for text in texts:
                data = text.encode()
                f.write(struct.pack("<I", len(data)) + data)
        ours = Ours(program, options.tokenizer, frames)
        different, peers = (0, {}) if options.no_peers else peers_and_differences(options, ours, texts, f"{folder}/ids")
        for threads in options.threads:
            os.sched_setaffinity(ours.process.pid, cpus[-threads:])
            os.sched_setaffinity(0, cpus[-threads:])
            for task in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(task), cpus[-threads:])
            measure(ours, {name: encode for name, (most, encode) in peers.items() if threads <= most}, texts, options, threads)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
