"""Compares the samples of a case of sample_order.py with those of megatron-core itself."""
import pathlib
from types import SimpleNamespace

from sample_order_cases import describe


def build(case):
    """The data sets of the three splits as megatron-core builds them."""
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
    config = GPTDatasetConfig(**options)
    return BlendedMegatronDatasetBuilder(GPTDataset, case["counts"], lambda: True, config).build()


def compare_with_core(case, wanted):
    """("equal", ""), or (how megatron-core ends by its own rules, ""), or ("differs", how)."""
    try:
        built = build(case)
    except (IndexError, AssertionError, ValueError, ZeroDivisionError, RuntimeError) as error:
        return f"end with {type(error).__name__}", ""
    for text, samples in zip(wanted, built):
        if text == "-":
            continue
        parts = text.split(" | ")
        if samples is None or len(samples) != int(parts[0]):
            return "differs", f"megatron-core has {samples and len(samples)} samples, not {parts[0]}: {describe(case)}"
        for i, part in enumerate(parts[1:]):
            found = samples[i % len(samples)]
            tokens = found["tokens"].tolist() + found["labels"].tolist()[-1:]
            if tokens != list(map(int, part.split(" :")[0].split())):
                return "differs", f"megatron-core differs in sample {i}: {tokens[:40]}"
    return "equal", ""
