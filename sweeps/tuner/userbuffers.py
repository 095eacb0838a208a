"""What Transformer Engine's userbuffers take: layers, keys, defaults, and what is legal where.

Facts of TransformerEngine main at 2.20 in development (newest release 2.18):
transformer_engine/pytorch/module/base.py (initialize_ub) and
transformer_engine/common/comm_gemm_overlap/comm_gemm_overlap.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "ALL_GATHER",
    "COLUMN",
    "HIGHEST_PRIORITY",
    "KERNEL_RANKS",
    "KEYS",
    "LAST_SPLIT_SMS",
    "LAYERS",
    "METHODS",
    "MOST_SMS",
    "OPERATORS",
    "PHASES",
    "REDUCE_SCATTER",
    "ROW",
    "Legality",
    "Level",
    "collective_of",
    "default_method",
    "default_values",
    "flag_group",
    "legality",
    "phase_collective",
]

Level = Literal["legal", "runs_as_other", "run_error", "init_error"]

# Linear layers whose weights are split by columns (an all_gather before them), and by rows.
COLUMN, ROW = ("qkv", "fc1"), ("proj", "fc2")
OPERATORS = ("fc1", "fc2", "qkv", "proj")
PHASES = ("fprop", "dgrad", "wgrad")
LAYERS = tuple(f"{one}_{phase}" for one in ("qkv", "proj", "fc1", "fc2") for phase in PHASES)
METHODS = ("ring_exchange", "pipeline", "bulk", "external")
ALL_GATHER, REDUCE_SCATTER = "all_gather", "reduce_scatter"
MOST_SMS = 32
"""Userbuffers' arrays have room for so many (NVTE_MAX_SMS)."""
LAST_SPLIT_SMS = 32
"""Multiprocessors of a pipelined reduce_scatter's last part, whatever is configured."""
KERNEL_RANKS = (2, 4, 8, 16, 32)
"""Tensor-parallel sizes that userbuffers' kernels exist for."""

# Keys of a layer's value, and what each is: a text, a whole number, or a flag (0 and 1 are fine).
KEYS: dict[str, str] = {
    "method": "text",
    "is_reduce_scatter": "flag",
    "num_sm": "number",
    "cga_size": "number",
    "set_sm_margin": "flag",
    "num_splits": "number",
    "aggregate": "flag",
    "atomic_gemm": "flag",
    "use_ce": "flag",
    "fp8_buf": "flag",
    "comm_priority": "priority",
    "gemm_priority": "priority",
    "pipeline_rs_overlap_first_gemm": "flag",
}
# The range of stream priorities of NVIDIA's GPUs; CUDA clamps what is beyond.
HIGHEST_PRIORITY, LOWEST_PRIORITY = -5, 0


@dataclass(frozen=True, slots=True)
class Legality:
    """Whether a layer can overlap by a method."""

    # ``legal``
    level: Level
    reason: str = ""  # Why; for a legal one what it needs besides, or nothing

    @property
    def runs(self) -> bool:
        """Whether something overlaps, be it by another method."""
        return self.level in {"legal", "runs_as_other"}


