"""The values that torchfile.py saves with PyTorch."""
import argparse
import collections
import datetime
import enum
import functools
import random

import numpy as np
import torch


class Scaler:
    def __init__(self):
        self.cur_scale, self.cur_iter, self.nested = 65536.0, 12, {"a.b": [1]}


class Slots:
    __slots__ = ("left", "right")

    def __init__(self):
        self.left, self.right = 1, "two"


class Stage(enum.IntEnum):
    OFF = 0
    TWO = 2


class Names(list):
    pass


class Table(dict):
    pass


class Tagged(torch.Tensor):
    pass


Fragment = collections.namedtuple("Fragment", "numel start")


class Keywords:
    def __new__(cls, *, scale=1):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"scale": 3}


def raw(tensor):
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b""


FLOAT8 = [name for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
          if hasattr(torch, name)]
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
          "complex128", "complex64", "complex32", "uint64", "uint32", "uint16"] + FLOAT8


def some(dtype, count):
    """A tensor of bytes that differ, and that are valid in every type."""
    dtype = getattr(torch, dtype)
    size = torch.empty(0, dtype=dtype).element_size()
    values = torch.arange(count * size, dtype=torch.uint8) % (2 if dtype is torch.bool else 97)
    return values.view(dtype)


def optimizer_state():
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "parameters": list(model.parameters())}


def with_attribute(tensor):
    tensor.sequence_parallel = True
    return tensor


def views():
    base = torch.arange(24, dtype=torch.float32)
    matrix = base.view(4, 6)
    tied = torch.nn.Parameter(torch.ones(2, 3))
    return {"base": base, "matrix": matrix, "columns": matrix[:, 1:5:2], "transposed": matrix.t(), "tail": base[20:],
            "strided": base[1::5], "scalar": base[7], "empty": torch.empty(0), "empty2": torch.empty(3, 0, 2),
            "zero": torch.tensor(2.5, dtype=torch.float64), "conj": torch.tensor([1 + 2j]).conj(),
            "imag": torch.tensor([1 + 2j, 3 - 1j]).conj().imag, "permuted": torch.arange(24).view(2, 3, 4).permute(2, 0, 1),
            "tied": [tied, tied], "frozen": torch.nn.Parameter(torch.ones(1), requires_grad=False),
            "parameter": with_attribute(torch.nn.Parameter(torch.ones(2))), "tagged": with_attribute(torch.ones(2)),
            "grad": torch.ones(1, requires_grad=True)}


def plain():
    return {"none": None, "true": True, "false": False,
            "ints": [0, 1, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**63 - 1, -(2**63)],
            "floats": [0.0, -0.0, 1.5, float("inf"), float("nan"), 5e-324], "text": "Gr\u00fc\u00dfe \U0001f600", "": "empty key",
            "bytes": bytes(range(256)), "no bytes": b"", "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
            "list": [[], [[1]]], 7: {8: {"a.b": 9}}, "long": "x" * 300, "many": list(range(2000)),
            "ordered": collections.OrderedDict([("b", 1), ("a", {"c": 2})]), "weight": torch.arange(6.0).view(2, 3)}


def objects():
    return {"args": argparse.Namespace(num_layers=2, lr=0.5, names=["a"], dtype=torch.float16), "scaler": Scaler(),
            "slots": Slots(), "stage": Stage.TWO, "names": Names([1, 2]), "table": Table(a=1), "fragment": Fragment(3, 4),
            "keywords": Keywords(), "partial": functools.partial(divmod, 3), "device": torch.device("cuda", 1),
            "size": torch.Size([2, 3]), "dtypes": [torch.float16, torch.bfloat16, torch.uint16], "slice": slice(1, 2),
            "range": range(3), "complex": 1 - 2j, "big": [2**64, -(2**70), 2**2100, -(2**63) - 1],
            "default": collections.defaultdict(int, {"a": 1}), "lists": collections.defaultdict(list, {"a": [1]}),
            "none": collections.defaultdict(None, {}),
            "set": {1, 2, "a"}, "frozen": frozenset([3]), "no set": set(), "counter": collections.Counter("aab"),
            "bytearray": bytearray(b"\x00\xff"), "delta": datetime.timedelta(1, 2), "class": Scaler, "function": raw,
            "date": datetime.date(2024, 1, 2), "random": random.Random(3).getstate(), "path": collections.deque([1, 2])}


def numpy_values():
    types = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool",
             "complex64", "complex128"]
    return {"scalars": [np.dtype(name).type(1) for name in types], "large": np.uint64(2**64 - 1), "half": np.float16(-1.5e-7),
            "arrays": [np.arange(5).astype(name) for name in types], "zero": np.array(1.5), "empty": np.zeros((2, 0, 3)),
            "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)), "swapped": np.arange(4, dtype=">i4").reshape(2, 2),
            "swapped scalar": np.array(7, dtype=">f4")[()], "negative": np.int8(-3), "view": np.arange(10)[::3],
            "state": np.random.RandomState(3).get_state()}


def storages():
    return {"untyped": torch.arange(3, dtype=torch.int16).untyped_storage(), "typed": torch.arange(3).storage(),
            "shared": [torch.arange(4.0)] * 2}


def cases():
    """name, value, arguments of torch.save"""
    all_dtypes = {name: [some(name, 5), some(name, 6).view(2, 3).t(), some(name, 0), some(name, 1)[0]] for name in DTYPES}
    values = {"plain": plain(), "objects": objects(), "views": views(), "dtypes": all_dtypes, "numpy": numpy_values(),
              "types": {name: some(name, 3) for name in DTYPES}, "optimizer": optimizer_state(), "storages": storages(),
              "none": None, "tensor": torch.ones(2)}
    for name, whole in values.items():
        for protocol in (2, 3, 4, 5):
            value = whole
            if name == "objects" and protocol < 4:  # there keywords become a call of what a call returned
                value = {key: item for key, item in whole.items() if key != "keywords"}
            yield f"{name}.{protocol}", value, {"pickle_protocol": protocol}
