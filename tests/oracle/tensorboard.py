"""Compares our TensorBoard event files with the tensorboard package, in both directions.

  tensorboard.py NEOX_PLOT PLOT_TEST   both directions
  tensorboard.py golden                the bytes that tests/metrics_test.cc holds

PLOT_TEST, with NEOX_WRITE_RUN=DIR in the environment, writes a resumed run there.
"""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

# This file has the name of the package that it needs.
sys.path = [p for p in sys.path if pathlib.Path(p or ".").resolve() != pathlib.Path(__file__).resolve().parent]
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboard.compat.proto import event_pb2  # noqa: E402
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c  # noqa: E402


def golden():
    event = event_pb2.Event(wall_time=1.5, step=7)
    event.summary.value.add(tag="a/b", simple_value=2.5)
    payload = event.SerializeToString()
    length = struct.pack("<Q", len(payload))
    record = length + struct.pack("<I", masked_crc32c(length))
    record += payload + struct.pack("<I", masked_crc32c(payload))
    print(record.hex())


def scalars_of_lines(path):
    """The rules of metrics.h, written a second time."""
    points = {}
    for line in map(json.loads, open(path, encoding="utf-8")):
        step = line["step"]
        if line.get("event") == "start":
            for series in points.values():
                for late in [s for s in series if s >= step]:
                    del series[late]
            continue
        for name, value in line.items():
            if name in ("step", "time", "text", "not_finite"):
                continue
            if value is None:
                value = float(line["not_finite"][name])
            points.setdefault(name, {})[step] = value
    return {name: series for name, series in points.items() if series}


def same(a, b):
    b = struct.unpack("f", struct.pack("f", b))[0]
    return a == b or (math.isnan(a) and math.isnan(b))


def check_ours(writer, directory):
    subprocess.run([writer, "--gtest_filter=*WritesARunForOthers"], check=True,
                   env={**os.environ, "NEOX_WRITE_RUN": directory}, stdout=subprocess.DEVNULL)
    lines = scalars_of_lines(directory + "/metrics.jsonl")
    board = EventAccumulator(directory + "/tb", size_guidance={"scalars": 0, "tensors": 0}).Reload()
    compared = 0
    tags = board.Tags()
    got = {t: [(e.step, e.value) for e in board.Scalars(t)] for t in tags["scalars"]}
    assert sorted(got) == sorted(lines), (sorted(got), sorted(lines))
    for name, series in lines.items():
        values = {step: value for step, value in got[name]}
        assert len(values) == len(got[name]) and sorted(values) == sorted(series), name
        for step in series:
            assert same(values[step], series[step]), (name, step, values[step], series[step])
            compared += 1
    texts = board.PluginTagToContent("text")
    assert sorted(texts) == ["config", "samples"], texts
    for name, want in (("config", "    layers: 2\n    hidden: 20"), ("samples", "    für 😀")):
        (event,) = board.Tensors(name)[-1:]
        assert event.tensor_proto.string_val[0].decode() == want, event
    print(f"our files in TensorBoard: {compared} scalars of {len(lines)} tags and 2 texts are equal")


def write_simple(directory, points):
    from torch.utils.tensorboard import SummaryWriter  # what GPT-NeoX and Megatron use

    with SummaryWriter(directory) as writer:
        for step, value in points:
            writer.add_scalar("train/lm_loss", value, step)
        writer.add_scalar("new_style", 2.5, 3, new_style=True)
        writer.add_scalar("double", 1.25, 4, new_style=True, double_precision=True)
        writer.add_text("text", "something", 0)
        import numpy
        writer.add_histogram("histogram", numpy.arange(10), 1)


def check_theirs(neox_plot, directory):
    points = [(step, 10 / (step + 1)) for step in range(200)]
    write_simple(directory, points)
    table = subprocess.run([neox_plot, directory, "--list"], check=True, capture_output=True,
                           text=True).stdout
    rows = {row.split()[0]: row.split()[1:] for row in table.splitlines()[2:]}
    assert sorted(rows) == ["double", "new_style", "train/lm_loss"], table
    assert rows["train/lm_loss"][:3] == ["200", "0", "199"], table
    assert math.isclose(float(rows["train/lm_loss"][3]), points[-1][1], rel_tol=1e-6), table
    assert rows["new_style"] == ["1", "3", "3", "2.5"], table
    assert rows["double"] == ["1", "4", "4", "1.25"], table
    print("TensorBoard's files in neox-plot: tags, counts, steps and last values are equal")


def main():
    if sys.argv[1:] == ["golden"]:
        return golden()
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    neox_plot, writer = sys.argv[1:]
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        check_ours(writer, ours)
        check_theirs(neox_plot, theirs)


if __name__ == "__main__":
    main()
