"""Energy of a step, and time, energy and cost of a whole training."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.step import quantities
from overhead.sums import product

__all__ = [
    "computing_time",
    "cost_per_trillion_tokens",
    "device_energy",
    "gpu_hours",
    "quantities",
    "step_energy",
    "training_days",
    "training_steps",
]

OWN = "derivation"
BOARD = (
    "a GPU's power holds its own links' ports, so that links' energies here are those of what "
    "lies outside of its board: cards, cables, switches"
)


@formula(
    returns="computing_time",
    expression="maximum(matmul_part_time + attention_part_time + elementwise_part_time"
    " + recompute_part_time + optimizer_time"
    " + micro_batches*(first_stage_extra_time + last_stage_extra_time)/pp, 0)",
    source=OWN,
    assumes=("the ends' extra work is shared out over all stages: their mean",),
)
def computing_time(
    matmul_part_time: Array,
    attention_part_time: Array,
    elementwise_part_time: Array,
    recompute_part_time: Array,
    optimizer_time: Array,
    micro_batches: Array,
    first_stage_extra_time: Array,
    last_stage_extra_time: Array,
    pp: Array,
) -> Array:
    """Time for which a GPU computes in a step, on average."""
    layers = matmul_part_time + attention_part_time + elementwise_part_time + recompute_part_time
    ends = micro_batches * (first_stage_extra_time + last_stage_extra_time) / pp
    return np.maximum(layers + optimizer_time + ends, 0.0)


@formula(
    returns="device_energy",
    expression="world_size*power*(idle_power_fraction*step_time"
    " + maximum(1 - idle_power_fraction, 0)*minimum(computing_time, step_time))",
    source=OWN,
    assumes=("a GPU that communicates or waits takes what an idle one does",),
)
def device_energy(
    world_size: Array,
    power: Array,
    idle_power_fraction: Array,
    step_time: Array,
    computing_time: Array,
) -> Array:
    """Energy of a step: all GPUs, idle all the time and busy while they compute."""
    busy = np.maximum(1.0 - idle_power_fraction, 0.0) * np.minimum(computing_time, step_time)
    return world_size * power * (idle_power_fraction * step_time + busy)


@formula(
    returns="step_energy",
    expression="device_energy + communication_energy",
    source=OWN,
    assumes=(BOARD,),
    ufunc=np.add,
)
def step_energy(device_energy: Array, communication_energy: Array) -> Array:
    """Energy of a step: all GPUs and the network."""
    return device_energy + communication_energy


# A whole training.


@formula(
    returns="training_steps",
    expression="training_tokens/tokens_per_step",
    source=OWN,
    assumes=("steps are all alike, and nothing interrupts them",),
    ufunc=np.true_divide,
)
def training_steps(training_tokens: Array, tokens_per_step: Array) -> Array:
    """Steps of a whole training."""
    return training_tokens / tokens_per_step


product("training_time", ("training_steps", "step_time"))
product("training_energy", ("training_steps", "step_energy"))


@formula(returns="gpu_hours", expression="world_size*training_time/hour", source=OWN)
def gpu_hours(world_size: Array, training_time: Array, hour: Array) -> Array:
    """GPU-hours of a whole training."""
    return world_size * training_time / hour


@formula(returns="training_days", expression="training_time/day", source=OWN, ufunc=np.true_divide)
def training_days(training_time: Array, day: Array) -> Array:
    """Days of a whole training."""
    return training_time / day


product("cost", ("gpu_hours", "price"), assumes=("GPUs alone are paid for",))


@formula(
    returns="cost_per_trillion_tokens",
    expression="price*(world_size*(1e12/tokens_per_step*step_time)/hour)",
    source=OWN,
    assumes=("GPUs alone are paid for",),
)
def cost_per_trillion_tokens(
    price: Array, world_size: Array, tokens_per_step: Array, step_time: Array, hour: Array
) -> Array:
    """Cost of training on 1e12 tokens."""
    return price * (world_size * (1e12 / tokens_per_step * step_time) / hour)
