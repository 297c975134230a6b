"""Compares the samples of a run with independent implementations of the three orders on numpy's own RandomState, on
random cases: splits, blends of 1 to 300 data sets, several epochs, samples that are not packed, labels.

  sample_order.py TOOL [--cases 500] [--core]   TOOL: the program sample_order_tool of the build tree
                                                --core: also with megatron-core itself, where it is installed
  sample_order.py --golden FILE                 writes the cases of tests/golden/sample_order.txt

Rules: GPT-NeoX megatron/data/{data_utils,gpt2_dataset,blendable_dataset}.py and helpers.cpp; Megatron-LM of July 2023;
Megatron-Core 0.16 megatron/core/datasets. Tokens are laid out one by one here, and samples are cut out of them, so that
nothing is shared with the program but the definition.
"""
import argparse
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

from sample_order_cases import MASKED, config_of, random_case


def fold(values):
    total = 0.0
    for value in values:  # sum() of Python 3.12 is another one
        total += value
    return total


def normalized(weights):
    array = np.array(weights, dtype=np.float64)
    return (array / np.sum(array)).tolist()


# ---- one data set

def epochs_for(order, tokens, seq, samples):
    if samples is None:
        return 1
    epochs = 1
    while (epochs * tokens - 1) // seq < samples if order != "megatron-core" else epochs * tokens < samples * seq + 1:
        epochs += 1
    return epochs


