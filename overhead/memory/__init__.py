"""Memory of a GPU in training, by part: parameters, states, activations, logits, buffers."""

from overhead.memory import (
    activations,
    forward_only,
    quantities,
    rank_parameters,
    recomputation,
    sources,
    stage,
    states,
    totals,
)
from overhead.memory.breakdown import (
    DEFAULTS,
    LABELS,
    PARTS,
    STAGES,
    Derivation,
    StageMemory,
    stage_memory,
)
from overhead.memory.precision import RECIPES, Recipe

__all__ = [
    "DEFAULTS",
    "LABELS",
    "PARTS",
    "RECIPES",
    "STAGES",
    "Derivation",
    "Recipe",
    "StageMemory",
    "activations",
    "forward_only",
    "quantities",
    "rank_parameters",
    "recomputation",
    "sources",
    "stage",
    "stage_memory",
    "states",
    "totals",
]
