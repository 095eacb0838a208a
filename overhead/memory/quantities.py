"""The vocabulary of memory: stages, what a rank holds, what it stores, what all of it takes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from overhead.frozen import frozen
from overhead.quantity import VOCABULARY, Quantity
from overhead.source import SOURCES

# What is computed again for the backward: layers of a chunk, or modules of a layer.
MODULES = (
    "core_attn",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "moe",
    "moe_act",
    "shared_experts",
)

# What a total is made of.
PARTS: dict[str, Quantity] = {
    name: VOCABULARY[name]
    for name in (
        "weight_memory",
        "gradient_memory",
        "optimizer_memory",
        "weight_cast_memory",
        "zero3_gathered_memory",
        "unsharded_gradient_memory",
        "bucket_memory",
        "placeholder_memory",
        "saved_activation_memory",
        "recompute_activation_memory",
        "embedding_activation_memory",
        "output_activation_memory",
        "gathered_sequence_memory",
        "logits_memory",
        "workspace_bytes",
        "nccl_buffer_memory",
        "context_bytes",
    )
}


# Precision recipes: bytes a parameter takes as weight, as gradient, and in the optimizer.


@frozen(slots=True)
class Recipe:
    """Bytes a parameter of a precision recipe."""

    name: str  # Its name
    # Bytes of a weight, of a gradient, and of the optimizer's states for one parameter, a master
    # copy of the weight among them
    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    # Bytes of a stored activation, and of a stored input of a GEMM
    activation_bytes: float
    matmul_input_bytes: float
    meaning: str  # What it is, in words
    source: str  # The key of its publication, and the place in it
    where: str

    @property
    def reference(self) -> str:
        """The source with the place in it."""
        return SOURCES[self.source].at(self.where)

    def given(self) -> dict[str, float]:
        """Return its values by the vocabulary's names."""
        names = ("weight", "gradient", "optimizer", "activation", "matmul_input")
        return {f"{name}_bytes": getattr(self, f"{name}_bytes") for name in names}


def _recipes() -> Iterator[Recipe]:
    with Path(__file__).with_name("recipes.csv").open(encoding="utf-8", newline="") as rows:
        for name, *taken, meaning, source, where in islice(csv.reader(rows), 1, None):
            weight, gradient, optimizer, activation, product = map(float, taken)
            sizes = (weight, gradient, optimizer, activation, product)
            yield Recipe(name, *sizes, meaning, source, where)


# By name; a row each.
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _recipes()}
