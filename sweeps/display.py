"""How quantities are shown: a row each, of what the vocabulary doesn't say already.

Reports, tables, figures and what sweeps compute where nothing is asked for by name read these
rows, in their order.  A quantity without one is shown by its vocabulary entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from overhead.frozen import frozen
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY


@frozen(slots=True)
class Row:
    """How one quantity is shown."""

    name: str  # The quantity, or a label or flag of results
    group: str = ""  # The part of reports in which it stands
    words: str = ""  # In a report's line, where the vocabulary's meaning is too long
    title: str = ""  # Above a column of a table, where the name is too long
    percent: bool = False  # Whether it is a share that people read in percent
    # Where it stands: among what a sweep computes if nothing is said (``usual``), in reports
    # (``report``), in tables for people (``table``), among what is told of every plan (``plan``),
    # in tables of the best plans (``best``), at the end of a step's bar (``bar``), in titles of
    # figures whatever says it (``title``), among what records say of all cells (``record``)
    places: frozenset[str] = frozenset()


def _row(
    name: str, group: str, screens: str, words: str = "", title: str = "", *, percent: bool = False
) -> Row:
    return Row(name, group, words, title, percent, frozenset(screens.split()))


def _words(group: str, **words: str) -> tuple[Row, ...]:
    """Return rows of parts, which stand where their whole does."""
    return tuple(Row(name, group, text) for name, text in words.items())


ROWS: dict[str, Row] = {
    entry.name: entry
    for entry in (
        # What is asked of: labels.
        *(
            _row(name, "label", "record")
            for name in ("model", "hardware", "collective", "topology", "precision")
        ),
        # Of one collective operation.
        _row("time", "collective", "usual report table", "time"),
        _row("latency_time", "collective", "usual report", "  latency part"),
        _row("bandwidth_time", "collective", "usual report", "  bandwidth part"),
        _row("reduction_time", "collective", "report", "  reduction part"),
        _row("intra_time", "collective", "usual report", "  inside nodes"),
        _row("inter_time", "collective", "usual report", "  between nodes"),
        _row("pod_time", "collective", "report", "  between pods"),
        _row(
            "overlapped_phase_time",
            "collective",
            "report",
            "phases hidden behind it",
            "phases hidden",
        ),
        _row("steps", "collective", "usual report table", "steps"),
        _row("sent_bytes", "collective", "usual report table", "bytes sent per rank"),
        _row("link_bytes", "collective", "usual report", "bytes over all links"),
        _row("energy", "collective", "usual report table", "energy"),
        _row("algbw", "collective", "usual report", "algbw"),
        _row("busbw", "collective", "usual report table", "busbw"),
        _row("lower_bound", "collective", "usual report", "lower bound"),
        _row("lower_bound_ratio", "collective", "usual report table", "time / lower bound"),
        *_words(
            "library part",
            launch_part_time="launch",
            step_part_time="steps",
            host_wait_part_time="host wait",
            transfer_part_time="wire",
            copy_part_time="copy",
            ramp_part_time="ramp",
        ),
        _row("ranks", "collective", "title record"),
        _row("message_bytes", "collective", "title record"),
        _row("time_is_upper_bound", "collective", "", title="upper bound"),
        _row("chosen_algorithm", "collective", "usual table", title="algorithm used"),
        _row("time_band_low", "collective", "table", title="band, low", percent=True),
        _row("time_band_high", "collective", "table", title="high", percent=True),
        _row("error_band_samples", "collective", "table", title="of rows"),
        # Of a plan.
        _row("best_split", "plan", "best", title="best split"),
        _row("world_size", "plan", "table title record"),
        _row("dp", "plan", "table best record"),
        *(_row(name, "plan", "record") for name in ("tp", "cp", "pp", "ep")),
        _row("virtual_pipeline_size", "plan", "best", title="chunks"),
        _row("micro_batch_size", "plan", "best record", title="mb"),
        _row("zero_stage", "plan", "best record", title="ZeRO"),
        _row("global_batch_size", "plan", "title record"),
        _row("sequence_length", "plan", "title"),
        _row("recompute", "plan", "best title record"),
        _row("schedule", "plan", "title record"),
        _row("context_parallel", "plan", "record"),
        # Memory of the fullest GPU.
        _row("peak_memory", "memory", "usual table plan best", title="memory"),
        _row("memory_error_band_low", "memory", "usual plan", percent=True),
        _row("memory_error_band_high", "memory", "usual plan", percent=True),
        _row("memory_state", "memory", "usual plan"),
        _row("memory_headroom", "memory", "usual"),
        _row("first_stage_model_state_memory", "memory", "usual", title="model states"),
        *_words(
            "memory part",
            saved_activation_memory="saved activations",
            recompute_activation_memory="recomputed activations",
            embedding_activation_memory="",
            output_activation_memory="LM head input",
            gathered_sequence_memory="gathered sequences (SP)",
            zero3_gathered_memory="gathered weights (ZeRO-3)",
            unsharded_gradient_memory="unsharded gradients",
            bucket_memory="gradient buckets",
            placeholder_memory="gradient placeholders",
        ),
        # Communication of a step, nothing hidden.
        _row(
            "communication_upper_bound",
            "communication",
            "usual table plan",
            title="communication, upper bound",
        ),
        _row("communication_volume", "communication", "usual"),
        _row("communication_energy", "communication", ""),
        # The time of a step, and its parts.
        _row("step_time", "step", "usual table plan best", title="step time"),
        *_words(
            "step part",
            matmul_part_time="GEMMs",
            attention_part_time="attention",
            recompute_part_time="recomputation",
            host_part_time="host wait",
            stage_imbalance_time="embedding, LM head and loss",
            bubble_time="",
            exposed_tp_time="TP communication, exposed",
            exposed_cp_time="CP communication, exposed",
            exposed_ep_time="EP communication, exposed",
            exposed_offload_time="CPU offload, exposed",
            exposed_pp_time="PP communication, exposed",
            exposed_dp_time="DP communication, exposed",
            tied_all_reduce_backward_time="tied embedding gradients, exposed",
            optimizer_time="optimizer",
            step_overhead="fixed overhead",
        ),
        # What a step reaches.
        _row("tokens_per_second", "rates", "usual report plan", "tokens/s"),
        _row(
            "tokens_per_second_per_gpu",
            "rates",
            "usual report table plan best",
            "  per GPU",
            "tokens/s per GPU",
        ),
        _row(
            "model_flops_per_second_per_gpu",
            "rates",
            "usual report plan",
        ),
        _row(
            "mfu",
            "rates",
            "usual report table plan best bar",
            "MFU (full attention FLOPs)",
            "MFU",
            percent=True,
        ),
        _row("causal_mfu", "rates", "report", "MFU (causal attention FLOPs)", percent=True),
        _row("hfu", "rates", "usual report", "HFU (all computed FLOPs)", percent=True),
        _row(
            "bubble_fraction",
            "rates",
            "usual report table plan",
            "bubble fraction",
            "bubble",
            percent=True,
        ),
        _row("step_energy", "rates", "usual report plan", "energy per step"),
        _row("token_energy", "rates", "report", "  per token", "energy per token"),
        _row("node_dc_power", "rates", "report", "node power (DC)"),
        _row("error_band_low", "rates", "usual plan", percent=True),
        _row("error_band_high", "rates", "usual plan", percent=True),
        # What interrupts a run.
        _row("mean_time_between_failures", "failures", "report", "MTBF"),
        _row("checkpoint_interval", "failures", "report", "checkpoint interval"),
        _row(
            "checkpoint_stall_time",
            "failures",
            "report",
            "  stall per checkpoint",
            "checkpoint stall",
        ),
        _row("goodput", "failures", "report", "goodput", percent=True),
        _row(
            "checkpoint_overhead",
            "failures",
            "report",
            "  lost to checkpoints",
            "time lost to checkpoints",
            percent=True,
        ),
        _row(
            "rework_fraction",
            "failures",
            "report",
            "  lost to work done again",
            "time lost to work done again",
            percent=True,
        ),
        _row(
            "restart_fraction",
            "failures",
            "report",
            "  lost to restarts",
            "time lost to restarts",
            percent=True,
        ),
        _row(
            "replacement_wait_fraction",
            "failures",
            "report",
            "  lost to waiting for servers",
            "time lost to waiting for servers",
            percent=True,
        ),
        _row("spare_nodes", "failures", "report", "spare servers"),
        # A whole training, and its price.
        _row("training_days", "training", "report", "whole training, uninterrupted"),
        _row(
            "run_days",
            "training",
            "report",
            "  with all that interrupts it",
            "whole training, with all that interrupts it",
        ),
        _row("gpu_hours", "training", "report", "  GPU-hours", "GPU-hours of the training"),
        _row("training_energy", "training", "report", "  energy", "energy of the training"),
        _row(
            "run_gpu_hours",
            "training",
            "report",
            "  GPU-hours, all counted",
            "GPU-hours of the training, all counted",
        ),
        _row(
            "cost",
            "cost",
            "report table",
            "  cost of its computing",
            "cost of the training's computing",
        ),
        _row(
            "run_cost", "cost", "report", "  cost, all counted", "cost of the training, all counted"
        ),
        _row(
            "cost_per_trillion_tokens",
            "cost",
            "report plan best",
            "cost of a trillion tokens",
            "T tokens",
        ),
        _row(
            "cost_per_trillion_useful_tokens", "cost", "report", "cost of a trillion tokens of use"
        ),
    )
}
# Of a quantity the ends of its band: measured by predicted, less 1.
BANDS = {
    "time": ("time_band_low", "time_band_high"),
    "step_time": ("error_band_low", "error_band_high"),
    "peak_memory": ("memory_error_band_low", "memory_error_band_high"),
}
# The groups of what is told of a training step.
OF_A_STEP = ("step", "memory", "rates", "cost", "communication")

# Fractions of a run that interruptions take; what they leave is the goodput.
LOST = (
    "checkpoint_overhead",
    "rework_fraction",
    "restart_fraction",
    "replacement_wait_fraction",
)


def rows(*groups: str, place: str = "") -> tuple[str, ...]:
    """Return the quantities of some groups, one after another, that stand in a place."""
    return tuple(
        name
        for group in groups
        for name, entry in ROWS.items()
        if entry.group == group and (not place or place in entry.places)
    )


def of_records() -> tuple[str, ...]:
    """Return what records say first where it is the same in all cells: labels, then numbers."""
    names = rows("label", "collective", "plan", place="record")
    return tuple(sorted(names, key=lambda name: name not in LABELS))


def row(name: str) -> Row:
    """Return a quantity's row; an empty one where it has none."""
    return ROWS.get(name) or Row(name)


