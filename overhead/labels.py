"""Labels: words that decide which formulas hold, or which figures of the catalogue they take.

``labels.csv`` has them: what each means, its values, what holds where nothing is said, and of which
kinds it is: of a ``figure`` of the catalogue, of a ``training`` step alone, ..
Which hold of a configuration that doesn't say them, `overhead.completion` says.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from overhead.frozen import frozen

# For each label the values for which something holds.
Condition = Mapping[str, frozenset[str]]


@frozen(slots=True)
class Label:
    """A word that is chosen among several."""

    meaning: str
    # Its values; empty where the registry, the catalogue or a table of figures has them
    values: tuple[str, ...] = ()
    default: str = ""  # What holds where nothing is said
    # What holds where nothing is said of an operation by itself, if that is something else
    alone: str = ""
    switch: bool = True  # Whether it decides which formulas hold, rather than what they take
    training: bool = False  # Whether only the model of a training step has it
    overlap: bool = False  # Whether only an overlap that is asked for by itself has it
    follows: bool = False  # Whether commands take it from other labels' files: nobody chooses it


HIERARCHY = "hierarchical"
# What stands for an algorithm where none is named; "all" is each of them.
STANDARD, NCCL, AUTO, ALL = "standard", "nccl", "auto", "all"
CHOICES = (STANDARD, NCCL, AUTO)
# The software that adds nothing to links, and the library that it is.
NO_LIBRARY = "none"
XLA = "xla"
# Who issues operations of a training step.
IN_A_STEP = "step"
# The value by which a given share says what hides.
SHARED = "efficiency"
PLAIN, INTERLEAVED = "one_f_one_b", "interleaved"
# Schedules that have forms for stages of equal length alone.
# Forwards of one direction, or chunk, beside backwards of the other.
PAIRED = ("dual_pipe", "dual_pipe_v")
# Chunks go down the ranks and up again, two a rank.
FOLDED = ("zero_bubble_v", "v_half", "v_min", PAIRED[1])
EVEN_SCHEDULES = ("zero_bubble_h1", "zero_bubble_h2", PAIRED[0])
# Those of several chunks a rank.
CHUNKED = (INTERLEAVED, *FOLDED)
FULL, HYBRID = "full", "hybrid"


def _read() -> Iterator[tuple[str, Label]]:
    with (Path(__file__).parent / "labels.csv").open(encoding="utf-8", newline="") as file:
        for name, meaning, values, default, alone, kinds in list(csv.reader(file))[1:]:
            known = {kind: kind in kinds.split() for kind in ("training", "overlap", "follows")}
            several, switch = tuple(filter(None, values.split("|"))), "figure" not in kinds.split()
            yield name, Label(meaning, several, default, alone, switch, **known)


LABELS = dict(_read())
COLLECTIVES = LABELS["collective"].values
# What overlaps how, where an overlap is asked for by itself (`overhead.overlap.mechanisms`).
MECHANISMS = LABELS["mechanism"].values
# Of a pipeline the stages' times are given; of the others one computation beside communication.
ONE_COMPUTATION = "|".join(name for name in MECHANISMS if name != "pipeline")
# Of these each says what hides one dimension's communication in a step (`overhead.step`).
OVERLAPS = ("tp_mechanism", "cp_mechanism", "ep_mechanism", "dp_mechanism")
# Of these the layers whose weights stage 3 of ZeRO gathers ahead are told.
PREFETCHES = ("fsdp_prefetch", "zero3_prefetch")
# Labels that decide which formulas hold.
SWITCHES = tuple(name for name, label in LABELS.items() if label.switch)
# Those that a training's plan chooses; a mask is the model's.
PLAN_LABELS = tuple(name for name in SWITCHES if LABELS[name].training and name != "mask")
# Schedules that have forms for ends which differ.
UNEVEN_SCHEDULES = tuple(name for name in LABELS["schedule"].values if name not in EVEN_SCHEDULES)
# The schedules that train, as a formula's condition.
TRAINING = "|".join(name for name in LABELS["schedule"].values if name != "forward_only")

# What holds in a training step, and of an operation by itself, where nothing is said.
STEP_DEFAULTS = {
    name: LABELS[name].default
    for name in SWITCHES
    if LABELS[name].default and not LABELS[name].overlap
}
OPERATION_DEFAULTS = {
    name: label.alone or label.default
    for name, label in LABELS.items()
    if label.switch and not (label.training or label.overlap) and (label.alone or label.default)
}

# What follows from labels, and from which quantities are given: no user says it.

FOLLOWING: dict[str, tuple[str, ...]] = {
    "shape": ("flat", "two_levels", "three_levels"),  # of a network
    "phases": ("sequential", "pipelined"),  # of a collective on several dimensions
    "reduction": ("free", "counted"),  # what adding up costs
    "in_network": ("no", "yes"),  # whether the network itself reduces or multicasts
    "stages": ("uneven", "even"),  # whether a schedule's form is of stages of one length
    "shapes": ("known", "unknown"),  # whether a model is more than a number of parameters
    "depth": ("unknown",),  # without layers
    "batched_by": ("tokens",),  # the global batch follows from a step's tokens
    "clock": ("limited",),  # whether a limit of its power slows a GPU down
    "tuning": ("lora",),  # whether adapters alone are trained
    "mixers": ("hybrid",),  # whether some layers are said to have linear attention
    # Whether a stage has its own layers, for a model says their order, or of each kind a part
    "order": ("followed", "spread"),
    "selection": ("indexed",),  # whether attention selects tokens by an indexer
    "stashing": ("host",),  # whether activations wait for their backward in the host's memory
    "updating": ("host",),  # whether the host updates weights, with the optimizer's states
    "grid": ("given",),  # groups lie on a mesh or torus of given sides
    # From messages, at the rate of multiprocessors, or in parts at that rate
    "communication": ("messages", "sms", "split"),
    "sm_law": ("linear", "saturating", "copy_engine"),  # how that rate follows from their number
    # A GEMM in whole waves of tiles, or at a smooth choice among tiles
    "compute": ("waves", "tiles"),
    "buckets": ("sized", "megatron"),  # how many there are, from bytes or by Megatron-LM's rule
}

GIVEN_GRID = {"grid": "given"}


def usual_spelling(word: str, known: Iterable[str]) -> str:
    """Return the one of known names that a word means, whatever its case and hyphens, or the word.

    Parameters
    ----------
    word : str
        A name as it is written: ``AllReduce``, ``all-reduce``, ``All2All``, ``RING``.
    known : iterable of str
        The names there are.

    Returns
    -------
    str
        The name, where one alone is meant; the word as it is otherwise.
    """
    names = tuple(known)
    if word in names:
        return word
    meant = [name for name in names if _bare(name) == _bare(word)]
    return meant[0] if len(meant) == 1 else word


# What frameworks and papers call a name of ours.
ELSEWHERE = {
    "1f1b": "onefoneb",
    "interleaved1f1b": "interleaved",
    "zbh1": "zerobubbleh1",
    "zbh2": "zerobubbleh2",
    "zbv": "zerobubblev",
    "zbvzerobubble": "zerobubblev",
    "deepep": "deduplicated",
    "hybridep": "deduplicated",
    "flex": "deduplicated",
    "ulysses": "alltoall",
    "a2a": "alltoall",
    "a2a+p2p": "mixed",
    "native": "vocabparallel",
    "te": "fused",
    "tefused": "fused",
    "cce": "cutcrossentropy",
}


def _bare(word: str) -> str:
    """Return a name without what people write in many ways."""
    plain = word.lower().translate({ord(mark): None for mark in "-_ "})
    return ELSEWHERE.get(plain, plain.replace("all2all", "alltoall"))


# Conditions on labels: what implies what.

FLAT = frozenset({"flat"})
LEVELS = frozenset({"two_levels", "three_levels"})


def expanded(condition: Condition) -> Condition:
    """Return a condition with what follows from it: a hierarchy has levels, others are flat."""
    labels = dict(condition)
    topology = labels.get("topology")
    if topology is not None and "shape" not in labels:
        if topology == {HIERARCHY}:
            labels["shape"] = LEVELS
        elif HIERARCHY not in topology:
            labels["shape"] = FLAT
    return labels


def implies(condition: Condition, other: Condition) -> bool:
    """Return whether wherever the first holds, the second does, too."""
    return all(name in condition and condition[name] <= values for name, values in other.items())


def both(condition: Condition, other: Condition) -> Condition | None:
    """Return where both hold, or None where they can't together."""
    joined = {**condition}
    for name, values in other.items():
        joined[name] = joined[name] & values if name in joined else values
        if not joined[name]:
            return None
    return joined
