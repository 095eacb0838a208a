"""The error of a step's time to expect, from what is known of the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.source import cite
from overhead.step import quantities

__all__ = ["error_band", "fine_grained_experts", "quantities"]

cite(
    "comparison",
    "Predictions compared with published runs: mean error by class of run; sweeps/validate does "
    "it again",
)
ERRORS: dict[str, Any] = {"source": "comparison"}


@formula(
    returns="fine_grained_experts",
    expression="where((experts > 0) & (expert_ffn_size < hidden_size), 1, 0)",
    where="mixtures of few large experts, and of many small ones",
    **ERRORS,
)
def fine_grained_experts(experts: Array, expert_ffn_size: Array, hidden_size: Array) -> Array:
    """Whether experts are narrower than the hidden size."""
    return np.where((experts > 0.0) & (expert_ffn_size < hidden_size), 1.0, 0.0)


@formula(
    returns="error_band",
    expression="where((fine_grained_experts > 0) | ((cp >= 4) | (unseen_device > 0)), 0.25,"
    " where((unknown_settings > 0) | (experts > 0), 0.12, 0.06))",
    where="dense runs all of whose settings are known; one unknown, or few large experts; the rest",
    assumes=("a mean error: one in three or four runs is further off",),
    **ERRORS,
)
def error_band(
    fine_grained_experts: Array,
    cp: Array,
    unseen_device: Array,
    unknown_settings: Array,
    experts: Array,
) -> Array:
    """Error of the step's time to expect, as a share of it."""
    far = (fine_grained_experts > 0.0) | ((cp >= 4.0) | (unseen_device > 0.0))
    near = np.where((unknown_settings > 0.0) | (experts > 0.0), 0.12, 0.06)
    return np.where(far, 0.25, near)