def words(name: str) -> str:
    """Return what a report calls a quantity: its row's words, or what the vocabulary says."""
    return row(name).words or of_part(VOCABULARY[name].meaning)


# What the vocabulary says before a part of it, as in ``step time: optimizer update``.
_WHOLES = ("step time", "step energy", "collective time")


def of_part(meaning: str) -> str:
    """Return what a quantity means, without the total that it is a part of."""
    whole, _, part = meaning.partition(": ")
    return part if whole in _WHOLES else meaning


def noun(name: str) -> str:
    """Return what a message calls a quantity: its meaning, with an article."""
    return f"the {VOCABULARY[name].meaning if name in VOCABULARY else name}"


# What people say of a value that a figure holds: of others the name comes first.
_PHRASES = {
    "collective": "{}",
    "message_bytes": "{} a rank",
    "model": "{}",
    "hardware": "{}",
    "topology": "{}",
    "ranks": "{} ranks",
    "world_size": "{} GPUs",
    "global_batch_size": "batch {}",
    "sequence_length": "sequence length {}",
    "precision": "{}",
    "algorithm": "{} algorithm",
    "software": "by {}",
    "gpus_per_node": "{} GPUs per node",
    "nics_per_node": "{} NICs per node",
    "inter_bandwidth": "{} between nodes",
    "intra_bandwidth": "{} inside nodes",
    "gpu_hour_price": "{}",
    "oversubscription": "{}:1 oversubscription",
    "mechanism": "{}",
    "compute_time": "computation {}",
    "communication_time": "communication {}",
    "efficiency_of": "efficiency of the {}",
    "tp_mechanism": "tensor parallelism overlapped by {}",
    "cp_mechanism": "context parallelism overlapped by {}",
    "ep_mechanism": "expert parallelism overlapped by {}",
    "dp_mechanism": "data parallelism overlapped by {}",
    "context_parallel": "cp by {}",
    "dispatcher": "tokens to experts by {}",
    "attention_kernel": "attention by {}",
    "loss": "loss {}",
    "sharding": "{} sharding",
}
_SPOKEN = ("context_parallel", "dispatcher", "attention_kernel", "sharding")
_LAST = ("inter_bandwidth", "intra_bandwidth", "gpu_hour_price")  # behind what has no phrase
# Values of labels that say little by themselves.
_MEANT = {
    "efficiency": "a share given",
    "decomposed": "products in chunks",
    "chunked": "chunks",
    "userbuffers": "userbuffers",
    "deduplicated": "one copy a node",
    "unfused": "unfused kernels",
    "mixed": "all-to-all and ring",
}
_PHRASES_OF_NONE = {"software": "without a library"}


