"""Evaluation of any quantity from given ones, through the registry, for one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from overhead.collectives.algorithm import Algorithm
from overhead.collectives.chunking import best_chunks
from overhead.collectives.cost import COST_PARTS, LEVELS, Cost
from overhead.formula import REGISTRY
from overhead.quantity import Array

__all__ = ["Evaluation"]


class Evaluation:
    """Quantities of one algorithm of one collective on one network.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.
    given : mapping of str to array
        What is given, in canonical units; the arrays broadcast.
    labels : mapping of str to str
        The labels that hold beside the algorithm's: shape, phases, reduction, latency_per, link.
    """

    def __init__(
        self, algorithm: Algorithm, given: Mapping[str, Array], labels: Mapping[str, str]
    ) -> None:
        self.algorithm = algorithm
        self.known: dict[str, Array] = dict(given)
        self.labels = {
            **labels,
            "topology": algorithm.topology,
            "collective": algorithm.collective,
            "in_network": "yes" if algorithm.in_network else "no",
        }
        self._cost: Cost | None = None

    def __getitem__(self, quantity: str) -> Array:
        """Return a quantity.

        Raises
        ------
        KeyError
            If nothing gives it.
        """
        value = self.known.get(quantity)
        if value is None:
            value = self.known[quantity] = np.asarray(self._compute(quantity))
        return value

    def defined(self) -> Array:
        """Return a mask of where the algorithm is defined."""
        mask: Array = np.asarray(True)
        for requirement in self.algorithm.requires:
            mask = mask & requirement.holds(**{name: self[name] for name in requirement.inputs})
        return mask

    def _compute(self, quantity: str) -> Any:
        if quantity in COST_PARTS:
            return COST_PARTS[quantity](self.cost, self.labels["latency_per"] == "message")
        if quantity == "chunks":
            return self._chunks()
        declared = REGISTRY.returning(quantity, self.labels)
        if declared is None:
            message = f"nothing gives '{quantity}' on {self.labels['topology']}"
            raise KeyError(message)
        return declared.kernel(*(self[name] for name in declared.inputs))

    @property
    def cost(self) -> Cost:
        """The algorithm's cost in latencies and messages."""
        if self._cost is None:
            self._cost = self.algorithm.cost(**{n: self[n] for n in self.algorithm.inputs})
        return self._cost

    def _chunks(self) -> Array:
        shape = {name: self[name] for name in self.algorithm.inputs if name != "chunks"}
        if self.labels["shape"] == "flat":
            within = self.algorithm.in_network
            links = [("in_network_latency" if within else "latency", "wire_time")]
        else:
            links = [(f"{level}_latency", f"{level}_wire_time") for level in LEVELS]
        return best_chunks(
            self.algorithm,
            shape,
            [self[latency] for latency, _ in links],
            [self[wire] for _, wire in links],
            self.labels["latency_per"],
        )
