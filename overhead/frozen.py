"""Classes of values that nothing changes, made faster than frozen dataclasses are.

Python compiles six functions for a frozen dataclass, which takes half a millisecond: for all that a
command loads a tenth of its time.  Here it compiles one.  That nothing changes such values is
checked with their types, and what users hold is a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, eq: bool = True, slots: bool = False) -> Callable[[type[Kind]], type[Kind]]:
    """Make a class a dataclass that is compared and shown by its values.

    Parameters
    ----------
    eq : bool
        Whether those of the same values are equal; else each equals itself alone.
    slots : bool
        Whether it has no other attributes.

    Returns
    -------
    callable
        The decorator.
    """

    def made(plain: type[Kind]) -> type[Kind]:
        data_class: Any = dataclass(eq=False, repr=False, slots=slots)(plain)
        if "__repr__" not in vars(plain):
            data_class.__repr__ = _shown
        if eq:
            data_class.__eq__, data_class.__hash__ = _compared(data_class)
        return data_class

    return made


def _compared(kind: Any) -> tuple[Callable[[Any, Any], Any], Callable[[Any], int]]:
    """Return how values of a class are compared and hashed."""
    values = attrgetter(*[member.name for member in fields(kind) if member.compare])

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(other) is kind else NotImplemented

    return equal, lambda self: hash(values(self))


def _shown(self: Any) -> str:
    parts = (
        f"{member.name}={getattr(self, member.name)!r}" for member in fields(self) if member.repr
    )
    return f"{type(self).__qualname__}({', '.join(parts)})"