def phrased(names: Iterable[str]) -> list[str]:
    """Return names in the order in which people say their values."""
    order = {name: index for index, name in enumerate(_PHRASES)} | dict.fromkeys(_LAST, 1000)
    return sorted(names, key=lambda name: order.get(name, len(order)))


def phrase(name: str, value: str) -> str | None:
    """Return what people say of a value of a quantity; None where its name comes first."""
    if value == "none" and name in _PHRASES_OF_NONE:
        return _PHRASES_OF_NONE[name]
    if name.endswith("mechanism") or name in _SPOKEN:
        value = _MEANT.get(value, value.replace("_", " "))
    if name not in _PHRASES:
        return None
    said = _PHRASES[name].format(value)
    return said.replace("s per ", " per ").removesuffix("s") if value == "1" else said


# What stands above a figure of a quantity; above others its name does.
_HEADINGS = {
    "time": "Time of {operation}",
    "energy": "Energy of {operation}",
    "sent_bytes": "Bytes sent per rank by {operation}",
    "algbw": "Algorithm bandwidth of {operation}",
    "busbw": "Bus bandwidth of {operation}",
    "step_time": "Step time",
    "peak_memory": "Peak memory per GPU",
    "tokens_per_second": "Throughput",
    "tokens_per_second_per_gpu": "Throughput per GPU",
    "mfu": "MFU",
    "cost_per_trillion_tokens": "Cost per trillion tokens",
    "cost_per_trillion_useful_tokens": "Cost per trillion useful tokens",
    "overlapped_time": "Time of computation and communication with overlap",
    "overlap_speedup": "Speedup by overlap",
}
# What people call an axis, where that is shorter than its name.
_AXES = {
    "message_bytes": "message size", "ranks": "ranks", "world_size": "number of GPUs",
    "hardware": "machine", "global_batch_size": "global batch size (sequences)",
    "sequence_length": "sequence length (tokens)",
    "inter_bandwidth": "inter-node bandwidth", "intra_bandwidth": "intra-node bandwidth",
    "tp": "tensor parallelism", "pp": "pipeline parallelism", "dp": "data parallelism",
    "cp": "context parallelism", "ep": "expert parallelism", "compute_time": "compute time",
    "communication_time": "communication time", "algorithm": "algorithm",
    "topology": "topology", "nics_per_node": "NICs per node",
    "num_sm": "SMs for communication", "rank_tokens": "tokens per rank",
    "inter_latency": "inter-node latency", "intra_latency": "intra-node latency",
    "collective": "operation", "expert_load_imbalance": "expert load imbalance",
    "oversubscription": "oversubscription", "recompute": "recomputation", "mask": "mask",
    "schedule": "pipeline schedule", "attention_kernel": "attention kernel", "loss": "loss",
    "tp_mechanism": "TP overlap",
    "cp_mechanism": "CP overlap",
    "ep_mechanism": "EP overlap",
    "dp_mechanism": "DP overlap", "efficiency_of": "efficiency of",
    "software": "library", "library": "library", "fabric": "fabric", "framework": "framework",
    "precision": "precision", "recipe": "precision recipe", "fp8_scaling": "FP8 scaling",
    "link": "link",
    "context_parallel": "context parallelism by", "sharding": "sharding",
    "environment": "issued by", "floor": "host wait",
}  # fmt: skip


