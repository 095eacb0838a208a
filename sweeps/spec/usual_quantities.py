"""What makes a sweep one of training steps, and what it asks for if nothing is said."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

from overhead.plan_quantities import DEGREES
from overhead.quantity import VOCABULARY
from overhead.transformer_quantities import SHAPES
from sweeps.spec.axis import LABELS, OF_TRAINING

__all__ = [
    "DEFAULT_QUANTITIES",
    "TRAINING_QUANTITIES",
    "declare_for",
    "is_training",
    "training_label_values",
]

OF_A_PLAN = (
    *(name for name, _, _ in DEGREES),
    *SHAPES,
    "world_size",
    "zero_stage",
    "sequence_parallel",
    "sequence_length",
    "parameters",
)

# Where nothing is asked for by name, of collective operations.
DEFAULT_QUANTITIES = (
    "time",
    "latency_time",
    "bandwidth_time",
    "intra_time",
    "inter_time",
    "steps",
    "sent_bytes",
    "link_bytes",
    "energy",
    "algbw",
    "busbw",
    "lower_bound",
    "lower_bound_ratio",
    "chosen_algorithm",
)

# The same of training steps; what can't be had is left out, and told.
TRAINING_QUANTITIES = (
    "step_time",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "model_flops_per_gpu",
    "mfu",
    "hfu",
    "bubble_fraction",
    "peak_memory",
    "headroom",
    "first_stage_model_state_memory",
    "communication_upper_bound",
    "communication_volume",
    "step_energy",
    "error_band",
)


def declare_for(named: Collection[str]) -> None:
    """Import the formulas of training steps, if a sweep that names this needs them."""
    if is_training(named) or not set(named) <= {*VOCABULARY, *LABELS}:
        import_module("overhead.training")


def is_training(given: Collection[str]) -> bool:
    """Return whether what is given is of a training step rather than of one operation."""
    return bool({*OF_A_PLAN, *OF_TRAINING} & set(given))


def training_label_values(name: str) -> dict[str, tuple[str, ...]]:
    """Return the values of a label of training steps, by its name; empty where it is none."""
    if name not in OF_TRAINING:
        return {}
    from overhead.memory import LABELS as MEMORY_LABELS
    from overhead.memory import RECIPES
    from overhead.overlap_labels import OVERLAPS
    from overhead.schedule import SCHEDULES
    from sweeps.spec.training import PRECISIONS

    known = {
        "recompute": MEMORY_LABELS["recompute"],
        "attention_kernel": MEMORY_LABELS["attention_kernel"],
        "sharding": MEMORY_LABELS["sharding"],
        "schedule": SCHEDULES,
        "context_parallel": ("all_to_all", "ring", "all_gather"),
        "mask": ("causal", "full"),
        "dispatcher": ("all_to_all", "deduplicated"),
        **OVERLAPS,
        "precision": PRECISIONS,
        "recipe": tuple(RECIPES),
    }
    return {name: tuple(known.get(name, ()))}
