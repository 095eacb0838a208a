"""Formulas without a function of their own: sums, products, aliases, constants, shared kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypedDict, Unpack

import numpy as np

from overhead.formula import calling, formula
from overhead.quantity import Array


class Further(TypedDict, total=False):
    """What every declaration may say: as of `overhead.formula.formula`."""

    where: str
    assumes: tuple[str, ...]
    when: Mapping[str, str] | None


def total(
    returns: str,
    names: Sequence[str],
    *,
    source: str = "derivation",
    name: str = "",
    **further: Unpack[Further],
) -> None:
    """Declare a quantity as the sum of others."""
    formula(
        returns=returns,
        inputs=tuple(names),
        source=source,
        name=name or returns,
        place=calling(),
        **further,
    )(_sum)


def product(
    returns: str,
    names: Sequence[str],
    *,
    source: str = "derivation",
    name: str = "",
    **further: Unpack[Further],
) -> None:
    """Declare a quantity as the product of others."""
    formula(
        returns=returns,
        inputs=tuple(names),
        source=source,
        name=name or returns,
        place=calling(),
        **further,
    )(_product)


def _sum(*values: Array) -> Array:
    return np.asarray(reduce(np.add, values))


def _product(*values: Array) -> Array:
    return np.asarray(reduce(np.multiply, values))


def alias(
    returns: str,
    of: str,
    title: str = "",
    *,
    source: str = "derivation",
    name: str = "",
    **further: Unpack[Further],
) -> None:
    """Declare a quantity as another one, under some labels or by default."""
    formula(
        returns=returns,
        inputs=(of,),
        source=source,
        name=name or _named(returns, further),
        title=title,
        place=calling(),
        **further,
    )(_itself)


def _itself(value: Array) -> Array:
    return 1.0 * value


def constant(
    returns: str,
    value: float,
    title: str = "",
    *,
    like: str | tuple[str, ...],
    source: str = "derivation",
    name: str = "",
    **further: Unpack[Further],
) -> None:
    """Declare a quantity as a number, wherever what it is `like` is known, and of its shape."""

    def kernel(*others: Array) -> Array:
        return value + 0.0 * _product(*others)

    inputs = (like,) if isinstance(like, str) else like
    formula(
        returns=returns,
        inputs=inputs,
        source=source,
        name=name or _named(returns, further),
        title=title,
        place=calling(),
        **further,
    )(kernel)


def declare(
    returns: str,
    inputs: Sequence[str],
    kernel: Callable[..., Array],
    *,
    source: str = "derivation",
    **further: Unpack[Further],
) -> None:
    """Declare a formula of a kernel that serves several, as layers of each kind."""

    def own(*values: Any) -> Array:
        return kernel(*values)

    formula(
        returns=returns,
        inputs=tuple(inputs),
        source=source,
        name=_named(returns, further),
        place=calling(),
        **further,
    )(own)


def _named(returns: str, further: Further) -> str:
    return "_".join((returns, *(further.get("when") or {}).values())).replace("|", "_or_")
