"""The claims of benchmarks/run, on lines made up here and on a tiny run. Usage: benchmarks_test.py TREE BUILD"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom

TREE, BUILD = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
sys.path.insert(0, str(TREE / "benchmarks"))
from harness import lines, ours, plot, process, shapes, table  # noqa: E402
from harness.suites import SUITES, with_options  # noqa: E402
from peers import settings  # noqa: E402


def line(who, value, **more):
    return {"suite": "train", "case": "70m", "who": who, "metric": "tokens/s", "value": value, **more}


def rounds(who, *values, **more):
    return [line(who, value, round=n, **more) for n, value in enumerate(values)]


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
        worker = process.Worker(["sleep", "60"], 1, os.devnull)
        self.assertIn("longer", worker.answer(time.monotonic() + 0.1)["error"])
        worker.end()
        self.assertIsNotNone(worker.process.returncode)

    def test_a_worker_that_ends_is_an_error(self):
        worker = process.Worker(["false"], 1, os.devnull)
        worker.ask({})
        self.assertEqual(worker.answer(time.monotonic() + 10)["error"], "ended with 1")
        worker.end()


class Run(unittest.TestCase):
    def bench(self, *arguments):
        return subprocess.run([sys.executable, str(TREE / "benchmarks/run"), *arguments, "--build", str(BUILD)],
                              capture_output=True, text=True, timeout=100)

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
            done = subprocess.run([sys.executable, str(TREE / "benchmarks/run"), "kernels", "--quick", "--no-peers", "--out", out,
                                   "--build", out], capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 70)
            self.assertIn("--target kernels", done.stderr)

    def test_unknown_suite_is_a_usage_error(self):
        done = self.bench("trian")
        self.assertEqual(done.returncode, 64)
        self.assertIn("invalid choice: 'trian'", done.stderr)


class OnGpu(unittest.TestCase):
    """benchmarks/on_gpu.sh over a build and a Python that are made up."""

    def run_parts(self, folder, *parts, seconds=60):
        for place in ("build/tests", "site/torch", "tmp"):
            pathlib.Path(folder, place).mkdir(parents=True)
        pathlib.Path(folder, "site/torch/__init__.py").touch()
        for name in ("random", "kernels", "device", "graphs", "decode", "batches", "nccl"):
            program = pathlib.Path(folder, f"build/tests/{name}_test")
            program.write_text(f"#!/bin/sh\necho this is {name}\nexit {3 if name == 'kernels' else 0}\n")
            program.chmod(0o755)
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
            done = self.run_parts(folder, "tests", seconds=20)
            self.assertEqual(done.returncode, 70)
            self.assertIn("tests: no time left", done.stdout)

    def test_unknown_part_is_a_usage_error(self):
        done = subprocess.run([str(TREE / "benchmarks/on_gpu.sh"), "out", "60", "trian"], capture_output=True, text=True, timeout=20)
        self.assertEqual(done.returncode, 64)
        self.assertIn("there is no part trian", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
