"""Defaults of a training step that neither a machine nor its software decides."""

from __future__ import annotations

from collections.abc import Container

__all__ = ["LABEL_DEFAULTS", "NUMBER_DEFAULTS", "needed_shapes"]

LABEL_DEFAULTS = {
    "topology": "hierarchical",
    "algorithm": "nccl",
    "latency_per": "hop",
    "link": "auto",
    "recompute": "none",
    "attention_kernel": "flash_2",
    "schedule": "one_f_one_b",
    "context_parallel": "all_to_all",
    "mask": "causal",
    "sharding": "full",
    "dispatcher": "all_to_all",
    "tp_mechanism": "efficiency",
    "cp_mechanism": "efficiency",
    "dp_mechanism": "efficiency",
}
# What `Resolved` names where the user says nothing.
NUMBER_DEFAULTS: dict[str, tuple[float, str]] = {
    "zero_stage": (0.0, "assumed: nothing is sharded"),
    "expert_imbalance": (1.0, "assumed: experts are used evenly"),
    "uneven_stages": (1.0, "assumed: the largest stage rules where layers don't divide evenly"),
}
# Without these a model has no tensors of its own.
VITAL = ("layers", "hidden_size", "heads", "vocabulary_size")


def needed_shapes(given: Container[str]) -> tuple[str, ...]:
    """Return the shapes without which only a parameter count is known."""
    inner = "expert_ffn_size" if "expert_ffn_size" in given else "ffn_size"
    return (*VITAL, inner)
