"""The vocabulary of overlap, and the mechanisms by name: what each takes, and why it shows."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import islice
from pathlib import Path

from overhead.arrays import xp
from overhead.collectives.algorithm import Requirement
from overhead.frozen import frozen

# The publications that the formulas of overlap cite, by their keys.

DECOMPOSED = "wang2023"
ENGINE = "transformerengine"
BUCKETS = "li2020"
FSDP = "zhao2023"
DEEPSPEED = "deepspeed"
MEGATRON = "megatron"
TILES = "nvidiamatmul"


# The mechanisms by name, a row each: what each takes, what of that by default, and why it shows


@frozen(slots=True)
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


def _read() -> Iterator[Mechanism]:
    with Path(__file__).with_name("mechanisms.csv").open(encoding="utf-8", newline="") as rows:
        for name, title, takes, defaults, bounded, exposed in islice(csv.reader(rows), 1, None):
            usual = {
                key: float(value) for key, _, value in (d.partition("=") for d in defaults.split())
            }
            yield Mechanism(name, title, tuple(takes.split()), exposed, usual, bounded == "yes")


MECHANISMS: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in _read()}

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
    rules: list[Requirement] = []
    if mechanism == "ring_exchange_aggregate":
        rules.append(EVEN_RANKS)
    if mechanism.startswith("bulk"):
        rules.append(A_MULTIPROCESSOR_LEFT)
    if mechanism == "pipeline":
        interleaved = labels.get("schedule") == "interleaved"
        rules.append(WHOLE_ROUNDS if interleaved else ONE_VIRTUAL_STAGE)
    return (*rules, LONG_ENOUGH) if measured else tuple(rules)


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
