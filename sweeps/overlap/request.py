"""What is asked of overlap: mechanisms, axes and constants, and what is assumed beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from overhead.formula import REGISTRY, Call
from overhead.overlap import MECHANISMS
from overhead.overlap.pipeline import PIPELINES
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault
from sweeps.overlap.flags import FLAGS, flag_of
from sweeps.overlap.given import Faults, names_of, numbers_of

__all__ = ["OUTPUTS", "Case", "Request", "needed", "read_request"]

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
    origins: Mapping[str, str]  # Where what isn't given comes from
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
    given: Mapping[str, str | None], hardware: Mapping[str, tuple[float, str]] | None = None
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
    hardware: Mapping[str, tuple[float, str]],
) -> Request:
    origins: dict[str, str] = {}
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
    hardware: Mapping[str, tuple[float, str]],
    origins: dict[str, str],
) -> Case | list[str]:
    """Return a choice of labels with its defaults, or the faults for which it can't be had."""
    mechanism = MECHANISMS[labels["mechanism"]]
    labels = {**labels, **_ways(names, mechanism.name)}
    offered: dict[str, tuple[float, str]] = {
        name: (value, f"assumed: {why}")
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
            defaults[name] = (value, "assumed: the default")
    known |= frozenset(defaults)
    takes = BOTH if "overlapped_time" in names else mechanism.takes
    missing = [lack for name in takes for lack in _missing(name, labels, known, takes)]
    if missing:
        return [_lacking(name, mechanism.name) for name in missing]
    used = set().union(*(needed(name, labels, known)[0] for name in (*BOTH, *OUTPUTS)))
    kept = {name: offer for name, offer in defaults.items() if name in used}
    origins |= {name: origin for name, (_, origin) in kept.items()}
    return Case(labels, {name: value for name, (value, _) in kept.items()}, frozenset(used))


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
