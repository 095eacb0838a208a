"""What a plan consists of: sets of labels with their nodes, and the result's variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from overhead.collectives import Algorithm
from sweeps.engine.node import Node

__all__ = ["FLAGS", "Case", "Variable"]

# Variables that hold flags rather than numbers.
FLAGS = ("status", "chosen_algorithm")


@dataclass(frozen=True, slots=True)
class Case:
    """One set of the labels that decide which formulas hold."""

    labels: Mapping[str, str]  # The labels
    fixed: Mapping[int, slice]  # Where on the grid: one point of each dimension that switches
    nodes: Mapping[str, Node]  # The wanted quantities' nodes; empty where no algorithm is defined
    status: Node  # Why cells don't exist
    algorithms: tuple[Algorithm, ...]  # The algorithms that the labels leave


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the result."""

    name: str  # The quantity
    dims: tuple[str, ...]  # The dimensions on which it depends, in the grid's order
    declarations: tuple[Any, ...]  # The formulas and algorithms that give it, each once
