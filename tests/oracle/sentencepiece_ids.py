#!/usr/bin/env python3
"""Compares our ids and decoded texts with those of the Python library `sentencepiece`, one by one.

Usage: sentencepiece_ids.py [--texts N] [--seed S]        Needs the built test tool tokenizer_tool.

Models as of sentencepiece_models.py, also with SentencePiece's own tables of characters. Texts: random strings, made-up
documents, long ones, and every code point. Ends with 1 on any difference.
"""
import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from sentencepiece_models import LONG, MODELS, WITH_TABLES, documents, models, peer
from tokenizer_peer import RandomTexts, count_different, encode_with_tool

GLUE = ["<sep>", "  ", "to", "<|endoftext|>", "▁", "\n", "ﬁ", "é", "e\u0301", "\u200b", "語", "☃", "sol", "<s>", "Ａ", "ⅷ"]


def valid(text):
    return text.decode("utf-8", errors="replace").replace("\0", " ")


def compare(name, sp, path, texts):
    ours = [(ids, skipped) for ids, skipped, _ in encode_with_tool(["spm", path], [t.encode() for t in texts])]
    theirs = []
    for text, (_, decoded) in zip(texts, ours):
        ids = sp.encode(text)
        # Bytes that are no UTF-8 become one U+FFFD each there, one for each maximal part here.
        theirs.append((ids, decoded if "\ufffd" in decoded else sp.decode(ids)))
    return count_different(name, [t.encode() for t in texts], theirs, ours)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random_texts = RandomTexts(options.seed, GLUE)
    texts = [valid(random_texts.text()) for _ in range(options.texts)] + list(documents(options.seed + 5, 500))
    points = [chr(i) for i in range(1, 0x110000) if not 0xD800 <= i < 0xE000]
    texts += ["".join(f"ka{c} {c}to" for c in points[i:i + 512]) for i in range(0, len(points), 512)]
    texts += [LONG, *(" " * n for n in range(40)), " ".join(documents(options.seed + 6, 3000))]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.model"
        for name, model in models({**MODELS, **WITH_TABLES}, pathlib.Path(folder)):
            path.write_bytes(model)
            wrong += compare(name, peer(model), path, texts)
    print("all equal" if not wrong else f"{wrong} texts differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
