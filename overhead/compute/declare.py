"""Formulas that are the same for layers of each kind, declared by the names of what they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overhead.compute import quantities
from overhead.formula import formula
from overhead.quantity import VOCABULARY, Array

__all__ = ["declare", "quantities"]


def declare(
    returns: str,
    inputs: Sequence[str],
    expression: str,
    kernel: Callable[..., Array],
    *,
    source: str = "derivation",
    where: str = "",
    assumes: tuple[str, ...] = (),
    when: Mapping[str, str] | None = None,
) -> None:
    """Declare a formula of a kernel that serves several."""
    values = "_".join(value for value in (when or {}).values())
    name = f"{returns}_{values}".rstrip("_").replace("|", "_or_")
    meaning = VOCABULARY[returns].meaning

    def own(*values: Any) -> Array:
        return kernel(*values)

    own.__doc__ = f"{meaning[0].upper()}{meaning[1:]}."
    formula(
        returns=returns,
        expression=expression,
        source=source,
        where=where,
        assumes=assumes,
        when=when,
        inputs=tuple(inputs),
        name=name,
    )(own)
