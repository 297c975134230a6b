#!/usr/bin/env python3
"""Checkpoints of neox.cpp against torch.save and torch.distributed.checkpoint (DCP), beside the disk's own rate.

The state is that of a Pythia shape in training: bf16 weights, fp32 master, m, v. Each round takes, one after the other,
  raw     O_DIRECT write (with fsync) and read of as many bytes, 16 MiB blocks, 4 threads
  ours    durable save (files, directory and rename flushed), cold load, asynchronous save beside computing
  peers   torch.save + fsync, torch.load (cold, and mapped), DCP save (flushed), load (cold), async_save beside computing
and prints a line of JSON for each figure; a summary of medians follows on stderr. "Cold": the files were dropped from the page
cache. "stall": how long training waits in calls, or on a GPU how much longer the step takes in which a save begins, at whose end the
state is updated; "lost": that, and by how much the steps of computing beside it took longer. A GPU's step is as many bf16 products as
32768 tokens are worth.

    cmake --build build/release --target checkpoint
    python3 benchmarks/checkpoint.py --folder /a/disk/with/room --rounds 3
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings

from harness import process
from harness.arguments import build_of

SHAPES = {"14m": (6, 128), "70m": (6, 512), "160m": (12, 768), "410m": (24, 1024), "1.4b": (24, 2048)}
VOCAB = 50304
STEP_TOKENS = 32768  # as in checkpoint.cc


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--folder", default=os.getcwd(), help="where the files go: the disk to measure")
    a.add_argument("--shape", default="160m", choices=SHAPES)
    a.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the state is")
    a.add_argument("--skip", default="", help="of raw, ours, torch, dcp, async: left out, with commas")
    a.add_argument("--no-peers", action="store_true")
    a.add_argument("--build", help="default: build/release, or build/cuda")
    a = a.parse_args()
    a.build = a.build or str(build_of(a.device))
    return a


def drop(path):
    """Write back and evict a file or a tree."""
    names = [os.path.join(d, n) for d, _, ns in os.walk(path) for n in ns] if os.path.isdir(path) else [path]
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def sync(path):
    names = [os.path.join(d, n) for d, _, ns in os.walk(path) for n in ns] if os.path.isdir(path) else [path]
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


class Ours:
    def __init__(self, a, folder):
        program = os.path.join(a.build, "benchmarks/checkpoint")
        if not os.path.exists(program):
            sys.exit(f"{program} is missing: build its target checkpoint, or name another build with --build")
        self.child = subprocess.Popen([program, folder, a.shape, str(a.threads), a.device], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, preexec_fn=process.end_with_parent)

    def __call__(self, command):
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"checkpoint ended at {command}")
        return json.loads(line)

    def close(self):
        self.child.kill()  # it may be in the middle of a command, whose files nobody needs
        self.child.wait()


class Peers:
    def __init__(self, a, folder):
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        self.torch, self.dcp, self.dist, self.folder, self.cuda = torch, dcp, dist, folder, a.device == "cuda"
        torch.set_num_threads(a.threads)
        warnings.simplefilter("ignore")
        layers, h = SHAPES[a.shape]
        shapes = {"embed_in": (VOCAB, h), "embed_out": (VOCAB, h), "final_norm": (2 * h,)}
        for i in range(layers):
            for n, s in {"norms": (4 * h,), "qkv.w": (3 * h, h), "qkv.b": (3 * h,), "dense.w": (h, h), "dense.b": (h,),
                         "up.w": (4 * h, h), "up.b": (4 * h,), "down.w": (h, 4 * h), "down.b": (h,)}.items():
                shapes[f"{i}.{n}"] = s
        kinds = {"param": torch.bfloat16, "master": torch.float32, "m": torch.float32, "v": torch.float32}
        self.state = {k: {n: torch.rand(s, dtype=t, device=a.device) for n, s in shapes.items()} for k, t in kinds.items()}
        self.bytes = sum(t.nbytes for g in self.state.values() for t in g.values())
        side = 8192 if self.cuda else 1024
        self.a = torch.randn(side, side, device=a.device, dtype=torch.bfloat16 if self.cuda else torch.float32)
        work = 6 * sum(t.numel() for t in self.state["param"].values()) * STEP_TOKENS
        self.products = max(1, work // (2 * side ** 3)) if self.cuda else 60
        self.stager = None
        if self.cuda:  # the best that it has: a copy into pinned memory, while training goes on
            from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
            self.stager = DefaultStager(StagingOptions(use_shared_memory=False))
        dist.init_process_group("cpu:gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)

    def path(self, name):
        return os.path.join(self.folder, name)

    def compute(self, before_update=lambda: None):
        start = time.perf_counter()
        for _ in range(self.products):
            self.torch.mm(self.a, self.a)
        before_update()
        if self.cuda:
            for tensors in self.state.values():
                self.torch._foreach_add_(list(tensors.values()), 0)
            self.torch.cuda.synchronize()
        return time.perf_counter() - start

    def torch_files(self):
        file = self.path("state.pt")
        start = time.perf_counter()
        self.torch.save(self.state, file)
        sync(file)
        saved = time.perf_counter() - start
        drop(file)
        start = time.perf_counter()
        loaded = self.torch.load(file, weights_only=True)
        cold = time.perf_counter() - start
        del loaded
        drop(file)
        start = time.perf_counter()
        mapped = self.torch.load(file, weights_only=True, mmap=True)
        for kind, tensors in mapped.items():
            for name, t in tensors.items():
                self.state[kind][name].copy_(t)
        touched = time.perf_counter() - start
        del mapped
        os.remove(file)
        return saved, cold, touched

    def dcp_files(self):
        where = self.path("dcp")
        start = time.perf_counter()
        self.dcp.save(self.state, checkpoint_id=where)
        sync(where)
        saved = time.perf_counter() - start
        drop(where)
        start = time.perf_counter()
        self.dcp.load(self.state, checkpoint_id=where)
        cold = time.perf_counter() - start
        shutil.rmtree(where)
        return saved, cold

    def dcp_async(self):
        where = self.path("dcp")
        step = statistics.median(self.compute() for _ in range(3))
        start = time.perf_counter()
        answer = self.dcp.async_save(self.state, checkpoint_id=where, async_stager=self.stager)
        stall = time.perf_counter() - start
        steps, computed, future = 0, 0.0, getattr(answer, "upload_completion", answer)
        if self.cuda:
            first = stall + self.compute(answer.staging_completion.result)
            stall, steps, computed = first - step, 1, step
        while not future.done() or not steps:
            computed += self.compute()
            steps += 1
        future.result()
        shutil.rmtree(where)
        return stall, computed - steps * step

    def close(self):
        if self.stager:
            self.stager.close()
        self.dist.destroy_process_group()


def measure_files(peers, skip, rate, n):
    torch = f"torch {peers.torch.__version__}"
    if "torch" not in skip:
        saved, cold, touched = peers.torch_files()
        for case, what, seconds in (("save", "save + fsync", saved), ("cold load", "load", cold),
                                    ("cold load", "load(mmap=True), copied", touched)):
            rate(case, f"{torch} {what}", {"bytes": peers.bytes, "seconds": seconds}, n)
    if "dcp" not in skip:
        saved, cold = peers.dcp_files()
        rate("save", f"DCP, {torch}", {"bytes": peers.bytes, "seconds": saved}, n)
        rate("cold load", f"DCP, {torch}", {"bytes": peers.bytes, "seconds": cold}, n)


def measure(a, folder):
    """The values of each (case, who, metric), which it prints as they come."""
    skip, found = set(a.skip.split(",")), {}

    def note(case, who, metric, value, n, **more):
        found.setdefault((case, who, metric), []).append(value)
        print(json.dumps({"case": f"{a.shape} {case}", "who": who, "metric": metric, "value": round(value, 4), "round": n,
                          "threads": a.threads, **more}), flush=True)

    def rate(case, who, answer, n):
        note(case, who, "GB/s", answer["bytes"] / answer["seconds"] / 1e9, n, seconds=answer["seconds"])

    ours = peers = None
    try:
        ours = Ours(a, folder)
        if not a.no_peers:
            peers = Peers(a, folder)
            torch = f"torch {peers.torch.__version__}"
        for n in range(-1, a.rounds):  # one to warm up
            told = (lambda *_, **__: None) if n < 0 else note
            tell = (lambda *_: None) if n < 0 else rate
            for what, who, save, load in (("raw", "raw O_DIRECT", "raw_write", "raw_read"), ("ours", "ours", "write", "load")):
                if what not in skip:
                    tell("save", who, ours(save), n)
                    tell("cold load", who, ours(load), n)
            if "async" not in skip:
                answer = ours("async")
                told("async save", "ours", "stall s", answer["stall"], n, step=answer["step"], steps=answer["steps"], better="lower")
                told("async save", "ours", "lost s", answer["stall"] + answer["lost_in_steps"], n, better="lower")
                told("async save", "ours", "until durable s", answer["seconds"], n, better="lower")
            if peers and "async" not in skip:
                stall, lost = peers.dcp_async()
                told("async save", f"DCP, {torch}", "stall s", stall, n, better="lower")
                told("async save", f"DCP, {torch}", "lost s", stall + lost, n, better="lower")
            if peers and n >= 0:
                measure_files(peers, skip, rate, n)
    finally:
        for side in filter(None, (ours, peers)):
            side.close()
    return found


def main():
    process.end_with_parent()
    a = arguments()
    with process.own_folder(a.folder, "checkpoint-benchmark") as folder:
        found = measure(a, folder)
    for (case, who, metric), values in found.items():
        print(f"{case:12} {who:44} {statistics.median(values):8.3f} {metric} ({min(values):.3f}..{max(values):.3f})",
              file=sys.stderr)


main()
