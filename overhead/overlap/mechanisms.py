"""The vocabulary of overlap, and the mechanisms by name: what each takes, and why it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from overhead.arrays import xp
from overhead.collectives.algorithm import Requirement

# The publications that the formulas of overlap cite, by their keys.

DECOMPOSED = "wang2023"
ENGINE = "transformerengine"
BUCKETS = "li2020"
FSDP = "zhao2023"
DEEPSPEED = "deepspeed"
MEGATRON = "megatron"
TILES = "nvidiamatmul"


# The mechanisms by name: what each takes, what it takes by default, why what it shows shows.

BOTH = ("compute_time", "communication_time")


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A way in which computation and communication overlap: a value of the label ``mechanism``."""

    name: str  # Its name
    title: str  # What overlaps with what
    takes: tuple[str, ...]  # The quantities that its time needs
    exposed: str  # Why some of the communication shows
    # What holds of them where they aren't given
    defaults: Mapping[str, float] = field(default_factory=dict)
    # Whether the time is at least the longer duration and at most both together
    bounded: bool = True


_MECHANISMS = (
    Mechanism(
        "two_durations",
        "two durations with an efficiency",
        (*BOTH, "overlap_efficiency"),
        "what the efficiency leaves, and what is longer than the computation",
        {"overlap_efficiency": 1.0},
    ),
    Mechanism(
        "ddp_buckets",
        "gradients reduced in buckets behind the backward",
        (*BOTH, "gradient_buckets", "first_bucket_fraction"),
        "the last bucket's gradients are ready only when the backward is done",
        {"gradient_buckets": 25.0},
    ),
    Mechanism(
        "fsdp_prefetch",
        "a layer's weights gathered behind the one before it",
        (*BOTH, "layers", "prefetched_layers"),
        "the first layer waits for its weights",
        {"layers": 32.0, "prefetched_layers": 1.0},
    ),
    Mechanism(
        "fsdp_backward",
        "weights gathered ahead and gradients scattered behind, in a backward",
        (*BOTH, "layers", "reduction_fraction", "prefetched_layers"),
        "the first layer waits for its weights, and the last one's gradients come at the end",
        {"layers": 32.0, "reduction_fraction": 0.5, "prefetched_layers": 1.0},
    ),
    Mechanism(
        "zero3_prefetch",
        "weights gathered ahead as far as a window of elements goes",
        (*BOTH, "layers", "prefetched_layers"),
        "the first layer waits for its weights",
        {"layers": 32.0, "prefetched_elements": 5e7},
    ),
    Mechanism(
        "layer_by_layer",
        "a layer's all_reduce behind the next one's computation",
        (*BOTH, "layers", "independent_compute_fraction"),
        "the last layer has no next one, and what depends on the all_reduce waits for it",
        {"layers": 32.0, "independent_compute_fraction": 0.0},
    ),
    Mechanism(
        "gradient_accumulation",
        "gradients of several micro-batches reduced behind the last one's backward",
        (*BOTH, "num_micro_batches", "backward_fraction", "gradient_buckets"),
        "only the last micro-batch's backward has gradients to reduce",
        {"num_micro_batches": 8.0, "backward_fraction": 2 / 3, "gradient_buckets": 25.0},
    ),
    Mechanism(
        "ring_exchange",
        "an all_gather round a ring behind the product of the chunks that are in",
        (*BOTH, "ranks"),
        "the last chunk that comes in is still to be multiplied",
        {"ranks": 8.0},
    ),
    Mechanism(
        "ring_exchange_aggregate",
        "the same, two chunks multiplied at a time",
        (*BOTH, "ranks"),
        "nothing is multiplied until a neighbour's chunk is in",
        {"ranks": 8.0},
    ),
    Mechanism(
        "reduce_scatter_ring",
        "a reduce_scatter round a ring behind the product of the next chunk",
        (*BOTH, "ranks", "partial_sum_time"),
        "the first chunk is still to be multiplied, and the sums come at the end",
        {"ranks": 8.0, "partial_sum_time": 0.0},
    ),
    Mechanism(
        "reduce_scatter_pipeline",
        "a product in parts, each reduced and scattered behind the next one",
        (*BOTH, "splits", "last_split_time"),
        "the last part has no next one",
        {"splits": 4.0},
    ),
    Mechanism(
        "bulk_margin",
        "a whole collective beside a product that keeps off its multiprocessors",
        (*BOTH, "sms", "num_sm"),
        "the product has fewer multiprocessors all of the time",
        {"sms": 132.0, "num_sm": 16.0},
        bounded=False,
    ),
    Mechanism(
        "bulk_shared",
        "a whole collective beside a product that gets its multiprocessors afterwards",
        (*BOTH, "sms", "num_sm"),
        "the product has fewer multiprocessors while communication runs",
        {"sms": 132.0, "num_sm": 16.0},
    ),
    Mechanism(
        "bulk_queued",
        "a collective behind a product that fills the GPU before it can start",
        BOTH,
        "the collective finds no multiprocessor free until the product is done",
    ),
    Mechanism(
        "pipeline",
        "transfers between pipeline stages behind other micro-batches",
        (
            "stage_forward_time",
            "stage_backward_time",
            "p2p_time",
            "pp",
            "num_micro_batches",
            "virtual_pipeline_size",
        ),
        "the pipeline fills and drains, and plain 1F1B waits for nearly each micro-batch's",
        {"pp": 8.0, "num_micro_batches": 8.0, "virtual_pipeline_size": 1.0},
    ),
    Mechanism(
        "fused_messages",
        "many small messages fused into one",
        ("compute_time", "messages", "message_latency", "transfer_time", "copy_time"),
        "the one message starts when all of its parts are there",
        {"copy_time": 0.0},
        bounded=False,
    ),
)
MECHANISMS: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in _MECHANISMS}

