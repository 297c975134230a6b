"""neox-train run as a user runs it: a configuration, a dataset made up here, its own metrics read afterwards."""
import json
import os
import re
import statistics
import struct
import tempfile

from harness import process
from harness.shapes import SHAPES

UNITS = {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def write_data(prefix, tokens, vocab):
    """A dataset of one document of pseudo-random tokens."""
    state, out = 1, bytearray()
    for _ in range(tokens):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out += struct.pack("<H", (state >> 8) % vocab)
    with open(prefix + ".bin", "wb") as file:
        file.write(out)
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<i", tokens)
                   + struct.pack("<qqq", 0, 0, 1))


def config_of(shape, seq, micro, steps, precision, folder):
    layers, hidden, heads, vocab = SHAPES[shape]
    data = os.path.join(folder, f"data_{vocab}")
    if not os.path.exists(data + ".idx"):
        write_data(data, 50 * (seq + 1), vocab)
    return {
        "num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "seq_length": seq,
        "max_position_embeddings": max(seq, 2048), "padded_vocab_size": vocab, "pos_emb": "rotary",
        "rotary_pct": 0.25, "no_weight_tying": True, "gpt_j_residual": True, "bias_gelu_fusion": True,
        "train_batch_size": micro, "train_micro_batch_size_per_gpu": micro, "train_iters": steps,
        "data_path": data, "split": "1,0,0", "eval_iters": 0, "log_interval": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8}},
        "lr_decay_style": "constant", "weight_decay": 0.01, "gradient_clipping": 1.0,
        "precision": "bfloat16" if precision == "bf16" else "fp32"}


def read_metrics(path):
    """step -> {tag: value}."""
    steps = {}
    with open(path, encoding="utf-8") as file:
        for line in map(json.loads, file):
            steps.setdefault(line["step"], {}).update(line)
    return steps


def said(errors, pattern):
    """Bytes that the log tells in a line of this pattern, the greatest of all; 0 where it has none."""
    found = re.findall(pattern + r" ([\d.]+) ([kKMGT]?B)", errors)
    return max((float(number) * UNITS[unit] for number, unit in found), default=0)


class NeoxTrain:
    """The program on one device; `folder` holds its data and logs while the benchmark runs."""

    def __init__(self, program, device, threads, seq, folder):
        self.program, self.device, self.threads = program, device, threads
        self.seq, self.folder = seq, folder
        self.group = 4 if device == "cuda" else 1  # steps of one measurement, as for the peers

    def run(self, shape, micro, precision, steps, until, more_keys=None):
        """{"tokens_s", "tokens_cpu_s", "steps", "peak_bytes", "ready_s", "loss", "log"} or {"error", "log"}.

        tokens_s is that of the median step, the first one left out; on a GPU of the median run of four. tokens_cpu_s
        is by the CPU time of the whole process, times the threads. more_keys: of the configuration."""
        log = tempfile.mkdtemp(dir=self.folder)
        path = os.path.join(log, "config.json")
        steps = -(-steps // self.group) * self.group + 1
        config = config_of(shape, self.seq, micro, steps, precision, self.folder)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, "log_dir": log, **(more_keys or {})}, file)
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else {}
        status, _, errors, cpu = process.run([self.program, path], self.threads, until, hidden)
        if status != 0:
            return {"error": process.TOO_LONG if status is None else errors.strip()[-300:], "log": errors}
        told = self.told(errors)
        if self.device == "cuda" and not told["device_bytes"]:
            return {"error": f"--device cuda: {self.program} ran without a GPU: it has no CUDA, or CUDA finds none", "log": errors}
        return {**self.measured(os.path.join(log, "metrics.jsonl"), micro), **told, "log": errors,
                "tokens_cpu_s": steps * micro * self.seq * max(1, self.threads) / cpu}

    def measured(self, path, micro):
        metrics = read_metrics(path)
        seconds = [m["runtime/iteration_time"] for step, m in sorted(metrics.items())
                   if step > 1 and "runtime/iteration_time" in m]
        starts = range(0, len(seconds) - self.group + 1, self.group)
        median = statistics.median(statistics.mean(seconds[i:i + self.group]) for i in starts)
        return {"tokens_s": micro * self.seq / median, "steps": len(seconds),
                "loss": metrics[max(metrics)].get("train/lm_loss")}

    def told(self, errors):
        ready, warning = re.search(r"ready after ([\d.]+) s", errors), re.search(r"\bwarning: (?!save is not set)(.*)", errors)
        return {"peak_bytes": said(errors, "peak memory"), "device_bytes": said(errors, "on the GPU"),
                "ready_s": float(ready.group(1)) if ready else None, **({"note": warning.group(1)[:200]} if warning else {})}