def heading(name: str, operation: str) -> str | None:
    """Return what stands above a figure of a quantity; None where its name does."""
    return _HEADINGS[name].format(operation=operation) if name in _HEADINGS else None


def axis(name: str) -> str | None:
    """Return what people call an axis; None where its name does."""
    return _AXES.get(name)


def title(name: str) -> str:
    """Return what stands above a quantity's column."""
    return row(name).title or name.replace("_communication_time", " time")


def percent(name: str) -> bool:
    """Return whether a quantity is a share that people read in percent."""
    return row(name).percent


# Models whose layers differ in more than their MLP: of these a pipeline stage has the mean, but for
# those that say the order of their layers.
MEAN_OF_KINDS = "layers of several kinds: each pipeline stage counts the mean of the model's"
OWN_KINDS = "layers of several kinds: each pipeline stage counts its own, in the model's order"
KINDS = ("linear_layers", "sliding_window_layers", "index_layers", "pooled_layers")


def are_mixed(given: Mapping[str, ArrayLike], kinds: Iterable[str] = KINDS) -> bool:
    """Return whether a model has layers of several kinds."""
    every = given.get("layers", np.inf)
    counts = (np.asarray(given.get(name, 0.0)) for name in kinds)
    return any(bool(np.any((count > 0.0) & (count < every))) for count in counts)


def kinds_of_stages(given: Mapping[str, ArrayLike], order_holds: float) -> str:
    """Return what to say of a pipeline stage of several kinds of layers.

    With `order_holds` it has its own layers, if their kinds are those of an order.
    """
    ordered = order_holds > 0.0 and not are_mixed(given, KINDS[1:])
    return OWN_KINDS if ordered else MEAN_OF_KINDS
