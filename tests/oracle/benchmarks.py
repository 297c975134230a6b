"""The peers of benchmarks/run: the plain PyTorch model equals transformers', and the train suite runs with them at a tiny size.

Usage: benchmarks.py BUILD_DIRECTORY
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from harness import lines  # noqa: E402
from peers import neox_torch, settings  # noqa: E402

COMPILED = [("transformers", "fp32", "default", "eager", "full"), ("plain", "fp32", "blocks", "eager", "full"),
            ("plain", "fp32", "default", "sdpa", "chunked"), ("plain", "fp32", "default", "eager", "full"),
            ("transformers", "bf16", "blocks", "sdpa", "chunked")]


def same_model():
    for attention in ("sdpa", "eager"):
        worst = neox_torch.selftest("tiny", attention)
        assert worst <= 1e-5, f"{attention}: differs from transformers by {worst}"


def ask(peer, *asked):
    """The answers of a worker, and its last words."""
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks/peers" / peer)], capture_output=True, text=True,
                          input="".join(json.dumps(line) + "\n" for line in asked))
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr[-1000:]


def worker_losses(chosen):
    """Loss after the same steps of each way to compile it."""
    setting = dict(zip(settings.KEYS, (*chosen, "default", "highest")))
    told = {**setting, "shape": "tiny", "seq": 32, "device": "cpu", "micros": [2], "rows": 16, "backend": "aot_eager"}
    answers, said = ask("train_step.py", told, {"steps": 2, "seconds": 0})
    assert len(answers) == 2 and answers[1]["tokens_s"] > 0, f"{chosen}: {answers} {said}"
    return answers[1]["loss"]


def generates_on_all_threads():
    told = {"shape": "tiny", "batch": 1, "setting": "fp32:dynamic", "device": "cpu", "threads": 0, "prompt": 4, "tokens": 2}
    answers, said = ask("generate_step.py", told, {})
    assert len(answers) == 2 and "decode" in answers[1], f"{answers} {said}"


def whole_suite(build):
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, str(ROOT / "benchmarks/run"), "train", "--quick", "--threads", "1", "--rounds", "2",
                   "--out", out, "--build", build, "--python", sys.executable]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        found = lines.read(f"{out}/lines.jsonl")
        tried = [line for line in found if line.get("phase") == "sweep"]
        assert len(tried) == len(settings.TINY) and not any("error" in line for line in found), found
        assert "ours is better by" in done.stdout, done.stdout
        again = subprocess.run(command, capture_output=True, text=True)
        more = lines.read(f"{out}/lines.jsonl")[len(found):]
        assert again.returncode == 0 and not any(line.get("phase") for line in more), "a setting was tried twice"


def main():
    same_model()
    losses = {chosen: worker_losses(chosen) for chosen in COMPILED}
    plain = [losses[c] for c in COMPILED[1:4]]
    assert max(plain) - min(plain) < 1e-4, f"plain PyTorch's losses differ by how it is compiled: {losses}"
    generates_on_all_threads()
    whole_suite(sys.argv[1])
    print(f"plain PyTorch equals transformers; {len(COMPILED)} ways to compile and the tiny train suite run")


if __name__ == "__main__":
    main()
