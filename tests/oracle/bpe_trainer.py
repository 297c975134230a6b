#!/usr/bin/env python3
"""Compares our BPE trainer with the BpeTrainer of the Python library `tokenizers`, file for file.

Usage: [NEOX_TEST_DATA=DIR] bpe_trainer.py [--cases N] [--seed S] [--megabytes M --entries E]

tokenizer.json, vocab.json and merges.txt must be equal byte for byte. Corpora: M * 10^6 bytes of the machine's own texts
(E entries, GPT-2's one special token and no normalizer, as `train_new_from_iterator` of GPT-2's tokenizer trains, which
is compared too), every *.txt of NEOX_TEST_DATA (4096 entries) and N random ones of several kinds. Needs the built test
tool. Where the library itself gives different results in different runs (it breaks some ties by the order of a hash
map), ours must be one of them.
"""
import argparse
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tokenizers
from machine_texts import machine_texts
from tokenizer_peer import SPECIAL, RandomTexts, new_tokenizer, run_tool, train_peer

RETRIES = 20
GPT2_SPECIAL = ["<|endoftext|>"]


def peer_files(folder, documents, size, nfc, frequency, special=SPECIAL):
    folder.mkdir(exist_ok=True)
    made = train_peer([d.decode("utf-8", errors="replace") for d in documents], size, nfc, frequency, special)
    made.save(str(folder / "tokenizer.json"))
    made.model.save(str(folder))
    return contents(folder)


def our_files(folder, documents, size, nfc, frequency, threads, special=SPECIAL):
    folder.mkdir(exist_ok=True)
    run_tool(["train", folder, size, frequency, "nfc" if nfc else "none", threads, *special], documents)
    return contents(folder)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in ("tokenizer.json", "vocab.json", "merges.txt")}


def random_case(seed):
    """(documents, vocab_size, nfc, min_frequency, threads)"""
    r = random.Random(seed)
    kind = r.randrange(4)
    if kind == 0:  # few letters, long words: many equal counts, tokens that arise in several ways
        letters = "ab" if r.random() < 0.5 else "abcde "
        documents = ["".join(r.choices(letters, k=r.randint(1, 200))).encode() for _ in range(r.randint(1, 300))]
    elif kind == 1:  # syllables, as in natural words
        syllables = ["".join(r.choices("aeiou", k=1) + r.choices("bcdfglmnrst", k=r.randint(0, 2))) for _ in range(40)]
        words = ["".join(r.choices(syllables, k=r.randint(1, 5))) for _ in range(500)]
        documents = [" ".join(r.choices(words, [1 / (i + 1) for i in range(500)], k=r.randint(1, 300))).encode()
                     for _ in range(r.randint(1, 200))]
    elif kind == 2:  # everything, with bytes that are not UTF-8 and the special tokens
        texts = RandomTexts(seed, ["<|endoftext|>", "<|padding|>"])
        documents = [texts.text() for _ in range(r.randint(1, 500))]
    else:
        documents = [(r.choice("xyz") * r.randint(1, 40) + " ").encode() * r.randint(1, 3) for _ in range(r.randint(0, 60))]
    return documents, r.choice([258, 259, 300, 600, 2000]), r.random() < 0.5, r.choice([0, 1, 2, 3]), r.choice([1, 3])


def compare(name, folder, documents, size, nfc, frequency, threads, special=SPECIAL):
    """True where equal; says so."""
    ours = our_files(folder / "ours", documents, size, nfc, frequency, threads, special)
    runs = 0
    for runs in range(1, RETRIES + 1):
        theirs = peer_files(folder / "theirs", documents, size, nfc, frequency, special)
        if ours == theirs:
            break
    else:
        a, b = (x["merges.txt"].decode().split("\n") for x in (ours, theirs))
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        print(f"{name}: DIFFERS; merges from line {at + 1} of {len(a)}: ours {a[at:at + 4]}, theirs {b[at:at + 4]}")
        return False, runs
    return True, runs


def gpt2_files(folder, texts, size):
    """What training GPT-2's tokenizer anew gives, as in Megatron's examples: 100 texts at a time."""
    import transformers
    gpt2 = transformers.PreTrainedTokenizerFast(tokenizer_object=new_tokenizer(nfc=False), unk_token=GPT2_SPECIAL[0],
                                                bos_token=GPT2_SPECIAL[0], eos_token=GPT2_SPECIAL[0])
    batches = (texts[i:i + 100] for i in range(0, len(texts), 100))
    folder.mkdir(exist_ok=True)
    gpt2.train_new_from_iterator(batches, size, length=len(texts), show_progress=False).backend_tokenizer.model.save(
        str(folder))
    return {name: (folder / name).read_bytes() for name in ("vocab.json", "merges.txt")}


def compare_real(folder, megabytes, size):
    """True where the files learnt from the machine's own texts are equal."""
    texts = machine_texts(megabytes)
    documents = [text.encode() for text in texts]
    good, _ = compare("the machine's texts", folder, documents, size, False, 0, 2, GPT2_SPECIAL)
    ours = contents(folder / "ours")
    gpt2 = gpt2_files(folder / "gpt2", texts, size)
    good = good and all(ours[name] == gpt2[name] for name in gpt2)
    print(f"{sum(map(len, documents)) / 1e6:.1f} MB of the machine's texts, {size} entries, also as GPT-2's tokenizer trained "
          f"anew: {'equal' if good else 'DIFFERS'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=3)
    parser.add_argument("--entries", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data = os.environ.get("NEOX_TEST_DATA")
    print(f"tokenizers {tokenizers.__version__}, NEOX_TEST_DATA {data or 'not set: no real texts'}")
    wrong = unsteady = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wrong += not compare_real(folder, options.megabytes, options.entries)
        for path in sorted(pathlib.Path(data).glob("*.txt")) if data else []:
            for documents in ([path.read_bytes()], path.read_bytes().splitlines(keepends=True)):
                good, runs = compare(path.name, folder, documents, 4096, True, 0, 2)
                print(f"{path.name}, {len(documents)} documents, 4096 entries: {'equal' if good else 'DIFFERS'}", flush=True)
                wrong += not good
                unsteady += runs > 1
        for case in range(options.cases):
            good, runs = compare(f"random corpus {case}", folder, *random_case(options.seed * 100_000 + case))
            wrong += not good
            unsteady += runs > 1
    print(f"{options.cases} random corpora; {wrong} differ; {unsteady} times the library differed from itself")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
