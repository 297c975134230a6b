"""Compares neox-prepare-data with the path of GPT-NeoX's preprocess_data.py, file by file: JSON by Python's json, ids by
the Python libraries, .bin and .idx by numpy. Texts are made here and, with NEOX_TEST_DATA, also taken from there.

  prepare.py PROGRAM [--lines 3000]
"""
import argparse
import bz2
import gzip
import io
import json
import lzma
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

EOD = "<|endoftext|>"


def write_dataset(prefix, documents, vocab):
    dtype, code = (np.uint16, 8) if vocab < 65500 else (np.int32, 4)
    lengths = np.array([len(ids) for ids in documents], dtype=np.int32)
    starts = np.zeros(len(documents), dtype=np.int64)
    starts[1:] = np.cumsum(lengths[:-1].astype(np.int64)) * np.dtype(dtype).itemsize
    with open(f"{prefix}.bin", "wb") as file:
        for ids in documents:
            file.write(np.array(ids, dtype=dtype).tobytes())
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(documents), len(documents) + 1))
        file.write(lengths.tobytes() + starts.tobytes() + np.arange(len(documents) + 1, dtype=np.int64).tobytes())


def random_text(source):
    parts = ["the ", "quick ", "fox", "\n", "  ", "é", "e\u0301", "漢字", "😀", "\t", '"', "\\", "/", "\u2028", "0123", EOD, "\0", ""]
    return "".join(source.choice(parts) for _ in range(source.choice([0, 1, 5, 40, 400])))


def random_line(source, number):
    """A line of JSON as bytes, in the many ways that people and programs write them."""
    text, title = random_text(source), random_text(source)
    line = {"id": number, "meta": {"text": "not this", "score": 1e-3}, "title": title, "text": text, "list": [None, True, {}]}
    style = source.randrange(12)
    if style == 0:
        line["score"] = float("nan") if number % 2 else float("-inf")
    if style == 1:
        line["text"] = "a \ud800 b " + text + "\udc00"  # json.dumps writes escapes
    if style == 2:
        return ('{"text": "first", "title": "t", "text": %s}' % json.dumps(text)).encode()
    if style == 3:
        return json.dumps(line, ensure_ascii=False).encode("utf-8", "replace").replace(b"fox", b"f\xff\xe2\x82x")
    if style == 4:
        return (" " + json.dumps(line, indent=None, separators=(" , ", " : ")) + " \r").encode()
    if style == 5:
        line["text"] = source.choice(["\ud83d\ude00", "\ud83d", "\ude00\ud83d", "\\ud83d", "NaN \"Infinity\" "]) + text
    return json.dumps(line, ensure_ascii=style % 2 == 0 or style in (1, 5)).encode()


def value_of(line, key):
    return json.loads(line.decode("utf-8", "replace"))[key].encode("utf-8", "replace").decode()


def train(directory, texts):
    """A tokenizer.json like GPT-NeoX's, and vocab.json with merges.txt."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=[EOD], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(f"{directory}/tokenizer.json")
    tokenizer.model.save(str(directory))
    return tokenizer


def write_packed(directory, lines):
    """The files in which Python packs lines, by the name of the form; two streams where the format knows them."""
    half, data = len(lines) // 2, b"\n".join(lines)
    for ending, pack in {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}.items():
        (directory / f"lines.{ending}").write_bytes(pack(b"\n".join(lines[:half]) + b"\n") + pack(b"\n".join(lines[half:])))
    with zipfile.ZipFile(directory / "lines.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.jsonl", data)
    with tarfile.open(directory / "lines.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as file:
        member = tarfile.TarInfo("dir/" + "long" * 50 + ".jsonl")
        member.size = len(data)
        file.addfile(member, io.BytesIO(data))
    return sorted(directory.glob("lines.*"))


class Comparison:
    def __init__(self, program, directory):
        self.program, self.directory, self.failed = program, Path(directory), 0

    def check(self, name, inputs, flags, tokenizer, expected, eod=None):
        """expected: {key: texts}; empty ones are left out."""
        out, ref = self.directory / f"{name}-out", self.directory / f"{name}-ref"
        command = [self.program, "--output-prefix", str(out), *flags, "--input", *map(str, inputs)]
        run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        same = run.returncode == 0
        for key, texts in expected.items():
            ids = [tokenizer.encode(text).ids + ([] if eod is None else [eod]) for text in texts if text]
            write_dataset(f"{ref}_{key}", ids, tokenizer.get_vocab_size())
            for ending in ("bin", "idx"):
                files = [Path(f"{out}_{key}_document.{ending}"), Path(f"{ref}_{key}.{ending}")]
                same = same and files[0].exists() and files[0].read_bytes() == files[1].read_bytes()
        print(f"{'equal' if same else 'DIFFERENT'}: {name}")
        if not same:
            print(run.stderr[-2000:])
        self.failed += not same


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("--lines", type=int, default=3000)
    args = options.parse_args()
    source = random.Random(3)
    lines = [random_line(source, number) for number in range(args.lines)]
    texts = {key: [value_of(line, key) for line in lines] for key in ("text", "title")}
    with tempfile.TemporaryDirectory() as directory:
        compare = Comparison(args.program, directory)
        path = Path(directory, "lines.jsonl")
        path.write_bytes(b"\n".join(lines) + b"\n\n")
        made = train(directory, [t for t in texts["text"] if EOD not in t])
        hf = ["--tokenizer-type", "HFTokenizer", "--vocab-file", f"{directory}/tokenizer.json"]
        eod = made.token_to_id(EOD)
        compare.check("plain", [path], hf, made, {"text": texts["text"]})
        compare.check("eod", [path], [*hf, "--append-eod", "--workers", "3"], made, {"text": texts["text"]}, eod)
        compare.check("keys", [path], [*hf, "--json-keys", "title", "text", "--workers", "1"], made, texts)
        packed = Path(directory, "packed")
        packed.mkdir()
        for file in write_packed(packed, lines):
            compare.check(file.name, [file], hf, made, {"text": texts["text"]})
        both = {"text": texts["text"] * 2}
        compare.check("twice", [f"{path},{path}"], hf, made, both)
        part = {"text": [t for t in texts["text"] if t][:100]}
        compare.check("limit", [path], [*hf, "--max-documents", "100"], made, part)
        sayings = [t.replace("\0", "") for t in texts["title"] if t.strip(" \t\r\n\0")]
        sayings = [t if t.endswith("\n") else t + "\n" for t in sayings]
        Path(directory, "sayings").write_text("%\n".join(sayings), newline="")
        compare.check("parts", [Path(directory, "sayings")], [*hf, "--split-on", "%"], made, {"text": sayings})
        data = os.environ.get("NEOX_TEST_DATA")
        if data:
            known = Tokenizer.from_file(f"{data}/20B_tokenizer.json")
            flags = ["--vocab-file", f"{data}/20B_tokenizer.json", "--append-eod"]
            files = sorted(Path(data).glob("*.txt"))
            compare.check("20B text", files, flags, known, {"text": [f.read_bytes().decode() for f in files]}, 0)
            compare.check("20B lines", [path], flags, known, {"text": texts["text"]}, 0)
        return 1 if compare.failed else 0


if __name__ == "__main__":
    sys.exit(main())
