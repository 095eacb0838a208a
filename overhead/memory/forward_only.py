"""Memory of a pipeline that runs forwards alone: no gradients, and no optimizer."""

from __future__ import annotations

from collections.abc import Callable

from overhead.formula import formula
from overhead.memory import states
from overhead.quantity import VOCABULARY, Array

__all__ = ["states"]

NONE = (
    "gradient_memory",
    "optimizer_memory",
    "pending_gradient_memory",
    "bucket_memory",
    "placeholder_memory",
)


def _nothing(meaning: str) -> Callable[[Array], Array]:
    def kernel(weight_memory: Array) -> Array:
        return 0.0 * weight_memory

    kernel.__doc__ = f"{meaning[0].upper()}{meaning[1:]}: none."
    return kernel


for _name in NONE:
    formula(
        returns=_name,
        expression="0*weight_memory",
        source="derivation",
        assumes=("forwards alone need no gradients and no optimizer",),
        when={"schedule": "forward_only"},
        inputs=("weight_memory",),
        name=f"forward_only_{_name}",
    )(_nothing(VOCABULARY[_name].meaning))
