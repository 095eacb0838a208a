"""What is asked of overlap: mechanisms, axes and constants, and what is assumed beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from overhead.formula import REGISTRY, Call
from overhead.overlap.mechanisms import MECHANISMS
from overhead.overlap.pipeline import PIPELINES
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.origin import Origin, assumed
from sweeps.spec.ranges import parse_values

# What a command was given: text to numbers and names, with every fault at once.

Value = TypeVar("Value")


class Faults:
    """Faults that are gathered, to be told together."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, field: str, value: object, wrong: str, allowed: str) -> None:
        """Add a fault."""
        self.lines.append(fault(field, value, wrong, allowed))

    def of(self, read: Callable[..., Value], *arguments: Any) -> Value | None:
        """Call what may find faults; return None where it does, and keep them."""
        try:
            return read(*arguments)
        except InputError as error:
            self.lines += error.faults
            return None

    def tell(self) -> None:
        """Tell all faults, if there are any."""
        if self.lines:
            raise InputError(list(dict.fromkeys(self.lines)))


def numbers_of(name: str, text: str, flag: str) -> NDArray[np.float64]:
    """Read one value or many of a quantity."""
    quantity = VOCABULARY[name]
    values = parse_values(
        text,
        quantity.units,
        field=flag,
        integer=quantity.integer,
        bare_is_si=True,
        allow_infinite=name.endswith("bandwidth"),
    )
    wrong = quantity.outside(values)
    if wrong.any():
        shown = f"{values[wrong][0]:g}"
        raise InputError(fault(flag, shown, "outside of its domain", quantity.domain()))
    return values


def names_of(text: str, known: Sequence[str], flag: str) -> tuple[str, ...]:
    """Read one name or many, or ``all``."""
    words = [word.strip() for word in text.split(",")]
    if words == ["all"]:
        return tuple(known)
    faults = [
        fault(flag, word, "there is no such one", nearest(word, known, shown=20))
        for word in words
        if word not in known
    ]
    twice = {word for word in words if words.count(word) > 1}
    faults += [fault(flag, word, "stands there twice", "give it once") for word in sorted(twice)]
    if faults:
        raise InputError(faults)
    return tuple(words)


# The flags of ``sweeps overlap``: what quantity each one gives.

