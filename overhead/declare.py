"""Formulas that are sums or products of others: declared by the names of their terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array


def total(
    returns: str,
    names: Sequence[str],
    *,
    source: str = "derivation",
    where: str = "",
    assumes: tuple[str, ...] = (),
    when: Mapping[str, str] | None = None,
    name: str = "",
) -> None:
    """Declare a quantity as the sum of others."""
    _declare(returns, names, np.add, source, where, assumes, when, name or returns)


def product(
    returns: str,
    names: Sequence[str],
    *,
    source: str = "derivation",
    where: str = "",
    assumes: tuple[str, ...] = (),
    when: Mapping[str, str] | None = None,
    name: str = "",
) -> None:
    """Declare a quantity as the product of others."""
    _declare(returns, names, np.multiply, source, where, assumes, when, name or returns)


def _declare(
    returns: str,
    names: Sequence[str],
    ufunc: np.ufunc,
    source: str,
    where: str,
    assumes: tuple[str, ...],
    when: Mapping[str, str] | None,
    name: str,
) -> None:
    formula(
        returns=returns,
        source=source,
        where=where,
        assumes=assumes,
        when=when,
        inputs=tuple(names),
        name=name,
        commutes=True,
    )(_kernel(ufunc))


def _kernel(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(*values: Array) -> Array:
        return np.asarray(reduce(ufunc, values))

    return kernel


# Formulas that are the same for layers of each kind, declared by the names of what they take.


def declare(
    returns: str,
    inputs: Sequence[str],
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

    def own(*values: Any) -> Array:
        return kernel(*values)

    formula(
        returns=returns,
        source=source,
        where=where,
        assumes=assumes,
        when=when,
        inputs=tuple(inputs),
        name=name,
    )(own)
