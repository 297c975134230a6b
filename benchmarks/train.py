#!/usr/bin/env python3
"""The train suite: neox-train beside the best setting of transformers and of a plain PyTorch GPT-NeoX, in one run.

For each shape, the peers' settings (peers/settings.py) are tried shortly; then ours and the best of them take turns for some rounds.
Prints the lines of harness/lines.py. With --lines FILE, what an earlier run tried there is not tried again.

    python3 benchmarks/train.py --shapes 70m --threads 1 --rounds 3
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from harness import arguments, lines, machine, process  # noqa: E402
from harness.ours import NeoxTrain  # noqa: E402
from harness.shapes import train_flops_per_token  # noqa: E402
from peers import settings  # noqa: E402

OURS = {"cpu": ["fp32", "bf16"], "cuda": ["bf16"]}
# Which of the peers' settings compete for a place in the rounds: the best of each group.
GROUPS = {"cpu": lambda s: s["precision"] == "fp32", "cuda": lambda s: s["impl"]}
LEAST_STEPS = {"cpu": 2, "cuda": 12}
AHEAD = {"cpu": 1, "cuda": 3}  # workers that start, and import, while another one is measured
SWEEP = {"cpu": 0.6, "cuda": 0.7}  # share of the time for trying settings
SHARES = {"410m": 1.3, "1.4b": 2}  # of the time, where others have 1
LEAST_SECONDS = 15  # before the end of the time in which no other setting begins
NEAR = 0.75  # of the best rate: what is further behind takes no turns
RESIDENT = 0.2  # share of the memory that a waiting peer may hold


class Case:
    """One shape on one device with so many threads: its peers, its figures, its deadline."""

    def __init__(self, a, shape, threads, folder, until):
        self.a, self.shape, self.threads, self.until = a, shape, threads, until
        unit = f"{threads} thread{'s' * (threads != 1)}" if a.device == "cpu" else "GPU"
        self.name = f"{shape}, seq {a.seq}, {unit}"
        self.ours = NeoxTrain(a.program, a.device, threads, a.seq, folder)
        total = machine.gpu_memory_bytes() if a.device == "cuda" else machine.memory_bytes()
        self.may_hold = RESIDENT * total
        self.waiting = {}  # name -> Worker that could run again
        self.rates = {}    # of the peers: name -> (tokens/s, setting)
        self.our_rate = self.took = 0
        self.micros = list(settings.MICROS[a.device].get(shape, [1]))  # the first is the one that fits

    def say(self, who, found, dtype, **more):
        line = {"suite": "train", "case": self.name, "who": who, "metric": "tokens/s", **more}
        if "error" in found:
            return lines.say(**line, error=found["error"])
        flops = train_flops_per_token(self.shape, self.a.seq)
        memory = found.get("device_bytes") or found["peak_bytes"]
        rest = {k: v for k, v in found.items() if k in ("steps", "loss", "ready_s", "micro", "start_s", "note")}
        if self.a.device == "cpu":
            rest["per_cpu_second"] = round(found["tokens_cpu_s"], 2)
        lines.say(**line, value=round(found["tokens_s"], 2), flops=flops, dtype=dtype,
                  peak_bytes=int(memory), **rest)

    def steps(self):
        """How many make about --seconds, by the best rate known."""
        if self.a.quick:
            return 1
        least = LEAST_STEPS[self.a.device]
        best = max([self.our_rate, *(rate for rate, _ in self.rates.values())])
        return max(least, min(200, int(best * self.a.seconds / (self.micros[0] * self.a.seq))))

    def start(self, setting):
        """A worker that imports, and then waits for its setting."""
        command = [self.a.python, str(ROOT / "benchmarks/peers/train_step.py")]
        device = self.a.device
        environment = {"TORCHINDUCTOR_CACHE_DIR": os.path.abspath(self.a.cache), **settings.ENVIRONMENT[device],
                       **settings.MALLOC[setting["malloc"]]}
        return process.Worker(command, self.threads, environment)

    def build(self, worker, name, setting, until):
        """Its answer after a first step."""
        device = self.a.device
        lines.note(f"{self.name}: {name}")
        worker.ask({**setting, "shape": self.shape, "seq": self.a.seq, "device": device,
                    "micros": settings.MICROS[device].get(self.shape, [1]),
                    "rows": settings.ROWS[device], "backend": self.a.backend})
        return worker.answer(until)

    def measure(self, worker, until):
        worker.ask({"steps": 1 if self.a.quick else LEAST_STEPS[self.a.device], "seconds": self.a.seconds})
        return worker.answer(until)

    def name_of(self, setting):
        return settings.name_of(setting, self.a.versions)

    def remember(self, line):
        """A setting that an earlier run tried to its end."""
        mine = line.get("phase") == "sweep" and line["case"] == self.name
        if mine and line.get("error") not in (process.TOO_LONG, process.NO_TIME):
            self.rates[line["who"]] = (line.get("value", 0), line["setting"])

    def sweep(self, until):
        """Tries what is left to try, a few at a time, until the deadline."""
        left = list(settings.settings_of(self.a.device, self.shape, self.a.quick))[:self.a.tries]
        while left and time.monotonic() < until - LEAST_SECONDS:
            best = max(self.rates.values(), key=lambda r: r[0], default=(0, None))[1]
            batch = {}
            while left and len(batch) < AHEAD[self.a.device]:
                setting = settings.resolve(left.pop(0), best)
                if self.name_of(setting) not in self.rates:
                    batch[self.name_of(setting)] = setting
            self.try_settings(batch, until)
        best = max(self.rates.values(), key=lambda r: r[0], default=(0, None))[1]
        for name, setting in {self.name_of(s): s for s in (settings.resolve(s, best) for s in left)}.items():
            if name not in self.rates:
                self.say(name, {"error": process.NO_TIME}, setting["precision"], phase="sweep", setting=setting)

    def try_settings(self, batch, until):
        workers = {name: self.start(setting) for name, setting in batch.items()}
        for name, worker in workers.items():
            limit = min(until, time.monotonic() + self.a.limit)
            found = self.build(worker, name, batch[name], limit)
            if "error" not in found:
                found = {**found, **self.measure(worker, limit)}
            self.rates[name] = (found.get("tokens_s", 0), batch[name])
            self.say(name, found, batch[name]["precision"], phase="sweep", setting=batch[name])
            if "error" in found or found["held_bytes"] > self.may_hold:
                worker.end()
            else:
                self.waiting[name] = worker
                self.drop_losers()

    def finalists(self):
        """The best of each group that is near the best of all, which is the first."""
        group, best = GROUPS[self.a.device], {}
        top = max((rate for rate, _ in self.rates.values()), default=0)
        for name, (rate, setting) in sorted(self.rates.items(), key=lambda r: -r[1][0]):
            if rate > NEAR * top:
                best.setdefault(group(setting), name)
        return list(best.values())

    def drop_losers(self):
        for name in set(self.waiting) - set(self.finalists()):
            self.waiting.pop(name).end()

    def round(self, number):
        """Each of ours and each finalist once."""
        for precision in OURS[self.a.device]:
            found = self.run_ours(precision)
            self.our_rate = max(self.our_rate, found.get("tokens_s", 0))
            self.say(f"ours {precision}", found, precision, round=number)
        for name in self.finalists():
            if time.monotonic() < self.until:
                self.round_of_peer(name, number)

    def run_ours(self, precision):
        """With as many samples of a step as fit, as the peers."""
        while True:
            found = self.ours.run(self.shape, self.micros[0], precision, self.steps(), self.until)
            if "error" not in found or len(self.micros) == 1 or "memory" not in found["error"]:
                return {**found, "micro": self.micros[0]}
            self.micros.pop(0)

    def round_of_peer(self, name, number):
        setting = self.rates[name][1]
        worker = self.waiting.pop(name, None)
        if worker is None:
            worker = self.start(setting)
            found = self.build(worker, name, setting, self.until)
            if "error" in found:
                worker.end()
                return self.say(name, found, setting["precision"], round=number)
        found = self.measure(worker, self.until)
        self.say(name, found, setting["precision"], round=number)
        if "error" in found or found["held_bytes"] > self.may_hold:
            worker.end()
        else:
            self.waiting[name] = worker

    def run(self):
        try:
            if not self.a.no_peers:
                begin = time.monotonic()
                share = SWEEP[self.a.device] if self.a.rounds else 1
                self.sweep(begin + share * (self.until - begin))
            number = 0
            while number < self.a.rounds and time.monotonic() < self.until - self.took:
                begin = time.monotonic()
                self.round(number)
                self.took = time.monotonic() - begin
                number += 1
            for precision in OURS[self.a.device] if self.a.rounds and not number else []:
                self.say(f"ours {precision}", {"error": process.NO_TIME}, precision)
        finally:
            for worker in self.waiting.values():
                worker.end()


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", default="70m,160m")
    p.add_argument("--seq", type=int, default=2048)
    arguments.add_to(p, "neox-train", 150, "seconds for a setting of the peers")
    p.add_argument("--threads", default="1", help="numbers of threads, on the CPU; 0: all")
    p.add_argument("--seconds", type=float, default=2, help="about how long a measurement takes")
    p.add_argument("--tries", type=int, help="only the first so many settings of the peers; 0: those of --lines")
    p.add_argument("--lines", help="lines of an earlier run")
    p.add_argument("--backend", default="inductor", help="of torch.compile")
    p.add_argument("--quick", action="store_true", help="one step, few settings: a test")
    a = p.parse_args()
    a.program = arguments.program_of(a, "bin/neox-train", "build it (env/build.sh)")
    return a


def main():
    process.end_with_parent()
    a = options()
    end = time.monotonic() + a.budget
    threads = [0] if a.device == "cuda" else [int(t) for t in a.threads.split(",")]
    cases, failed = [(shape, t) for shape in a.shapes.split(",") for t in threads], False
    with tempfile.TemporaryDirectory(prefix="neox-benchmark-") as folder:
        a.cache = a.cache or os.path.join(folder, "cache")
        if a.device == "cuda":  # before minutes go to the peers
            found = NeoxTrain(a.program, a.device, 0, 64, folder).run("tiny", 1, "bf16", 1, end)
            if "error" in found:
                sys.exit(found["error"])
        for at, (shape, t) in enumerate(cases):
            now, shares = time.monotonic(), [SHARES.get(s, 1) for s, _ in cases[at:]]
            case = Case(a, shape, t, folder, now + (end - now) * shares[0] / sum(shares))
            for line in lines.read(a.lines):
                case.remember(line)
            try:
                case.run()
            except Exception as error:  # the other shapes are measured all the same
                failed = True
                lines.note(f"{case.name}: {type(error).__name__}: {error}")
    return 70 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
