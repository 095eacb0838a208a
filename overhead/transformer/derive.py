"""Any quantity of a transformer from what is given, through the registry: one call at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from overhead.formula import REGISTRY
from overhead.quantity import Array

__all__ = ["MissingQuantities", "derive"]


class MissingQuantities(LookupError):
    """Quantities that nothing gives, and without which another can't be had.

    Parameters
    ----------
    quantity : str
        What was asked.
    missing : tuple of str
        What has to be given for it and isn't, in order of need.
    """

    def __init__(self, quantity: str, missing: tuple[str, ...]) -> None:
        super().__init__(f"{quantity} needs {', '.join(missing)}")
        self.quantity = quantity
        self.missing = missing


def derive(quantity: str, given: Mapping[str, ArrayLike]) -> Array:
    """Compute a quantity of a transformer.

    Parameters
    ----------
    quantity : str
        Its name, such as ``parameters`` or ``forward_flops_per_token``.
    given : mapping of str to array_like
        What is given, shapes or anything between, in canonical units; the arrays broadcast.

    Returns
    -------
    ndarray
        The quantity, of the shape to which broadcast what it depends on.

    Raises
    ------
    MissingQuantities
        If something that it needs is neither given nor follows from what is.
    """
    known: dict[str, Array | None] = {
        name: np.asarray(value, dtype=np.float64) for name, value in given.items()
    }
    missing: dict[str, None] = {}

    def value(name: str) -> Array | None:
        if name not in known:
            declared = REGISTRY.returning(name, {})
            if declared is None:
                missing[name] = None
                known[name] = None
            else:
                inputs = [value(one) for one in declared.inputs]
                whole = all(one is not None for one in inputs)
                known[name] = np.asarray(declared.kernel(*inputs)) if whole else None
        return known[name]

    result = value(quantity)
    if result is None:
        raise MissingQuantities(quantity, tuple(missing))
    return result
