"""Random cases for sample_order.py: data sets that are written to a directory, and a configuration that reads them."""
import pathlib

import numpy as np

MASKED = -100


class Data:
    def __init__(self, prefix, lengths, first, labelled, rng):
        self.prefix, self.lengths, self.labelled = prefix, lengths, labelled
        self.tokens, self.labels = [], []
        for length in lengths:
            self.tokens.append(np.arange(first, first + length, dtype=np.int64))
            first += length
            if not labelled:
                self.labels.append(self.tokens[-1].copy())
                continue
            mask = [rng.random() < 0.5 for _ in range(length)]
            if rng.random() < 0.15:
                mask = [True] * length
            self.labels.append(np.where(np.array(mask, dtype=bool), MASKED, self.tokens[-1]))
        self.end = first

    def write(self):
        write_dataset(self.prefix, self.tokens)
        if self.labelled:
            write_dataset(self.prefix + "_label", self.labels)


def write_dataset(prefix, documents):
    lengths = np.array([len(d) for d in documents], dtype="<i4")
    ends = np.concatenate(([0], np.cumsum(lengths.astype(np.int64) * 4)))
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + np.array([1], "<u8").tobytes() + b"\4")
        file.write(np.array([len(lengths), len(lengths) + 1], "<u8").tobytes())
        file.write(lengths.tobytes() + ends[:-1].astype("<i8").tobytes())
        file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
    with open(prefix + ".bin", "wb") as file:
        file.write(np.concatenate(documents).astype("<i4").tobytes())


def number_of_datasets(rng, order):
    most = 300 if order == "megatron-core" else 254
    return rng.choice([1, 1, 1, 2, 3, 5, 8, 9, 20, rng.randrange(1, most + 1)] + ([most] if rng.random() < 0.15 else []))


def random_case(rng, directory):
    order = rng.choice(["neox", "megatron", "megatron-core"])
    packing = rng.choice(["packed", "packed", "pack_until_overflow", "unpacked"]) if order == "neox" else "packed"
    form = "paths" if packing != "packed" or rng.random() < 0.5 else "split"
    case = {"order": order, "packing": packing, "form": form, "seed": rng.choice([0, 1, 42, 1234, 2**32 - 1]),
            "seq": rng.choice([1, 2, 7, 16, 64]), "split": rng.choice(["969, 30, 1", "6,2,2", "1/1/1", "8/1/1", "100"]),
            "allow_chopped": rng.random() < 0.5, "by_documents": False, "alpha": 1.0, "sets": [[], [], []],
            "weights": [None, None, None]}
    if packing != "packed":
        case["seq"] = rng.choice([7, 16, 40])
    many = 1 if form == "split" and order == "neox" else number_of_datasets(rng, order)
    case["counts"] = [rng.randrange(1, 900 if many < 10 else 2500), rng.choice([0, 1, 30]), rng.choice([0, 7])]
    labelled = form == "paths" and rng.random() < 0.5
    first = 0
    for split in range(3 if form == "paths" else 1):
        n = many if split == 0 else rng.choice([0, 1, 2, min(many, 9)])
        for i in range(n):
            longest = rng.choice([3, 9, 40])
            documents = rng.randrange(1, 300 if n < 4 else 40) if form == "paths" or n == 1 else rng.randrange(10, 40)
            least = 0 if packing == "packed" else 1
            lengths = [rng.randrange(least, longest + 1) for _ in range(documents)]
            lengths[0] += 2 * case["seq"] if packing == "packed" else 0  # enough for a sample
            if packing != "packed":
                lengths[0] = min(lengths[0], case["seq"])
            data = Data(f"{directory}/d{split}_{i}", lengths, first, labelled, rng)
            data.labels[0][0] = data.tokens[0][0]  # one that is not masked
            first = data.end
            data.write()
            case["sets"][split].append(data)
        if n > 0 and rng.random() < 0.7 or form == "split" and order == "megatron" and n > 1:
            case["weights"][split] = [rng.choice([1.0, 0.5, round(rng.random() + 0.001, 3), float(rng.randrange(1, 100))])
                                      for _ in range(n)]
    if order == "neox" and form == "paths" and rng.random() < 0.3:
        case["by_documents"], case["alpha"] = True, rng.choice([0.3, 1.0, 0.7])
        for split in range(3):  # a single data set of many has no weight by documents, nor have all of them
            case["weights"][split] = None
    if form == "split" and order == "neox":
        case["weights"][0] = None
    return case


def config_of(case, file):
    lines = ["num_layers: 2", "hidden_size: 64", "num_attention_heads: 4", f"seq_length: {case['seq']}", "train_iters: 1",
             f"max_position_embeddings: {case['seq']}", "pos_emb: rotary", "train_batch_size: 1",
             f"seed: {case['seed']}", f"data_order: {case['order']}", f"pack_impl: {case['packing']}",
             f"allow_chopped: {str(case['allow_chopped']).lower()}"]
    if case["form"] == "split":
        words = [d.prefix for d in case["sets"][0]]
        if case["weights"][0]:
            words = [w for pair in zip(map(repr, case["weights"][0]), words) for w in pair]
        lines += [f"data_path: \"{' '.join(words)}\"", f"split: \"{case['split']}\""]
    else:
        for name, sets, weights in zip(("train", "valid", "test"), case["sets"], case["weights"]):
            if sets:
                lines.append(f"{name}_data_paths: [{', '.join(d.prefix for d in sets)}]")
            if sets and sets[0].labelled:
                lines.append(f"{name}_label_data_paths: [{', '.join(d.prefix + '_label' for d in sets)}]")
            if sets and weights:
                lines.append(f"{name}_data_weights: {weights}")
        if case["by_documents"]:
            lines += ["weight_by_num_documents: true", f"weighted_sampler_alpha: {case['alpha']}"]
    pathlib.Path(file).write_text("\n".join(lines) + "\n")


def describe(case):
    return {k: v for k, v in case.items() if k not in ("sets", "weights")} | {"datasets": len(case["sets"][0])}
