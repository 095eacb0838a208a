"""Transformers: from a model's shapes to its parameters and its floating-point operations."""

from overhead import plan_quantities, transformer_quantities
from overhead.transformer import attention, flops, mlp, parameters

__all__ = [
    "attention",
    "flops",
    "mlp",
    "parameters",
    "plan_quantities",
    "transformer_quantities",
]
