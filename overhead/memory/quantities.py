"""The vocabulary of memory: stages, what a rank holds, what it stores, what all of it takes."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
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
    where: str = ""  # The key of its publication, and the place in it

    @property
    def reference(self) -> str:
        """The source with the place in it."""
        return SOURCES[self.source].at(self.where)

    def given(self) -> dict[str, float]:
        """Return its values by the vocabulary's names."""
        names = ("weight", "gradient", "optimizer", "activation", "matmul_input")
        return {f"{name}_bytes": getattr(self, f"{name}_bytes") for name in names}


MEGATRON = ("megatron", "user guide, distributed optimizer, table of bytes a parameter")
SIXTEEN = (2.0, 2.0)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("fp32_adam", 4, 4, 8, 4, 4, "single precision throughout", *MEGATRON),
        Recipe(
            "fsdp_adam",
            4,
            4,
            8,
            *SIXTEEN,
            "single precision shards, gathered and computed in 16 bits",
            "zhao2023",
            "section 4.4",
        ),
        Recipe(
            "mixed_adam",
            2,
            2,
            12,
            *SIXTEEN,
            "16-bit weights and gradients, single precision master and two moments",
            "rajbhandari2020",
            "section 3.1",
        ),
        Recipe(
            "megatron_bf16",
            2,
            4,
            12,
            *SIXTEEN,
            "16-bit weights, gradients added up in single precision, master and two moments",
            *MEGATRON,
        ),
        Recipe(
            "bf16_moments",
            2,
            2,
            8,
            *SIXTEEN,
            "16-bit weights and gradients, single precision master, two 16-bit moments",
            "megatron",
            "megatron/core/optimizer/optimizer_config.py: exp_avg_dtype, exp_avg_sq_dtype",
        ),
        Recipe(
            "muon",
            2,
            2,
            8,
            *SIXTEEN,
            "16-bit weights and gradients, single precision master and one momentum",
            "megatron",
            "megatron/core/optimizer/muon.py; the few weights that Adam updates"
            " are counted as the others",
        ),
        Recipe(
            "megatron_fp16",
            2,
            2,
            16,
            *SIXTEEN,
            "16-bit weights and gradients; master, its gradient and two moments in single",
            *MEGATRON,
        ),
        Recipe(
            "two_moments",
            2,
            2,
            8,
            *SIXTEEN,
            "16-bit weights and gradients, two single precision moments, no master copy",
            "rajbhandari2020",
            "section 3.1, without the master copy",
        ),
        Recipe(
            "adam_8bit",
            2,
            2,
            6,
            *SIXTEEN,
            "16-bit weights and gradients, single precision master, two 8-bit moments",
            "dettmers2022",
            "section 1.1; scales of blocks left out",
        ),
        Recipe(
            "bf16_adam_8bit",
            2,
            2,
            2,
            *SIXTEEN,
            "16-bit weights and gradients, two 8-bit moments, no master copy",
            "dettmers2022",
            "section 1.1; scales of blocks left out",
        ),
        Recipe(
            "bf16_adam",
            2,
            2,
            4,
            *SIXTEEN,
            "16-bit weights, gradients and two moments, no master copy",
            "rajbhandari2020",
            "section 3.1, all in 16 bits",
        ),
        Recipe(
            "sgd_momentum",
            2,
            2,
            8,
            *SIXTEEN,
            "16-bit weights and gradients, single precision master and momentum",
            "micikevicius2018",
            "section 3.1",
        ),
        Recipe(
            "fp8_adam",
            1,
            2,
            12,
            2,
            1,
            "8-bit weights, 16-bit gradients, single precision master and two moments",
            *MEGATRON,
        ),
        Recipe(
            "forward_only",
            2,
            0,
            0,
            *SIXTEEN,
            "16-bit weights alone: no gradients, no optimizer",
            "rajbhandari2020",
            "section 3.1",
        ),
    )
}
