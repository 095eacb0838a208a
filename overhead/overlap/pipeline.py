"""Transfers between pipeline stages as an overlap: what a schedule hides of them.

How long the pipeline takes, and what of its transfers shows, is `overhead.schedule`'s: here its
parts stand for computation, communication and both.
"""

from __future__ import annotations

import numpy as np

from overhead import schedule
from overhead.formula import formula
from overhead.overlap import quantities
from overhead.quantity import Array
from overhead.sums import total

__all__ = ["PIPELINES", "pipeline_communication_time", "quantities", "schedule"]

PIPELINES = ("gpipe", "one_f_one_b", "interleaved")
WHEN = {"mechanism": "pipeline", "schedule": "|".join(PIPELINES)}

EVEN = ("all stages take equally long", "a transfer occupies no device")

total("compute_time", ("busy_time", "bubble_time"), when=WHEN, name="pipeline_compute_time")
total(
    "overlapped_time",
    ("busy_time", "bubble_time", "exposed_p2p_time"),
    assumes=EVEN,
    when=WHEN,
    name="pipeline_overlapped_time",
)


@formula(
    returns="communication_time",
    expression="where(pp > 1, 2*p2p_time*(micro_batches*virtual_stages + pp - 1), 0*p2p_time)",
    source="derivation",
    assumes=("every stage waits for each transfer, there and back",),
    when=WHEN,
)
def pipeline_communication_time(
    pp: Array, p2p_time: Array, micro_batches: Array, virtual_stages: Array
) -> Array:
    """Time that transfers add to a pipeline if nothing hides them."""
    waited = 2.0 * p2p_time * (micro_batches * virtual_stages + pp - 1.0)
    return np.where(pp > 1.0, waited, 0.0 * p2p_time)
