"""Overlap of computation and communication: closed forms by mechanism, and what follows from them.

The label ``mechanism`` chooses the form that gives ``overlapped_time``; `MECHANISMS` lists them.
Each form with equal parts is a formula; `bucketed_time`, `prefetched_time`,
`sharded_backward_time` and `layered_time` take unequal ones.  All are compared with step
simulations of their own (tests/simulator/overlap.py).
"""

from overhead.overlap import quantities  # isort: skip  (the formulas name what it defines)
from overhead.overlap import buckets, bulk, durations, layers, pipeline, rings
from overhead.overlap.chains import (
    bucketed_time,
    layered_time,
    prefetched_time,
    sharded_backward_time,
)
from overhead.overlap.mechanisms import MECHANISMS, Mechanism

__all__ = [
    "MECHANISMS",
    "Mechanism",
    "bucketed_time",
    "buckets",
    "bulk",
    "durations",
    "layered_time",
    "layers",
    "pipeline",
    "prefetched_time",
    "quantities",
    "rings",
    "sharded_backward_time",
]
