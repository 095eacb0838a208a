"""Evaluation of any quantity from given ones, through the registry, for one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from overhead.collectives.algorithm import Algorithm
from overhead.collectives.choices import usable
from overhead.collectives.chunking import best_chunks
from overhead.collectives.cost import COST_PARTS, LEVELS, Cost
from overhead.formula import REGISTRY, Call
from overhead.quantity import Array


class MissingQuantities(LookupError):
    """Quantities that nothing gives, and without which another can't be had."""

    def __init__(self, quantity: str, missing: tuple[str, ...]) -> None:
        super().__init__(f"{quantity} needs {', '.join(missing)}")
        self.quantity = quantity
        self.missing = missing


class Evaluation:
    """Quantities from given ones, each computed once, when it is asked for."""

    def __init__(
        self,
        given: Mapping[str, ArrayLike],
        labels: Mapping[str, str] | None = None,
        algorithm: Algorithm | None = None,
    ) -> None:
        self.given: dict[str, Array] = {
            name: np.asarray(value, dtype=np.float64) for name, value in given.items()
        }
        self.known: dict[str, Array | None] = dict(self.given)
        self.labels = dict(labels or {})
        self._choices: tuple[Algorithm, ...] = ()
        if algorithm is None and "collective" in self.labels:
            self._choices = usable(self.labels)
            algorithm = self._choices[0] if len(self._choices) == 1 else None
        self.algorithm = algorithm
        if algorithm is not None:
            self.labels |= algorithm.labels
        self._cost: Cost | None = None
        self._scopes: dict[tuple[Any, ...], Evaluation] = {}
        self._fastest: tuple[list[Evaluation], Array] | None = None

    def __getitem__(self, quantity: str) -> Array:
        """Return a quantity, of the shape to which broadcast what it depends on."""
        missing: dict[str, None] = {}
        value = self.value(quantity, missing)
        if value is None:
            raise MissingQuantities(quantity, tuple(missing))
        return value

    def value(self, quantity: str, missing: dict[str, None]) -> Array | None:
        """Return a quantity, or None where something is missing, which is added to `missing`."""
        if quantity in self.given:
            return self.given[quantity]
        value = self.known.get(quantity)
        if value is None:
            computed = self._compute(quantity, missing)
            value = None if computed is None else np.asarray(computed, dtype=np.float64)
            self.known[quantity] = value
        return value

    def defined(self) -> Array:
        """Return a mask of where the algorithm is defined."""
        mask: Array = np.asarray(True)
        for requirement in self.algorithm.requires if self.algorithm else ():
            mask = mask & requirement.holds(**{name: self[name] for name in requirement.inputs})
        return mask

    def _compute(self, quantity: str, missing: dict[str, None]) -> Any:
        if len(self._choices) > 1:
            return self._of_fastest(quantity, missing)
        if self.algorithm is not None and quantity in COST_PARTS:
            return COST_PARTS[quantity](self.cost, self.labels["latency_per"] == "message")
        if self.algorithm is not None and quantity == "chunks":
            return self._chunks(self.algorithm)
        declared = REGISTRY.returning(quantity, self.labels)
        if isinstance(declared, Call):
            return self._call(declared, missing)
        if declared is None:
            missing[quantity] = None
            return None
        inputs = self._inputs(declared.inputs, missing)
        return None if inputs is None else declared.kernel(*inputs)

    def _inputs(self, names: Sequence[str], missing: dict[str, None]) -> list[Array] | None:
        values = [self.value(name, missing) for name in names]
        found = [value for value in values if value is not None]
        return found if len(found) == len(values) else None

    def _call(self, declared: Call, missing: dict[str, None]) -> Array | None:
        outer = self._scope(declared.labels)
        inner = outer._bound(declared, missing)
        return None if inner is None else inner.value(declared.of, missing)

    def _scope(self, labels: Mapping[str, str]) -> Evaluation:
        """Return the evaluation with further labels, in which nothing is bound yet."""
        if not labels:
            return self
        plain = {name: value for name, value in labels.items() if name != "collective"}
        key = ("labels", *sorted(plain.items()))
        if key not in self._scopes:
            self._scopes[key] = Evaluation(self.given, self.labels | plain)
        return self._scopes[key]

    def _bound(self, declared: Call, missing: dict[str, None]) -> Evaluation | None:
        """Return the evaluation in which what a call binds is given."""
        bind = declared.bind
        key = ("bind", *sorted(bind.items()), *sorted(declared.labels.items()))
        if key not in self._scopes:
            values = self._inputs(tuple(bind.values()), missing)
            if values is None:
                return None
            given = self.given | dict(zip(bind, values, strict=True))
            self._scopes[key] = Evaluation(given, self.labels | dict(declared.labels))
        return self._scopes[key]

    # Collectives.

    @property
    def cost(self) -> Cost:
        """The algorithm's cost in latencies and messages."""
        if self._cost is None:
            assert self.algorithm is not None
            inputs = {name: self[name] for name in self.algorithm.inputs}
            self._cost = self.algorithm.cost(**inputs)
        return self._cost

    def _of_fastest(self, quantity: str, missing: dict[str, None]) -> Array | None:
        """Return a quantity of the algorithm that has the least time, cell by cell."""
        if self._fastest is None:
            each = [Evaluation(self.given, self.labels, one) for one in self._choices]
            times = [t for one in each if (t := one.value("time", missing)) is not None]
            if len(times) < len(each):
                return None
            masks = [one.defined() for one in each]
            held = [np.where(m, t, np.inf) for m, t in zip(masks, times, strict=True)]
            shape = np.broadcast_shapes(*(time.shape for time in held))
            stacked = np.stack([np.broadcast_to(time, shape) for time in held])
            self._fastest = each, np.argmin(stacked, axis=0)
        each, chosen = self._fastest
        values = [one.value(quantity, missing) for one in each]
        found = [value for value in values if value is not None]
        if len(found) < len(values):
            return None
        shape = np.broadcast_shapes(chosen.shape, *(value.shape for value in found))
        return np.choose(
            np.broadcast_to(chosen, shape), [np.broadcast_to(value, shape) for value in found]
        )

    def _chunks(self, algorithm: Algorithm) -> Array:
        shape = {name: self[name] for name in algorithm.inputs if name != "chunks"}
        if self.labels["shape"] == "flat":
            within = algorithm.in_network
            links = [("in_network_latency" if within else "latency", "wire_time")]
        else:
            links = [(f"{level}_latency", f"{level}_wire_time") for level in LEVELS]
        return best_chunks(
            algorithm,
            shape,
            [self[latency] for latency, _ in links],
            [self[wire] for _, wire in links],
            self.labels["latency_per"],
        )


def derive(quantity: str, given: Mapping[str, ArrayLike]) -> Array:
    """Compute one quantity.

    Parameters
    ----------
    quantity : str
        Its name, such as ``parameters`` or ``forward_flops_per_token``.
    given : mapping of str to array_like
        What is given, in canonical units; the arrays broadcast.

    Returns
    -------
    ndarray
        The quantity, of the shape to which broadcast what it depends on.

    Raises
    ------
    MissingQuantities
        If something that it needs is neither given nor follows from what is.
    """
    return Evaluation(given)[quantity]
