"""What the shipped constants of NCCL predict, beside published measurements: errors by class.

The rows are those of tests/data/collectives.csv.  Two logs are of hosts that take 43 us to issue an
operation, whatever the network does: they are given it.  The stated errors are mean and median in
percent; they may not get worse by half a point.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import sweeps
from sweeps.spec.software import load_software

ROWS = Path(__file__).parents[1] / "data" / "collectives.csv"
CLASSES = {
    "small": (0.0, 2.0**18),
    "medium": (2.0**18, 2.0**24),
    "large": (2.0**24, np.inf),
    "from 1 MiB": (2.0**20, np.inf),
}
# Rows, then for each class mean and median.
STATED = {
    "one node": (928, (7.0, 4.8), (9.1, 6.6), (4.7, 2.7), (6.4, 3.5)),
    "several nodes": (404, (12.7, 8.9), (16.7, 16.2), (9.0, 7.6), (10.2, 7.9)),
    "all": (1332, (8.3, 5.4), (10.5, 7.1), (6.5, 3.9), (7.7, 4.9)),
}
SLOW_HOST = 43e-6
KEYS = ("collective", "hardware", "nodes", "fabric", "card_GBps", "algorithm", "host")


def predicted(key: tuple[str, ...], ranks: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the product's times of one kind of operation."""
    collective, hardware, nodes, fabric, card, algorithm, host = key
    several = int(nodes) > 1
    constants: dict[str, object] = {
        "collective": collective,
        "hardware": hardware,
        "algorithm": algorithm,
        "software": "nccl",
        "environment": "pytorch" if host else "nccl-tests",
        "topology": "hierarchical" if several else "switch",
    }
    if host:
        constants["collective_host_time"] = SLOW_HOST
    if several:
        constants |= {"fabric": fabric, "inter_bandwidth": float(card) * 1e9, "inter_inc": 1.0}
        constants |= {"gpus_per_node": 8.0, "nics_per_node": 8.0}
    axes = {"case": {"ranks": ranks.tolist(), "message_bytes": sizes.tolist()}}
    spec = {"axes": axes, "constants": constants, "quantities": ["time"]}
    return np.asarray(sweeps.run(spec).time.values)


def where_of(nodes: str) -> str:
    return "several nodes" if int(nodes) > 1 else "one node"


@cache
def errors() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return sizes and relative errors, of one node, of several, and of all."""
    groups: defaultdict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    text = [line for line in ROWS.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    for row in csv.DictReader(text):
        groups[tuple(row[name] for name in KEYS)].append(row)
    parts: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for key, rows in groups.items():
        ranks, sizes, times = (
            np.array([float(row[name]) for row in rows])
            for name in ("ranks", "message_bytes", "time_us")
        )
        error = predicted(key, ranks, sizes) / (times * 1e-6) - 1.0
        where = where_of(key[2])
        for name in (where, "all", f"{where.replace(' ', '_')}.{key[0]}"):
            parts[name].append(np.stack([sizes, error]))
    parts_by_name = {name: np.concatenate(part, axis=1) for name, part in parts.items()}
    return {name: (part[0], part[1]) for name, part in parts_by_name.items()}


@pytest.mark.parametrize("where", STATED)
def test_errors_are_as_stated(where: str) -> None:
    sizes, error = errors()[where]
    count, *statement = STATED[where]
    assert len(sizes) == count
    for (low, high), (mean, median) in zip(CLASSES.values(), statement, strict=True):
        own = 100.0 * np.abs(error[(sizes >= low) & (sizes < high)])
        assert np.mean(own) < mean + 0.5
        assert np.median(own) < median + 0.5


def test_errors_by_operation_are_those_of_the_profile() -> None:
    """Rows and mean error, below 256 KiB, to 16 MiB, above."""
    statement = {
        f"{location}.{operation}": each
        for location, operations in load_software("nccl").errors.items()
        for operation, each in operations.items()
    }
    assert set(statement) == {name for name in errors() if "." in name}
    for name, value in statement.items():
        sizes, error = errors()[name]
        classes = list(CLASSES.values())[: len(value)]
        for (low, high), (rows, mean, *_) in zip(classes, value, strict=True):
            own = 100.0 * np.abs(error[(sizes >= low) & (sizes < high)])
            assert len(own) == rows, name
            assert not rows or abs(np.mean(own) - mean) < 0.1, name


@pytest.mark.thorough
def test_left_out_errors_are_those_of_the_profile() -> None:
    """What a report tells, here of several nodes: tables predicted by constants of the others."""
    from tests.software.left_out import by_operation

    found, statement = by_operation(("nodes",)), load_software("nccl").errors["several_nodes"]
    for operation, value in statement.items():
        for (rows, _, mean, *_), (count, own) in zip(
            value, found[f"several_nodes.{operation}"], strict=False
        ):
            assert rows == count
            assert own == pytest.approx(mean, abs=0.5), operation


def test_without_the_profile_errors_are_several_times_as_large() -> None:
    """All_reduce of 8 H100, from 1 MiB on, by the links alone."""
    sizes = 2.0 ** np.arange(20, 31)
    times_by_name = {
        software: sweeps.sweep(
            "time",
            ranks=8,
            message_bytes=sizes,
            hardware="dgx-h100",
            algorithm="ring",
            software=software,
            topology="switch",
        ).time.values
        for software in ("none", "nccl")
    }
    assert np.all(times_by_name["nccl"] > 1.2 * times_by_name["none"])
