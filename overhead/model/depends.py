"""Which quantities a sum over a kind's GEMMs takes: of all that the kind is given some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from overhead.formula import parameters


class Depends:
    """A value of which is known alone what it depends on."""

    __slots__ = ("names",)

    def __init__(self, *values: Any) -> None:
        self.names: frozenset[str] = frozenset().union(
            *(value.names for value in values if isinstance(value, Depends))
        )

    def _with(self, other: Any) -> Depends:
        if not isinstance(other, Depends) or other.names <= self.names:
            return self
        return Depends(self, other)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _with
    __truediv__ = __rtruediv__ = __gt__ = __lt__ = __ge__ = __le__ = _with

    def __array_ufunc__(self, _ufunc: Any, _method: str, *values: Any, **_: Any) -> Depends:
        return Depends(*values)

    def __array_function__(self, _function: Any, _types: Any, values: Any, _: Any) -> Depends:
        return Depends(*values)


@cache
def named(name: str) -> Depends:
    """Return what depends on one quantity."""
    value = Depends()
    value.names = frozenset((name,))
    return value


@cache
def applied(kind: Callable[..., Any]) -> Any:
    """Return what a function of quantities gives, as what it depends on."""
    return kind(*map(named, parameters(kind)))


def inputs_of(
    of: Callable[..., Any], kind: Callable[..., Any], more: Sequence[str]
) -> tuple[str, ...]:
    """Return the quantities that a function of a kind and of some more depends on, in order."""
    names = Depends(of(applied(kind), *map(named, more))).names
    return tuple(name for name in dict.fromkeys((*parameters(kind), *more)) if name in names)