# Flags, the quantity, and what it is; in groups, as help shows them.
GROUPS: dict[str, tuple[tuple[tuple[str, ...], str, str], ...]] = {
    "durations": (
        (("--compute", "--compute-time"), "compute_time", "Computation by itself."),
        (
            ("--comm", "--communication", "--communication-time"),
            "communication_time",
            "Communication by itself.",
        ),
        (("--efficiency",), "overlap_efficiency", "Share of the shorter one that hides: 0 to 1."),
        (("--measured",), "overlapped_time", "Both at once, measured: says what of them overlaps."),
    ),
    "gradients": (
        (("--buckets",), "gradient_buckets", "Buckets of gradients."),
        (("--first-bucket-share",), "first_bucket_share", "The first one's share of all."),
        (("--bucket-size",), "bucket_capacity", "Bytes of a bucket.  [PyTorch: 25MiB]"),
        (("--first-bucket-size",), "first_bucket_capacity", "Of the first.  [PyTorch: 1MiB]"),
        (("--gradients",), "reduced_elements", "Gradients of a rank, in Megatron's buckets."),
        (("--dp",), "dp", "Data-parallel ranks, for Megatron's buckets."),
        (("--micro-batches",), "micro_batches", "Micro-batches of a step."),
        (("--backward-share",), "backward_share", "Of a micro-batch's computation.  [2/3]"),
    ),
    "layers": (
        (("--layers",), "layers", "Layers."),
        (("--prefetched-layers",), "prefetched_layers", "Layers gathered ahead."),
        (("--prefetch-elements",), "prefetched_elements", "ZeRO-3's window of weights."),
        (("--layer-elements",), "layer_elements", "Weights of a layer."),
        (("--reduction-share",), "reduction_share", "Of a backward's communication."),
        (("--independent-share",), "independent_share", "Of a layer: what needn't wait."),
    ),
    "products and collectives in chunks": (
        (("--ranks", "--tp", "--N"), "ranks", "Ranks of the ring."),
        (("--splits",), "splits", "Parts of a pipelined reduce_scatter."),
        (("--last-split",), "last_split_time", "Communication of the last part."),
        (("--sums",), "partial_sum_time", "Adding up at a ring's end."),
        (("--sms",), "sms", "Streaming multiprocessors of the GPU."),
        (("--num-sm",), "num_sm", "Those that communication takes."),
    ),
    "pipelines": (
        (("--forward",), "stage_forward_time", "A stage's forward of a micro-batch."),
        (("--backward",), "stage_backward_time", "A stage's backward of a micro-batch."),
        (("--p2p",), "p2p_time", "One transfer between stages."),
        (("--pp",), "pp", "Stages."),
        (("--virtual-stages",), "virtual_stages", "Virtual stages of a rank."),
    ),
    "messages": (
        (("--messages",), "messages", "Messages."),
        (("--message-latency",), "message_latency", "Of each, beyond its bytes."),
        (("--transfer",), "transfer_time", "All messages' bytes by themselves."),
        (("--copy",), "copy_time", "Copying into one message and out of it."),
    ),
    "communication from its bytes": (
        (("--M", "--message-bytes"), "message_bytes", "Bytes of the collective."),
        (("--latency",), "latency", "Of a ring's step."),
        (("--bandwidth",), "bandwidth", "Of a rank's link, at most."),
        (("--sm-bandwidth",), "sm_bandwidth", "That one multiprocessor sends."),
        (("--half-sms",), "half_bandwidth_sms", "Multiprocessors for half of the bandwidth."),
        (("--copy-engine",), "copy_engine_bandwidth", "That copy engines send."),
    ),
    "computation as a matrix product in waves of tiles": (
        (("--rows",), "matmul_rows", "Rows (tokens)."),
        (("--columns",), "matmul_columns", "Columns (output features)."),
        (("--depth",), "matmul_depth", "Depth (input features)."),
        (("--tile-rows",), "tile_rows", "Of a tile.  [128]"),
        (("--tile-columns",), "tile_columns", "Of a tile.  [256]"),
        (("--tile-time",), "tile_time", "Of a tile on one multiprocessor."),
        (("--launch",), "launch_time", "Of starting a kernel.  [0]"),
        (("--element-bytes",), "activation_bytes", "Of an element.  [2]"),
        (("--memory-bandwidth",), "memory_bandwidth", "Of the GPU's memory."),
        (("--matmul-flops",), "best_matmul_flops", "Rate of the best product."),
    ),
}
FLAGS = tuple(flag for group in GROUPS.values() for flag in group)


def flag_of(quantity: str) -> str:
    """Return the first flag of a quantity; its name where it has none."""
    return next((flags[0] for flags, name, _ in FLAGS if name == quantity), quantity)


# What every mechanism gives.
OUTPUTS = (
    "overlapped_time",
    "sequential_time",
    "ideal_overlapped_time",
    "hidden_time",
    "exposed_time",
    "overlap_ratio",
    "hidden_communication_share",
    "overlap_speedup",
    "ideal_speedup",
    "communication_share",
)
BOTH = ("compute_time", "communication_time")
LABELS = {
    "mechanism": (tuple(MECHANISMS), "two_durations", "--kind"),
    "efficiency_of": (("shorter", "communication"), "shorter", "--efficiency-of"),
    "schedule": (PIPELINES, "one_f_one_b", "--schedule"),
}
# What the way of cutting or computing that a flag chooses takes besides, and where it is from.
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
    },
    ("communication", "sms"): {"num_sm": (16.0, "the default")},
}
# A machine's figures, and what they are here.
MACHINE = {
    "memory_bandwidth": "memory_bandwidth",
    "best_matmul_flops": "best_matmul_flops_bf16",
    "latency": "intra_latency",
    "bandwidth": "intra_bandwidth",
}