def index(order, documents, lengths, seq, samples, seed):
    """(documents, samples of them, shuffle) of packed samples; lengths: of all documents."""
    tokens = sum(lengths[d] for d in documents)
    epochs = epochs_for(order, tokens, seq, samples)
    total = (epochs * tokens - 1) // seq
    first_epochs, first = epochs, total
    if order != "neox" and epochs > 1:
        before = ((epochs - 1) * tokens - 1) // seq
        if samples - before < int(0.80 * ((tokens - 1) // seq)):
            first_epochs, first = epochs - 1, before
    rng = np.random.RandomState(seed)
    head = np.tile(np.array(documents, dtype=np.int32), first_epochs)
    rng.shuffle(head)
    tail = np.array(documents if first_epochs < epochs else [], dtype=np.int32)
    rng.shuffle(tail)
    shuffle = np.arange(first, dtype=np.uint32)
    rng.shuffle(shuffle)
    rest = np.arange(first, total, dtype=np.uint32)
    rng.shuffle(rest)
    return np.concatenate((head, tail)).tolist(), total, np.concatenate((shuffle, rest)).tolist()


class Samples:
    """Samples of one data set: take(i) gives tokens and labels."""

    def __init__(self, case, data, documents, samples):
        self.case, self.data = case, data
        self.order, self.seq = case["order"], case["seq"]
        if case["packing"] == "packed":
            joined, self.total, self.shuffle = index(self.order, documents, data.lengths, self.seq, samples, case["seed"])
            self.text = np.concatenate([data.tokens[d] for d in joined])
            self.labels = np.concatenate([data.labels[d] for d in joined])
        else:
            self.whole(documents, samples)

    def fits(self, d):
        if not self.case["allow_chopped"] and len(self.data.tokens[d]) > self.seq + 1:
            return False
        until = self.seq if self.case["packing"] == "unpacked" else self.seq + 1
        return not (self.data.labelled and np.all(self.data.labels[d][:until] == MASKED))

    def whole(self, documents, samples):
        rng = np.random.RandomState(self.case["seed"])
        self.total, self.shuffle = samples, np.arange(samples)
        rng.shuffle(self.shuffle)
        self.groups = []  # documents of each sample
        if self.case["packing"] == "unpacked":
            usable = [d for d in documents if self.fits(d)]
            self.groups = [[usable[i % len(usable)]] for i in range(samples + 1)]
            return
        order = np.arange(len(documents))
        rng.shuffle(order)
        at, filled, joined = 0, 0, []
        while len(joined) < samples:
            d = documents[order[at]]
            if self.fits(d):
                length = len(self.data.tokens[d])
                if filled and filled + length <= self.seq + 1:
                    joined[-1].append(d)
                    filled += length
                else:
                    joined.append([d])
                    filled = length
            at += 1
            if at == len(order):
                at = 0
                rng.shuffle(order)
        self.groups = joined

    def __len__(self):
        return self.total - 1 if self.order == "neox" else self.total

    def take(self, i):
        if i >= self.total:
            return self.take(i % max(1, len(self)))
        j, seq = int(self.shuffle[i]), self.seq
        if self.case["packing"] == "packed":
            return self.text[j * seq:j * seq + seq + 1], self.labels[j * seq:j * seq + seq + 1]
        if j + 1 >= len(self.groups) and i != j % max(1, len(self)):
            return self.take(j % max(1, len(self)))
        parts = [(d, None) for d in self.groups[j]] + [(d, 1) for d in (self.groups + [[]])[j + 1][:1]]
        text = np.concatenate([self.data.tokens[d][:n] for d, n in parts])[:seq + 1]
        labels = np.concatenate([self.data.labels[d][:n] for d, n in parts])[:seq + 1]
        pad = (0, seq + 1 - len(text))
        return np.pad(text, pad), np.pad(labels, pad, constant_values=MASKED)


# ---- splits and blends

def split_bounds(order, text, n):
    if order == "megatron-core":
        shares = [float(s) for s in re.findall(r"[.0-9]+", text)]
        shares = normalized(shares + [0.0] * (3 - len(shares)))
        ends = [0]
        for share in shares:
            ends.append(ends[-1] + share)
        return [(int(round(a * float(n))), int(round(b * float(n)))) for a, b in zip(ends, ends[1:])]
    shares = ([float(s) for s in text.split("," if "," in text else "/")] + [0.0, 0.0])[:3]
    shares = [s / fold(shares) for s in shares]
    ends = [0]
    for share in shares:
        ends.append(ends[-1] + int(round(share * float(n))))
    error = ends[-1] - n
    ends = [0] + [end - error for end in ends[1:]]
    return list(zip(ends, ends[1:]))


def weights_by_documents(counts, alpha):
    if len(counts) == 1:
        return [1.0]
    shares = [c / sum(counts) for c in counts]
    raised = [s**alpha for s in shares]
    raised = [r / fold(raised) for r in raised]
    weights = [r * (1 - s) for r, s in zip(raised, shares)]
    return [w / fold(weights) for w in weights]


class Refused(Exception):
    """What the program must say, where it and the original end with an error."""


class Blend:
    def __init__(self, case, datasets, documents, weights, asked):
        order = case["order"]
        given = weights
        if order == "megatron-core":
            if given is not None:
                weights = normalized(given)
                targets = [math.ceil(asked * w) for w in weights]
                counts = [int(math.ceil(t * (1 + 0.005))) for t in targets]
                size = sum(targets)
            else:
                counts = [None] * len(datasets)
        else:
            weights = given or [1.0] * len(datasets)
            weights = [w / fold(weights) for w in weights]
            counts = [int(math.ceil(asked * w * 1.005)) for w in weights]
            size = sum(counts)
        self.parts = [Samples(case, d, docs, n) for d, docs, n in zip(datasets, documents, counts)]
        if order == "neox":
            size = max(1, sum(len(p) for p in self.parts))
        if order == "megatron-core" and given is None:
            weights = [len(p) for p in self.parts]
            if min(weights) == 0:
                raise Refused("too short")
            size = min(asked, sum(weights))
        self.size = size
        self.picks = blending_indices(normalized(weights), size)

    def __len__(self):
        return self.size

    def take(self, i):
        dataset, sample = self.picks[i]
        return self.parts[dataset].take(sample)


def blending_indices(weights, size):
    weights = np.array(weights)
    drawn = np.zeros(len(weights))
    picks = []
    for k in range(size):
        i = int(np.argmax(weights * max(float(k), 1.0) - drawn))
        picks.append((i, int(drawn[i])))
        drawn[i] += 1
    return picks


def source(case, split):
    """The samples of split 0, 1 or 2; None: it has none."""
    asked = case["counts"][split]
    datasets = case["sets"][split if case["form"] == "paths" else 0]
    if asked == 0 or not datasets:
        return None
    if case["form"] == "paths":
        ranges = [(0, len(d.tokens)) for d in datasets]
        weights = case["weights"][split]
        if case["by_documents"]:
            weights = weights_by_documents([len(d.tokens) for d in datasets], case["alpha"])
        blended = len(datasets) > 1 or case["order"] == "neox"
    else:
        ranges = [split_bounds(case["order"], case["split"], len(d.tokens))[split] for d in datasets]
        weights = case["weights"][0]
        blended = len(datasets) > 1 or weights is not None
    if any(a >= b for a, b in ranges):
        return None
    documents = [list(range(a, b)) for a, b in ranges]
    if blended:
        return Blend(case, datasets, documents, weights, asked)
    return Samples(case, datasets[0], documents[0], asked)


# ---- comparison

SHOWN = 60


def expected(case, split):
    samples = source(case, split)
    if samples is None:
        return "-"
    size = max(1, len(samples))
    text = str(size)
    for i in range(SHOWN):
        tokens, labels = samples.take(i % size)
        text += " | " + " ".join(map(str, tokens)) + " : " + " ".join("01"[int(v >= 0)] for v in labels[1:])
    return text


def describe(case):
    return {k: v for k, v in case.items() if k not in ("sets", "weights")} | {"datasets": len(case["sets"][0])}


def check(tool, cases, seed, core):
    rng = random.Random(seed)
    wrong = compared = 0
    for number in range(cases):
        with tempfile.TemporaryDirectory() as directory:
            case = random_case(rng, directory)
            config_of(case, f"{directory}/config.yml")
            line = " ".join(map(str, (f"{directory}/config.yml", SHOWN, *case["counts"])))
            run = subprocess.run([tool], input=line + "\n", capture_output=True, text=True)
            try:
                wanted = [expected(case, split) for split in range(3)]
            except Refused as reason:
                wrong += run.returncode != 64 or str(reason) not in run.stderr
                continue
            if run.stdout.splitlines() != wanted:
                wrong += 1
                if wrong <= 3:
                    print("differs:", number, describe(case), run.stderr[-500:])
                    for a, b in zip(run.stdout.splitlines(), wanted):
                        print(" found ", a[:200], "\n wanted", b[:200])
            if core and case["order"] == "megatron-core":
                compared += compare_with_core(case, wanted)
                print(number, "megatron-core:", compared, "equal", flush=True)
    print(f"{cases - wrong} of {cases} cases equal numpy {np.__version__}" + (f", {compared} megatron-core" if core else ""))
    return 1 if wrong else 0


# ---- megatron-core itself

def compare_with_core(case, wanted):
    """1 where megatron-core gives these samples; 0 where it ends with an error of its own rules."""
    from types import SimpleNamespace

    import torch
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    tokenizer = SimpleNamespace(eod=-1, pad=-2, vocab_size=2**31 - 1, unique_identifiers={"class": "none"})
    prefixes = [[d.prefix for d in sets] for sets in case["sets"]]
    options = {"random_seed": case["seed"], "sequence_length": case["seq"], "tokenizer": tokenizer,
               "reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False,
               "create_attention_mask": False, "path_to_cache": str(pathlib.Path(prefixes[0][0]).parent / "cache")}
    if case["form"] == "split":
        options |= {"blend": (prefixes[0], case["weights"][0]), "split": case["split"]}
    else:
        options["blend_per_split"] = [(p, w) if p else None for p, w in zip(prefixes, case["weights"])]
    try:
        config = GPTDatasetConfig(**options)
        built = BlendedMegatronDatasetBuilder(GPTDataset, case["counts"], lambda: True, config).build()
    except (IndexError, AssertionError, ValueError, ZeroDivisionError, RuntimeError) as error:
        print("megatron-core:", type(error).__name__, str(error)[:100])
        return 0
    for text, samples in zip(wanted, built):
        if text == "-":
            continue
        parts = text.split(" | ")
        if samples is None or len(samples) != int(parts[0]):
            raise SystemExit(f"megatron-core has {samples and len(samples)} samples, not {parts[0]}: {describe(case)}")
        for i, part in enumerate(parts[1:]):
            found = samples[i % len(samples)]
            tokens = found["tokens"].tolist() + found["labels"].tolist()[-1:]
            if tokens != list(map(int, part.split(" :")[0].split())):
                raise SystemExit(f"megatron-core differs in sample {i}: {describe(case)}")
    return 1


# ---- golden cases of the index alone

def golden_line(rng):
    order = rng.choice(["neox", "megatron"])
    longest = rng.choice([3, 9, 40])
    lengths = [rng.randrange(0, longest + 1) for _ in range(rng.randrange(1, 13))]
    lengths[0] += not any(lengths)
    seq, seed = rng.choice([1, 2, 7, 16, 64]), rng.choice([0, 1, 42, 1234, 2**32 - 1])
    samples = min(rng.randrange(0, 30), 40 * sum(lengths) // seq + 1)
    documents, total, shuffle = index(order, range(len(lengths)), lengths, seq, samples, seed)
    place = [(d, t) for d, document in enumerate(documents) for t in range(lengths[document])]
    positions = [(0, 0)] + [place[k * seq] for k in range(1, total + 1)]
    flat = [n for position in positions for n in position]
    return " | ".join(" ".join(map(str, part)) for part in ((order, seq, samples, seed), lengths, documents, flat, shuffle))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tool", nargs="?")
    options.add_argument("--cases", type=int, default=500)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--core", action="store_true")
    options.add_argument("--golden")
    args = options.parse_args()
    if args.golden:
        rng = random.Random(args.seed)
        pathlib.Path(args.golden).write_text("".join(golden_line(rng) + "\n" for _ in range(40)))
        return 0
    return check(args.tool, args.cases, args.seed, args.core)


if __name__ == "__main__":
    sys.exit(main())
