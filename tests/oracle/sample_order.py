"""Compares the order of samples with an independent implementation on numpy's own RandomState, on random cases.

  sample_order.py TOOL [--cases 100]       TOOL: the program sample_order_tool of the build tree
  sample_order.py --golden FILE            writes the cases of tests/golden/sample_order.txt

Rule: GPT-NeoX, megatron/data/gpt2_dataset.py (packed) and helpers.cpp. Tokens are laid out one by one here, so nothing
is shared with the arithmetic of the program but the definition.
"""
import argparse
import random
import subprocess
import sys

import numpy as np


def neox_order(lengths, seq, samples, seed):
    """(documents, positions, shuffle) of one corpus."""
    per_epoch = sum(lengths)
    epochs = 1
    while (epochs * per_epoch - 1) // seq < samples:
        epochs += 1
    rng = np.random.RandomState(seed)
    documents = np.tile(np.arange(len(lengths), dtype=np.int32), epochs)
    rng.shuffle(documents)
    # Where each token of the joined documents lies. A sample begins where the one before has its last token, and a
    # walk stops at the last token of a document, so a position is found from the token before it.
    place = [(d, t) for d, document in enumerate(documents) for t in range(lengths[document])]
    total = (epochs * per_epoch - 1) // seq
    positions = [(0, 0)] + [place[k * seq] for k in range(1, total + 1)]
    shuffle = np.arange(total, dtype=np.uint32)
    rng.shuffle(shuffle)
    return documents.tolist(), positions, shuffle.tolist()


def random_case(source, small):
    longest = source.choice([3, 9, 40])
    lengths = [source.randrange(0, longest + 1) for _ in range(source.randrange(1, 13 if small else 600))]
    if not any(lengths):
        lengths[0] = 1
    seq = source.choice([1, 2, 7, 16, 64])
    samples = source.randrange(0, 30 if small else 900)
    return lengths, seq, min(samples, 40 * sum(lengths) // seq + 1), source.choice([0, 1, 42, 1234, 2**32 - 1])


def line_of(lengths, seq, samples, seed, order):
    documents, positions, shuffle = order
    flat = [n for position in positions for n in position]
    return " | ".join(" ".join(map(str, part)) for part in ((seq, samples, seed), lengths, documents, flat, shuffle))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tool", nargs="?")
    options.add_argument("--cases", type=int, default=100)
    options.add_argument("--golden")
    args = options.parse_args()
    source = random.Random(7)
    if args.golden:
        cases = [random_case(source, small=True) for _ in range(20)]
        with open(args.golden, "w") as file:
            for case in cases:
                file.write(line_of(*case, neox_order(*case)) + "\n")
        return 0
    cases = [random_case(source, small=False) for _ in range(args.cases)]
    asked = "".join(" ".join(map(str, (seq, samples, seed, *lengths))) + "\n" for lengths, seq, samples, seed in cases)
    found = subprocess.run([args.tool], input=asked, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    wrong = [i for i, case in enumerate(cases) if i >= len(found) or found[i] != line_of(*case, neox_order(*case))]
    for i in wrong[:3]:
        print("differs:", cases[i][1:], cases[i][0][:20])
    print(f"{len(cases) - len(wrong)} of {len(cases)} cases equal numpy {np.__version__}")
    return 1 if wrong or len(found) != len(cases) else 0


if __name__ == "__main__":
    sys.exit(main())
