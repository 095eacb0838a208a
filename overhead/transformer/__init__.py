"""Transformers: from a model's shapes to its parameters and its floating-point operations."""

from overhead import plan_quantities, transformer_quantities
from overhead.transformer import attention, flops, mlp, parameters
from overhead.transformer.derive import MissingQuantities, derive

__all__ = [
    "MissingQuantities",
    "attention",
    "derive",
    "flops",
    "mlp",
    "parameters",
    "plan_quantities",
    "transformer_quantities",
]
