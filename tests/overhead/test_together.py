"""Evaluations together: bits as of each alone, with whatever labels, numbers and rows."""

from __future__ import annotations

import numpy as np

from overhead.evaluation import Evaluation
from overhead.together import compute
from tests.overhead.step_cases import GPT, LLAMA, MIXTRAL, evaluation

ASKED = ("step_time", "pipeline_time", "mfu", "peak_memory", "dp_communication_time")


def unlike() -> list[Evaluation]:
    """Return evaluations of other models, labels and rows, with some numbers in common."""
    rows = {"sequence_length": np.array([1024.0, 2048.0, 4096.0])}
    return [
        evaluation(LLAMA),
        evaluation({**LLAMA, **rows}, recompute="full"),
        evaluation({**MIXTRAL, "dp": 8.0}, algorithm="standard"),
        evaluation({**GPT, **rows, "dp": 4.0}),
    ]


def test_together_as_each_alone() -> None:
    alone, together = unlike(), unlike()
    with np.errstate(all="ignore"):
        compute(together, [(*ASKED, "no such quantity")] * len(together))
        for left, right in zip(alone, together, strict=True):
            for name in ASKED:
                expected, value = left[name], right[name]
                assert np.broadcast_to(expected, value.shape).tobytes() == value.tobytes(), name
