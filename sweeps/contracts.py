"""What is asserted of results: exit code 3 where it doesn't hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sweeps.bands import percent
from sweeps.engine.grid import Column
from sweeps.errors import ContractError, fault, nearest, tell_all
from sweeps.result import Result, values_of
from sweeps.spec.contract import Contract
from sweeps.spec.units import format_quantity

SIGNS: Mapping[str, Callable[..., NDArray[np.bool_]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
# Of tables of alternatives the rows that are the answer.
ANSWERS = ("recommended", "least")


def check_asserted(contracts: Sequence[Contract], computed: Collection[str]) -> None:
    """Refuse, before anything is written, what is asserted of anything that isn't computed."""
    wrong = "isn't among what is computed"
    faults = [
        fault("assert", contract.text, wrong, nearest(contract.name, computed))
        for contract in contracts
        if contract.name not in computed
    ]
    tell_all(faults)


def hold(contracts: Sequence[Contract], result: Result) -> None:
    """Check what is asserted of a result; say by how much it doesn't hold, and where."""
    check_asserted(contracts, result.numbers)
    lines = [line for contract in contracts for line in _broken(contract, result)]
    if lines:
        raise ContractError(lines)


def _broken(contract: Contract, result: Result) -> Iterator[str]:
    column = result.numbers[contract.name]
    values = values_of(column).astype(np.float64)
    counted = np.isfinite(values) & _answers(result, column)
    if not counted.any():
        yield f"assert {contract.text}: there is no value"
        return
    kept = SIGNS[contract.sign](values, contract.value)
    broken = counted & ~kept
    if not broken.any():
        return
    more = contract.sign[0] == "<"
    worst = np.where(broken, values, -np.inf if more else np.inf)
    cell = np.unravel_index(int(worst.argmax() if more else worst.argmin()), values.shape)
    value, units = float(values[cell]), contract.units
    by = format_quantity(abs(value - contract.value), units)
    share = f" ({percent(abs(value / contract.value - 1.0))})" if contract.value else ""
    where = ", ".join(
        f"{coordinate.name} = {_said(coordinate, int(cell[column.dims.index(dim)]))}"
        for dim in column.dims
        for coordinate in result.layout.coordinates
        if coordinate.dims == (dim,) and coordinate.name == dim
    )
    count = f"; {broken.sum():,} of {counted.sum():,} values don't hold" if values.size > 1 else ""
    yield (
        f"assert {contract.text}: is {format_quantity(value, units)}, {by}{share} too "
        f"{'much' if more else 'little'}{f', at {where}' if where else ''}{count}"
    )


def _said(coordinate: Column, index: int) -> str:
    """Return a coordinate's value as people write it: a label, or a number with its unit."""
    value = values_of(coordinate)[index]
    units = str(coordinate.attrs.get("units", "1"))
    return str(value) if isinstance(value, str) else format_quantity(float(value), units)


def _answers(result: Result, column: Column) -> NDArray[np.bool_]:
    """Return which of a column's values are of the answer, where others are alternatives."""
    for other in result.layout.variables:
        meanings = str(other.attrs.get("flag_meanings", "")).split()
        code = next((meanings.index(word) for word in ANSWERS if word in meanings), None)
        if code is not None and other.dims == column.dims:
            codes = np.atleast_1d(other.attrs.get("flag_values", np.arange(len(meanings))))
            return np.asarray(values_of(other) == codes[code])
        answers = other.name in ANSWERS and other.dtype.kind != "f"
        if answers and other.dims == column.dims:
            return np.asarray(values_of(other) == 1)
    return np.ones(values_of(column).shape, dtype=np.bool_)
