#!/usr/bin/env python3
"""Writes tests/golden/sentencepiece.json: models of SentencePiece, texts, and the ids and decoded texts that it gives.

Usage: sentencepiece_golden.py        Needs sentencepiece 0.2.3.
"""
import json
import pathlib
import tempfile

from sentencepiece_models import LONG, MODELS, documents, models, peer

TEXTS = ["", " ", "   ", "ka", " ka", "ka ", "kato  miren", "solva<sep>du  <sep> to", "▁ka▁▁to", "tab\tnew\nline", "Ａ ﬁ é \u200bB A½",
         "unknown: ☃☃ 😀 ☃x", "<s>ka</s><unk>", "<|endoftext|>", "12345", "<0x41>", "語漢ー語", "  two  spaces  ", "sol sol", "iii", " " * 15, "a" + " " * 17 + "b"]


def checksum(ids):
    value = 0
    for i in ids:
        value = (value * 31 + i + 1) % 2**32
    return value


def main():
    golden = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models(MODELS, pathlib.Path(folder)):
            sp = peer(model)
            texts = TEXTS + list(documents(2, 8))
            golden.append({"name": name, "model": model.hex(), "pieces": sp.get_piece_size(), "of_long": checksum(sp.encode(LONG)),
                           "texts": [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in texts]})
    path = pathlib.Path(__file__).parents[1] / "golden" / "sentencepiece.json"
    path.write_text(json.dumps(golden, ensure_ascii=True, indent=0) + "\n")


if __name__ == "__main__":
    main()
