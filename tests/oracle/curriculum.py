#!/usr/bin/env python3
"""The lengths of sequences that DeepSpeed's CurriculumScheduler gives, step by step, for config_test.

  curriculum.py           writes tests/golden/curriculum.json
  curriculum.py --check   fails where that file is not what DeepSpeed gives

The file is of DeepSpeed 0.19. Before, lengths began below a min_difficulty that is no multiple of difficulty_step,
so --check passes over these cases with an older one.
"""
import json
import sys
from pathlib import Path

import deepspeed
from deepspeed.runtime.data_pipeline.curriculum_scheduler import CurriculumScheduler

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "curriculum.json"


def rise(first, last, steps, multiple, root=None):
    schedule = {"total_curriculum_step": steps, "difficulty_step": multiple}
    if root is not None:
        schedule["root_degree"] = root
    return {"min_difficulty": first, "max_difficulty": last, "schedule_config": schedule,
            "schedule_type": "fixed_linear" if root is None else "fixed_root"}


def stages(first, last, lengths, last_steps):
    return {"min_difficulty": first, "max_difficulty": last, "schedule_type": "fixed_discrete",
            "schedule_config": {"difficulty": lengths, "max_step": last_steps}}


CASES = [
    rise(8, 32, 20, 8), rise(64, 2048, 300, 64), rise(80, 1024, 100, 8), rise(64, 2047, 50, 8), rise(8, 2048, 7, 1),
    rise(8, 2048, 200, 8, 2), rise(64, 1000, 90, 24, 3), rise(64, 2048, 100, 64, 0.5), rise(128, 128, 10, 8),
    rise(100, 200, 40, 16), rise(100, 1024, 60, 8, 1.7),
    stages(64, 512, [64, 128, 512], [5, 20]), stages(1, 2048, [16, 2048], [1]), stages(64, 128, [64, 128, 256], [3, 9]),
    stages(1, 900, [100, 200, 300, 400], [10, 20, 30]),
]


def lengths_of(case):
    scheduler = CurriculumScheduler(json.loads(json.dumps(case)))
    most = case["schedule_config"].get("total_curriculum_step", 0) or max(case["schedule_config"]["max_step"])
    return [scheduler.update_difficulty(step) for step in range(1, most + 12)]


def same_in(version, case):
    multiple = case["schedule_config"].get("difficulty_step", 1)
    return version >= (0, 19) or case["min_difficulty"] % multiple == 0


def main():
    if "--check" not in sys.argv[1:]:
        lines = [json.dumps({**case, "lengths": lengths_of(case)}) for case in CASES]
        GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n")
        return
    version = tuple(int(part) for part in deepspeed.__version__.split(".")[:2])
    golden, compared = json.loads(GOLDEN.read_text()), 0
    for case, known in zip(CASES, golden, strict=True):
        if same_in(version, case):
            assert known == {**case, "lengths": lengths_of(case)}, f"{case}: DeepSpeed gives {lengths_of(case)}"
            compared += len(known["lengths"])
    print(f"curriculum: {compared} steps as in DeepSpeed {deepspeed.__version__}")


main()
