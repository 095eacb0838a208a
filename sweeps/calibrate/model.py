"""Times of measured operations by the product's own closed forms, and what they are linear in.

For a fixed algorithm (and number of chunks, and slowest level) the time is a number of latencies
plus a number of messages by the bandwidth, on each level, plus the launch.  `Model.design` gives
these numbers for the algorithm that is chosen with given constants, so that the product with the
constants is the very time that the engine computes with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.algorithm import Algorithm
from overhead.collectives.choices import candidates, usable
from overhead.evaluation import Evaluation
from sweeps.calibrate.cases import Case
from sweeps.calibrate.constants import CONSTANTS
from sweeps.errors import InputError, fault
from sweeps.spec.catalog import Machine

__all__ = ["Model", "Rows", "rows_of"]

Floats = NDArray[np.float64]
Strings = NDArray[np.str_]

_PLACES = {name: place for place, name in enumerate(CONSTANTS)}


@dataclass(frozen=True, slots=True)
class Rows:
    """Measured rows of all cases, as columns."""

    case: NDArray[np.intp]  # Each row's case
    line: NDArray[np.intp]  # Its line in its log
    operation: Strings  # Its collective
    ranks: Floats  # Its ranks and nodes, the message [byte], and the measured time [s]
    nodes: Floats  # Its ranks and nodes, the message [byte], and the measured time [s]
    message_bytes: Floats  # Its ranks and nodes, the message [byte], and the measured time [s]
    time: Floats  # Its ranks and nodes, the message [byte], and the measured time [s]
    placement: Strings  # Out of place or in place

    def __len__(self) -> int:
        return len(self.time)

    @property
    def between(self) -> NDArray[np.bool_]:
        """Which rows are of several nodes."""
        return np.asarray(self.nodes > 1.0)

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows(*(getattr(self, name)[kept] for name in self.__slots__))


def rows_of(cases: Sequence[Case], placements: Sequence[str]) -> Rows:
    """Return all rows that came out right, of some placements."""
    found = [
        (place, case, row)
        for place, case in enumerate(cases)
        for row in case.rows
        if row.placement in placements and not row.wrong > 0.0
    ]
    return Rows(
        np.array([place for place, _, _ in found], dtype=np.intp),
        np.array([row.line for _, _, row in found], dtype=np.intp),
        np.array([case.operation for _, case, _ in found], dtype=np.str_),
        np.array([float(case.ranks) for _, case, _ in found]),
        np.array([float(case.nodes) for _, case, _ in found]),
        np.array([row.size for _, _, row in found]),
        np.array([row.time for _, _, row in found]),
        np.array([row.placement for _, _, row in found], dtype=np.str_),
    )


class Model:
    """Times of rows on a machine."""

    def __init__(self, rows: Rows, machine: Machine, algorithm: str = "nccl") -> None:
        self.rows, self.machine = rows, machine
        self._parts = [
            (places, _Part(rows.where(places), machine, operation, several, algorithm))
            for operation in dict.fromkeys(rows.operation.tolist())
            for several in (False, True)
            if (places := (rows.operation == operation) & (rows.between == several)).any()
        ]

    def design(self, values: Mapping[str, float]) -> Floats:
        """Return what each constant's term is multiplied with, for the algorithms that are chosen."""
        found = np.zeros((len(self.rows), len(CONSTANTS)))
        for places, part in self._parts:
            found[places] = part.design(values)[0]
        return found

    def algorithms(self, values: Mapping[str, float]) -> Strings:
        """Return the name of the algorithm that each row's time is of."""
        found = np.empty(len(self.rows), dtype="U40")
        for places, part in self._parts:
            chosen = part.design(values)[1]
            found[places] = np.array([one.name for one in part.choices])[chosen]
        return found


class _Part:
    """Rows of one operation on one kind of network."""

    def __init__(
        self, rows: Rows, machine: Machine, operation: str, several: bool, algorithm: str
    ) -> None:
        self.rows, self.several = rows, several
        self.labels = {
            "topology": "hierarchical" if several else "switch",
            "collective": operation,
            "algorithm": algorithm,
            "shape": "two_levels" if several else "flat",
            "phases": "sequential",
            "reduction": "free",
            "latency_per": "hop",
            "link": "auto" if several else "intra",
        }
        if algorithm == "all":
            wrong = "stands for each of them, and a time is of one"
            raise InputError(fault("--algorithm", algorithm, wrong, "nccl, auto, or a name"))
        try:
            candidates(self.labels["topology"], operation, algorithm)
        except ValueError as error:
            raise InputError(fault("--algorithm", algorithm, "can't be", str(error))) from None
        self.choices: tuple[Algorithm, ...] = usable(self.labels)
        figures = machine.figures
        node, cards = figures["gpus_per_node"].value, figures.get("nics_per_node")
        here = {"inc", "sharp"}
        self.given = {
            "message_bytes": rows.message_bytes,
            "ranks": rows.ranks,
            # A group's share of a node is its own; a card serves as many ranks as the machine's.
            "gpus_per_node": rows.ranks / rows.nodes if several else np.full(len(rows), node),
            "ranks_per_nic": node / (cards.value if cards else node),
            "oversubscription": 1.0,
            "hops": 1.0,
            "intra_nvls": float("nvls" in machine.in_network),
            "intra_inc": float(bool(here & set(machine.in_network))),
            "inter_inc": float(bool(here & set(machine.scale_out_in_network))),
        }

    def design(self, values: Mapping[str, float]) -> tuple[Floats, NDArray[np.intp]]:
        """Return the terms of the algorithm of least time, and which it is."""
        given = self.given | {name: values[name] for name in _PLACES if name != "launch"}
        each = [Evaluation(given, self.labels, one) for one in self.choices]
        count = len(self.rows)
        times = [
            np.broadcast_to(np.where(one.defined(), one["time"], np.inf), count) for one in each
        ]
        chosen = np.argmin(np.stack(times), axis=0)
        terms = np.zeros((count, len(_PLACES)))
        for place, one in enumerate(each):
            own = chosen == place
            if own.any():
                terms[own] = self._terms(one, self.choices[place])[own]
        terms[:, _PLACES["launch"]] = 1.0
        return terms, chosen

    def _terms(self, one: Evaluation, algorithm: Algorithm) -> Floats:
        terms = np.zeros((len(self.rows), len(_PLACES)))
        size = self.rows.message_bytes
        if self.several:
            for level in ("intra", "inter"):
                terms[:, _PLACES[f"{level}_latency"]] = one[f"{level}_latency_count"]
                terms[:, _PLACES[f"{level}_bandwidth"]] = one[f"{level}_transfer_fraction"] * size
            return terms
        latency = "in_network_latency" if algorithm.in_network else "intra_latency"
        terms[:, _PLACES[latency]] = one["latency_count"]
        terms[:, _PLACES["intra_bandwidth"]] = one["transfer_fraction"] * size
        return terms
