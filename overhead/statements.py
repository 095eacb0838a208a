"""What an algorithm states of itself: expressions of its steps, its time and its bytes.

Most follow from its kernel, which is recorded through the formulas that lead from a cost to a time;
a few are written beside the kernel, because they say it better.
"""

from __future__ import annotations

import ast
from functools import lru_cache, reduce
from operator import mul
from typing import Any

from overhead.collectives.algorithm import STATEMENTS, Algorithm
from overhead.evaluation import Evaluation, builder_of
from overhead.formula import Formula
from overhead.graph import Graph, Node
from overhead.labels import FOLLOWING, HIERARCHY, LABELS
from overhead.recording import (
    Recorded,
    RecordingError,
    Replacing,
    number,
    record,
    recording,
    text,
    tree_of,
)

# The labels under which an algorithm's time is stated.
PLAIN = {name: FOLLOWING[name][0] for name in ("phases", "reduction")}
PLAIN["latency_per"] = LABELS["latency_per"].default


def statements(algorithm: Algorithm) -> dict[str, str]:
    """Return an algorithm's expressions of ``steps``, ``time``, ``sent_bytes`` and ``link_bytes``.

    Raises
    ------
    RecordingError
        If one isn't written, and the kernel can't be recorded.
    """
    written = algorithm.own_statements
    return {name: written.get(name) or recorded(algorithm, name) for name in STATEMENTS}


def statement(declared: Formula | Algorithm) -> str:
    """Return what a declaration gives as an equation: of an algorithm, its time."""
    if isinstance(declared, Formula):
        return declared.statement
    return f"time = {statements(declared)['time']}"


class _Names(dict[str, Node]):
    """Quantities that stand for themselves."""

    def get(self, name: str, default: Any = None) -> Node:
        value = Recorded(ast.Name(name))
        node = Node(name, ("given", name), (), lambda: value, frozenset())
        return self.setdefault(name, node)


@lru_cache(maxsize=4096)
def recorded(algorithm: Algorithm, quantity: str) -> str:
    """Return what an algorithm's kernel says of one of its quantities.

    Raises
    ------
    RecordingError
        If the kernel can't be recorded.
    """
    shape = "three_levels" if algorithm.topology == HIERARCHY else "flat"
    try:
        with recording():
            named = (*algorithm.inputs, "ranks_sharing_nic", "effective_oversubscription")
            inputs: dict[str, Any] = {name: Recorded(ast.Name(name)) for name in named}
            evaluation = Evaluation(inputs, {**PLAIN, "shape": shape}, algorithm)
            labels = frozenset(evaluation.labels.items())
            builder = builder_of(labels, inputs, algorithm, Graph(), {})
            builder.defaults = _Names()
            evaluation.use(builder)
            tree = number(tree_of(evaluation[quantity]))
    except RecordingError as error:
        name = f"{'.'.join(algorithm.key)}: {quantity}"
        raise error.of(name, STATEMENTS[quantity]) from None
    for sizes in (("mesh_nx", "mesh_ny", "mesh_nz"), ("node_ranks", "nodes", "pods")):
        ranks = record(lambda *sizes: reduce(mul, sizes), sizes)
        tree = Replacing(ranks, ast.Name("ranks")).of(tree)
    return text(tree)
