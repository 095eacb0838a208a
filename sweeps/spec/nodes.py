"""Nodes that a user gives: they stand for the GPUs in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from overhead.labels import LABELS
from sweeps.errors import InputError, fault, of_each, refuse
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import load_hardware
from sweeps.spec.names import NODES

Floats = NDArray[np.float64]
SIZE, MACHINE = "gpus_per_node", "hardware"


def gpus_of_nodes(
    axes: list[Axis],
    constants: dict[str, float],
    labels: Mapping[str, str],
    gpus: str,
    called: str,
    folders: Sequence[Path],
) -> tuple[list[Axis], dict[str, float], Sequence[str]]:
    """Put the GPUs of nodes in the place of nodes; `called`: what the user calls their number."""
    node_axis = next((axis for axis in axes if NODES in axis.columns), None)
    if node_axis is None and NODES not in constants:
        return axes, constants, ()
    nodes = np.array([constants[NODES]]) if node_axis is None else node_axis.columns[NODES]
    try:
        each = _sizes(node_axis, axes, constants, labels, folders)
    except InputError as error:
        return axes, constants, error.faults
    counts = nodes * each
    beside = [axis.columns[gpus] for axis in axes if gpus in axis.columns]
    beside += [np.array([constants[gpus]])] if gpus in constants else []
    are = "is" if nodes.tolist() == [1.0] else "are"
    faults = [
        fault(
            NODES,
            _listed(nodes),
            f"{are} {_listed(counts)} GPUs, {_listed(np.unique(each))} a "
            f"node, and {called} is {_listed(other)}",
            "one of the two",
        )
        for other in beside
        if not np.array_equal(other, counts)
    ]
    numbers = {name: value for name, value in constants.items() if name not in (NODES, gpus)}
    if node_axis is None:
        return axes, {**numbers, gpus: float(counts[0])}, faults
    columns = {name: column for name, column in node_axis.columns.items() if name != NODES}
    longer = Axis(gpus if node_axis.name == NODES else node_axis.name, {**columns, gpus: counts})
    kept = [axis for axis in axes if axis is node_axis or list(axis.columns) != [gpus]]
    return [longer if axis is node_axis else axis for axis in kept], numbers, faults


def _sizes(
    node_axis: Axis | None,
    axes: Sequence[Axis],
    constants: Mapping[str, float],
    labels: Mapping[str, str],
    folders: Sequence[Path],
) -> Floats:
    """Return how many GPUs a node has: of all, or at each point of the nodes' own axis."""
    if SIZE in constants:
        return np.array([constants[SIZE]])
    varying = next(
        (axis for name in (SIZE, MACHINE) for axis in axes if name in axis.columns), None
    )
    if varying is not None and SIZE in varying.columns:
        sizes, what = varying.columns[SIZE], "as given"
    else:
        usual = np.array([labels.get(MACHINE, LABELS[MACHINE].default)])
        names = [str(name) for name in (varying.columns[MACHINE] if varying else usual)]
        figures = of_each(lambda name: load_hardware(name, folders).figures, names)
        sizes = np.array(
            [figures[name][SIZE].value if SIZE in figures[name] else 1.0 for name in names]
        )
        what = "by machine"
    if varying is node_axis and node_axis is not None:
        return np.asarray(sizes, dtype=np.float64)
    several = np.unique(sizes)
    if len(several) > 1:
        wrong = f"no one number of GPUs: a node has {_listed(several)} of them, {what}"
        refuse(NODES, "..", wrong, "the number of GPUs, or one kind of node")
    return np.asarray(several, dtype=np.float64)


def _listed(values: Floats) -> str:
    return ", ".join(f"{value:g}" for value in values)
