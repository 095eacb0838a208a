"""A training step: what its parts take together, its rates, its energy and cost, its error."""

from overhead.step import quantities  # isort: skip  (the formulas need it)
from overhead.step import (
    bucketed,
    context_overlap,
    cost,
    data_parallel,
    error,
    optimizer,
    overlap,
    parts,
    rates,
    sharded,
    tensor_overlap,
    whole,
)
from overhead.step.defaults import DEFAULTS
from overhead.step.whole import PARTS

__all__ = [
    "DEFAULTS",
    "PARTS",
    "bucketed",
    "context_overlap",
    "cost",
    "data_parallel",
    "error",
    "optimizer",
    "overlap",
    "parts",
    "quantities",
    "rates",
    "sharded",
    "tensor_overlap",
    "whole",
]
