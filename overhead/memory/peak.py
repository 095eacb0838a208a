"""Memory of the fullest stage of a pipeline, by part: of the stages that can be it, each once.

From the second stage on less and less is in flight, so of the middle stages the second is the
fullest, or in a mixture of experts the first one without dense layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from overhead.declare import constant
from overhead.formula import call, formula
from overhead.memory.quantities import PARTS
from overhead.quantity import Array, define

OWN = "derivation"
CANDIDATES = ("first_stage", "second_stage", "expert_stage", "last_stage")
# What the fullest stage's memory is made of.
PEAK_PARTS = tuple(f"peak_{part}" for part in PARTS)

for _name, _symbol, _meaning in (
    ("first_stage", "i_0", "the pipeline's first stage"),
    ("second_stage", "i_1", "the pipeline's second stage, or its only one"),
    ("expert_stage", r"i_\mathrm{MoE}", "the second stage, or the first one without dense layers"),
    ("last_stage", r"i_\ell", "the pipeline's last stage"),
    ("fullest_stage", r"i_\mathrm{peak}", "the stage that needs most memory"),
):
    define(_name, _symbol, "1", _meaning, minimum=0)
define(
    "fullest_candidate",
    r"\kappa_\mathrm{peak}",
    "1",
    "which of the stages that can be the fullest it is, from 0",
    minimum=0,
    maximum=3,
    integer=True,
)
for _stage in ("second", "expert"):
    define(
        f"{_stage}_stage_memory",
        rf"M_\mathrm{{{_stage}}}",
        "byte",
        f"memory: all together, on the {_stage} of the stages that can be the fullest",
        minimum=0,
    )


constant("first_stage", 0.0, like="pp")


@formula(source=OWN)
def second_stage(pp: Array) -> Array:
    """The pipeline's second stage, or its only one."""
    return np.minimum(pp - 1.0, 1.0)


@formula(source=OWN)
def last_stage(pp: Array) -> Array:
    """The pipeline's last stage."""
    return pp - 1.0


@formula(source=OWN, assumes=("stages are even",))
def expert_stage(dense_layers: Array, pp: Array, layers: Array) -> Array:
    """The second stage, or the first one whose layers are all mixtures of experts."""
    leading = np.ceil(dense_layers * pp / np.maximum(layers, 1.0))
    return np.minimum(np.maximum(leading, np.minimum(pp - 1.0, 1.0)), pp - 1.0)


@formula(
    returns="expert_stage",
    source=OWN,
    assumes=("nothing is known of layers",),
    when={"shapes": "unknown"},
)
def expert_stage_of_unknown(pp: Array) -> Array:
    """The second stage, for nothing is known of layers."""
    return np.minimum(pp - 1.0, 1.0)


for _stage in CANDIDATES:
    call(returns=f"{_stage}_memory", of="memory", bind={"stage": _stage})


@formula(source=OWN)
def middle_stage_memory(second_stage_memory: Array, expert_stage_memory: Array) -> Array:
    """Memory of the fullest of the middle stages."""
    return np.maximum(second_stage_memory, expert_stage_memory)


@formula(source=OWN, assumes=("of equals the first",))
def fullest_candidate(
    first_stage_memory: Array,
    peak_memory: Array,
    second_stage_memory: Array,
    expert_stage_memory: Array,
) -> Array:
    """Which of the stages that can be the fullest it is, from 0."""
    later = np.where(expert_stage_memory == peak_memory, 2.0, 3.0)
    later = np.where(second_stage_memory == peak_memory, 1.0, later)
    return np.where(first_stage_memory == peak_memory, 0.0, later)


def _choose(candidate: Array, *values: Array) -> Array:
    """Return the value of the stage that is the fullest."""
    one, two, three, last = values
    if all(value is one for value in values):
        return one
    lowest = candidate.min()
    if lowest == candidate.max():
        chosen = values[int(lowest)]
        return np.broadcast_to(chosen, np.broadcast_shapes(candidate.shape, *_shapes(values)))
    later = np.where(candidate == 1.0, two, np.where(candidate == 2.0, three, last))
    return np.where(candidate == 0.0, one, later)


def _shapes(values: tuple[Array, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(np.shape(value) for value in values)


def _chooser() -> Callable[..., Any]:
    def kernel(*values: Array) -> Array:
        return _choose(*values)

    return kernel


def _declare(returns: str, names: tuple[str, ...]) -> None:
    """Declare a quantity as that of the fullest stage."""
    one, two, three, last = names
    which = "fullest_candidate"
    formula(
        returns=returns,
        expression=f"where({which} == 0, {one}, where({which} == 1, {two},"
        f" where({which} == 2, {three}, {last})))",
        source=OWN,
        inputs=(which, *names),
        name=returns,
    )(_chooser())


_declare("fullest_stage", CANDIDATES)
define(
    "first_stage_model_state_memory",
    r"M_\mathrm{states}^0",
    "byte",
    "memory: weights, gradients and optimizer together, on the first stage",
    minimum=0,
)
call(
    returns="first_stage_model_state_memory",
    of="model_state_memory",
    bind={"stage": "first_stage"},
)
for _part, _whole in PARTS.items():
    _words, _mark = _whole.meaning.removeprefix("memory: "), _whole.symbol
    for _stage in CANDIDATES:
        define(
            f"{_stage}_{_part}",
            f"{{{_mark}}}^{{{_stage.split('_')[0]}}}",
            "byte",
            f"memory: {_words}, on the {_stage.replace('_', ' ')}",
            minimum=0,
        )
        call(returns=f"{_stage}_{_part}", of=_part, bind={"stage": _stage})
    define(
        f"peak_{_part}",
        f"{{{_mark}}}^\\mathrm{{peak}}",
        "byte",
        f"memory of the fullest stage: {_words}",
        minimum=0,
    )
    _declare(f"peak_{_part}", tuple(f"{stage}_{_part}" for stage in CANDIDATES))


constant("weight_copies", 1.0, like="pp")
constant(
    "weight_copies",
    2.0,
    like="pp",
    source="deepseekv3",
    where="section 3.2.1",
    when={"schedule": "dual_pipe"},
)
