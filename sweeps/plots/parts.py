"""What the totals of a training step are made of: known parts, their order, names, colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.plots.readable import long_name

__all__ = [
    "MEMORY_TOTAL",
    "STEP_TOTAL",
    "Part",
    "known_parts",
    "labelled",
    "stacked",
    "total_of",
]

MEMORY_TOTAL = "peak_memory"
STEP_TOTAL = "step_time"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a stack."""

    variables: tuple[str, ...]  # The variables that it is the sum of
    label: str  # What it is called; empty where its only variable's metadata says so
    colour: int  # Which of the areas' colours it has


# Of the fullest stage (with the prefix) or of a stage of its own (without).
_PREFIXES = ("peak_", "")
_MEMORY = (
    Part(("weight_memory",), "weights", 0),
    Part(("gradient_memory", "pending_gradient_memory", "placeholder_memory"), "gradients", 1),
    Part(("optimizer_memory",), "states of the optimizer", 2),
    Part(("gathered_memory",), "gathered weights", 5),
    Part(
        (
            "stored_activation_memory",
            "live_activation_memory",
            "embedding_activation_memory",
            "output_activation_memory",
        ),
        "activations",
        3,
    ),
    Part(("logits_memory",), "logits", 4),
    Part(
        ("bucket_memory", "workspace_bytes", "communicator_memory", "context_bytes"),
        "buffers and context",
        7,
    ),
)
# Usual parts have the plain colours, rarer ones the lighter ones: computing in blue and green,
# waiting for others in the warm colours.
_STEP = (
    Part(("matmul_part_time",), "", 0),
    Part(("attention_part_time",), "", 5),
    Part(("elementwise_part_time",), "", 2),
    Part(("recompute_part_time",), "", 8),
    Part(("host_part_time",), "", 7),
    Part(("exposed_tp_time",), "", 1),
    Part(("exposed_cp_time",), "", 9),
    Part(("exposed_ep_time",), "", 3),
    Part(("imbalance_time",), "", 11),
    Part(("bubble_time",), "", 6),
    Part(("exposed_p2p_time",), "", 4),
    Part(("exposed_dp_time",), "", 12),
    Part(("optimizer_time",), "", 10),
    Part(("step_overhead",), "", 15),
)
_DIMENSIONS = {"tp": 1, "vocabulary": 9, "cp": 5, "pp": 4, "ep": 3, "dp": 0}
_ALL_COMMUNICATION = {
    "time": "communication_upper_bound",
    "volume": "communication_volume",
    "energy": "communication_energy",
}
_COLOURS = {part.variables[0]: part.colour for part in _STEP} | {
    f"{dim}_communication_{measure}": colour
    for dim, colour in _DIMENSIONS.items()
    for measure in _ALL_COMMUNICATION
}
_MOST_COLOURS = 16


def known_parts(kind: str, names: Collection[str], measure: str = "time") -> tuple[str, ...]:
    """Return the variables that a kind of figure stacks by itself, of those there are."""
    if kind == "communication":
        every = [f"{dim}_communication_{measure}" for dim in _DIMENSIONS]
        return tuple(name for name in every if name in names)
    total = MEMORY_TOTAL if kind == "memory" else STEP_TOTAL
    for prefix in _PREFIXES if kind == "memory" else ("",):
        every = [
            f"{prefix}{name}"
            for part in (_MEMORY if kind == "memory" else _STEP)
            for name in part.variables
        ]
        parts = tuple(name for name in every if name in names)
        if len(parts) > 1:
            return parts
    return (total,) if total in names else ()


def total_of(kind: str, parts: Sequence[str], measure: str = "time") -> str:
    """Return the variable that the parts of a kind of figure add up to."""
    if kind == "communication":
        return _ALL_COMMUNICATION[measure]
    if kind == "step_parts":
        return STEP_TOTAL
    return MEMORY_TOTAL if parts[0].startswith("peak_") else "memory"


def stacked(kind: str, variables: Sequence[str], *, chosen: bool) -> list[Part]:
    """Return the parts of a stack."""
    if kind != "memory" or chosen:
        known = {} if kind == "memory" else {**_COLOURS}
        own = [known[name] for name in variables if name in known]
        free = [colour for colour in range(_MOST_COLOURS) if colour not in own]
        rest = iter([*free, *range(len(variables))])
        return [
            Part((name,), "", known[name] if name in known else next(rest)) for name in variables
        ]
    parts = []
    for part in _MEMORY:
        names = tuple(name for name in variables if name.removeprefix("peak_") in part.variables)
        if names:
            parts.append(Part(names, part.label if len(names) > 1 else "", part.colour))
    return parts or [Part(tuple(variables), "", 0)]


def labelled(parts: Iterable[Part], attrs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what parts are called: from the metadata, without what all of it begins with."""
    parts = list(parts)
    names = {name: long_name(name, attrs[name]) for part in parts for name in part.variables}
    short = _told_apart(names)
    return [part.label or short[part.variables[0]] for part in parts]


def _told_apart(names: Mapping[str, str]) -> dict[str, str]:
    """Return names without what they have in common: what follows or leads a colon, first words."""
    if len(names) < 2:
        return dict(names)
    pieces = {name: words.rpartition(": ") for name, words in names.items()}
    ends = {end for _, _, end in pieces.values()}
    if len(ends) == 1 and all(start for start, _, _ in pieces.values()):
        short = {name: start for name, (start, _, _) in pieces.items()}
    else:
        starts = Counter(start for start, _, _ in pieces.values() if start)
        common = [start for start, count in starts.items() if count > 1]
        short = {
            name: end if start in common else names[name]
            for name, (start, _, end) in pieces.items()
        }
    words = [text.split() for text in short.values()]
    same = 0
    while all(len(one) > same + 1 and one[same] == words[0][same] for one in words):
        same += 1
    return {name: " ".join(one[same:]) for name, one in zip(short, words, strict=True)}
