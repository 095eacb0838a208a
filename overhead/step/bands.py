"""How far measurements may lie from predictions: two sides, by what is known of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overhead.arrays import xp
from overhead.formula import cited, declare, formula
from overhead.quantity import Array
from overhead.shipped import error_bands

NVIDIA, TPU, OTHER_DEVICES = 0.0, 1.0, 2.0
MEGATRON, TORCH_FSDP, OTHER_SOFTWARE = 0.0, 1.0, 2.0
# From so many ranks of context on few runs are known.
FEW_RANKS = 4.0
# A machine that computes more slowly is limited, whatever limits it.
FULL_CLOCK = 0.8


WORDS = cited(
    "comparison",
    "class of the run: specs/measured/bands.toml",
    assumes=("at least 80 % of the runs of a class are within the band",),
)

# A class with where it holds; of a list the first that holds counts, and the last one holds always.
Classes = Sequence[tuple[str, Array | bool]]


def dense_classes(
    world_size: Array,
    gpus_per_node: Array,
    software_kind: Array,
    device_kind: Array,
    unknown_settings: Array,
) -> Classes:
    """Return the classes of models without experts."""
    several = world_size > gpus_per_node
    megatron = software_kind == MEGATRON
    told = megatron & (unknown_settings == 0.0)
    return [
        ("tpu", device_kind == TPU),
        ("megatron_nodes_told", told & several),
        ("megatron_nodes", megatron & several),
        ("megatron_node_told", told),
        ("megatron_node", megatron),
        ("other_nodes", several),
        ("other_node", True),
    ]


def wide_classes(
    experts: Array,
    cp: Array,
    indexer_fraction: Array,
    attention_layer_fraction: Array,
    device_kind: Array,
    software_kind: Array,
    uncalibrated_device: Array,
    given_options: Array,
    unknown_slowdown: Array,
    expert_load_imbalance: Array,
    offloaded_states: Array,
) -> Classes:
    """Return the classes of runs that few published ones are like."""
    routed = experts > 0.0
    elsewhere = (device_kind == TPU) | (software_kind > MEGATRON)
    unknown = (device_kind == OTHER_DEVICES) | (uncalibrated_device > 1.0)
    few = (
        (uncalibrated_device > 0.0)
        | (cp >= FEW_RANKS)
        | (attention_layer_fraction - indexer_fraction < 1.0)
    )
    limited = unknown_slowdown > 0.0
    # Runs to compare with force their routing even.
    unequal = expert_load_imbalance > 1.0
    return [
        # The widest at both ends, wherever it was.
        ("experts_bare", routed & (given_options == 0.0)),
        # Of states in host memory four runs of two hosts were far apart.
        ("far", unknown | (routed & (elsewhere | limited | unequal)) | (offloaded_states > 0.0)),
        ("limited", limited),
        ("few_runs", few),
    ]


def step_classes(
    experts: Array,
    world_size: Array,
    gpus_per_node: Array,
    cp: Array,
    indexer_fraction: Array,
    attention_layer_fraction: Array,
    device_kind: Array,
    software_kind: Array,
    uncalibrated_device: Array,
    unknown_settings: Array,
    given_options: Array,
    unknown_slowdown: Array,
    expert_load_imbalance: Array,
    offloaded_states: Array,
    trained_weights: Array,
) -> Classes:
    """Return the classes of a step's time."""
    routed = experts > 0.0
    known = experts, cp, indexer_fraction, attention_layer_fraction, device_kind, software_kind
    told = given_options, unknown_slowdown, expert_load_imbalance, offloaded_states
    return [
        *wide_classes(*known, uncalibrated_device, *told),
        ("adapters", trained_weights == 0.0),
        ("experts", routed),
        *dense_classes(world_size, gpus_per_node, software_kind, device_kind, unknown_settings),
    ]


def memory_classes(software_kind: Array) -> Classes:
    """Return the classes of memory."""
    return [
        ("megatron", software_kind == MEGATRON),
        ("torch_fsdp", software_kind == TORCH_FSDP),
        ("others", True),
    ]


def _end_of(kind: str, end: str, classes: Callable[..., Classes]) -> Callable[..., Array]:
    """Return the kernel of one end of a band."""

    def kernel(*known: Array) -> Array:
        return _chosen(
            classes(*known), {name: table[end] for name, table in error_bands()[kind].items()}
        )

    return kernel


def _chosen(classes: Classes, values: Mapping[str, float]) -> Array:
    """Return the value of the first class that holds."""
    *first, (last, _) = classes
    value: Any = values[last]
    for name, where in reversed(first):
        value = xp.where(where, values[name], value)
    return value


def _end_of_step(end: str) -> Callable[..., Array]:
    """Return the kernel of one end of a step's band, or of a difference where a step was measured.

    Beside a step of the same machine and software, measured and predicted, only the difference of
    two plans is predicted.
    """
    table, sign = error_bands()["step_time"], -1.0 if end == "low" else 1.0
    ends = {name: band[end] for name, band in table.items()}
    differences = {name: sign * band["difference"] for name, band in table.items()}

    def kernel(*known: Array) -> Array:
        *told, clock_ratio, measured_step_time = known
        of = step_classes(*told)
        difference = sign * xp.maximum(
            sign * _chosen(of, differences),
            xp.where(clock_ratio < FULL_CLOCK, sign * differences["limited"], 0.0),
        )
        return xp.where(measured_step_time > 0.0, difference, _chosen(of, ends))

    return kernel


@formula(**WORDS)
def memory_state(peak_memory, memory_capacity, memory_error_band_low, memory_error_band_high):
    """Memory fit on the most loaded GPU: 0 no, 1 at risk, 2 yes."""
    least = peak_memory * (1.0 + memory_error_band_low)
    most = peak_memory * (1.0 + memory_error_band_high)
    risk = xp.where(most > memory_capacity, 1.0, 2.0)
    return xp.where(least > memory_capacity, 0.0, risk)


STEP_INPUTS: tuple[str, ...] = (
    "experts",
    "world_size",
    "gpus_per_node",
    "cp",
    "indexer_fraction",
    "attention_layer_fraction",
    "device_kind",
    "software_kind",
    "uncalibrated_device",
    "unknown_settings",
    "given_options",
    "unknown_slowdown",
    "expert_load_imbalance",
    "offloaded_states",
    "trained_weights",
)


@formula(
    source="comparison",
    where="class of the run: specs/measured/bands.toml",
    when={"updating": "host", "host_states": "zero_offload|fsdp_offload"},
)
def offloaded_states(optimizer_offload, parameter_offload):
    """Model states in host memory by another scheme than the hybrid optimizer (0 or 1)."""
    return xp.where((optimizer_offload > 0.0) | (parameter_offload > 0.0), 1.0, 0.0)


for _end in ("low", "high"):
    _taken = (*STEP_INPUTS, "clock_ratio", "measured_step_time")
    declare(f"error_band_{_end}", _taken, _end_of_step(_end), **WORDS)
    declare(
        f"memory_error_band_{_end}",
        ("software_kind",),
        _end_of("memory", _end, memory_classes),
        **WORDS,
    )


def class_of_step(known: Callable[[str], Array]) -> str:
    """Return the class whose band a step's time has; `known` gives one step's quantities."""
    return next(name for name, where in step_classes(*map(known, STEP_INPUTS)) if where)
