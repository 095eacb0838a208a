"""Models and plans whose memory the tests compute."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from overhead.completion import features, follows
from overhead.evaluation import Evaluation
from overhead.formula import REGISTRY
from overhead.labels import LABELS
from overhead.memory.quantities import PARTS, RECIPES
from overhead.model.order import NUMBERS
from overhead.quantity import VOCABULARY, Array
from overhead.shipped import loss_figures, usual_table
from tests.tables import keyed

GIB, MIB = 2.0**30, 2.0**20
Given = Mapping[str, ArrayLike]


def gpt(layers: float, hidden: float, heads: float, vocabulary: float = 51200) -> dict[str, float]:
    return {
        "layers": layers,
        "hidden_size": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_size": hidden / heads,
        "ffn_size": 4 * hidden,
        "vocabulary_size": vocabulary,
        "tied_embeddings": 1,
        "linear_bias": 1,
        "layer_norm": 1,
        "learned_positions": 2048,
        "sequence_length": 2048,
        "dropout": 1,
    }


LLAMA3_70B = keyed(
    "layers=80 hidden_size=8192 heads=64 kv_heads=8 head_size=128 ffn_size=28672 gated_mlp=1 "
    "vocabulary_size=128256 sequence_length=8192"
)
DEEPSEEK_V3 = keyed(
    "layers=61 hidden_size=7168 heads=128 kv_heads=128 head_size=128 ffn_size=18432 gated_mlp=1 "
    "vocabulary_size=129280 sequence_length=4096 q_lora_rank=1536 kv_lora_rank=512 "
    "qk_nope_head_size=128 qk_rope_head_size=64 v_head_size=128 experts=256 experts_per_token=8 "
    "expert_ffn_size=2048 shared_ffn_size=2048 dense_layers=3 router_bias=1 etp=1"
)
K22 = {
    "22B": gpt(48, 6144, 64),
    "175B": gpt(96, 12288, 96),
    "530B": gpt(105, 20480, 128),
    "1T": gpt(128, 25600, 160),
}
UNFUSED = {"attention_kernel": "unfused"}
MIXED = RECIPES["mixed_adam"].given()


# Memory of a plan by part and stage, from what is given, through the registry.

TOTALS = ("model_state_memory", "activation_memory", "reserved_memory", "memory")

# Labels that memory depends on; where there is no schedule, what is in flight is given.
DEPENDS = ("recompute", "attention_kernel", "loss", "sharding", "dispatcher")


class Derivation(Evaluation):
    """Quantities of memory from given ones; what is computed once is kept."""

    def __init__(
        self, given: Mapping[str, ArrayLike], labels: Mapping[str, str] | None = None
    ) -> None:
        every_label = {name: LABELS[name].default for name in DEPENDS}
        every_label |= features(given) | dict(labels or {})
        for name in (*DEPENDS, "schedule"):
            known = LABELS[name].values
            if name in every_label and every_label[name] not in known:
                close = difflib.get_close_matches(every_label[name], known, n=1)
                offer = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
                message = f"{name} = {every_label[name]}: no such value; {offer}"
                raise ValueError(message)
        of_loss = loss_figures(every_label["loss"], LABELS["loss"].default)
        usual = {
            name: taken.value
            for name, taken in {**usual_table()["memory"], **of_loss}.items()
            if not follows(name, given)
        }
        # Of a stage by itself, gradients of several micro-batches can wait.
        several = {} if "global_batch_size" in given else {"num_micro_batches": 2.0}
        super().__init__({**usual, **several, **given}, every_label)


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of the stages that can be the fullest."""

    stage: Array  # Their numbers; the leading axis is `STAGES`
    # Of `PARTS` and `TOTALS`, in bytes; each has the leading axis if it depends on the stage
    parts: dict[str, Array]
    peak_memory: Array  # The total of the fullest stage, in bytes

    def headroom(self, memory_capacity: ArrayLike) -> Array:
        """Return what is left of a capacity in bytes; below nought the plan doesn't fit."""
        capacity = np.asarray(memory_capacity, dtype=np.float64)
        return np.asarray(REGISTRY["memory_headroom"].kernel(capacity, self.peak_memory))


def candidate_stages(given: Mapping[str, ArrayLike], depth: int) -> Array:
    """Return the stages that can be the fullest, on a new leading axis.

    From the second stage on less and less is in flight, so of the middle ones the second is the
    fullest, or in a mixture of experts the first without dense layers.  Between the two, where
    dense layers reach beyond the second stage, a stage could be fuller by a layer.
    """
    derivation = Derivation({**given, "stage": 0.0})
    last = derivation["pp"] - 1.0
    second = np.minimum(last, 1.0)
    expert = derivation["expert_stage"] if "layers" in derivation.given else second
    return _before(np.stack(np.broadcast_arrays(0.0 * last, second, expert, last)), depth)


def _before(values: Array, depth: int) -> Array:
    """Return values whose leading axis is the stages' with that axis before `depth` others."""
    shape = values.shape[1:]
    return values.reshape(values.shape[0], *(1,) * (depth - len(shape)), *shape)


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
    at_stages = {**given, **staged, "stage": stages}
    if NUMBERS[0] in given:
        share = Derivation(at_stages, labels)["stage_linear_fraction"]
        at_stages = {"linear_attention_fraction": share, **at_stages}
    derivation = Derivation(at_stages, labels)
    parts = {name: derivation[name] for name in (*PARTS, *TOTALS)}
    shape = np.broadcast_shapes(parts["memory"].shape, stages.shape)
    first, second, expert, last = np.broadcast_to(parts["memory"], shape)
    peak = REGISTRY["peak_memory"].kernel(first, second, expert, last)
    return StageMemory(stages, parts, np.asarray(peak))


def held(values: Given, **labels: str) -> Derivation:
    return Derivation({"stage": 0, "in_flight_micro_batches": 1, **values}, labels)
