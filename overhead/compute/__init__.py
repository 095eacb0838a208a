"""What a GPU computes: matrix products, attention, element-wise work, layers, stages."""

from overhead.compute import quantities, sources  # isort: skip  (the formulas need both)
from overhead.compute import (
    attention,
    declare,
    elementwise,
    ends,
    host,
    layer,
    matmul,
    products,
    recomputation,
    stage,
)

__all__ = [
    "attention",
    "declare",
    "elementwise",
    "ends",
    "host",
    "layer",
    "matmul",
    "products",
    "quantities",
    "recomputation",
    "sources",
    "stage",
]
