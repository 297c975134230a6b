"""Writes what fuzzing of a reader begins with: fuzz_seeds.py READER DIRECTORY."""
import hashlib
import json
import os
import sys

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")


def golden(name):
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as file:
        return json.load(file)


def torchfile():
    return [bytes.fromhex(file["hex"]) for file in golden("torchfile.json")]


def tokenizer():
    models = [bytes.fromhex(one["model"]) + b"\0text" for one in golden("sentencepiece.json")]
    words = [json.dumps(one["tokenizer"]).encode() for one in golden("word_models.json")["tokenizers"]]
    return models + words


def wiki():
    dump = "\n".join(golden("wiki.json")["dump"])
    pages = ["<page>" + page for page in dump.split("<page>")[1:]]
    return [page.encode() for page in pages]


def main():
    reader, directory = sys.argv[1:]
    makers = {"torchfile": torchfile, "tokenizer": tokenizer, "wiki": wiki}
    for seed in makers.get(reader, list)():
        with open(os.path.join(directory, hashlib.sha1(seed).hexdigest()), "wb") as file:
            file.write(seed)


main()
