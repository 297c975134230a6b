"""Independent implementations of the three orders of samples, on numpy's own RandomState, for sample_order.py.

Rules: GPT-NeoX megatron/data/{data_utils,gpt2_dataset,blendable_dataset}.py and helpers.cpp; Megatron-LM of July 2023;
Megatron-Core 0.16 megatron/core/datasets. Tokens are laid out one by one here, and samples are cut out of them, so that
nothing is shared with the program but the definition.
"""
import math
import re

import numpy as np

from sample_order_cases import MASKED


def fold(values):
    total = 0.0
    for value in values:  # sum() of Python 3.12 is another one
        total += value
    return total


def normalized(weights):
    array = np.array(weights, dtype=np.float64)
    return (array / np.sum(array)).tolist()


class Refused(Exception):
    """What the program must say, where it and the original end with an error."""


# ---- one data set

def epochs_for(order, tokens, seq, samples):
    if tokens == 0:  # the originals would count epochs for ever
        raise Refused("no tokens")
    if samples is None:
        return 1
    epochs = 1
    while (epochs * tokens - 1) // seq < samples if order != "megatron-core" else epochs * tokens < samples * seq + 1:
        epochs += 1
    return epochs


def index(order, documents, lengths, seq, samples, seed):
    """(documents, samples of them, shuffle, epochs) of packed samples; lengths: of all documents."""
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
    return np.concatenate((head, tail)).tolist(), total, np.concatenate((shuffle, rest)).tolist(), epochs


class Samples:
    """Samples of one data set: take(i) gives tokens and labels."""

    def __init__(self, case, data, documents, samples):
        self.case, self.data = case, data
        self.order, self.seq, self.parts = case["order"], case["seq"], [self]
        if case["packing"] == "packed":
            joined, self.total, self.shuffle, self.epochs = index(
                self.order, documents, data.lengths, self.seq, samples, case["seed"])
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
            self.epochs = math.ceil(len(self.groups) / len(usable))
            return
        order = np.arange(len(documents))
        rng.shuffle(order)
        self.epochs = 1
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
                self.epochs += 1
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

def core_shares(text):
    """Where each split begins and ends, as parts of all documents."""
    shares = [float(s) for s in re.findall(r"[.0-9]+", text)]
    ends = [0]
    for share in normalized(shares + [0.0] * (3 - len(shares))):
        ends.append(ends[-1] + share)
    return list(zip(ends, ends[1:]))


def split_bounds(order, text, n):
    if order == "megatron-core":
        return [(int(round(a * float(n))), int(round(b * float(n)))) for a, b in core_shares(text)]
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


def endless(case):
    """Whether megatron-core counts epochs for ever: for a split with a share but no tokens, be it not asked for."""
    if case["form"] == "paths":
        return False
    shares = core_shares(case["split"])
    return any(a < b and not any(d.lengths[int(round(a * float(n))):int(round(b * float(n)))])
               for d in case["sets"][0] for n in [len(d.lengths)] for a, b in shares)
