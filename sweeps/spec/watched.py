"""Columns that tell when their values are looked at, so that what follows of them is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.spec.axis import Axis


class Watched(np.lib.mixins.NDArrayOperatorsMixin):
    """A column of an axis that can be passed on unseen, and notes when it is looked at.

    Whatever asks for a value notes its name: operators, functions, conversions, single items. What
    an array has whatever its values are, such as its length, doesn't.
    """

    def __init__(self, name: str, values: NDArray[Any], seen: set[str]) -> None:
        self.name, self._values, self._seen = name, values, seen
        self.dtype, self.shape = values.dtype, values.shape
        self.ndim, self.size = values.ndim, values.size

    def look(self) -> NDArray[Any]:
        """Return the values."""
        self._seen.add(self.name)
        return self._values

    def unseen(self) -> NDArray[Any]:
        """Return the values, for those who note themselves what they do with them."""
        return self._values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.look(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*_looked(args), **options)

    def __array_function__(
        self, function: Callable[..., Any], _types: Any, args: Any, options: Any
    ) -> Any:
        return function(*_looked(args), **_looked(options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.look(), name)

    def __getitem__(self, index: Any) -> Any:
        return self.look()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.look())

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        return bool(self.look())


def _looked(value: Any) -> Any:
    """Return what is passed to a function, of columns the values."""
    if isinstance(value, Watched):
        return value.look()
    if isinstance(value, list | tuple):
        return type(value)(map(_looked, value))
    if isinstance(value, dict):
        return {key: _looked(item) for key, item in value.items()}
    return value


def watched(axis: Axis, seen: set[str]) -> Axis:
    """Return an axis whose columns note in a set when they are looked at."""
    columns: dict[str, Any] = {
        name: Watched(name, values, seen) for name, values in axis.columns.items()
    }
    return Axis(axis.name, columns)


def unwatched(axes: Sequence[Axis]) -> tuple[tuple[Axis, ...], dict[str, str]]:
    """Return axes of plain columns, and of those that were passed on which one each is."""
    passed: dict[str, str] = {}
    plain_axes = []
    for axis in axes:
        columns: Mapping[str, Any] = axis.columns
        passed |= {
            name: column.name for name, column in columns.items() if isinstance(column, Watched)
        }
        plain = {
            name: values.unseen() if isinstance(values, Watched) else values
            for name, values in columns.items()
        }
        plain_axes.append(Axis(axis.name, plain))
    return tuple(plain_axes), passed
