#!/usr/bin/env python3
"""Compares the reader and the writer of PyTorch files with PyTorch.

torchfile.py TOOL              what PyTorch writes is read alike, what the tool writes is read by torch.load
torchfile.py TOOL --large      the same for a file beyond 4 GiB (free space: 5 GB)
torchfile.py --golden FILE     writes the small files that tests/torchfile_test.cc reads
"""
import argparse
import collections
import copyreg
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

from torchfile_cases import Tagged, cases, objects, raw


def name_of(thing):
    return f"{thing.__module__}.{thing.__qualname__}"


class Describe:
    """A value as the JSON of tests/torchfile_dump.cc."""

    def __init__(self):
        self.storages = {}

    def of(self, value):
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else {"big": hex(value)}
        if kind is float:
            return {"float": struct.pack(">d", value).hex()}
        if kind is complex:
            return {"complex": [struct.pack(">d", part).hex() for part in (value.real, value.imag)]}
        if kind in (bytes, bytearray):
            return {"bytes": bytes(value).hex()}
        if kind is list:
            return [self.of(item) for item in value]
        if kind is tuple:
            return {"tuple": [self.of(item) for item in value]}
        if kind is torch.Size:
            return {"tuple": [self.of(item) for item in value], "type": "torch.Size"}
        if kind in (set, frozenset):
            items = [self.of(item) for item in value]
            return {"set": sorted(items, key=lambda item: json.dumps(item, separators=(",", ":")))}
        return self.dict_or_other(value, kind)

    def dict_or_other(self, value, kind):
        if kind in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter):
            json_ = {"dict": [[self.of(k), self.of(v)] for k, v in value.items()]}
            if kind is not dict:
                json_["type"] = f"collections.{kind.__name__}"
            if kind is collections.defaultdict and value.default_factory is not None:
                json_["args"] = self.of(value.default_factory)
            if getattr(value, "__dict__", None):
                json_["state"] = self.of(value.__dict__)
            return json_
        if kind in (torch.Tensor, torch.nn.Parameter):
            return {"tensor": self.tensor(value)}
        if kind is np.ndarray and value.dtype.kind in "biufc":
            return {"tensor": self.array(value)}
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return self.of(value.item())
        if kind is torch.UntypedStorage:
            return {"storage": {"dtype": "", "bytes": bytes(value.tolist()).hex()}}
        if kind is torch.TypedStorage:
            flat = torch.tensor([], dtype=value.dtype).set_(value._untyped_storage)
            return {"storage": {"dtype": str(value.dtype)[6:], "bytes": raw(flat).hex()}}
        if kind is torch.dtype:
            return {"global": str(value)}
        if isinstance(value, type) or kind in (type(len), type(raw)):
            return {"global": name_of(value)}
        return self.object(value)

    def tensor(self, value):
        key = value.untyped_storage()._cdata
        return {
            "class": "parameter" if type(value) is torch.nn.Parameter else "tensor",
            "dtype": str(value.dtype)[6:],
            "sizes": list(value.shape),
            "strides": list(value.stride()),
            "offset": value.storage_offset(),
            "requires_grad": value.requires_grad,
            "storage": self.storages.setdefault(key, len(self.storages)),
            "bytes": raw(value).hex(),
        }

    @staticmethod
    def array(value):
        fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        strides, stride = [0] * value.ndim, 1
        for d in range(value.ndim) if fortran else reversed(range(value.ndim)):
            strides[d], stride = stride, stride * max(value.shape[d], 1)
        return {
            "class": "array",
            "dtype": value.dtype.name,
            "sizes": list(value.shape),
            "strides": strides,
            "offset": 0,
            "requires_grad": False,
            "bytes": np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="))).tobytes().hex(),
        }

    def object(self, value):
        reduce = copyreg.dispatch_table.get(type(value))
        made = list(reduce(value) if reduce else value.__reduce_ex__(2)) + [None] * 3
        function, arguments, state, items, entries = made[:5]
        json_ = {}
        if function is copyreg.__newobj__:
            function, arguments = arguments[0], arguments[1:]
        if getattr(copyreg, "__newobj_ex__", None) is function:
            function, arguments, json_["keywords"] = arguments[0], arguments[1], self.of(arguments[2])
        json_.update({"object": name_of(function), "args": [self.of(item) for item in arguments]})
        if state is not None:
            json_["state"] = self.of(state)
        if items is not None and (items := list(items)):
            json_["items"] = [self.of(item) for item in items]
        if entries is not None and (entries := list(entries)):
            json_["entries"] = [[self.of(k), self.of(v)] for k, v in entries]
        return json_


GOLDEN = ["plain.2", "plain.5", "objects.2", "objects.5", "views.2", "types.2", "numpy.2", "numpy.5", "optimizer.2", "storages.2"]
WRITABLE = ("plain.", "views.", "dtypes.", "tensor.", "none.")


def saved(value, **how):
    file = io.BytesIO()
    torch.save(value, file, **how)
    return file.getvalue()


def loaded(file):
    return torch.load(file, weights_only=False)


def short(value):
    """Without what makes a golden file large."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items() if key not in ("many", "random", "state")} \
            if type(value) is dict else value
    return value


def write_golden(path):
    files = []
    for name, value, how in cases():
        if name not in GOLDEN:
            continue
        data = saved(short(value), **how)
        files.append({"name": name, "hex": data.hex(), "value": Describe().of(loaded(io.BytesIO(data)))})
    legacy = saved({"a": torch.ones(2)}, _use_new_zipfile_serialization=False)
    files.append({"name": "legacy", "hex": legacy.hex(), "value": None})
    with open(path, "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(file) for file in files) + "\n]\n")


def compare(name, ours, theirs, where=""):
    """Ends the program at the first difference."""
    if ours == theirs:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for key in ours:
            compare(name, ours[key], theirs[key], f"{where}.{key}")
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, pair in enumerate(zip(ours, theirs)):
            compare(name, *pair, f"{where}.{i}")
    sys.exit(f"{name}{where}: read {str(ours)[:300]}\nPyTorch {str(theirs)[:300]}")


def bare(json_):
    """What rewriting keeps: tensors' values, not how they lie in memory."""
    if isinstance(json_, list):
        return [bare(item) for item in json_]
    if not isinstance(json_, dict):
        return json_
    if "tensor" in json_:
        return {key: json_["tensor"][key] for key in ("dtype", "sizes", "bytes")}
    return {key: bare(item) for key, item in json_.items()}


