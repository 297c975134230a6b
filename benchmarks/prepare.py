#!/usr/bin/env python3
"""JSON lines to .bin and .idx: neox-prepare-data against the published data path, in the same run.

The peer is an imitation of GPT-NeoX's tools/datasets/preprocess_data.py (the parent parses JSON, workers tokenize 25 documents at a
time, none at one worker) and of Megatron-LM's tools/preprocess_data.py (workers parse and tokenize 32 lines at a time): json,
tokenizers, multiprocessing, numpy. All run alternately, each round in processes of their own, bound to as many CPUs as there are
workers. The peer reads the first --mb of the corpus and is timed without its start; neox-prepare-data reads the whole corpus
--copies times and is timed with everything. Both read the same part once more, and the files are compared byte for byte.
Prints the lines of harness/lines.py.

    python3 benchmarks/prepare.py --corpus corpus.jsonl --tokenizer 20B_tokenizer.json --rounds 3
"""
import argparse
import json
import multiprocessing
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
from harness import lines, process  # noqa: E402

STYLES = ("neox", "megatron")
NAMES = {"neox": "GPT-NeoX", "megatron": "Megatron-LM"}
TOKENIZER, EOD = None, 0


def pin(cpus):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cpus:])
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def load(path):
    global TOKENIZER, EOD
    import tokenizers
    TOKENIZER = tokenizers.Tokenizer.from_file(path)
    EOD = TOKENIZER.token_to_id("<|endoftext|>")


def encode_text(text):
    return TOKENIZER.encode(text).ids + [EOD]


def encode_line(line):
    return encode_text(json.loads(line)["text"])


class Builder:
    """The writer of both tools: arrays of uint16 as they come, the index from lists at the end."""

    def __init__(self, prefix):
        self.prefix, self.bin, self.lengths = prefix, open(prefix + ".bin", "wb"), []

    def add(self, ids):
        import numpy
        tokens = numpy.array(ids, dtype=numpy.uint16)
        self.bin.write(tokens.tobytes(order="C"))
        self.lengths.append(tokens.size)

    def finish(self):
        import numpy
        self.bin.close()
        lengths = numpy.array(self.lengths, dtype=numpy.int32)
        ends = numpy.cumsum(lengths.astype(numpy.int64) * 2)
        with open(self.prefix + ".idx", "wb") as f:
            f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
            f.write(lengths.tobytes())
            f.write(numpy.concatenate([[0], ends[:-1]]).astype(numpy.int64).tobytes())
            f.write(numpy.arange(len(lengths) + 1, dtype=numpy.int64).tobytes())


def cpu_seconds(processes):
    ticks = 0
    for pid in processes:
        with open(f"/proc/{pid}/stat") as f:
            ticks += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def peer(a):
    """One process of the peer: prints a JSON line."""
    pin(a.workers)
    in_flight = threading.Semaphore(10000 + a.workers)

    def lines():
        with open(a.corpus, encoding="utf-8") as f:
            for line in f:
                in_flight.acquire()
                yield line if a.peer == "megatron" else json.loads(line)["text"]

    encode = encode_line if a.peer == "megatron" else encode_text
    if a.workers > 1 or a.peer == "megatron":
        pool = multiprocessing.Pool(a.workers, initializer=load, initargs=(a.tokenizer,))
        pool.map(encode_text, ["start"] * a.workers)
        documents = pool.imap(encode, lines(), 32 if a.peer == "megatron" else 25)
    else:
        load(a.tokenizer)
        documents = map(encode, lines())
    builder = Builder(a.out)
    processes = [os.getpid()] + [p.pid for p in multiprocessing.active_children()]
    begin, begin_cpu = time.perf_counter(), cpu_seconds(processes)
    for ids in documents:
        in_flight.release()
        builder.add(ids)
    builder.finish()
    print(json.dumps({"seconds": time.perf_counter() - begin, "cpu": cpu_seconds(processes) - begin_cpu}))


