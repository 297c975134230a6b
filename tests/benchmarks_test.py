"""The claims of benchmarks/run, on lines made up here and on a tiny run. Usage: benchmarks_test.py TREE BUILD"""
import contextlib
import io
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock
import xml.dom.minidom

TREE, BUILD = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
sys.path.insert(0, str(TREE / "benchmarks"))
import generate  # noqa: E402
import train  # noqa: E402
from harness import lines, machine, ours, plot, process, shapes, table  # noqa: E402
from harness.suites import SUITES, with_options  # noqa: E402
from peers import settings  # noqa: E402


def line(who, value, **more):
    return {"suite": "train", "case": "70m", "who": who, "metric": "tokens/s", "value": value, **more}


def rounds(who, *values, **more):
    return [line(who, value, round=n, **more) for n, value in enumerate(values)]


def program(path, *text):
    """A program made up here."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *text)) + "\n")
    path.chmod(0o755)


CEILING = {"suite": "ceilings", "case": "matmul fp32 8x8x8", "who": "LibTorch", "metric": "FLOP/s",
           "value": 2e9, "dtype": "fp32", "threads": 1}


class Tables(unittest.TestCase):
    def test_ratio_is_of_the_same_rounds(self):
        rows = table.comparison(rounds("ours", 200, 100, 300) + rounds("peer", 100, 100, 100), table.Ceilings([]))
        self.assertEqual(rows[1]["ours is better by"], "2.00 (1.00..3.00)")
        self.assertEqual(rows[0]["median (least..most)"], "200 (100..300)")

    def test_ratio_of_times_says_how_many_times_as_fast(self):
        rows = table.comparison(rounds("ours", 2.0, better="lower") + rounds("peer", 6.0, better="lower"), table.Ceilings([]))
        self.assertEqual(rows[1]["ours is better by"], "3.00")

    def test_best_of_ours_is_compared_and_the_best_peer_comes_first(self):
        rows = table.comparison(rounds("ours fp32", 10) + rounds("ours bf16", 20) + rounds("slow", 5) + rounds("fast", 8),
                                table.Ceilings([]))
        self.assertEqual([r["who"] for r in rows], ["ours bf16", "ours fp32", "fast", "slow"])
        self.assertEqual(rows[2]["ours is better by"], "2.50")

    def test_utilization_is_of_the_matmul_rate_of_as_many_threads(self):
        two = {**CEILING, "threads": 2, "value": 8e9}
        rows = table.comparison(rounds("ours", 100, flops=1e7, dtype="fp32", threads=1), table.Ceilings([CEILING, two], 1e10))
        self.assertEqual((rows[0]["of matmul"], rows[0]["of published peak"]), ("50%", "10.0%"))
        self.assertEqual(rows[0]["model FLOP/s"], "1 GFLOP/s")

    def test_bf16_is_put_beside_the_faster_of_both_products(self):
        bf16 = {**CEILING, "dtype": "bf16", "value": 1e9}
        ceilings = table.Ceilings([CEILING, bf16])
        self.assertEqual([ceilings.matmul(1, d) for d in ("fp32", "bf16", "amp")], [2e9, 2e9, 2e9])

    def test_tried_settings_are_no_rows_of_the_comparison(self):
        tried = line("peer", 50, phase="sweep", peak_bytes=2e9)
        failed = {**line("other", 0, phase="sweep"), "error": "a | b"}
        del failed["value"]
        text = table.report({"facts": {}, "lines": [*rounds("ours", 10), failed, tried]})
        self.assertEqual(len(table.comparison([tried, failed], table.Ceilings([]))), 0)
        self.assertLess(text.index("| peer | 50 | 2 GB |"), text.index("| other | a / b |"))

    def test_a_ratio_of_unequal_batches_says_so(self):
        rows = table.comparison([*rounds("ours", 30, micro=16), *rounds("a", 10, micro=16), *rounds("b", 5, micro=8)], table.Ceilings([]))
        self.assertEqual([r["ours is better by"] for r in rows], ["", "3.00", "6.00, with 16 against 8 samples a step"])
        self.assertEqual(rows[2]["samples a step"], "8")

    def test_a_setting_that_had_no_time_is_one_row_with_what_it_did_later(self):
        late = {"suite": "train", "case": "70m", "who": "peer", "metric": "tokens/s", "phase": "sweep", "error": process.NO_TIME}
        self.assertEqual(table.tried([late])[0]["tokens/s"], "no time left")
        for order in (1, -1):
            self.assertEqual([r["tokens/s"] for r in table.tried([late, line("peer", 50, phase="sweep")][::order])], ["50"])

    def test_share_of_the_ceiling_is_shown(self):
        rows = table.comparison(rounds("ours", 1, 2, 3, **{"of ceiling": 0.871}), table.Ceilings([]))
        self.assertEqual(rows[0]["of ceiling"], "87%")

    def test_empty_columns_are_left_out(self):
        text = table.markdown(table.comparison(rounds("ours", 10), table.Ceilings([])))
        self.assertNotIn("published", text)

    def test_what_failed_is_named(self):
        bad = {"suite": "train", "case": "70m", "who": "peer", "metric": "tokens/s", "error": "out of memory"}
        self.assertIn("| 70m | peer | out of memory |", table.report({"facts": {}, "lines": [bad]}))

    def test_numbers_have_three_digits_and_units(self):
        self.assertEqual([table.number(v) for v in (12345.6, 12.34, 1.234, 0.01234)], ["12,346", "12.3", "1.23", "0.0123"])
        self.assertEqual(table.human(1.234e12, "FLOP/s"), "1.23 TFLOP/s")


class Plots(unittest.TestCase):
    def test_plot_is_xml_with_a_bar_for_each_side(self):
        drawn = xml.dom.minidom.parseString(plot.svg(rounds("ours", 100, 120) + rounds("a <peer>", 60), "title"))
        bars = [r for r in drawn.getElementsByTagName("rect") if r.getAttribute("x")]
        widths = [float(r.getAttribute("width")) for r in bars]
        self.assertAlmostEqual(widths[0] / widths[1], 110 / 60, places=2)

    def test_nothing_to_compare_is_no_plot(self):
        self.assertEqual(plot.svg([line("x", 1, phase="sweep")], "title"), "")


class Parts(unittest.TestCase):
    def test_flops_are_those_of_the_published_shapes(self):
        self.assertEqual(shapes.num_parameters("70m")[0], 70426624)
        self.assertAlmostEqual(shapes.train_flops_per_token("1.4b", 2048) / 1e9, 8.47, places=2)

    def test_only_lines_of_the_convention_are_taken(self):
        self.assertIsNone(lines.parse("Loading ... 100%"))
        self.assertIsNone(lines.parse('{"loss": 1}'))
        self.assertEqual(lines.parse(json.dumps(line("ours", 1)))["value"], 1)

    def test_stars_take_the_values_of_the_best_setting(self):
        chosen = settings.resolve(("plain", "amp", "default", "*", "*", "default", "high"),
                                  {"attention": "flash", "loss": "chunked"})
        self.assertEqual((chosen["attention"], chosen["loss"], chosen["precision"]), ("flash", "chunked", "amp"))

    def test_settings_differ_in_name(self):
        for listed in [*settings.SETTINGS.values(), settings.LARGE]:
            names = [settings.name_of(settings.resolve(s, None), "") for s in listed if "*" not in s]
            self.assertEqual(len(names), len(set(names)))

    def test_an_option_that_is_given_again_replaces_the_first(self):
        self.assertEqual(with_options(["x", "--a", "1", "--b"], ["--a", "2", "--c", "--d", "3"]),
                         ["x", "--a", "2", "--b", "--c", "--d", "3"])

    def test_programs_of_the_suites_are_here_where_they_are_ours(self):
        for name, suite in SUITES.items():
            for command in suite.commands:
                if command.argv[0] == "{python}":
                    self.assertTrue((TREE / "benchmarks" / command.argv[1].removeprefix("{here}/")).exists(), name)

    def test_every_suite_for_a_gpu_tells_its_programs_so(self):
        for name in ("train", "kernels", "generate", "checkpoint"):
            chosen = [c for c in SUITES[name].commands if "cuda" in c.devices]
            self.assertTrue(chosen, name)
            for command in chosen:
                given = command.argv[command.argv.index("--device") + 1]
                self.assertIn(given, ("cuda", "{device}"), name)

    def test_memory_is_read_in_its_units(self):
        self.assertEqual(ours.said("x peak memory 1.5 GB\ny peak memory 900 MB", "peak memory"), 1.5e9)
        self.assertEqual(ours.said("nothing", "peak memory"), 0)
        both = "peak memory 1.50 GB, on the GPU 30.4 GB"  # as neox-train says it
        self.assertEqual((ours.said(both, "peak memory"), ours.said(both, "on the GPU")), (1.5e9, 30.4e9))

    def test_a_warning_of_ours_is_noted(self):
        told = ours.NeoxTrain("x", "cpu", 1, 64, ".").told
        self.assertEqual(told("12:00:01 ready after 2.5 s\n12:00:02 warning: no graph: why\n12:00:03 x")["note"], "no graph: why")
        self.assertNotIn("note", told("12:00:01 ready after 2.5 s"))

    def test_a_worker_that_hangs_is_an_error_and_is_ended(self):
        worker = process.Worker(["sleep", "60"], 1)
        self.assertIn("longer", worker.answer(time.monotonic() + 0.1)["error"])
        worker.end()
        self.assertIsNotNone(worker.process.returncode)

    def test_a_worker_that_ends_is_an_error_with_its_last_words(self):
        worker = process.Worker(["sh", "-c", "echo no module >&2; exit 3"], 1)
        worker.ask({})
        self.assertEqual(worker.answer(time.monotonic() + 10)["error"], "ended with 3: no module")
        worker.end()

    def test_settings_without_time_are_lines(self):
        a = types.SimpleNamespace(device="cpu", quick=True, tries=None, seq=64, versions="", program="", limit=1, prompt=16, settings="x,y")
        a.sweep_until = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()) as said:
            train.Case(a, "tiny", 1, ".", a.sweep_until).sweep(a.sweep_until)
            generate.sweep(a, [generate.Case(a, "tiny", 1)])
        found = [(k["phase"], k["error"]) for k in map(lines.parse, said.getvalue().splitlines())]
        self.assertEqual(found, [("sweep", "no time left")] * (len(settings.TINY) + 2))


class Processes(unittest.TestCase):
    def test_what_is_ended_removes_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "file")
            worker = process.Worker(["sh", "-c", f"trap 'rm {file}; exit' TERM; touch {file}; echo 1; while :; do sleep 0.1; done"], 1)
            worker.answer(time.monotonic() + 10)
            worker.end()
            self.assertFalse(file.exists())

    def test_folders_of_killed_processes_are_removed(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        with tempfile.TemporaryDirectory() as folder:
            for pid in (gone.pid, 1):
                pathlib.Path(folder, f"x-{os.uname().nodename}-{pid}").mkdir()
            with process.own_folder(folder, "x"):
                left = {int(name.rpartition("-")[2]) for name in os.listdir(folder)}
            self.assertEqual(left, {1, os.getpid()})
            self.assertEqual(len(os.listdir(folder)), 1)

    def test_a_checkpoint_benchmark_that_is_cut_off_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            program(f"{folder}/benchmarks/checkpoint", f"touch {folder}/began", "sleep 60")
            script, disk = str(TREE / "benchmarks/checkpoint.py"), f"{folder}/disk"
            child = subprocess.Popen([sys.executable, script, "--folder", disk, "--build", folder, "--no-peers"])
            until = time.monotonic() + 30
            while not os.path.exists(f"{folder}/began") and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(len(os.listdir(disk)), 1)
            child.terminate()
            self.assertEqual((child.wait(30), os.listdir(disk)), (143, []))

    def test_children_are_no_ranks_of_a_job(self):
        ranks = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "RANK": "0", "LOCAL_WORLD_SIZE": "2", "PMIX_RANK": "0", "NEOX_RANK": "1"}
        with unittest.mock.patch.dict(os.environ, {**ranks, "NEOX_TEST_DATA": "here"}):
            said = process.run(["env"])[1]
        self.assertNotRegex(said, "|".join(f"(?m:^{name}=)" for name in ranks))
        self.assertIn("NEOX_TEST_DATA=here", said)

    def test_a_run_without_a_gpu_is_no_figure_of_one(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}):
            found = ours.NeoxTrain(str(BUILD / "bin/neox-train"), "cuda", 0, 64, folder).run("tiny", 1, "bf16", 1, None)
        self.assertIn("ran without a GPU", found["error"])


class Machine(unittest.TestCase):
    def test_the_gpu_is_the_first_that_programs_see(self):
        with tempfile.TemporaryDirectory() as folder:
            program(f"{folder}/nvidia-smi", 'echo "GPU $4"')
            for visible, name in (("3,1", "GPU 3"), ("", ""), ("-1", ""), ("MIG-x", "GPU")):
                with unittest.mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": visible}):
                    self.assertEqual(machine.gpu_name(), name)

    def test_peaks_are_those_of_the_variant(self):
        for name, peak in {"H100 NVL": 835, "H200 NVL": 835, "H100 80GB HBM3": 989, "GH200 480GB": 989, "B200": 2250, "GB200": 2500}.items():
            with unittest.mock.patch.object(machine, "gpu_name", lambda: name):
                self.assertEqual(machine.published_peak("cuda"), peak * 1e12, name)

    def test_an_installation_that_fails_changes_nothing(self):
        install = runpy.run_path(str(TREE / "benchmarks/run"))["install"]
        broken = unittest.mock.patch("venv.create", lambda place, **_: program(f"{place}/bin/python", "exit 1"))
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as quiet, contextlib.redirect_stderr(quiet), broken:
            with self.assertRaises(SystemExit) as ended:
                install(pathlib.Path(folder, "venv"))
            self.assertEqual((ended.exception.code, os.listdir(folder)), (70, []))


class Run(unittest.TestCase):
    def bench(self, *arguments, build=BUILD, **environment):
        return subprocess.run([sys.executable, str(TREE / "benchmarks/run"), *arguments, "--build", str(build)],
                              capture_output=True, text=True, timeout=100, env={**os.environ, **environment})

    def test_tiny_train_suite_leaves_table_lines_and_plot(self):
        with tempfile.TemporaryDirectory() as out:
            for times in (1, 2):  # the second run goes on in the same directory
                done = self.bench("train", "--quick", "--no-peers", "--threads", "1", "--out", out)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("| ours fp32 | tokens/s |", done.stdout)
                kept = [k for k in lines.read(f"{out}/lines.jsonl") if k["who"] == "ours bf16"]
                self.assertEqual([k["round"] for k in kept], list(range(times)))
            self.assertEqual(kept[0]["threads"], 1)
            self.assertGreater(kept[0]["value"], 0)
            self.assertGreater(kept[0]["peak_bytes"], 1e6)
            results = json.loads(pathlib.Path(out, "results.json").read_text())
            self.assertIn("neox.cpp", results["facts"]["ours"])
            xml.dom.minidom.parse(f"{out}/train.svg")

    def test_profile_is_the_log_with_its_table_of_operations(self):
        done = subprocess.run([sys.executable, str(TREE / "benchmarks/step_profile.py"), "--shapes", "tiny", "--seq", "64",
                               "--program", str(BUILD / "bin/neox-train")], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("== tiny, 1 x 64 tokens", done.stdout)
        self.assertIn("profile of steps 9 to 12", done.stdout)

    def test_program_that_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as out:
            done = self.bench("kernels", "--quick", "--no-peers", "--out", out, build=out)
            self.assertEqual(done.returncode, 70)
            self.assertIn("--target kernels", done.stderr)

    def test_unknown_words_are_usage_errors(self):
        for words, why in (("trian", "invalid choice: 'trian'"), ("train --shapes 70mb", "there is no shape '70mb'"),
                           ("train --threads two", "'two': expected numbers"), ("train --threads 99999", "'99999': expected numbers")):
            done = self.bench(*words.split())
            self.assertEqual(done.returncode, 64)
            self.assertIn(why, done.stderr)

    def test_no_gpu_is_an_error_before_anything_runs(self):
        with tempfile.TemporaryDirectory() as out:
            done = self.bench("train", "--device", "cuda", "--out", out, CUDA_VISIBLE_DEVICES="")
            self.assertEqual((done.returncode, os.listdir(out)), (70, []))
            self.assertIn("--device cuda: nvidia-smi names no GPU", done.stderr)

    def test_programs_that_crash_are_failures_and_the_time_is_shared(self):
        with tempfile.TemporaryDirectory() as out:
            for name in ("bin/neox-train", "benchmarks/generate_ours"):
                program(f"{out}/build/{name}", "echo fatal >&2", "exit 70")
            done = self.bench("train", "generate", "--quick", "--no-peers", "--threads", "1", "--budget", "100", "--out", out, build=f"{out}/build")
            self.assertEqual(done.returncode, 70)
            for failed in ("train: tiny, seq 64, 1 thread: ours fp32: fatal", "generate: nothing was measured"):
                self.assertIn("failed: " + failed, done.stderr)
            train_budget, generate_budget = map(int, re.findall(r"--budget (\d+)", done.stderr))
            self.assertLessEqual(train_budget, 50)
            self.assertGreater(generate_budget, 50)
            program(f"{out}/build/bin/neox-train", "exit 1")
            done = self.bench("train", "--quick", "--no-peers", "--out", out, build=f"{out}/build")
            self.assertEqual(done.returncode, 64)
            self.assertRegex(done.stderr, "figures of something else: build '[0-9a-f]+' is '[0-9a-f]+' now; give another --out")

    def test_what_has_no_time_and_peers_that_cannot_run_are_failures(self):
        with tempfile.TemporaryDirectory() as out:
            program(f"{out}/python", 'case "$1" in -c) echo torch 2, transformers 5 ;;', "*step.py) echo no room >&2; exit 1 ;;",
                    f'*) exec {sys.executable} "$@" ;;', "esac")
            for more, why in (("--budget=10", "left out for lack of time"),
                              ("--rounds=1", "tiny, seq 64, 1 thread: none of 3 settings of the peers could be measured; ended with 1: no room")):
                done = self.bench("train", "--quick", "--threads", "1", "--out", out, "--python", f"{out}/python", more)
                self.assertEqual(done.returncode, 70)
                self.assertIn(f"failed: train: {why}", done.stderr)

    def test_a_program_that_is_not_there_and_packages_that_are_not_keep_nothing_else_from_running(self):
        with tempfile.TemporaryDirectory() as out:
            program(f"{out}/python", f'[ "$1" != -c ] || exec echo numpy 2; exec {sys.executable} "$@"')
            program(f"{out}/build/bin/neox-train", "exit 1")
            done = self.bench("collectives", "train", "--quick", "--threads", "1", "--out", out, "--python", f"{out}/python",
                              build=f"{out}/build", PATH=out)
            self.assertEqual(done.returncode, 70)
            for failed in ("collectives: there is no mpirun on the PATH", "train: tiny", f"train: {out}/python has no torch and no transformers"):
                self.assertIn("failed: " + failed, done.stderr)

    def test_ours_is_measured_without_peers(self):
        with tempfile.TemporaryDirectory() as out:
            program(f"{out}/build/bin/neox-prepare-data", 'touch "$2_text_document.bin" "$2_text_document.idx"')
            program(f"{out}/build/benchmarks/encode", "while read line; do echo 1 1 1; done")
            program(f"{out}/build/tests/tokenizer_tool", "echo 1 1")
            pathlib.Path(out, "corpus").write_text('{"text": "word"}\n')
            done = self.bench("tokenizer", "prepare", "--quick", "--no-peers", "--out", out, "--tokenizer", f"{out}/corpus", "--corpus",
                              f"{out}/corpus", build=f"{out}/build")
            self.assertEqual(done.returncode, 0, done.stderr)
            for case in ("encode, 1 thread", "train a BPE of 1000 entries, 1 thread", "JSON lines to .bin/.idx, 1 worker"):
                self.assertIn(f"| {case} | ours |", done.stdout)


class OnGpu(unittest.TestCase):
    """benchmarks/on_gpu.sh over a build and a Python that are made up."""

    def run_parts(self, folder, *parts, seconds=60):
        for place in ("site/torch", "tmp"):
            pathlib.Path(folder, place).mkdir(parents=True, exist_ok=True)
        pathlib.Path(folder, "site/torch/__init__.py").touch()
        for name in ("random", "kernels", "device", "graphs", "decode", "batches", "nccl"):
            program(f"{folder}/build/tests/{name}_test", f"echo this is {name}", f"exit {3 if name == 'kernels' else 0}")
        environment = {**os.environ, "PYTHONPATH": f"{folder}/site", "TMPDIR": f"{folder}/tmp"}
        return subprocess.run([str(TREE / "benchmarks/on_gpu.sh"), "--device", "cpu", "--quick", "--build", f"{folder}/build", "--python",
                               sys.executable, f"{folder}/out", str(seconds), *parts], capture_output=True, text=True, timeout=100,
                              env=environment)

    def test_a_part_that_fails_is_named_and_the_others_run(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_parts(folder, "tests", "kernels")
            self.assertEqual(done.returncode, 70, done.stderr)
            self.assertIn("kernels_test FAILED (3)", done.stdout)
            self.assertIn("batches_test passed", done.stdout)
            self.assertIn("failed: tests kernels", done.stdout)
            self.assertIn("this is decode", pathlib.Path(folder, "out/tests.txt").read_text())
            self.assertIn("--target kernels", pathlib.Path(folder, "out/log.txt").read_text())
            self.assertTrue(pathlib.Path(folder, "out/report.md").exists())

    def test_what_has_no_time_left_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_parts(folder, "tests", "kernels", seconds=30)
            self.assertEqual(done.returncode, 70)
            self.assertIn("tests: no time left", done.stdout)
            self.assertIn("kernels: no time left", self.run_parts(folder, "kernels", seconds=42).stdout)

    def test_figures_of_different_builds_stay_apart(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("exit 1", "exit 2"):
                program(f"{folder}/build/bin/neox-train", text)
                self.run_parts(folder, "tests", seconds=20)
            self.assertEqual(len(list(pathlib.Path(folder).glob("tmp/*/results-*"))), 2)

    def test_unknown_part_is_a_usage_error(self):
        done = subprocess.run([str(TREE / "benchmarks/on_gpu.sh"), "out", "60", "trian"], capture_output=True, text=True, timeout=20)
        self.assertEqual(done.returncode, 64)
        self.assertIn("there is no part trian", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
