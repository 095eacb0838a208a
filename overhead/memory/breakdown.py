"""Memory of a plan by part and stage, from what is given, through the registry."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from overhead.formula import REGISTRY
from overhead.graph import Evaluation
from overhead.labels import LABELS
from overhead.memory.quantities import PARTS
from overhead.quantity import VOCABULARY, Array

TOTALS = ("model_state_memory", "activation_memory", "allocated_memory", "memory")

# Labels that memory depends on; where there is no schedule, what is in flight is given.
DEPENDS = ("recompute", "attention_kernel", "sharding")

_NONE = {
    "learned_positions", "experts", "experts_per_token", "expert_ffn_size", "shared_ffn_size",
    "dense_layers", "q_rank", "kv_rank", "head_size_plain", "head_size_rope", "head_size_value",
    "window", "gated", "tied_embeddings", "biases", "qkv_biases", "qk_norms", "layer_norm",
    "router_bias", "zero_stage", "sequence_parallel", "dropout", "embedding_as_layer",
    "loss_as_layer", "pending_share", "buckets", "bucket_bytes", "placeholder_bytes",
    "weighted_outputs",
}  # fmt: skip
_ONE = {
    "tp", "cp", "pp", "dp", "ep", "virtual_stages", "micro_batch", "moe_every", "weight_copies",
    "expert_imbalance", "loss_chunks", "gathered_ends", "mask_bytes", "reserve_factor",
}  # fmt: skip
GIB = 2.0**30
DEFAULTS: dict[str, float] = {
    **dict.fromkeys(sorted(_NONE), 0.0),
    **dict.fromkeys(sorted(_ONE), 1.0),
    "activation_bytes": 2.0,
    "gathered_bytes": 2.0,
    "gathered_layers": 2.0,  # the layer at work and the one fetched ahead
    "single_bytes": 4.0,
    "logit_bytes": 8.0,  # Megatron-LM; 12 where the loss is in single precision (torchtitan)
    "vocabulary_multiple": 128.0,  # Megatron-LM's default
    "communicator_channels": 16.0,  # assumed
    "channel_buffer_bytes": 9633792.0,  # NCCL: Simple 4 MiB, LL 512 KiB, LL128 4800 KiB
    "workspace_bytes": 0.7 * GIB,  # assumed: workspaces of libraries, small tensors
    "context_bytes": 0.5 * GIB,  # assumed: CUDA context and modules
}


class Derivation(Evaluation):
    """Quantities of memory from given ones; what is computed once is kept."""

    def __init__(
        self, given: Mapping[str, ArrayLike], labels: Mapping[str, str] | None = None
    ) -> None:
        values = {**DEFAULTS, **given}
        values.setdefault("etp", values["tp"])
        held = {name: LABELS[name].default for name in DEPENDS} | dict(labels or {})
        for name in (*DEPENDS, "schedule"):
            known = LABELS[name].values
            if name in held and held[name] not in known:
                close = difflib.get_close_matches(held[name], known, n=1)
                offer = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
                message = f"{name} = {held[name]}: no such value; {offer}"
                raise ValueError(message)
        super().__init__(values, held)


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of the stages that can be the fullest."""

    stage: Array  # Their numbers; the leading axis is `STAGES`
    # The parts of `PARTS` and the totals, in bytes; each has the leading axis if it depends on the
    # stage
    parts: dict[str, Array]
    peak_memory: Array  # The total of the fullest stage, in bytes

    def headroom(self, memory_capacity: ArrayLike) -> Array:
        """Return what is left of a capacity in bytes; below nought the plan doesn't fit."""
        capacity = np.asarray(memory_capacity, dtype=np.float64)
        return np.asarray(REGISTRY["headroom"].kernel(capacity, self.peak_memory))


def candidate_stages(given: Mapping[str, ArrayLike], depth: int) -> Array:
    """Return the stages that can be the fullest, on a new leading axis.

    From the second stage on less and less is in flight, so of the middle ones the second is the
    fullest, or in a mixture of experts the first without dense layers.  Between the two, where
    dense layers reach beyond the second stage, a stage could be fuller by a layer.
    """
    held = Derivation({**given, "stage": 0.0})
    last = held["pp"] - 1.0
    second = np.minimum(last, 1.0)
    expert = second
    if "layers" in held.given:
        chunk = np.maximum(held["stage_layers"] / held["virtual_stages"], 1.0)
        leading = np.ceil(held["dense_layers"] / chunk)
        expert = np.minimum(np.maximum(leading, second), last)
    return _before(np.stack(np.broadcast_arrays(0.0 * last, second, expert, last)), depth)


def _before(values: Array, depth: int) -> Array:
    """Return values whose leading axis is the stages' with that axis before `depth` others."""
    own = values.shape[1:]
    return values.reshape(values.shape[0], *(1,) * (depth - len(own)), *own)


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in VOCABULARY:
            close = difflib.get_close_matches(name, VOCABULARY, n=1)
            offer = f"did you mean '{close[0]}'?" if close else "see overhead.VOCABULARY"
            message = f"{name}: no such quantity; {offer}"
            raise ValueError(message)


def stage_memory(
    given: Mapping[str, ArrayLike],
    labels: Mapping[str, str] | None = None,
    by_stage: Mapping[str, ArrayLike] | None = None,
) -> StageMemory:
    """Compute the memory of a plan by part, on the stages that can be the fullest."""
    staged = {name: np.asarray(value, dtype=np.float64) for name, value in (by_stage or {}).items()}
    _check_names((*given, *staged))
    depth = max(
        *(np.ndim(value) for value in given.values()), *(v.ndim - 1 for v in staged.values()), 0, 0
    )
    stages = candidate_stages(given, depth)
    staged = {name: _before(value, depth) for name, value in staged.items()}
    held = Derivation({**given, **staged, "stage": stages}, labels)
    parts = {name: held[name] for name in (*PARTS, *TOTALS)}
    shape = np.broadcast_shapes(parts["memory"].shape, stages.shape)
    first, second, expert, last = np.broadcast_to(parts["memory"], shape)
    peak = REGISTRY["peak_memory"].kernel(first, np.maximum(second, expert), last)
    return StageMemory(stages, parts, np.asarray(peak))
