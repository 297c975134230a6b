"""Runs the commands of suites, gathers their lines, and writes the report again after each of them."""
import json
import os
import pathlib
import select
import subprocess
import sys
import time

from harness import lines, machine, plot, process, shapes, table
from harness.suites import LARGE_SHAPES, SUITES, with_options

HERE = pathlib.Path(__file__).resolve().parents[1]
LEFT_OUT = 15  # seconds before the end in which nothing new begins
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
        versions = machine.versions(a.python, os.path.join(a.build, "bin", "neox-train"))
        self.packages = versions["packages"]
        self.facts = {**machine.facts(a.device), **versions, "command": " ".join(sys.argv[1:])}
        self.published_peak = machine.published_peak(a.device)
        self.failed = []
        self.earlier = {}  # rounds of earlier runs into the same directory, by case
        for line in self.lines:
            self.earlier[line["case"]] = max(self.earlier.get(line["case"], 0), line.get("round", -1) + 1)

    def run(self):
        lines.note(f"results: {self.a.out}\npeers: {self.packages or 'none'} in {self.a.python}")
        try:
            for name in self.a.suites:
                self.ceilings(name)
                for command in SUITES[name].commands:
                    self.command(name, command)
        finally:
            self.write()
            with open(os.path.join(self.a.out, "report.md"), encoding="utf-8") as file:
                print(file.read())
        for failure in self.failed:
            lines.note("failed:", failure)
        return 70 if self.failed else 0

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
        for threads in self.threads():
            argv = [program, "--device", self.a.device, "--rounds", "1" if self.a.quick else "3"]
            argv += [word for p in dict.fromkeys(products) for word in ("--product", p)]
            argv += ["--threads", str(threads)] if threads else []
            argv += ["--disk", self.a.folder] if suite.disk else []
            self.execute("ceilings", argv, threads)

    def command(self, name, command):
        """Once for each number of threads, and for each round that it does not do itself."""
        if self.a.device not in command.devices:
            return lines.note(f"{name}: not on {self.a.device}")
        if command.peers and (self.a.no_peers or not self.packages):
            return lines.note(f"{name}: left out without the peers' packages")
        counts = {"each": self.threads(), "all": [self.a.threads], "none": [0]}[command.threads]
        for number in range(self.a.rounds if command.rounds == "outside" else 1):
            for threads in counts:
                try:
                    argv = self.filled(name, command, threads)
                except FileNotFoundError as error:
                    return self.fail(f"{name}: {error}")
                self.execute(name, argv, threads if command.threads == "each" else 0, number)

    def filled(self, name, command, threads):
        a = self.a
        words = {
            "python": a.python, "build": a.build, "bin": os.path.join(a.build, "bin"), "tools": os.path.join(a.build, "benchmarks"),
            "here": str(HERE), "out": a.out, "folder": a.folder, "device": a.device, "threads": threads,
            "rounds": 1 if a.quick else a.rounds, "budget": int(self.left()), "versions": self.packages,
            "shapes": self.shapes(name)}
        argv = with_options(command.argv, command.large if a.large else ())
        argv = with_options(argv, command.quick if a.quick else ())
        argv = with_options(argv, command.alone if a.no_peers or not self.packages else ())
        for word, find in (("corpus", self.corpus), ("tokenizer", self.tokenizer)):
            if any("{%s}" % word in part for part in argv):
                words[word] = find()
        argv = [part.format(**words) for part in argv]
        for program in argv[:2]:
            if program.startswith(("/", ".")) and not os.path.exists(program):
                how = "" if program.endswith(".py") else f": cmake --build {a.build} --target {os.path.basename(program)}"
                raise FileNotFoundError(f"{program} is missing{how}")
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

    def execute(self, suite, argv, threads, number=None):
        """One command; its lines are kept as they come, also where it is cut off."""
        if self.left() < LEFT_OUT:
            return lines.note(f"{suite}: left out for lack of time")
        pin, environment = process.on_cpus(threads)
        environment["PYTHONPATH"] = str(HERE)
        lines.note("$", " ".join(argv)[:300])
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, preexec_fn=pin if threads else process.end_with_parent,
                                 env=environment, start_new_session=True)
        until = self.end + LEFT_OUT if self.end else None
        cut_off = not self.listen(child, suite, threads, number, until)
        process.end(child)
        if cut_off or child.returncode:
            self.fail(f"{suite}: {os.path.basename(argv[0])} {argv[1]} "
                      + ("was cut off" if cut_off else f"ended with {child.returncode}"))
        self.write()

    def listen(self, child, suite, threads, number, until):
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
                self.take({"suite": suite, "threads": threads, "device": self.a.device, **line}, number)

    def take(self, line, number):
        if line["threads"] and "thread" not in line["case"]:
            line["case"] += f", {line['threads']} thread{'s' * (line['threads'] > 1)}"
        if line.get("round", 0) < 0:  # before the rounds
            line["phase"] = "sweep"
        if number is not None or "round" in line:
            line["round"] = line.get("round", number) + self.earlier.get(line["case"], 0)
        last = self.lines[-1]["case"] if self.lines else line["case"]
        self.lines.append(line)
        with open(self.lines_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if line["case"] != last:
            self.write()

    def fail(self, what):
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
