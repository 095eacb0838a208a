"""The values that labels may have: of a list, or of the catalogue."""

from __future__ import annotations

from overhead.collectives import ALGORITHMS, COLLECTIVES, TOPOLOGIES
from sweeps.spec.usual_quantities import training_label_values

__all__ = ["CATALOGUED", "CHOICES", "label_values"]

CHOICES = ("standard", "nccl", "auto")
# Labels whose values are files, with the folder where they are.
CATALOGUED = {"hardware": "hardware", "model": "models", "framework": "frameworks"}


def label_values(name: str) -> tuple[str, ...]:
    """Return the values that a label may have; empty where the catalogue says."""
    return {
        "collective": COLLECTIVES,
        "topology": TOPOLOGIES,
        "algorithm": (*CHOICES, *ALGORITHMS.names()),
        "latency_per": ("hop", "message"),
        "link": ("auto", "intra", "inter"),
        **training_label_values(name),
    }.get(name, ())
