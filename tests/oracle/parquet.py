"""Compares the rows of Parquet and Arrow files, as neox-prepare-data reads them, with what pyarrow reads and Python's json writes:
values of every type, nested and missing, in files of every compression, encoding and kind of page.

  parquet.py ROWS_TOOL [--files 200]
"""
import argparse
import decimal
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
ENCODINGS = {"text": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"], "int64": ["PLAIN", "DELTA_BINARY_PACKED"],
             "double": ["PLAIN", "BYTE_STREAM_SPLIT"]}


def text(source):
    parts = ["the ", "quick", "\n", "\t", '"', "\\", "/", "\0", "\x1f", "\x7f", "é", "漢", "😀", "\u2028", "", "\r"]
    return "".join(source.choice(parts) for _ in range(source.choice([0, 1, 3, 30, 300])))


def number(source, bits, signed):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return source.choice([low, high, 0, source.randint(low, high)])


def real(source):
    return source.choice([0.0, -0.0, 1.0, 0.1, 1e300, 1e-5, -2.5e-7, 1e16, 123456789.0, float("nan"), float("inf"), float("-inf"),
                          source.uniform(-1, 1), source.gauss(0, 1e6)])


def floats(source, kind):
    """Values that the type holds: the rest is rounded on the way into an array."""
    return pa.array([source.choice([0.5, -3.0, 0.1, 7e-5, float("nan"), 1000.0])], kind).to_pylist()[0]


# Each: a type, and what makes a value of it.
def types(source, depth):
    basic = [
        (pa.string(), text), (pa.large_string(), text), (pa.bool_(), lambda s: s.random() < 0.5),
        (pa.binary(), lambda s: text(s).encode()), (pa.large_binary(), lambda s: text(s).encode()),
        (pa.binary(4), lambda s: s.choice([b"abcd", b"a\nb\"", b"\0\0\0\0"])),
        (pa.dictionary(pa.int32(), pa.string()), lambda s: s.choice(["red", "green", "\"blue\""])),
        (pa.float64(), real), (pa.float32(), lambda s: floats(s, pa.float32())), (pa.float16(), lambda s: floats(s, pa.float16())),
        (pa.decimal128(12, 3), lambda s: decimal.Decimal(s.choice([0, 1, -5, 123456789])).scaleb(-3)),
        (pa.decimal256(50, 0), lambda s: decimal.Decimal(s.choice([0, 10 ** 49, -7]))),
        (pa.null(), lambda s: None),
    ]
    for bits in (8, 16, 32, 64):
        basic.append((getattr(pa, f"int{bits}")(), lambda s, b=bits: number(s, b, True)))
        basic.append((getattr(pa, f"uint{bits}")(), lambda s, b=bits: number(s, b, False)))
    if depth == 2:  # pyarrow cannot write parts of a nested one
        basic.append((pa.string_view(), text))
    if depth == 0 or source.random() < 0.5:
        return source.choice(basic)
    kind, make = types(source, depth - 1)
    some = lambda s, least=0: [None if s.random() < 0.2 else make(s) for _ in range(s.randint(least, 4))]
    if pa.types.is_null(kind):
        return kind, make
    shape = source.choice(["list", "large", "view", "struct", "map"])
    if shape == "list":
        return pa.list_(kind), some
    if shape == "view":
        return pa.list_view(kind), some
    if shape == "large":
        return pa.large_list(kind), some
    if shape == "map":
        return pa.map_(pa.string(), kind), lambda s: [(text(s), v) for v in some(s)]
    return pa.struct([("a", kind), ('b"', pa.int16())]), lambda s: {"a": make(s), 'b"': s.choice([None, 3])}


def plain(value):
    """What json can write: bytes as the text that they are, pairs of maps as lists, decimals as written() knows them."""
    if isinstance(value, decimal.Decimal):
        return f"@@{value}@@"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return float(value) if type(value).__name__ == "float16" else value


def written(row):
    return re.sub(r'"@@([^@"]*)@@"', r"\1", json.dumps(plain(row), ensure_ascii=False)) + "\n"


def write_arrow(source, table, path):
    """A stream or a file of record batches; read back as pyarrow reads it."""
    options = {"form": source.choice(["stream", "file"]), "batch": source.choice([1, 7, 300, 5000]),
               "compression": source.choice([None, "zstd", "lz4"]), "deltas": source.random() < 0.5}
    make = pa.ipc.new_stream if options["form"] == "stream" else pa.ipc.new_file
    write = pa.ipc.IpcWriteOptions(compression=options["compression"], emit_dictionary_deltas=options["deltas"])
    with make(path, table.schema, options=write) as writer:
        writer.write_table(table, options["batch"])
    return options


def write_file(source, path):
    rows = source.choice([0, 1, 50, 1000])
    columns = {}
    for name in ["text"] + [f"c{i}" for i in range(source.randint(0, 4))]:
        kind, make = (pa.string(), text) if name == "text" else types(source, 2)
        columns[name] = pa.array([None if source.random() < 0.1 else make(source) for _ in range(rows)], kind)
    table = pa.table(columns)
    if source.random() < 0.4:
        return write_arrow(source, table, str(path))
    options = {"compression": source.choice(CODECS), "row_group_size": source.choice([1, 7, 300, 5000]) if rows < 1000 else 300,
               "data_page_version": source.choice(["1.0", "2.0"]), "write_page_checksum": source.random() < 0.5,
               "store_schema": source.random() < 0.7, "data_page_size": source.choice([64, 4096, 1 << 20])}
    if "string_view" in str(table.schema):
        options.update(row_group_size=5000, data_page_size=1 << 20)
    if source.random() < 0.5:
        options["use_dictionary"] = False
        options["column_encoding"] = {"text": source.choice(ENCODINGS["text"])}
        for name in columns:
            for of in ("int64", "double"):
                if str(table.schema.field(name).type) == of:
                    options["column_encoding"][name] = source.choice(ENCODINGS[of])
    pq.write_table(table, path, **options)
    return options


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--files", type=int, default=200)
    args = parser.parse_args()
    rows = values = unread = 0
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.parquet"
        for seed in range(args.files):
            source = random.Random(seed)
            options = write_file(source, path)
            try:
                if "form" in options:
                    table = (pa.ipc.open_stream if options["form"] == "stream" else pa.ipc.open_file)(str(path)).read_all()
                else:
                    table = pq.ParquetFile(path).read()
            except pa.ArrowException:  # some nested types in many groups: it is no peer there
                unread += 1
                continue
            names = table.column_names
            asked = source.sample(names, source.randint(1, len(names)))
            shown = [name for name in names if name in asked]
            wanted = "".join(written(row) for row in table.select(shown).to_pylist())
            got = subprocess.run([args.tool, path, str(source.randint(1, 4)), *asked], capture_output=True)
            if got.returncode or got.stdout.decode() != wanted:
                lines = zip(wanted.split("\n"), got.stdout.decode(errors="replace").split("\n"))
                first = next(((i, a, b) for i, (a, b) in enumerate(lines) if a != b), "")
                sys.exit(f"file {seed}, {options}, {table.schema}: {got.stderr.decode()} {first}")
            rows, values = rows + table.num_rows, values + table.num_rows * len(shown)
    if unread > args.files // 4:
        sys.exit(f"pyarrow read but {args.files - unread} files")
    print(f"parquet: {args.files - unread} files, {rows} rows, {values} values are what pyarrow {pa.__version__} reads")


main()
