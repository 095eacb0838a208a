"""Time of one matrix product, and of products that one grouped kernel computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute import quantities, sources
from overhead.formula import formula
from overhead.quantity import Array

__all__ = [
    "grouped_matmul_time",
    "matmul_time",
    "output_matmul_flops",
    "quantities",
    "sources",
]

# Of four smooth and three tiled forms this one fits the measured products best; tiles and waves
# counted whole make it worse, for libraries choose among tiles and split the depth.
FORM: dict[str, Any] = {
    "source": sources.MEASURED,
    "where": "half of its bf16 products, which fit within 6 % on average",
    "assumes": (
        "operations and bytes aren't hidden behind one another",
        "a product of nothing takes no time",
    ),
}


@formula(
    returns="output_matmul_flops",
    expression="best_matmul_flops*attention_peak_flops/peak_flops",
    source=sources.MEASURED,
    where="rates by precision",
    assumes=("16 bit reaches the share of its peak that the products' own precision reaches",),
)
def output_matmul_flops(
    best_matmul_flops: Array, attention_peak_flops: Array, peak_flops: Array
) -> Array:
    """Rate of the best matrix product in 16 bit, where it isn't given."""
    return best_matmul_flops * attention_peak_flops / peak_flops


@formula(
    returns="matmul_time",
    expression="where(matmul_rows*matmul_columns*matmul_depth > 0,"
    " matmul_floor + matmul_depth_time*matmul_depth"
    " + 2*matmul_rows*matmul_columns*matmul_depth/(matmul_efficiency*best_matmul_flops)"
    " + (matmul_input_bytes*(matmul_rows*matmul_depth + matmul_depth*matmul_columns)"
    " + activation_bytes*matmul_rows*matmul_columns)/(memory_efficiency*memory_bandwidth), 0)",
    **FORM,
)
def matmul_time(
    matmul_rows: Array,
    matmul_columns: Array,
    matmul_depth: Array,
    matmul_floor: Array,
    matmul_depth_time: Array,
    matmul_efficiency: Array,
    best_matmul_flops: Array,
    matmul_input_bytes: Array,
    activation_bytes: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of a matrix product: floor, depth, operations and bytes."""
    result = matmul_rows * matmul_columns
    inputs = matmul_rows * matmul_depth + matmul_depth * matmul_columns
    moved = matmul_input_bytes * inputs + activation_bytes * result
    start = matmul_floor + matmul_depth_time * matmul_depth
    operations = 2.0 * result * matmul_depth
    worked = start + operations / (matmul_efficiency * best_matmul_flops)
    time = worked + moved / (memory_efficiency * memory_bandwidth)
    return np.where(operations > 0.0, time, 0.0)


@formula(
    returns="grouped_matmul_time",
    expression="where(matmul_groups*matmul_rows*matmul_columns*matmul_depth > 0,"
    " matmul_floor + matmul_depth_time*matmul_depth + matmul_groups*("
    "2*matmul_rows*matmul_columns*matmul_depth/(matmul_efficiency*best_matmul_flops)"
    " + (matmul_input_bytes*(matmul_rows*matmul_depth + matmul_depth*matmul_columns)"
    " + activation_bytes*matmul_rows*matmul_columns)/(memory_efficiency*memory_bandwidth)), 0)",
    source=sources.MEASURED,
    where="its form for one product, with one floor for all",
    assumes=("the groups are equal and fill the GPU together",),
)
def grouped_matmul_time(
    matmul_groups: Array,
    matmul_rows: Array,
    matmul_columns: Array,
    matmul_depth: Array,
    matmul_floor: Array,
    matmul_depth_time: Array,
    matmul_efficiency: Array,
    best_matmul_flops: Array,
    matmul_input_bytes: Array,
    activation_bytes: Array,
    memory_efficiency: Array,
    memory_bandwidth: Array,
) -> Array:
    """Time of equal matrix products in one kernel: one floor, and each one's work."""
    result = matmul_rows * matmul_columns
    inputs = matmul_rows * matmul_depth + matmul_depth * matmul_columns
    moved = matmul_input_bytes * inputs + activation_bytes * result
    operations = 2.0 * result * matmul_depth
    each = operations / (matmul_efficiency * best_matmul_flops)
    each = each + moved / (memory_efficiency * memory_bandwidth)
    time = matmul_floor + matmul_depth_time * matmul_depth + matmul_groups * each
    return np.where(matmul_groups * operations > 0.0, time, 0.0)
