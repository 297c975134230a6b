#!/usr/bin/env python3
"""The batch of each step, the length of the run and the learning rates that Megatron-Core has with --rampup-batch-size
and --train-samples, for config_test and optim_test.

  batch_ramp_up.py           writes tests/golden/batch_ramp_up.json
  batch_ramp_up.py --check   fails where that file is not what Megatron-Core gives
"""
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

from megatron.core.num_microbatches_calculator import RampupBatchsizeNumMicroBatchesCalculator
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "batch_ramp_up.json"

# start, increment and samples of the ramp-up, full batch, samples of the run
CASES = [(16, 16, 9765625, 2048, 220000000), (32, 32, 2000000, 512, 73242187), (192, 32, 9765625, 2048, 12000000),
         (1, 1, 100, 8, 500), (2, 3, 7, 20, 100), (4, 4, 1, 8, 40), (1, 2, 1000, 7, 1003), (3, 1, 49, 10, 300),
         (8, 8, 30, 64, 1000), (5, 5, 333, 35, 340), (68, 68, 3400000, 1088, 4000000), (2, 2, 12, 6, 13)]


def sizes_of(start, increment, samples, full):
    """The batches of all steps until the last one that depends on the ramp-up."""
    calculator = RampupBatchsizeNumMicroBatchesCalculator(full, 1, 1, False, 1, start, increment, samples)
    consumed = 0
    while consumed <= samples:
        calculator.update(consumed, False)
        yield calculator.current_global_batch_size
        consumed += calculator.current_global_batch_size


def rates_of(sizes, full, total, steps):
    """Learning rates as train_step has them: the scheduler advances by the samples of each step."""
    optimizer = SimpleNamespace(param_groups=[{}])
    scheduler = OptimizerParamScheduler(optimizer, 0.0, 1e-3, 1e-4, total // 50, total * 9 // 10, "cosine", 0.1, 0.1,
                                        steps, "constant")
    rates, wanted = [], sorted({0, 1, 2, steps - 1, *range(0, steps, max(1, steps // 12))})
    for step in range(steps):
        if step in wanted:
            rates.append([step, optimizer.param_groups[0]["lr"]])
        scheduler.step(increment=sizes[step] if step < len(sizes) else full)
    return rates


def golden_of(case):
    start, increment, samples, full, total = case
    sizes = list(sizes_of(start, increment, samples, full))
    # Of Megatron-LM's update_train_iters().
    steps = len(sizes) + (total - sum(sizes)) // full
    return {"ramp_up": [start, increment, samples], "full": full, "samples": total, "steps": steps,
            "sizes": [[size, len(list(run))] for size, run in itertools.groupby(sizes)],
            "rates": rates_of(sizes, full, total, steps)}


def main():
    text = "[\n" + ",\n".join(json.dumps(golden_of(case)) for case in CASES) + "\n]\n"
    if "--check" not in sys.argv[1:]:
        GOLDEN.write_text(text)
        return
    assert GOLDEN.read_text() == text, f"{GOLDEN} is not what Megatron-Core gives"
    print(f"batch ramp-up: {len(CASES)} runs as in Megatron-Core")


main()
