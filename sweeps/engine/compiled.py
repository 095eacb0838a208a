"""A program of one cell as functions of the quantities that vary: of numbers, and of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from overhead.graph import Node
from overhead.quantity import VOCABULARY, Quantity
from sweeps.engine.evaluate import settings
from sweeps.engine.grid import Array, dtype_of
from sweeps.engine.program import Program
from sweeps.engine.scalar import NUMBER, WHOLE, Argument, Recorder, ordered, written

# Points of a block: as many that values of all nodes stay within some ten MiB.
POINTS = 1 << 12

Results = tuple[Any, ...]


class Compiled:
    """What a program gives of some quantities, all else being as it is.

    Parameters
    ----------
    program : Program
        A program of one cell.
    names : sequence of str
        The quantities that vary, in the order in which the functions take them.
    passed : mapping of str to str
        By given quantity that follows one of these: which one it is.
    asked : sequence of str
        The quantities that the functions give; after them comes the status.
    """

    def __init__(
        self,
        program: Program,
        names: Sequence[str],
        passed: Mapping[str, str],
        asked: Sequence[str],
    ) -> None:
        self.program, self.names = program, tuple(names)
        self._alone = True  # Nothing was asked of it yet
        self.asked = (*asked, program.status_name)
        (case,) = program.cases
        given = {name: program.given(name) for name in asked if name in program.grid.columns}
        every = {**given, **case.nodes, program.status_name: case.status}
        self._nodes = [every.get(name) for name in self.asked]
        self._masks = [
            0 if name in given or name == program.status_name else program.faults.masking(name)
            for name in self.asked
        ]
        order = ordered(node for node in self._nodes if node is not None)
        index_of = {name: index for index, name in enumerate(names)}
        # Of nodes that are given and vary, which number they are
        self._taken = {
            id(node): index_of[passed[node.name]]
            for node in order
            if node.what == ("given", node.name) and node.name in passed
        }
        self._values: dict[int, Any] = {}  # By node, at the cell
        varying = set(self._taken)
        self._order: list[Node] = []  # What varies, and isn't given
        with settings(1):
            for node in order:
                if node.run is None:
                    self._values[id(node)] = program.grid.given(node)
                    continue
                inputs = [self._values[id(operand)] for operand in node.inputs]
                self._values[id(node)] = node.run(*inputs)
                if any(id(operand) in varying for operand in node.inputs):
                    varying.add(id(node))
                    self._order.append(node)

    @cached_property
    def _scalar(self) -> Callable[..., Results | None]:
        """The function of numbers: None where one is out of its domain."""
        names = [f"p{index}" for index in range(len(self.names))]
        taken = {node: names[index] for node, index in self._taken.items()}
        recorder = Recorder(taken, self._values)
        recorder.record(self._order)
        tape, kept = recorder.tape, list[Argument]()
        for name, node in zip(self.asked, self._nodes, strict=True):
            kind = WHOLE if dtype_of(name).kind == "i" else NUMBER
            kept.append(_blank(name) if node is None else tape.of(recorder.of(node), kind))
        last = len(kept) - 1
        results = [
            f"({{{index}}} if not {{{last}}} & {mask} else {_blank(name)})"
            if mask
            else f"{{{index}}}"
            for index, (name, mask) in enumerate(zip(self.asked, self._masks, strict=True))
        ]
        checks = [
            _inside(VOCABULARY[name], parameter)
            for name, parameter in zip(self.names, names, strict=True)
        ]
        return written(tape, names, checks, results, kept)

    def numbers(self, numbers: Sequence[float]) -> Results | None:
        """Return what is asked for of one number each; None where one is out of its domain."""
        # To record what is asked once takes longer than it does.
        alone, self._alone = self._alone, False
        if not alone:
            with suppress(ArithmeticError), np.errstate(all="ignore"):
                return self._scalar(*numbers)
        columns = [np.array((number,)) for number in numbers]
        for name, column in zip(self.names, columns, strict=True):
            if VOCABULARY[name].outside(column)[0] or not np.isfinite(column[0]):
                return None
        return tuple(array[0].item() for array in self.arrays(columns))

    def arrays(self, columns: Sequence[Array]) -> list[Array]:
        """Return what is asked for of columns of as many points, which are in their domains."""
        points = len(columns[0]) if columns else 1
        results = [np.empty(points, dtype_of(name)) for name in self.asked]
        with settings(points):
            for start in range(0, points, POINTS):
                part = slice(start, start + POINTS)
                self._block(
                    [np.ascontiguousarray(column[part]) for column in columns],
                    [array[part] for array in results],
                )
        return results

    def _block(self, columns: Sequence[Array], out: Sequence[Array]) -> None:
        values = dict(self._values)
        values |= {node: columns[index] for node, index in self._taken.items()}
        for node in self._order:
            assert node.run is not None
            values[id(node)] = node.run(*[values[id(operand)] for operand in node.inputs])
        status = values[id(self._nodes[-1])]
        for wanted, mask, into in zip(self._nodes, self._masks, out, strict=True):
            missing = 0 if into.dtype.kind == "i" else np.nan
            into[...] = missing if wanted is None else values[id(wanted)]
            if mask:
                np.copyto(into, missing, where=(status & mask) != 0)


def _blank(name: str) -> str:
    """Return what is written where a variable has no value."""
    return "0" if dtype_of(name).kind == "i" else "nan"


def _inside(quantity: Quantity, name: str) -> str:
    """Return the condition that a number is finite, and within a quantity's domain."""
    low = f"{quantity.minimum!r} {'<' if quantity.above else '<='} {name}"
    high = f"{name} <= {quantity.maximum!r}"
    finite = f"-inf < {name} < inf"
    whole = f"{name} % 1.0 == 0.0"
    return " and ".join((finite, low, high, *[whole] * quantity.integer))