def child(command, workers):
    """Runs a command on so many CPUs: its output, wall and CPU seconds, and peak memory."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = subprocess.Popen(command, stdout=out, stderr=err, preexec_fn=lambda: (pin(workers), process.end_with_parent()))
        _, status, usage = os.wait4(started.pid, 0)
        out.seek(0), err.seek(0)
        if status != 0:
            sys.exit(f"{command[0]} failed: {err.read().decode()}")
        return out.read().decode(), time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def ours(a, inputs, workers, prefix):
    return child([a.program, "--output-prefix", prefix, "--vocab-file", a.tokenizer, "--append-eod", "--workers", str(workers),
                  "--input", *inputs], workers)


def compare(a, part, folder):
    """The files of all three are the same."""
    ours(a, [part], 2, os.path.join(folder, "ours"))
    for style in STYLES:
        for ending in ("bin", "idx"):
            with open(f"{folder}/ours_text_document.{ending}", "rb") as x, open(f"{folder}/{style}.{ending}", "rb") as y:
                if x.read() != y.read():
                    sys.exit(f"{style} writes another .{ending}")
    lines.note("the .bin and .idx of all are the same")


def measure(a, part, workers, folder):
    """One round: rows of (side, MB/s, MB per CPU second, peak)."""
    rows = []
    prefix = os.path.join(folder, "whole")
    _, wall, cpu, peak = ours(a, [a.corpus] * a.copies, workers, prefix)
    mb = a.copies * text_bytes(a.corpus) / 1e6
    rows.append(("ours", mb / wall, mb / cpu, peak))
    for ending in ("bin", "idx"):
        os.remove(f"{prefix}_text_document.{ending}")
    mb = text_bytes(part) / 1e6
    for style in () if a.no_peers else STYLES:
        out, _, _, peak = child([sys.executable, __file__, "--peer", style, "--corpus", part, "--tokenizer", a.tokenizer,
                                   "--workers", str(workers), "--out", os.path.join(folder, style)], workers)
        said = json.loads(out)
        rows.append((f"as {NAMES[style]}'s, with tokenizers", mb / said["seconds"], mb / said["cpu"], peak))
    return rows


SIZES = {}


def text_bytes(path):
    if path not in SIZES:
        with open(path, encoding="utf-8") as f:
            SIZES[path] = sum(len(json.loads(line)["text"].encode()) for line in f)
    return SIZES[path]


def say(workers, number, rows):
    case = f"JSON lines to .bin/.idx, {workers} worker{'s' * (workers > 1)}"
    for who, per_second, per_cpu_second, peak in rows:
        for kind, rate in (("", per_second), (", per CPU second", per_cpu_second)):
            lines.say(case=case + kind, who=who, metric="MB/s", value=round(rate, 3), peak_bytes=peak, round=number)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corpus", required=True, help="JSON lines")
    p.add_argument("--tokenizer", required=True, help="tokenizer.json of up to 65,499 entries")
    p.add_argument("--program", default=os.path.join(ROOT, "build", "release", "bin", "neox-prepare-data"))
    p.add_argument("--mb", type=float, default=16, help="of the corpus, for the peer")
    p.add_argument("--copies", type=int, default=5, help="of the corpus, for neox-prepare-data")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--workers", default="1,2")
    p.add_argument("--no-peers", action="store_true")
    p.add_argument("--peer", choices=STYLES, help=argparse.SUPPRESS)
    p.add_argument("--out", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        a.workers = int(a.workers)
        return peer(a)
    process.end_with_parent()
    with process.own_folder(os.path.dirname(os.path.abspath(a.corpus)), "prepare-benchmark") as folder:
        part = os.path.join(folder, "part.jsonl")
        with open(a.corpus, "rb") as source, open(part, "wb") as f:
            while f.tell() < a.mb * 1e6 and (line := source.readline()):
                f.write(line)
        for workers in map(int, a.workers.split(",")):
            for number in range(a.rounds):
                say(workers, number, measure(a, part, workers, folder))
        if not a.no_peers:
            compare(a, part, folder)


if __name__ == "__main__":
    main()
