"""The step's time: its pipeline, and what comes before and after it.

The parts that `PARTS` names sum to it; they are of a rank in a stage between the ends, with what
the pipeline adds.
"""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.step import quantities
from overhead.sums import total

__all__ = ["PARTS", "even_pipeline_time", "quantities"]

PARTS = (
    "matmul_part_time",
    "attention_part_time",
    "elementwise_part_time",
    "recompute_part_time",
    "host_part_time",
    "exposed_tp_time",
    "exposed_cp_time",
    "exposed_ep_time",
    "imbalance_time",
    "bubble_time",
    "exposed_p2p_time",
    "exposed_dp_time",
    "optimizer_time",
    "step_overhead",
)

total(
    "step_time",
    ("pipeline_time", "exposed_dp_time", "optimizer_time", "step_overhead"),
    assumes=("the optimizer waits for all gradients", "nothing else runs on the GPUs"),
)


@formula(
    returns="pipeline_time",
    expression="busy_time + bubble_time + exposed_p2p_time",
    source="derivation",
    assumes=("every stage takes as long as the slower end, for no other form is known",),
    when={"schedule": "zero_bubble_h1|zero_bubble_h2|dual_pipe", "stages": "uneven"},
)
def even_pipeline_time(busy_time: Array, bubble_time: Array, exposed_p2p_time: Array) -> Array:
    """Time of a pipeline whose schedule has a form for even stages alone."""
    return np.asarray(busy_time + bubble_time + exposed_p2p_time)
