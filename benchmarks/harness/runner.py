"""Runs the commands of suites, gathers their lines, and writes the report again after each of them."""
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time

from harness import lines, machine, plot, process, shapes, table
from harness.suites import LARGE_SHAPES, SUITES, with_options

HERE = pathlib.Path(__file__).resolve().parents[1]
LEFT_OUT = 15  # seconds before the end in which nothing new begins
CEILINGS = 0.1  # share of the time
SAME = ("build", "cpu", "gpu", "packages")  # facts that all figures of one directory have in common
EXTRA_PRODUCTS = {"cpu": ["2048,2048,2048", "4096,4096,4096"], "cuda": ["8192,8192,8192"]}
TOKENS = {"cpu": 2048, "cuda": 32768}  # rows of the products


class Runner:
    def __init__(self, a):
        self.a = a
        self.end = time.monotonic() + a.budget if a.budget else None
        self.lines_path = os.path.join(a.out, "lines.jsonl")
        self.lines = lines.read(self.lines_path)
        os.makedirs(a.out, exist_ok=True)
        os.makedirs(a.folder, exist_ok=True)
        versions = machine.versions(a.python, a.build)
        self.packages = versions["packages"]
        self.facts = {**machine.facts(a.device), **versions, "command": " ".join(sys.argv[1:])}
        self.published_peak = machine.published_peak(a.device)
        self.failed = []
        self.earlier = {}  # rounds of earlier runs into the same directory, by case
        for line in self.lines:
            self.earlier[line["case"]] = max(self.earlier.get(line["case"], 0), line.get("round", -1) + 1)

    def run(self):
        lines.note(f"results: {self.a.out}\npeers: {self.packages or 'none'} in {self.a.python}")
        code, why = self.refusal()
        if code:
            lines.note(why)
            return code
        try:
            self.suites()
        finally:
            self.write()
            with open(os.path.join(self.a.out, "report.md"), encoding="utf-8") as file:
                print(file.read())
        for failure in self.failed:
            lines.note("failed:", failure)
        return 70 if self.failed else 0

    def refusal(self):
        """The exit code and the reason where nothing may be measured; 0 elsewhere."""
        if self.a.device == "cuda" and not self.facts["gpu"]:
            return 70, "--device cuda: nvidia-smi names no GPU that this process may use; see CUDA_VISIBLE_DEVICES"
        path = os.path.join(self.a.out, "results.json")
        earlier = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                earlier = json.load(file)["facts"]
        other = [f"{key} {earlier.get(key)!r} is {self.facts[key]!r} now" for key in SAME if earlier.get(key) != self.facts[key]]
        if self.lines and other:
            return 64, f"{self.a.out} has figures of something else: {'; '.join(other)}; give another --out"
        return 0, ""

    def suites(self):
        """All commands; each gets an equal share of the time that is left for it and those behind it."""
        for name in self.a.suites:
            if not any(self.a.device in command.devices for command in SUITES[name].commands):
                self.fail(f"{name}: it measures nothing with --device {self.a.device}")
        turns = [(name, command, threads) for name in self.a.suites for command in SUITES[name].commands
                 for threads in self.turns(name, command)]
        begun = set()
        for at, (name, command, threads) in enumerate(turns):
            try:
                if name not in begun:
                    self.ceilings(name)
                begun.add(name)
                share = max(LEFT_OUT, self.left() / (len(turns) - at))
                self.execute(name, self.filled(name, command, threads, share), threads if command.threads == "each" else 0, share)
            except (OSError, subprocess.CalledProcessError) as error:  # the other suites are measured all the same
                self.fail(f"{name}: {error}")

    def threads(self):
        """Each number of threads in turn; a GPU's host takes all."""
        return [0] if self.a.device == "cuda" else [int(t) for t in self.a.threads.split(",")]

    def shapes(self, name):
        chosen = (SUITES[name].shapes or {}).get(self.a.device, "")
        if self.a.large and name == "train":
            chosen = LARGE_SHAPES
        return self.a.shapes or ({"train": "tiny"}.get(name, "14m") if self.a.quick else chosen)

    def ceilings(self, name):
        """Of the machine, before the suite that is divided by them."""
        suite, program = SUITES[name], os.path.join(self.a.build, "benchmarks", "ceilings")
        if not (suite.shapes or suite.disk or name == "kernels"):
            return
        if not os.path.exists(program):
            return lines.note(f"no ceilings: cmake --build {self.a.build} --target ceilings")
        products = [] if self.a.quick else list(EXTRA_PRODUCTS[self.a.device])
        for shape in filter(None, self.shapes(name).split(",") if suite.shapes else []):
            sizes = shapes.matmuls(shape, 64 if self.a.quick else TOKENS[self.a.device])
            products += [",".join(map(str, size)) for size in sizes.values()]
        counts = self.threads()
        for threads in counts:
            argv = [program, "--device", self.a.device, "--rounds", "1" if self.a.quick else "3"]
            argv += [word for p in dict.fromkeys(products) for word in ("--product", p)]
            argv += ["--threads", str(threads)] if threads else []
            argv += ["--disk", self.a.folder] if suite.disk else []
            self.execute("ceilings", argv, threads, max(LEFT_OUT, CEILINGS * self.left() / len(counts)))

    def missing(self, command):
        """Packages of the peers that are not there."""
        there = {version.split()[0] for version in self.packages.split(", ") if version}
        return [] if self.a.no_peers else [package for package in command.peers if package not in there]

    def turns(self, name, command):
        """With what numbers of threads a command runs, if it does."""
        if self.a.device not in command.devices:
            return []
        missing = self.missing(command)
        if missing:
            self.fail(f"{name}: {self.a.python} has no {' and no '.join(missing)}; see --install and --python, or --no-peers for ours alone")
        if command.peers and not command.alone and (missing or self.a.no_peers):
            return []
        return {"each": self.threads(), "all": [self.a.threads], "none": [0]}[command.threads]

    def filled(self, name, command, threads, seconds):
        a = self.a
        words = {
            "python": a.python, "build": a.build, "bin": os.path.join(a.build, "bin"), "tools": os.path.join(a.build, "benchmarks"),
            "here": str(HERE), "out": a.out, "folder": a.folder, "device": a.device, "threads": threads,
            "rounds": 1 if a.quick else a.rounds, "budget": int(seconds), "versions": self.packages,
            "shapes": self.shapes(name)}
        argv = with_options(command.argv, command.large if a.large else ())
        argv = with_options(argv, command.quick if a.quick else ())
        argv = with_options(argv, command.alone if a.no_peers or self.missing(command) else ())
        for word, find in (("corpus", self.corpus), ("tokenizer", self.tokenizer)):
            if any("{%s}" % word in part for part in argv):
                words[word] = find()
        argv = [part.format(**words) for part in argv]
        if "/" not in argv[0] and not shutil.which(argv[0]):
            raise FileNotFoundError(f"there is no {argv[0]} on the PATH: install it, or leave this suite out")
        for program in argv:
            if os.path.dirname(os.path.dirname(program)) == a.build and not os.path.exists(program):
                raise FileNotFoundError(f"{program} is missing: cmake --build {a.build} --target {os.path.basename(program)}")
        return argv

    def left(self):
        return max(1, self.end - time.monotonic()) if self.end else 10**6

    def corpus(self):
        if self.a.corpus:
            return self.a.corpus
        path, size = os.path.join(self.a.out, "corpus.jsonl"), "2" if self.a.quick else "200"
        if not os.path.exists(path):
            lines.note(f"making {size} MB of text from this machine's files")
            subprocess.run([sys.executable, str(HERE / "make_corpus.py"), path, "--mb", size], check=True, stdout=sys.stderr)
        return path

    def tokenizer(self):
        folders = [os.environ.get("NEOX_TEST_DATA", ""), str(HERE.parent / ".deps" / "test_data")]
        found = [os.path.join(f, "20B_tokenizer.json") for f in folders if f]
        path = self.a.tokenizer or next(filter(os.path.exists, found), None)
        if not path:
            raise FileNotFoundError("there is no tokenizer; give --tokenizer FILE or set NEOX_TEST_DATA")
        return path

    def execute(self, suite, argv, threads, seconds):
        """One command; its lines are kept as they come, also where it is cut off."""
        if self.left() < LEFT_OUT:
            return self.fail(f"{suite}: left out for lack of time")
        pin, environment = process.on_cpus(threads)
        environment["PYTHONPATH"] = str(HERE)
        lines.note("$", " ".join(argv)[:300])
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, preexec_fn=pin if threads else process.end_with_parent,
                                 env=environment, start_new_session=True)
        before, until = len(self.lines), time.monotonic() + seconds + LEFT_OUT if self.end else None
        cut_off = not self.listen(child, suite, threads, until)
        process.end(child)
        if cut_off or child.returncode:
            self.fail(f"{suite}: {os.path.basename(argv[0])} {argv[1]} "
                      + ("was cut off" if cut_off else f"ended with {child.returncode}"))
        self.judge(suite, self.lines[before:])
        self.write()

    def judge(self, suite, new):
        """What a command should have measured, and has not."""
        if not any("value" in line for line in new):
            self.fail(f"{suite}: nothing was measured")
        for case in dict.fromkeys(line["case"] for line in new):
            tried = [line for line in self.lines if line["case"] == case and line.get("phase") == "sweep"]
            if tried and all("error" in line for line in tried):
                self.fail(f"{suite}: {case}: none of {len(tried)} settings of the peers could be measured; {tried[0]['error']}")

    def listen(self, child, suite, threads, until):
        """Takes the lines up to their end (True) or the deadline (False)."""
        buffer = b""
        while True:
            left = None if until is None else max(0, until - time.monotonic())
            if not select.select([child.stdout], [], [], left)[0]:
                return False
            piece = os.read(child.stdout.fileno(), 65536)
            if not piece:
                child.wait()
                return True
            *whole, buffer = (buffer + piece).split(b"\n")
            for line in filter(None, (lines.parse(w.decode(errors="replace")) for w in whole)):
                self.take({"suite": suite, "threads": threads, "device": self.a.device, "build": self.facts["build"], **line})

    def take(self, line):
        if line["threads"] and "thread" not in line["case"]:
            line["case"] += f", {line['threads']} thread{'s' * (line['threads'] > 1)}"
        if line.get("round", 0) < 0:  # before the rounds
            line["phase"] = "sweep"
        line["round"] = line.get("round", 0) + self.earlier.get(line["case"], 0)
        if "error" in line and line.get("phase") != "sweep":
            self.fail(f"{line['suite']}: {line['case']}: {line['who']}: {line['error']}")
        last = self.lines[-1]["case"] if self.lines else line["case"]
        self.lines.append(line)
        with open(self.lines_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if line["case"] != last:
            self.write()

    def fail(self, what):
        if what not in self.failed:
            self.failed.append(what)
            lines.note(what)

    def write(self):
        """The report, the results and the plots of all lines up to now."""
        results = {"facts": self.facts, "published_peak": self.published_peak, "lines": self.lines}
        files = {"report.md": table.report(results), "results.json": json.dumps(results, indent=1) + "\n"}
        for suite in dict.fromkeys(line["suite"] for line in self.lines):
            mine = [line for line in self.lines if line["suite"] == suite]
            files[f"{suite}.svg"] = plot.svg(mine, f"{suite}: {self.facts['gpu'] or self.facts['cpu']}, {self.facts['date']}")
        for name, what in files.items():
            if what:
                temporary = os.path.join(self.a.out, name + ".new")
                with open(temporary, "w", encoding="utf-8") as file:
                    file.write(what)
                os.replace(temporary, os.path.join(self.a.out, name))