# Labels that one mechanism heeds, and that mechanism.
HEEDED = {"efficiency_of": "two_durations", "schedule": "pipeline"}

# What the way in which a duration or a count comes about takes besides, and where it is from.
ASSUMED: dict[tuple[str, str], dict[str, tuple[float, str]]] = {
    ("buckets", "sized"): {
        "bucket_capacity": (25 * 2.0**20, "PyTorch's default"),
        "first_bucket_capacity": (2.0**20, "PyTorch's default"),
    },
    ("compute", "waves"): {
        "tile_rows": (128.0, "a usual tile"),
        "tile_columns": (256.0, "a usual tile"),
        "launch_time": (0.0, "kernels start while others run"),
        "activation_bytes": (2.0, "16 bit"),
        "sms": (132.0, "an H100 SXM's"),
        "num_sm": (16.0, "the default"),
    },
    ("communication", "sms"): {"num_sm": (16.0, "the default")},
}

# Rounding of what was measured.
SLACK = 1e-9
# What must hold for a mechanism, of what it takes.
EVEN_RANKS = Requirement(
    "ranks_odd",
    "two chunks at a time need an even number of ranks",
    lambda ranks: (ranks % 2.0 == 0.0) | (ranks <= 1.0),
)
A_MULTIPROCESSOR_LEFT = Requirement(
    "no_multiprocessor_left",
    "communication must leave a multiprocessor: num_sm below sms",
    lambda num_sm, sms: num_sm < sms,
)
WHOLE_ROUNDS = Requirement(
    "micro_batches_not_multiple_of_stages",
    "interleaving needs a multiple of the stages as micro-batches",
    lambda virtual_pipeline_size, num_micro_batches, pp: (
        (virtual_pipeline_size <= 1.0) | (num_micro_batches % pp == 0.0)
    ),
)
ONE_VIRTUAL_STAGE = Requirement(
    "virtual_stages_need_interleaving",
    "other schedules have one virtual stage a rank",
    lambda virtual_pipeline_size: virtual_pipeline_size <= 1.0,
)
LONG_ENOUGH = Requirement(
    "shorter_than_possible",
    "both at once can't be shorter than the longer of them",
    lambda overlapped_time, ideal_overlapped_time: (
        ~xp.asarray(overlapped_time < ideal_overlapped_time * (1.0 - SLACK))
    ),
)
REQUIREMENTS = (
    EVEN_RANKS,
    A_MULTIPROCESSOR_LEFT,
    WHOLE_ROUNDS,
    ONE_VIRTUAL_STAGE,
    LONG_ENOUGH,
)


def requirements(labels: Mapping[str, str], *, measured: bool) -> tuple[Requirement, ...]:
    """Return what must hold of a mechanism, and of a time that was measured."""
    mechanism = labels["mechanism"]
    found: list[Requirement] = []
    if mechanism == "ring_exchange_aggregate":
        found.append(EVEN_RANKS)
    if mechanism.startswith("bulk"):
        found.append(A_MULTIPROCESSOR_LEFT)
    if mechanism == "pipeline":
        interleaved = labels.get("schedule") == "interleaved"
        found.append(WHOLE_ROUNDS if interleaved else ONE_VIRTUAL_STAGE)
    return (*found, LONG_ENOUGH) if measured else tuple(found)


# What every mechanism gives.
OUTPUTS = (
    "overlapped_time",
    "sequential_time",
    "ideal_overlapped_time",
    "hidden_time",
    "exposed_time",
    "overlap_of_shorter",
    "overlapped_communication_fraction",
    "overlap_speedup",
    "ideal_speedup",
    "communication_fraction",
)
