#!/usr/bin/env python3
"""Compares neox-data with megatron-core's dataset builder and reader, and with numpy, on random datasets.

  dataset_tool.py NEOX_DATA [--cases 100] [--seed 1]      NEOX_DATA: the program

merge, split and repair must give the files of megatron-core byte for byte (the damage to repair is made by its builder
too, used as Megatron's tool of 2023 used it), verify must name each damaged token, import must keep what GPT-NeoX's
writer of TNTIDX wrote, and show --step the tokens that GPT-NeoX's rules give to each data rank.
"""
import argparse
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import warnings

import numpy as np

warnings.filterwarnings("ignore")
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder


def run(*arguments, exit_code=0):
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True)
    if done.returncode != exit_code:
        raise AssertionError(f"{arguments} ended with {done.returncode}, not {exit_code}: {done.stderr}{done.stdout}")
    return done.stdout


def random_documents(r, most, vocab, end=None):
    """Documents of sequences of tokens; some are empty."""
    documents = []
    for _ in range(r.randint(1, most)):
        sequences = r.choice([1, 1, 1, 0, 2, 5])
        document = [[r.randrange(1, vocab) for _ in range(r.randint(1, 20))] for _ in range(sequences)]
        if end is not None and document:
            document[-1].append(end)
        documents.append(document)
    if not any(documents):
        documents.append([[1] + ([] if end is None else [end])])
    return documents


def write(prefix, documents, dtype, uncounted=0):
    """As Megatron's preprocess_data.py writes. uncounted: tokens at the end of each document that it does not count."""
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for document in documents:
        lengths = [len(sequence) for sequence in document]
        if lengths:
            lengths[-1] -= uncounted
        builder.add_document(torch.tensor([t for sequence in document for t in sequence], dtype=torch.int64), lengths)
    builder.finalize(f"{prefix}.idx")


def files(prefix):
    return pathlib.Path(f"{prefix}.bin").read_bytes(), pathlib.Path(f"{prefix}.idx").read_bytes()


def same(ours, theirs, what):
    assert files(ours) == files(theirs), f"{what}: {ours} and {theirs} differ"


def check_merge(r, tool, folder, dtype):
    prefixes, whole = [], IndexedDatasetBuilder(f"{folder}/whole.bin", dtype=dtype)
    for i in range(r.randint(1, 5)):
        prefixes.append(f"{folder}/in{i}")
        write(prefixes[-1], random_documents(r, 30, 60000), dtype)
        whole.add_index(prefixes[-1])
    whole.finalize(f"{folder}/whole.idx")
    run(tool, "merge", *prefixes, "--output-prefix", f"{folder}/merged")
    same(f"{folder}/merged", f"{folder}/whole", "merge")


def check_split(r, tool, folder, dtype):
    documents = random_documents(r, 60, 60000)
    write(f"{folder}/all", documents, dtype)
    rule = r.choice(["--documents", "--tokens"])
    size = r.randint(1, 20 if rule == "--documents" else 100)
    run(tool, "split", f"{folder}/all", "--output-prefix", f"{folder}/part", rule, size)
    parts, tokens = [], 0
    for document in documents:
        n = sum(map(len, document))
        full = len(parts[-1]) == size if parts and rule == "--documents" else tokens + n > size
        if not parts or full:
            parts.append([])
            tokens = 0
        parts[-1].append(document)
        tokens += n
    for i, part in enumerate(parts):
        write(f"{folder}/wanted", part, dtype)
        same(f"{folder}/part_{i:05}", f"{folder}/wanted", f"split {rule} {size}, part {i}")
    assert not os.path.exists(f"{folder}/part_{len(parts):05}.idx"), "more parts than expected"


def check_count(r, tool, folder, dtype):
    write(f"{folder}/c", random_documents(r, 60, 60000), dtype)
    data = IndexedDataset(f"{folder}/c")
    line = run(tool, "count", f"{folder}/c").splitlines()[1].replace(",", "").split()
    wanted = [len(data.document_indices) - 1, len(data), int(data.sequence_lengths.sum())]
    assert list(map(int, line[:3])) == wanted and line[3] == np.dtype(dtype).name, (line, wanted)


def check_verify(r, tool, folder, dtype):
    write(f"{folder}/v", random_documents(r, 60, 5000), dtype)
    run(tool, "verify", f"{folder}/v", "--vocab-size", 5000)
    data = IndexedDataset(f"{folder}/v")
    lengths = np.asarray(data.sequence_lengths)
    tokens = np.fromfile(f"{folder}/v.bin", dtype=dtype)
    damaged = sorted(r.sample(range(len(tokens)), min(3, len(tokens))))
    tokens[damaged] = 5000
    tokens.tofile(f"{folder}/v.bin")
    found = run(tool, "verify", f"{folder}/v", "--vocab-size", 5000, exit_code=74)
    places = [tuple(map(int, m)) for m in re.findall(r"token id 5000 at position (\d+) of sequence (\d+)", found)]
    ends = np.cumsum(lengths)
    sequences = np.searchsorted(ends, damaged, side="right")
    wanted = [(int(d - (ends[s] - lengths[s])), int(s)) for d, s in zip(damaged, sequences)]
    assert places == wanted, (places, wanted)


