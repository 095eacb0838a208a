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
    """One set of the labels that decide which formulas hold.

    Attributes
    ----------
    labels : mapping of str to str
        The labels.
    fixed : mapping of int to slice
        Where on the grid: one point of each dimension that switches.
    nodes : mapping of str to Node
        The wanted quantities' nodes; empty where no algorithm is defined.
    status : Node
        Why cells don't exist.
    algorithms : tuple of Algorithm
        The algorithms that the labels leave.
    """

    labels: Mapping[str, str]
    fixed: Mapping[int, slice]
    nodes: Mapping[str, Node]
    status: Node
    algorithms: tuple[Algorithm, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the result.

    Attributes
    ----------
    name : str
        The quantity.
    dims : tuple of str
        The dimensions on which it depends, in the grid's order.
    declarations : tuple
        The formulas and algorithms that give it, each once.
    """

    name: str
    dims: tuple[str, ...]
    declarations: tuple[Any, ...]