def check_rewritten(tool, name, path):
    out = path + ".out"
    subprocess.run([tool, "rewrite", path, out], check=True)
    ours = torch.load(out, weights_only=True)
    compare(name + " rewritten", bare(Describe().of(ours)), bare(Describe().of(loaded(path))))
    compare(name + " mapped", bare(Describe().of(torch.load(out, weights_only=True, mmap=True))), bare(Describe().of(ours)))
    with zipfile.ZipFile(out) as archive:
        if archive.testzip() is not None:
            sys.exit(f"{name}: wrong checksum of {archive.testzip()}")
    reader = torch._C.PyTorchFileReader(out)
    for record in reader.get_all_records():
        if reader.get_record_offset(record) % 64:
            sys.exit(f"{name}: {record} is not aligned")


def run(tool, folder):
    count = 0
    for name, value, how in cases():
        path = os.path.join(folder, name + ".pt")
        torch.save(value, path, **how)
        line = subprocess.run([tool, "dump", path], check=True, capture_output=True, text=True).stdout
        if line.startswith("error"):
            sys.exit(f"{name}: {line}")
        compare(name, json.loads(line), Describe().of(loaded(path)))
        if name.startswith(WRITABLE):
            check_rewritten(tool, name, path)
        count += 1
    check_others(tool, folder)
    check_distributed(tool, folder)
    print(f"{count} files are read as PyTorch reads them")


def check_others(tool, folder):
    path = os.path.join(folder, "other.pt")
    refused = {"expanded": (torch.ones(1).expand(3), "overlap"), "meta": (torch.ones(2, device="meta"), "meta device")}
    for name, (value, reason) in refused.items():
        torch.save(value, path)
        line = subprocess.run([tool, "dump", path], check=True, capture_output=True, text=True).stdout
        if not line.startswith("error") or reason not in line:
            sys.exit(f"{name}: {line}")
    opaque = {"sparse": torch.eye(2).to_sparse(), "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
              "subclass": torch.ones(2).as_subclass(Tagged), "texts": np.array(["a", "bc"]), "objects": np.array([1, None]),
              "date": np.datetime64("2024-01-01"), "text": np.str_("a")}
    torch.save(opaque, path)
    line = subprocess.run([tool, "dump", path], check=True, capture_output=True, text=True).stdout
    for key, value in json.loads(line)["dict"]:
        if "object" not in value:
            sys.exit(f"{key}: {value}")
    cycle = [1]
    cycle.append(cycle)
    torch.save(cycle, path)
    line = subprocess.run([tool, "dump", path], check=True, capture_output=True, text=True).stdout
    compare("cycle", json.loads(line), [1, {"cycle": True}])
    with open(path, "wb") as out:
        pickle.dump(objects(), out, protocol=4)
    line = subprocess.run([tool, "pickle", path], check=True, capture_output=True, text=True).stdout
    compare("pickle", json.loads(line), Describe().of(objects()))


def check_distributed(tool, folder):
    """The parts of a distributed checkpoint: a pickle, and files of torch.save one behind the other."""
    folder = os.path.join(folder, "distributed")
    state = {"weight": torch.arange(6.0).view(2, 3), "bias": torch.ones(5, dtype=torch.bfloat16), "step": 5}
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    path = os.path.join(folder, ".metadata")
    line = subprocess.run([tool, "pickle", path], check=True, capture_output=True, text=True).stdout
    with open(path, "rb") as file:
        metadata = pickle.load(file)
    compare(".metadata", json.loads(line), Describe().of(metadata))
    for index, info in metadata.storage_data.items():
        with open(os.path.join(folder, info.relative_path), "rb") as file:
            file.seek(info.offset)
            part = file.read(info.length)
        if index.fqn == "step":
            continue
        path = os.path.join(folder, "part.pt")
        with open(path, "wb") as file:
            file.write(part)
        line = subprocess.run([tool, "dump", path], check=True, capture_output=True, text=True).stdout
        compare(index.fqn, json.loads(line), Describe().of(state[index.fqn]))


def run_large(tool, folder):
    path, size = os.path.join(folder, "large.pt"), 2**32 + 100
    subprocess.run([tool, "large", path, str(size)], check=True)
    data = torch.load(path, weights_only=True, mmap=True)
    assert data["large"].shape == (size,) and data["large"][-1] == 7 and bytes(data["small"].tolist()) == b"abc"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    os.remove(path)
    torch.save({"a": torch.zeros(size, dtype=torch.uint8)[1:2], "b": torch.ones(3)}, path)
    line = subprocess.run([tool, "dump", path], check=True, capture_output=True, text=True).stdout
    compare("large", json.loads(line)["dict"][1][1]["tensor"]["bytes"], raw(torch.ones(3)).hex())
    print("files beyond 4 GiB are read and written")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", nargs="?")
    parser.add_argument("--golden")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    if options.golden:
        return write_golden(options.golden)
    with tempfile.TemporaryDirectory() as folder:
        (run_large if options.large else run)(os.path.abspath(options.tool), folder)


if __name__ == "__main__":
    main()