def check_repair(r, tool, folder, dtype):
    documents = random_documents(r, 60, 60000, end=0)
    write(f"{folder}/right", documents, dtype)
    write(f"{folder}/wrong", documents, dtype, uncounted=1)
    run(tool, "repair", f"{folder}/wrong", "--output-prefix", f"{folder}/mended", "--eod", 0)
    same(f"{folder}/mended", f"{folder}/right", "repair")
    run(tool, "repair", f"{folder}/wrong", "--in-place", "--eod", 0)
    same(f"{folder}/wrong", f"{folder}/right", "repair in place")
    run(tool, "verify", f"{folder}/wrong", "--eod", 0)


def check_import(r, tool, folder, dtype):
    """The writer of GPT-NeoX's megatron/data/indexed_dataset.py, by its format."""
    dtype = r.choice([np.int32, np.int64, np.uint8])
    documents = random_documents(r, 40, 200)
    sequences = [sequence for document in documents for sequence in document]
    with open(f"{folder}/old.bin", "wb") as file:
        for sequence in sequences:
            file.write(np.array(sequence, dtype=dtype).tobytes())
    ends = np.cumsum([0] + [len(s) for s in sequences])
    bounds = np.cumsum([0] + [len(d) for d in documents])
    with open(f"{folder}/old.idx", "wb") as file:
        code = {np.uint8: 1, np.int32: 4, np.int64: 5}[dtype]
        file.write(b"TNTIDX\0\0" + struct.pack("<QQQQQQ", 1, code, np.dtype(dtype).itemsize, len(sequences),
                                               len(sequences), len(bounds)))
        for array in (np.arange(len(sequences) + 1), ends, [len(s) for s in sequences], bounds):
            file.write(np.array(array, dtype=np.int64).tobytes())
    run(tool, "import", f"{folder}/old", "--output-prefix", f"{folder}/new")
    write(f"{folder}/wanted", documents, dtype)
    same(f"{folder}/new", f"{folder}/wanted", "import")


def check_show(r, tool, folder, dtype):
    documents = [[[r.randrange(50) for _ in range(r.randint(1, 30))]] for _ in range(r.randint(1, 40))]
    write(f"{folder}/data", documents, dtype)
    seq, micro, ranks, steps = r.choice([2, 7, 16]), r.randint(1, 3), r.randint(1, 4), r.randint(1, 6)
    batch = micro * ranks * r.randint(1, 3)
    pathlib.Path(f"{folder}/run.yml").write_text(
        f"{{num_layers: 1, hidden_size: 8, num_attention_heads: 1, seq_length: {seq}, max_position_embeddings: {seq}, "
        f"pos_emb: none, train_iters: {steps}, padded_vocab_size: 50, split: '1', seed: {r.randrange(1000)}, "
        f"train_batch_size: {batch}, train_micro_batch_size_per_gpu: {micro}, data_path: {folder}/data}}\n")
    seed = int(re.search(r"seed: (\d+)", pathlib.Path(f"{folder}/run.yml").read_text())[1])
    samples = gpt_neox_samples([d[0] for d in documents], seq, steps * batch, seed)
    for step in range(1, steps + 1):
        for rank in range(ranks):
            text = run(tool, "show", f"{folder}/run.yml", "--step", step, "--rank", rank, "--ranks", ranks)
            wanted = []
            for first in range((step - 1) * batch, step * batch, micro * ranks):
                wanted += range(first + rank * micro, first + (rank + 1) * micro)
            shown = [list(map(int, line.split())) for line in re.findall(r"  ids: (.*)", text)]
            assert shown == [samples(i) for i in wanted], (step, rank)


def gpt_neox_samples(documents, seq, count, seed):
    """Sample number i as a list of tokens (gpt2_dataset.py, packed; the last sample of the index is never used)."""
    per_epoch, epochs = sum(map(len, documents)), 1
    while (epochs * per_epoch - 1) // seq < count:
        epochs += 1
    rng = np.random.RandomState(seed)
    order = np.tile(np.arange(len(documents), dtype=np.int32), epochs)
    rng.shuffle(order)
    tokens = [t for d in order for t in documents[d]]
    shuffle = np.arange((epochs * per_epoch - 1) // seq, dtype=np.uint32)
    rng.shuffle(shuffle)
    size = max(len(shuffle) - 1, 1)
    return lambda i: tokens[shuffle[i % size] * seq:shuffle[i % size] * seq + seq + 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    checks = [check_merge, check_split, check_count, check_verify, check_repair, check_import, check_show]
    for case in range(a.cases):
        r = random.Random(a.seed * 1_000_003 + case)
        with tempfile.TemporaryDirectory() as folder:
            check = checks[case % len(checks)]
            try:
                check(r, a.tool, folder, r.choice([np.uint16, np.int32]))
            except AssertionError as e:
                print(f"case {case}, {check.__name__}: {e}")
                return 1
    print(f"neox-data equals megatron-core and numpy in {a.cases} random cases: "
          f"{', '.join(check.__name__[6:] for check in checks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
