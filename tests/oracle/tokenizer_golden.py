#!/usr/bin/env python3
"""Writes tests/golden/tokenizer.json: what the Python library `tokenizers` makes of texts that the C++ tests make too.

Usage: NEOX_TEST_DATA=DIR tokenizer_golden.py      DIR holds 20B_tokenizer.json and the *.txt of the digests

Holds: the digest of the tokenizer.json trained on generated text; texts (hex, since some are not UTF-8) with ids and
decoded text under that tokenizer with added tokens; and digests of the ids of the texts in DIR under 20B.
"""
import json
import os
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tokenizer_peer import RandomTexts, train_peer
from tokenizers import AddedToken, Tokenizer

PARTS = ["ka", "to", "mi", "ren", "shi", "the", "and", "of", " ", " ", " ", " ", " ", " ", "\n", "  ", "7", "42", "'s",
         "'ll", ".", ", ", "--", "\u00e9", "e\u0301", "\u00f1", "\u4e2d", "\u6587", "\ud55c", "\U0001f642", "ing", "er"]
ADDED = [AddedToken("  "), AddedToken("    "), AddedToken("<s>", single_word=True),
         AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False),
         AddedToken("cafe\u0301"), AddedToken("nai\u0308ve", special=True, normalized=True)]
CHOSEN = ["", "the and of", "kato's ren'll 'S", " \n  \u3000x", "   a    b     c", "a<|endoftext|>b<|padding|><|endoftext|",
          "x<s>y <s> <s>", "a  <l> b <r>  c", "caf\u00e9 cafe\u0301 na\u00efve", "e\u0301e\u0323\u0301 \u1112\u1161\u11ab \u212b\u0958",
          "\u0301a \U00011938\U00011935\u0334", "\U0001f642\ud55c\u4e2d", "a" * 60, "ka" * 40]


class Generator:
    """tests/generated_text.h"""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.state >> 16

    def text(self, parts):
        return "".join(PARTS[self.next() % len(PARTS)] for _ in range(parts))

    def documents(self, count, parts):
        return [self.text(parts) for _ in range(count)]


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def case(made, text):
    ids = made.encode(text.decode("utf-8", errors="replace")).ids
    return {"text": text.hex(), "ids": ids, "decoded": made.decode(ids), "with_special": made.decode(ids, False)}


def digest(made, text):
    ids = made.encode(text.decode("utf-8", errors="replace")).ids
    return {"count": len(ids), "fnv": fnv(struct.pack(f"<{len(ids)}i", *ids))}


def main():
    data = pathlib.Path(os.environ["NEOX_TEST_DATA"])
    made = train_peer(Generator(1).documents(200, 100), 500)
    golden = {"trained": fnv(made.to_str(pretty=True).encode())}
    made.add_tokens(ADDED)
    damaged = [b"a\xffb", b"\xe2\x82", b"\xf0\x9f\x99 \xed\xa0\x80\xc0\x80", b"caf\xe9", b"\xf4\x90\x80\x80x"]
    random_texts = RandomTexts(11, [token.content for token in ADDED] + PARTS)
    texts = [t.encode() for t in CHOSEN] + damaged + [random_texts.text() for _ in range(40)]
    golden["cases"] = [case(made, text) for text in texts]
    library = Tokenizer.from_file(str(data / "20B_tokenizer.json"))
    golden["20B"] = {p.name: digest(library, p.read_bytes()) for p in sorted(data.glob("*.txt"))}
    path = pathlib.Path(__file__).resolve().parents[1] / "golden/tokenizer.json"
    lines = ",\n".join(json.dumps(c) for c in golden.pop("cases"))
    path.write_text(json.dumps(golden)[:-1] + f', "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
