"""Formulas that are sums or products of others: declared by the names of their terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.quantity import VOCABULARY, Array

__all__ = ["product", "total"]


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
    stated = (source, where, assumes, when, name or returns)
    _declare(returns, names, " + ", np.add, *stated)


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
    stated = (source, where, assumes, when, name or returns)
    _declare(returns, names, "*", np.multiply, *stated)


def _declare(
    returns: str,
    names: Sequence[str],
    sign: str,
    ufunc: np.ufunc,
    source: str,
    where: str,
    assumes: tuple[str, ...],
    when: Mapping[str, str] | None,
    name: str,
) -> None:
    formula(
        returns=returns,
        expression=sign.join(names),
        source=source,
        where=where,
        assumes=assumes,
        when=when,
        ufunc=ufunc if len(names) == 2 else None,
        inputs=tuple(names),
        name=name,
        commutes=True,
    )(_kernel(ufunc, VOCABULARY[returns].meaning))


def _kernel(ufunc: np.ufunc, meaning: str) -> Callable[..., Any]:
    def kernel(*values: Array) -> Array:
        return np.asarray(reduce(ufunc, values))

    kernel.__doc__ = f"{meaning[0].upper()}{meaning[1:]}."
    return kernel