_LEGAL = Legality("legal")
_PIPELINE_GATHERS = Legality(
    "init_error", "pipeline is for a reduce_scatter; this is an all_gather"
)
_NO_BULK_GATHER = Legality(
    "run_error",
    "the layer's product needs what the all_gather brings: a bulk communicator has no such call",
)
_AS_PIPELINE = Legality(
    "runs_as_other", "the layer asks for a split reduce_scatter: it runs as pipeline"
)
_NOT_OFFERED = Legality("init_error", "external is for proj_wgrad and fc2_wgrad alone")
_NO_WGRAD = Legality(
    "init_error", "the weight gradient of proj and fc2 has no communication but MXFP8's external"
)
_SCATTERED_DGRAD = Legality(
    "legal",
    "as reduce_scatter: needs --tp-comm-overlap-rs-dgrad, and no key for the weight gradient",
)
_TABLE: dict[tuple[bool, str], dict[str, Legality]] = {
    (True, "fprop"): {
        "ring_exchange": _LEGAL,
        "pipeline": _PIPELINE_GATHERS,
        "bulk": _NO_BULK_GATHER,
        "external": _NO_BULK_GATHER,
    },
    (True, "dgrad"): {
        "ring_exchange": _SCATTERED_DGRAD,
        "pipeline": _SCATTERED_DGRAD,
        "bulk": _LEGAL,
        "external": _NOT_OFFERED,
    },
    (True, "wgrad"): {
        "ring_exchange": Legality(
            "run_error", "the layer asks for a bulk reduce_scatter, which a ring doesn't have"
        ),
        "pipeline": Legality(
            "runs_as_other", "the layer asks for a bulk reduce_scatter: it runs as bulk"
        ),
        "bulk": _LEGAL,
        "external": _NOT_OFFERED,
    },
    (False, "fprop"): {
        "ring_exchange": _LEGAL,
        "pipeline": _LEGAL,
        "bulk": _AS_PIPELINE,
        "external": _AS_PIPELINE,
    },
    (False, "dgrad"): {
        "ring_exchange": _LEGAL,
        "pipeline": _PIPELINE_GATHERS,
        "bulk": _NO_BULK_GATHER,
        "external": _NO_BULK_GATHER,
    },
    (False, "wgrad"): {
        "ring_exchange": _NO_WGRAD,
        "pipeline": _NO_WGRAD,
        "bulk": _NO_WGRAD,
        "external": Legality("legal", "with MXFP8 alone"),
    },
}


def legality(operator: str, phase: str, method: str) -> Legality:
    """Tell whether a layer can overlap by a method."""
    return _TABLE[operator in COLUMN, phase][method]


def phase_collective(operator: str, phase: str) -> str:
    """Return what a linear layer communicates in a phase when nothing overlaps; or nothing.

    The input gradient of a column-split layer has the all_gather of the saved input (which the
    weight gradient needs) beside it, and the weight gradient the reduce_scatter of the input
    gradient: what bulk overlaps.
    """
    if operator in COLUMN:
        return REDUCE_SCATTER if phase == "wgrad" else ALL_GATHER
    return {"fprop": REDUCE_SCATTER, "dgrad": ALL_GATHER, "wgrad": ""}[phase]


def collective_of(operator: str, phase: str, method: str) -> str:
    """Return what a layer communicates when it overlaps by a method."""
    if operator in COLUMN and phase == "dgrad" and method != "bulk":
        return REDUCE_SCATTER
    return phase_collective(operator, phase) or ALL_GATHER


def default_method(layer: str) -> str:
    """Return by what method a layer overlaps where nothing is configured."""
    operator, phase = layer.split("_")
    if operator in COLUMN:
        return "ring_exchange" if phase == "fprop" else "bulk"
    return {"fprop": "pipeline", "dgrad": "ring_exchange", "wgrad": "external"}[phase]


def default_values(layer: str, tp_size: int) -> dict[str, Any]:
    """Return all values of a layer that nothing is configured for."""
    method = default_method(layer)
    ring = method == "ring_exchange"
    operator, phase = layer.split("_")
    gathers = collective_of(operator, phase, method) == ALL_GATHER
    return {
        "method": method,
        "is_reduce_scatter": not gathers,
        "num_sm": 1 if ring else 16,
        "cga_size": 1 if ring else 2,
        "set_sm_margin": not ring,
        "num_splits": tp_size if ring else 4,
        "aggregate": False,
        "atomic_gemm": False,
        "use_ce": True,
        "fp8_buf": gathers,
        "comm_priority": HIGHEST_PRIORITY,
        "gemm_priority": LOWEST_PRIORITY,
        "pipeline_rs_overlap_first_gemm": False,
    }


def flag_group(operator: str, phase: str) -> str:
    """Return which of Megatron-LM's switches a layer's overlap stands under; or none."""
    if operator in COLUMN:
        return {"fprop": "ag", "dgrad": "bulk_dgrad", "wgrad": "bulk_wgrad"}[phase]
    return {"fprop": "rs", "dgrad": "ag", "wgrad": ""}[phase]
