"""Reads a checkpoint with h5py alone, after docs/formats.md, and prints a line for each tensor:
state, name, type, shape, and the sum of elements times position (1, 2, ...).

Usage: checkpoint_h5py.py <dir>/global_step<N>
"""
import os
import sys

import h5py
import numpy as np


def texts(column):
    return [value.decode() for value in column[()]]


def main(directory):
    index = h5py.File(os.path.join(directory, "index.h5"), "r")["catalog"]
    files = [h5py.File(os.path.join(directory, name), "r") for name in texts(index["files/name"])]
    datasets = list(zip(index["datasets/file"][()], texts(index["datasets/name"])))
    tensors = index["tensors"]
    dims = tensors["dims"][()]
    shapes = [tuple(row[:n]) for row, n in zip(tensors["shape"][()].reshape(len(dims), -1), dims)]
    full = [np.full(shape, np.nan) for shape in shapes]
    boxes = index["boxes"]
    start = boxes["start"][()].reshape(len(boxes["tensor"]), -1)
    extent = boxes["extent"][()].reshape(len(boxes["tensor"]), -1)
    for i, (tensor, dataset, offset) in enumerate(
            zip(boxes["tensor"][()], boxes["dataset"][()], boxes["offset"][()])):
        size = extent[i][:dims[tensor]]
        file, name = datasets[dataset]
        values = files[file][name][offset:offset + int(np.prod(size))].astype(np.float64)
        where = tuple(slice(s, s + n) for s, n in zip(start[i], size))
        full[tensor][where] = values.reshape(size)
    for state, name, dtype, value in zip(texts(tensors["state"]), texts(tensors["name"]),
                                         texts(tensors["dtype"]), full):
        total = int(np.sum(value.ravel() * np.arange(1, value.size + 1)))
        print(state, name, dtype, "x".join(map(str, value.shape)), total)


main(sys.argv[1])
