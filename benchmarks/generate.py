#!/usr/bin/env python3
"""The generate suite: ours (generate_ours) beside transformers' GPTNeoXForCausalLM and llama.cpp, greedily, in the same run.

All decode behind prompts of equal length with random weights of a Pythia shape. The peers' settings are tried first (of transformers: bf16
or fp32 weights, a dynamic or a static cache, torch.compile and its modes, malloc that keeps memory, and huge pages; of llama.cpp, on a CPU:
bf16, fp16 or fp32 weights), on a GPU those of all shapes and batches started at once, so that they compile beside each other, and measured
one after the other; then ours and the best settings of each peer take turns. "of ceiling": the bytes of the weights that a step reads, by
the best rate at which this device read or copied memory in the same program. Prints the lines of harness/lines.py.

    cmake --build build/release --target generate_ours
    python3 benchmarks/generate.py --shapes 160m,410m --rounds 3
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from harness import arguments, lines, process  # noqa: E402
from harness.shapes import num_parameters  # noqa: E402

SETTINGS = {
    "cpu": ["bf16:dynamic", "bf16:llama.cpp", "bf16:static", "bf16:static+default", "fp16:llama.cpp", "fp32:llama.cpp", "fp32:dynamic",
            "fp32:static", "fp32:static+default"],
    "cuda": ["bf16:static+reduce-overhead", "bf16:dynamic", "bf16:static+max-autotune"]}
TOGETHER = {"cpu": 1, "cuda": 8}  # workers that start, and compile, at once
TOKENS = {"cpu": 32, "cuda": 100}  # behind a prompt of 128 they stay within 256 positions, for which our steps are recorded once
SWEEP = 0.6  # share of the time for trying the peer's settings
LEAST_SECONDS = 20  # before the end of the time in which nothing new begins
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
PEERS = {"llama.cpp": ("llama_cpp_step.py", "llama_cpp_python"), "transformers": ("generate_step.py", "transformers")}  # worker, package
METRICS = {"decode": "decode tokens/s", "prefill": "prefill tokens/s"}
TUNED = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864"


def peer_of(setting):
    return "llama.cpp" if setting.endswith(":llama.cpp") else "transformers"


class Case:
    """One shape and batch: its peers and their rates, and how fast memory is."""

    def __init__(self, a, shape, batch):
        self.a, self.shape, self.batch = a, shape, batch
        self.name = f"{shape} batch {batch}"
        self.memory_rate = 0
        self.workers, self.rates = {}, {}  # of each setting

    def say(self, who, metric, value, weights, **more):
        line = {"suite": "generate", "case": f"{self.name}, prompt {self.a.prompt}", "who": who, "metric": metric, "value": round(value, 2), **more}
        if metric == METRICS["decode"] and self.memory_rate:
            read = num_parameters(self.shape)[1] * BYTES[weights] * value / self.batch
            line |= {"weights GB/s": round(read / 1e9, 2), "of ceiling": round(read / self.memory_rate, 4)}
        lines.say(**line)

    def start(self, setting):
        environment = {"TORCHINDUCTOR_CACHE_DIR": self.a.cache, "GLIBC_TUNABLES": TUNED if self.a.device == "cpu" else ""}
        worker = process.Worker([self.a.python, str(ROOT / "benchmarks/peers" / PEERS[peer_of(setting)][0])], self.a.threads, environment)
        worker.ask({"shape": self.shape, "batch": self.batch, "setting": setting, "device": self.a.device,
                    "threads": self.a.threads, "prompt": self.a.prompt, "tokens": self.a.tokens})
        self.workers[setting] = worker

    def measure(self, setting, **more):
        """One measurement of a peer that is ready; where it fails it is ended."""
        worker = self.workers[setting]
        worker.ask({})
        found = worker.answer(self.a.until)
        if "error" in found:
            return self.failed(setting, found["error"], **more)
        self.rates[setting] = found
        for key, metric in METRICS.items():
            self.say(self.who(setting), metric, found[key], setting.split(":")[0], **more)

    def failed(self, setting, error, **more):
        self.workers.pop(setting).end()
        self.say_error(self.who(setting), error, **more)

    def say_error(self, who, error, **more):
        lines.say(suite="generate", case=f"{self.name}, prompt {self.a.prompt}", who=who, metric=METRICS["decode"], error=error, **more)

    def who(self, setting):
        package = PEERS[peer_of(setting)][1]
        version = next((v for v in self.a.versions.split(", ") if v.startswith(package + " ")), peer_of(setting))
        return f"{version} {setting}"

    def best(self):
        """The settings of each peer with the best rate of each metric."""
        alive = {s: r for s, r in self.rates.items() if s in self.workers}
        groups = [[s for s in alive if peer_of(s) == peer] for peer in PEERS]
        return {max(some, key=lambda s: alive[s][key]) for some in groups if some for key in METRICS}

    def drop_losers(self):
        for setting in set(self.workers) & set(self.rates) - self.best():
            self.workers.pop(setting).end()

    def ours(self, number):
        a = self.a
        status, out, errors, _ = process.run(
            [a.program, "--device", a.device, "--shape", self.shape, "--batch", str(self.batch), "--precision", a.precision,
             "--prompt", str(a.prompt), "--tokens", str(a.tokens), "--rounds", "2"], a.threads, a.until)
        found = [line for line in map(lines.parse, out.splitlines()) if line and line["round"] == 1]  # the first one warms up
        who = f"ours {a.precision}"
        if status != 0 or not found:
            return self.say_error(who, process.TOO_LONG if status is None else errors.strip()[-300:], round=number)
        for line in found:
            if line["metric"] == "memory read GB/s":
                self.memory_rate = max(self.memory_rate, line["value"] * 1e9)
        for line in found:
            more = {k: line[k] for k in ("best spell tokens/s", "first token s") if k in line}
            self.say(who, line["metric"], line["value"], a.precision, round=number, **more)


def sweep(a, cases):
    """Each setting of each case once."""
    left = [(case, setting) for setting in a.settings.split(",") for case in cases]
    while left and time.monotonic() < a.sweep_until - LEAST_SECONDS:
        batch, left = left[:TOGETHER[a.device]], left[TOGETHER[a.device]:]
        for case, setting in batch:
            lines.note(f"{case.name}: {setting}")
            case.start(setting)
        limit = min(a.sweep_until, time.monotonic() + a.limit)
        ready = []
        for case, setting in batch:
            found = case.workers[setting].answer(limit)
            if "error" in found:
                case.failed(setting, found["error"], phase="sweep")
            else:
                lines.note(f"{case.name}: {setting} ready after {found['start_s']} s")
                ready.append((case, setting))
        for case, setting in ready:
            case.measure(setting, phase="sweep")
        for case in cases:
            case.drop_losers()
    for case, setting in left:
        case.say_error(case.who(setting), process.NO_TIME, phase="sweep")


def rounds(a, cases):
    """Ours and the best peers in turn, as long as there is time for one more round."""
    took = 0
    for number in range(a.rounds):
        begin = time.monotonic()
        if begin + max(took, LEAST_SECONDS) > a.until:
            for case in cases if number == 0 else []:
                case.say_error(f"ours {a.precision}", process.NO_TIME)
            return lines.note(f"{a.rounds - number} rounds left out for lack of time")
        for case in cases:
            case.ours(number)
            for setting in sorted(case.best()):
                case.measure(setting, round=number)
        took = time.monotonic() - begin


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_to(p, "generate_ours", 200, "seconds in which the peers must be ready")
    p.add_argument("--shapes", default="160m,410m")
    p.add_argument("--batches", default="1,8")
    p.add_argument("--precision", default="bf16", help="of our weights")
    p.add_argument("--settings", help="of the peers: WEIGHTS:llama.cpp, or WEIGHTS:CACHE of transformers: dynamic, static, static+MODE to compile")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="0: all")
    p.add_argument("--prompt", type=int, default=128)
    p.add_argument("--tokens", type=int, help="behind a prompt")
    a = p.parse_args()
    a.until = time.monotonic() + a.budget
    a.sweep_until = a.until - (1 - SWEEP) * a.budget
    a.settings = a.settings or ",".join(SETTINGS[a.device])
    a.tokens = a.tokens or TOKENS[a.device]
    a.program = arguments.program_of(a, "benchmarks/generate_ours", "build its target generate_ours")
    return a


def main():
    process.end_with_parent()
    a = options()
    with tempfile.TemporaryDirectory(prefix="neox-benchmark-") as folder:
        a.cache = os.path.abspath(a.cache or os.path.join(folder, "cache"))
        cases = [Case(a, shape, int(batch)) for shape in a.shapes.split(",") for batch in a.batches.split(",")]
        try:
            if not a.no_peers:
                sweep(a, cases)
            rounds(a, cases)
        finally:
            for case in cases:
                for worker in case.workers.values():
                    worker.end()


if __name__ == "__main__":
    main()