# Labels that say how a duration or a count comes about.
WAYS = ("communication", "compute", "buckets", "sm_law", "mechanism")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Case:
    """One choice of labels: what is evaluated with them."""

    labels: Mapping[str, str]  # The labels
    defaults: Mapping[str, float]  # What is taken beside what is given
    used: frozenset[str]  # The names that it takes of both

    @property
    def mechanism(self) -> str:
        """The mechanism."""
        return self.labels["mechanism"]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked."""

    labels: Mapping[str, tuple[str, ...]]  # Labels that vary, with their values
    axes: Mapping[str, Floats]  # Quantities that vary
    constants: Mapping[str, float]  # Quantities that are given once
    cases: tuple[Case, ...]  # One for each choice of labels, in the order of their product
    origins: Mapping[str, Origin]  # Where what isn't given comes from
    outputs: tuple[str, ...]  # The quantities that come out

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions: labels, then quantities."""
        return (*self.labels, *self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Their sizes."""
        return tuple(len(values) for values in (*self.labels.values(), *self.axes.values()))

    @property
    def cells(self) -> int:
        """Cells of the grid."""
        return int(np.prod(self.shape, dtype=object))


def needed(quantity: str, labels: Mapping[str, str], known: frozenset[str]) -> tuple[set[str], ...]:
    """Return what a quantity takes of what is known, and what it lacks."""
    if quantity in known:
        return {quantity}, set()
    declared = REGISTRY.returning(quantity, labels)
    if declared is None:
        return set(), {quantity}
    used: set[str] = set()
    missing: set[str] = set()
    inputs = declared.bind.values() if isinstance(declared, Call) else declared.inputs
    for name in inputs:
        one, other = needed(name, labels, known)
        used |= one
        missing |= other
    if isinstance(declared, Call):
        bound = frozenset(declared.bind)
        one, other = needed(declared.of, {**labels, **declared.labels}, known | bound)
        used |= one - bound
        missing |= other - bound
    return used, missing


def read_request(
    given: Mapping[str, str | None], hardware: Mapping[str, Origin] | None = None
) -> Request:
    """Read what a command was given."""
    faults = Faults()
    labels: dict[str, tuple[str, ...]] = {}
    for name, (known, default, flag) in LABELS.items():
        found = faults.of(names_of, given.get(name) or default, known, flag)
        labels[name] = found or (default,)
    values: dict[str, Floats] = {}
    for name, text in given.items():
        if text is not None and name not in LABELS:
            read = faults.of(numbers_of, name, text, flag_of(name))
            if read is not None:
                values[name] = read
    faults.tell()
    return _complete(labels, values, given.get("mechanism") == "all", hardware or {})


def _complete(
    labels: dict[str, tuple[str, ...]],
    values: Mapping[str, Floats],
    every: bool,
    hardware: Mapping[str, Origin],
) -> Request:
    origins: dict[str, Origin] = {}
    cases: dict[tuple[str, ...], Case] = {}
    dropped: list[str] = []
    for choice in product(*labels.values()):
        found = _case(dict(zip(labels, choice, strict=True)), frozenset(values), hardware, origins)
        if isinstance(found, Case):
            cases[choice] = found
        else:
            dropped += found
    # Of all there are, those remain that what is given suffices for.
    if dropped and not (every and cases):
        raise InputError([_lacking(n, "all") for n in BOTH] if every else _once(dropped))
    kept = {choice[0] for choice in cases}
    labels["mechanism"] = tuple(name for name in labels["mechanism"] if name in kept)
    used = frozenset().union(*(case.used for case in cases.values()))
    kinds = ", ".join(labels["mechanism"])
    unused = [
        fault(flag_of(name), "..", f"--kind {kinds} doesn't take it", "leave it out")
        for name in values
        if name not in used
    ]
    unused += _unused_labels(labels)
    if unused:
        raise InputError(unused)
    derived = [name for name in BOTH if name not in values]
    return Request(
        {name: found for name, found in labels.items() if len(found) > 1},
        {name: found for name, found in values.items() if len(found) > 1},
        {name: float(found[0]) for name, found in values.items() if len(found) == 1},
        tuple(cases.values()),
        {name: origin for name, origin in origins.items() if name in used},
        (*derived, *(name for name in OUTPUTS if name not in values)),
    )


def _once(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _unused_labels(labels: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return faults of labels that vary though no mechanism heeds them."""
    heeding = {"efficiency_of": "two_durations", "schedule": "pipeline"}
    return [
        fault(LABELS[label][2], ",".join(labels[label]), f"only --kind {one} takes it", "leave it")
        for label, one in heeding.items()
        if len(labels[label]) > 1 and one not in labels["mechanism"]
    ]


def _ways(names: frozenset[str], mechanism: str) -> dict[str, str]:
    """Return the labels that follow from what is given: how durations and buckets come about."""
    ways: dict[str, str] = {}
    if names & {"transfer_time", "message_latency"} or mechanism == "fused_messages":
        ways["communication"] = "messages"
    laws = {
        "sm_bandwidth": "linear",
        "half_bandwidth_sms": "saturating",
        "copy_engine_bandwidth": "copy_engine",
    }
    law = next((law for name, law in laws.items() if name in names), None)
    if law is not None and "communication_time" not in names:
        ways |= {"communication": "sms", "sm_law": law}
    if "matmul_rows" in names:
        ways["compute"] = "waves"
    if names & {"bucket_capacity", "first_bucket_capacity"}:
        ways["buckets"] = "sized"
    elif "reduced_elements" in names:
        ways["buckets"] = "megatron"
    return ways


def _case(
    labels: dict[str, str],
    names: frozenset[str],
    hardware: Mapping[str, Origin],
    origins: dict[str, Origin],
) -> Case | list[str]:
    """Return a choice of labels with its defaults, or the faults for which it can't be had."""
    mechanism = MECHANISMS[labels["mechanism"]]
    labels = {**labels, **_ways(names, mechanism.name)}
    offered = {
        name: assumed(value, why)
        for way, more in ASSUMED.items()
        if way in labels.items()
        for name, (value, why) in more.items()
    }
    offered |= {name: hardware[own] for name, own in MACHINE.items() if own in hardware}
    known = names | frozenset(offered)
    defaults = {name: offer for name, offer in offered.items() if name not in names}
    for name, value in mechanism.defaults.items():
        # What follows from what is given isn't assumed.
        if name not in known and (needed(name, labels, known)[1] or name not in _derivable(labels)):
            defaults[name] = assumed(value)
    known |= frozenset(defaults)
    takes = BOTH if "overlapped_time" in names else mechanism.takes
    missing = [lack for name in takes for lack in _missing(name, labels, known, takes)]
    if missing:
        return [_lacking(name, mechanism.name) for name in missing]
    used = set().union(*(needed(name, labels, known)[0] for name in (*BOTH, *OUTPUTS)))
    kept = {name: offer for name, offer in defaults.items() if name in used}
    origins |= kept
    return Case(labels, {name: one.value for name, one in kept.items()}, frozenset(used))


def _missing(
    name: str, labels: Mapping[str, str], known: frozenset[str], takes: tuple[str, ...]
) -> list[str]:
    """Return what has to be given for a quantity: itself, or what the way asked for takes."""
    _, missing = needed(name, labels, known)
    # What follows from other missing ones isn't told beside them.
    if not missing or (name not in missing and missing <= set(takes)):
        return []
    declared = REGISTRY.returning(name, labels)
    by_way = declared is not None and any(way in declared.when for way in WAYS)
    flagged = [one for _, one, _ in FLAGS if one in missing]
    return flagged if by_way and flagged else [name]


def _derivable(labels: Mapping[str, str]) -> set[str]:
    """Return the defaults that formulas give where what these take is there."""
    names = ("gradient_buckets", "prefetched_layers", "partial_sum_time")
    return {name for name in names if REGISTRY.returning(name, labels) is not None}


def _lacking(name: str, mechanism: str) -> str:
    flag = flag_of(name)
    meaning = VOCABULARY[name].meaning if name in VOCABULARY else name
    return fault(flag, "(not given)", f"--kind {mechanism} needs it", f"the {meaning}")
