"""Plans that experts published beside the best of our search: loss, rank, memory, reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from overhead.quantity import VOCABULARY
from overhead.shipped import error_bands
from overhead.step.parts import PARTS
from sweeps.errors import InputError
from sweeps.result import Field, Result, of_rows
from sweeps.search.details import Detail, details
from sweeps.search.repair import nearest_plan
from sweeps.search.request import (
    DEFAULT_THRESHOLD,
    DEGREES,
    NUMBER_CHOICES,
    Execution,
    Point,
    objective_of,
)
from sweeps.search.rows import ENDS
from sweeps.search.search import SearchResult, search
from sweeps.search.space import space_of
from sweeps.search.words import differences
from sweeps.validate.training_rows import Case, Skipped
from sweeps.wrapping import aligned

# What a search decides; everything else of a recipe is given.
DECIDED = (*DEGREES, *NUMBER_CHOICES, "num_micro_batches", *ENDS)
MODULE = "recompute_"
LABELS = ("recompute", "schedule", "context_parallel")
# What is hoped for: so many recipes lose at most so much of our best, and so many fit.
NEAR, NEAR_SHARE, FIT_SHARE = 0.03, 0.8, 0.98
# Of the plans that lose most so many are told.
MOST = 12
# Why plans that lose do so, by the part of a step in which they lose most.
WHY = {
    "host wait": "ours has larger micro-batches or fewer experts on a GPU; room that "
    "theirs leave in the memory may be for what no recipe tells: buffers of graphs and exchanges",
    "EP communication": "ours keeps exchanges inside nodes, or more experts on a "
    "GPU, in memory that theirs leave free",
    "embedding, LM head and loss": "ours has fewer stages, so that the last one's logits "
    "weigh less",
    "pipeline bubble": "ours has fewer stages, or interleaves them",
    "recomputation": "theirs recomputes more than has to be, by our memory; where their rows "
    "don't say what, taken is as little as fits",
}
# Stronger reasons: a plan of their own that is faster, and what can't be told apart.
ANOTHER = "another of theirs is faster"
REPLACED = "another of theirs is faster, with other options"
KEPT = "theirs is kept from where it is best"
SIZED = "theirs is kept from another number of GPUs or batch"
WITHIN = "the loss is within our error for such a step"
UNKNOWN = "a term that we lack, or their choice"
# Tokens of the fullest GPU's experts by the mean, for which a plan may leave room: that of eight
# ranks by the power law that ai-dynamo/aiconfigurator measures skewed experts with (1.01).  Recipes
# force routing even, runs don't: Nemotron-3 Nano, nothing recomputed, ran out of memory on 16 H100,
# on hot ranks, where even experts fit by what is predicted (NVIDIA-NeMo/Megatron-Bridge,
# skills/nemo-mbridge-perf-activation-recompute/SKILL.md @067f987df0).
UNEVEN = 1.7
ROOM = "theirs has room for uneven experts"
# So many of our best plans are looked at for one with such room.
LOOKED_AT, AT_ONCE = 2000, 40
# What is computed of a recipe's plan and of ours.
QUANTITIES = ("step_time", "peak_memory", *PARTS)


@dataclass(frozen=True, slots=True)
class Expert:
    """A published plan beside the best one for the same question, both predicted."""

    case: Case  # The recipe
    gpus: int
    theirs: Execution | None  # Its plan; None where our model says that it can't be
    ours: Execution | None  # Our choice; None where nothing fits
    step_time: float  # Of its plan; NaN where it can't be
    memory: float  # Of its fullest GPU; NaN where it can't be
    capacity: float  # Of a GPU
    rank: int  # The place of its split among our splits by their best plans; 0 where it can't be
    splits: int  # How many splits there are that can run
    reason: str  # Why it can't be, or doesn't fit; empty where it can run
    # Where its step is longer than that of our choice, in words, and where it is shorter
    lost: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()
    band: float = 0.0  # What differences of two plans' step times are within, as a fraction
    why: str = ""  # Why it loses more than is allowed; empty where it doesn't
    # Memory of its fullest GPU and of ours with `UNEVEN` experts; NaN without experts or a plan
    uneven: tuple[float, float] = (math.nan, math.nan)
    roomy_time: float = math.inf  # Step time of our best with that room; infinite without any

    @property
    def loss(self) -> float:
        """Its step time by that of our choice, less 1: what its choice loses by our model."""
        return math.nan if self.ours is None else self.step_time / self.best_time - 1.0

    @property
    def best_time(self) -> float:
        """The step time of our choice."""
        return math.nan if self.ours is None else self.ours.known["step_time"]

    @property
    def fits(self) -> bool:
        """Whether it can be, and the fullest GPU holds its part."""
        return not self.reason

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that it counts in."""
        kind = "experts" if self.case.numbers.get("experts", 0.0) > 0.0 else "dense"
        return (kind, self.case.labels["hardware"], "all")

    def fields(self) -> dict[str, Any]:
        """Return it for programs."""
        case, labels = self.case, self.case.labels
        return {
            "row": case.name,
            "source": case.source,
            "class": self.classes[0],
            "model": case.model,
            "hardware": labels["hardware"],
            "framework": labels["framework"],
            "precision": labels["precision"],
            "gpus": self.gpus,
            "loss": _or_none(self.loss),
            "rank": self.rank or None,
            "splits": self.splits,
            "fits": self.fits,
            "step_time_s": _or_none(self.step_time),
            "best_step_time_s": _or_none(self.best_time),
            "measured_step_time_s": _or_none(case.measured),
            "memory_bytes": _or_none(self.memory),
            "capacity_bytes": self.capacity,
            "plan": self.theirs.name if self.theirs else "",
            "best_plan": self.ours.name if self.ours else "",
            "reason": self.reason,
            "lost": ", ".join(self.lost),
            "gained": ", ".join(self.gained),
            "why": self.why,
            "source_ref": case.reference,
        }


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


FIELDS = (
    Field("row", "row", "row of the table"),
    Field("source", "source", "source of the recipe"),
    Field("class", "kind", "kind of model"),
    Field("model", "model", "model"),
    Field("hardware", "hardware", "machine"),
    Field("framework", "framework", "software"),
    Field("precision", "precision", "numbers of the GEMMs"),
    Field("gpus", "gpus", "GPUs", "1"),
    Field("loss", "loss", "step time by that of the best plan found, less 1", "1"),
    Field("rank", "rank", "place of its split among those found", "1"),
    Field("splits", "splits", "splits that can run", "1"),
    Field("fits", "fits", "whether it can run, by the model", "1"),
    Field("step_time_s", "step_time", "step time of the recipe's plan", "s"),
    Field("best_step_time_s", "best_step_time", "step time of the best plan found", "s"),
    Field("measured_step_time_s", "measured_step_time", "step time that was measured", "s"),
    Field("memory_bytes", "peak_memory", "memory of the fullest GPU", "byte"),
    Field("capacity_bytes", "memory_capacity", "memory of a GPU", "byte"),
    Field("plan", "plan", "the recipe's plan"),
    Field("best_plan", "best_plan", "best plan found"),
    Field("reason", "reason", "why the recipe's plan can't run"),
    Field("lost", "lost", "parts of a step in which the recipe's plan takes longer"),
    Field("gained", "gained", "parts of a step in which the recipe's plan is shorter"),
    Field("why", "why", "why the recipe's plan loses more than is allowed"),
    Field("source_ref", "source_ref", "where the recipe stands"),
)


def world_size(case: Case) -> float:
    """Return the GPUs of a recipe."""
    return math.prod(case.numbers[name] for name in ("tp", "cp", "pp", "dp"))


def question(case: Case) -> Point:
    """Return what a recipe is the answer to, as the search asks it: with its room in the memory.

    How attention crosses context-parallel ranks is the software's, and so is whether weights are
    sharded: Megatron-FSDP (ZeRO 2 and 3) is another software than the distributed optimizer.
    """
    constants = {
        name: value
        for name, value in case.numbers.items()
        if name in VOCABULARY and name not in DECIDED and not name.startswith(MODULE)
    }
    constants["world_size"] = world_size(case)
    labels = {name: label for name, label in case.labels.items() if name not in LABELS}
    stages = (2.0, 3.0) if case.numbers.get("zero_stage", 0.0) >= 2.0 else (0.0, 1.0)
    choices: dict[str, Any] = {"zero_stage": np.array(stages)}
    if "context_parallel" in case.labels:
        choices["context_parallel"] = np.array([case.labels["context_parallel"]])
    return Point(constants, labels, choices, objective_of("time"))


def plan_alone(case: Case) -> Point:
    """Return the question that a recipe's own plan alone answers; it may fill the whole memory."""
    point = question(case)
    numbers = case.numbers
    names = ["tp", "cp", "pp", "dp", *NUMBER_CHOICES]
    if numbers.get("experts", 0.0) > 0.0:
        names += ["ep", "etp"]
    choices = {name: np.array([numbers[name]]) for name in names if name in numbers}
    # Settings without effect are no plans of their own.
    if numbers["tp"] == 1.0:
        choices["sequence_parallel"] = np.array([0.0])
    ranks = numbers["tp"] * numbers["cp"] * numbers["dp"]
    copies = numbers.get("experts", 0.0) > 0.0 and ranks > numbers["etp"] * numbers["ep"]
    if numbers["dp"] * numbers["cp"] == 1.0 and not copies:
        choices["zero_stage"] = np.array([0.0])
    several = numbers["virtual_pipeline_size"] > 1.0
    choices["schedule"] = np.array(["interleaved" if several else "one_f_one_b"])
    choices["recompute"] = np.array([case.labels["recompute"]])
    modules = {name: value for name, value in numbers.items() if name.startswith(MODULE)}
    return replace(
        point,
        threshold=1.0,
        constants={**point.constants, **modules},
        choices={**point.choices, **choices},
    )


def comparisons(cases: Iterable[Case], folders: Sequence[Path] = ()) -> Iterator[Expert | Skipped]:
    """Yield recipes beside the best plans for them; those of equal questions are searched once."""
    known: dict[str, _Best] = {}
    for case in cases:
        point = replace(question(case), folders=tuple(folders))
        key = str((sorted(point.constants.items()), sorted(point.labels.items()), point.choices))
        try:
            if key not in known:
                known[key] = _best(search(space_of(point), keep=LOOKED_AT))
            yield _one(case, known[key], replace(plan_alone(case), folders=tuple(folders)))
        except InputError as error:
            yield Skipped(case.name, case.source, case.kind, "; ".join(error.faults))


@dataclass(frozen=True, slots=True)
class _Best:
    """What is kept of a search: its grids would fill the memory."""

    ours: Detail | None
    splits: tuple[tuple[str, float], ...]  # Each with the step time of its best plan
    capacity: float
    uneven: float  # Memory of the fullest GPU with uneven experts; NaN without
    roomy_time: float  # Step time of the best plan that has room for them; infinite without any


def _best(search_result: SearchResult) -> _Best:
    splits = tuple((split.split, split.known["step_time"]) for split in search_result.splits)
    capacity = float(search_result.space.resolved.constants["memory_capacity"])
    (ours,) = details(search_result.ranked[:1], QUANTITIES) or (None,)
    (uneven,) = _uneven(search_result.ranked[:1]) or (math.nan,)
    return _Best(ours, splits, capacity, uneven, _roomy_time(search_result.ranked, capacity))


def _uneven(plans: Sequence[Execution]) -> list[float]:
    """Return the memory of plans' fullest GPUs if one has more tokens for its experts."""
    if not plans or not plans[0].routed:
        return [math.nan] * len(plans)
    several = [
        replace(plan, given={**plan.given, "expert_load_imbalance": UNEVEN}, known={})
        for plan in plans
    ]
    return [detail["peak_memory"] for detail in details(several, ("peak_memory",))]


def _roomy_time(plans: Sequence[Execution], capacity: float) -> float:
    """Return the step time of the first plan that has room for uneven experts."""
    for start in range(0, len(plans), AT_ONCE):
        some = plans[start : start + AT_ONCE]
        for plan, memory in zip(some, _uneven(some), strict=True):
            if math.isnan(memory) or memory <= capacity:
                return plan.known["step_time"]
    return math.inf


def _one(case: Case, best_rows: _Best, alone: Point) -> Expert:
    space = space_of(alone)
    match = search(space)
    plan, reason = (match.best[0], "") if match.best else (None, "its degrees can't be")
    if plan is None and (near := nearest_plan(space)) is not None:
        plan = near.plan if near.memory else None
        reason = ", ".join(near.reasons).replace("_", " ")
    elif plan is None:
        reason = ", ".join(space.rows.fallen).replace("_", " ") or reason
    values: Mapping[str, float] = dict.fromkeys(QUANTITIES, math.nan)
    lost: list[str] = []
    gained: list[str] = []
    if plan is not None:
        (detail,) = details([plan], QUANTITIES)
        values = detail.values
        if best_rows.ours is not None:
            lost, gained = differences(best_rows.ours, detail)
    faster = [split for split, time in best_rows.splits if time < values["step_time"]]
    others = sum(plan is None or split != plan.split for split in faster)
    return Expert(
        case,
        int(alone.world_size),
        plan,
        best_rows.ours.plan if best_rows.ours else None,
        values["step_time"],
        values["peak_memory"],
        best_rows.capacity,
        0 if plan is None else others + 1,
        len(best_rows.splits),
        reason,
        tuple(lost),
        tuple(gained),
        float(error_bands()["step_time"]["experts"]["difference"]),
        uneven=(*(_uneven([plan]) if plan else (math.nan,)), best_rows.uneven),
        roomy_time=best_rows.roomy_time,
    )


def explained(experts: Sequence[Expert], bound: float = NEAR) -> list[Expert]:
    """Return plans with why they lose more than the bound.

    The strongest reason is told: that they measured another plan of theirs to be faster, which our
    model has faster, too, with the same options of the software or with others; that no plan with
    their room for uneven experts is that much better; that the same plan is theirs on another
    machine, or in another precision, and there among the best; that the loss is within the error of
    a predicted step; that the same plan is theirs with more GPUs or another batch, where its loss
    is within that error; else the term.
    """
    return [
        replace(expert, why=_why(expert, experts, bound)) if expert.loss > bound else expert
        for expert in experts
    ]


def _why(expert: Expert, experts: Sequence[Expert], bound: float) -> str:
    reasons = []
    for other_expert in experts:
        same = _question(other_expert) == _question(expert)
        replaced = _software(other_expert) == _software(expert) and not _alike(expert, other_expert)
        if (same or replaced) and math.isfinite(other_expert.case.measured):
            ours = (
                _rate(other_expert, other_expert.step_time) / _rate(expert, expert.step_time) - 1.0
            )
            theirs = (
                _rate(other_expert, other_expert.case.measured)
                / _rate(expert, expert.case.measured)
                - 1.0
            )
            if ours > NEAR and theirs > NEAR:
                text = (
                    f"{other_expert.case.name}, {ours:+.0%} by our model and {theirs:+.0%} measured"
                )
                reasons.append((same, theirs, text))
    if reasons:
        same, _, text = max(reasons)
        return f"{ANOTHER if same else REPLACED}: {text}, tokens a second"
    theirs, ours = expert.uneven
    if theirs <= expert.capacity < ours and expert.step_time <= (1.0 + bound) * expert.roomy_time:
        sizes = (f"{1e-9 * size:.4g}" for size in (ours, expert.capacity, theirs))
        sizes_text = "with {} times the mean on a GPU ours needs {} of {} GB, theirs {}"
        return f"{ROOM}: {sizes_text.format(UNEVEN, *sizes)}"
    for other in experts:
        if _same_plan(expert, other) and other.loss <= bound:
            labels = other.case.labels
            where = f"{other.case.name}, on {labels['hardware']} in {labels['precision']}"
            return f"{KEPT}: {where} it loses {max(other.loss, 0.0):.1%}"
    if expert.loss <= expert.band:
        return f"{WITHIN} (within {expert.band:.0%})"
    for other in experts:
        if _same_but_size(expert, other) and other.loss <= max(bound, other.band):
            batch = other.case.numbers["global_batch_size"]
            where = f"{other.case.name}, {other.gpus} GPUs and {batch:g} sequences a step"
            return f"{SIZED}: {where}, where it loses {max(other.loss, 0.0):.1%}, within our error"
    part = _part(expert)
    return f"{part}: {WHY[part]}" if part in WHY else f"{UNKNOWN}: {part}"


def _same_plan(left: Expert, right: Expert) -> bool:
    """Return whether two recipes of one model on as many GPUs have the same degrees and batches."""
    same = _alike(left, right, ("dp", "sequence_length", "global_batch_size"))
    return same and _question(left)[0] == _question(right)[0] and left is not right


def _same_but_size(left: Expert, right: Expert) -> bool:
    """Return whether recipes of a model on a machine differ in data-parallel ranks or batch.

    A release's recipe may set another option of the software than its development branch.
    """
    own, others = (
        (model, machine, precision, length)
        for model, machine, _, precision, length in map(_question, (left, right))
    )
    other_size = not _alike(left, right, ("dp", "global_batch_size"))
    return other_size and _alike(left, right) and own == others


def _alike(left: Expert, right: Expert, names: Sequence[str] = ()) -> bool:
    """Return whether two recipes split a model alike, and have other numbers alike."""
    numbers = left.case.numbers, right.case.numbers
    degrees = (name for name in DEGREES if name != "dp")
    every = (*degrees, "virtual_pipeline_size", "micro_batch_size", *names)
    return all(numbers[0].get(name) == numbers[1].get(name) for name in every)


def _question(expert: Expert) -> tuple[object, ...]:
    """Return what plans have to share to be compared: all but degrees, batches and GPUs."""
    labels = expert.case.labels
    model = expert.case.model.split(" ")[0].replace("_", "-")
    named = (labels[name] for name in ("hardware", "framework", "precision"))
    return (model, *named, expert.case.numbers["sequence_length"])


def _software(expert: Expert) -> tuple[object, ...]:
    """Return what plans of several releases share: the question, without the software's options."""
    model, machine, framework, *others = _question(expert)
    return (model, machine, str(framework).split("+")[0], *others)


def _rate(expert: Expert, time: float) -> float:
    """Return the tokens a second of a GPU."""
    numbers = expert.case.numbers
    return numbers["global_batch_size"] * numbers["sequence_length"] / (expert.gpus * time)


def _part(expert: Expert) -> str:
    """Return the part of a step in which a plan loses most."""
    return expert.lost[0].rsplit(" +", maxsplit=1)[0] if expert.lost else "no part alone"


@dataclass(frozen=True, slots=True)
class Choice:
    """How near the plans of some recipes are to ours."""

    recipes: int  # How many
    near: float  # The share that loses at most the bound
    median: float  # Of the losses; NaN where none is known
    p90: float  # Of the losses
    first: float  # The share whose split is our first
    fit: float  # The share that fits by our memory


def choice_of(experts: Sequence[Expert], bound: float = NEAR) -> Choice:
    """Gather some recipes; one that can't be is none that is near."""
    losses = np.array([expert.loss for expert in experts])
    known = losses[np.isfinite(losses)]
    middle, most = np.percentile(known, (50.0, 90.0)) if len(known) else (math.nan, math.nan)
    return Choice(
        len(experts),
        float(np.count_nonzero(known <= bound)) / len(experts),
        float(middle),
        float(most),
        sum(expert.rank == 1 for expert in experts) / len(experts),
        sum(expert.fits for expert in experts) / len(experts),
    )


def falls_short(experts: Sequence[Expert], bound: float = NEAR) -> bool:
    """Return whether too few plans are near ours, or fit."""
    whole = choice_of(experts, bound)
    return whole.near < NEAR_SHARE or whole.fit < FIT_SHARE


def choice_lines(experts: Sequence[Expert], bound: float, *, every: bool) -> Iterator[str]:
    """Yield the summary by class, then the plans that lose most, and those that can't run."""
    groups: dict[str, list[Expert]] = {}
    for one in experts:
        for name in one.classes:
            groups.setdefault(name, []).append(one)
    head = [
        "class",
        "recipes",
        f"within {bound:.0%}",
        "median loss",
        "p90",
        "our first split",
        "fit our memory",
    ]
    table = [head]
    for name in sorted(groups, key=lambda name: (name != "all", name)):
        choice = choice_of(groups[name], bound)
        shares = (choice.near, choice.median, choice.p90, choice.first, choice.fit)
        table.append([name, f"{choice.recipes}", *(_percent(share) for share in shares)])
    yield "experts' plans beside the best of our search, both predicted, by class:"
    yield from aligned(table, indent="")
    yield (
        f"aim: {NEAR_SHARE:.0%} of the recipes within {NEAR:.0%}, and {FIT_SHARE:.0%} fit; a loss "
        "below 0: the search doesn't try such a plan, or theirs fills more of the memory than "
        f"{DEFAULT_THRESHOLD:.0%}"
    )
    yield from _rooms(experts, bound)
    yield from _reasons(experts, bound)
    lost = sorted(
        (expert for expert in experts if not expert.loss <= bound or not expert.fits),
        key=lambda expert: (expert.fits, -expert.loss if expert.loss == expert.loss else 0.0),
    )
    for one in lost if every else lost[:MOST]:
        yield from _lines(one)
    if len(lost) > MOST and not every:
        yield f"{len(lost) - MOST} more: --verbose tells them"


def _rooms(experts: Sequence[Expert], bound: float) -> Iterator[str]:
    """Yield how many plans have room for uneven experts, and how near our best with that room."""
    known = [expert for expert in experts if math.isfinite(expert.uneven[0])]
    if known:
        roomy = sum(expert.uneven[0] <= expert.capacity for expert in known) / len(known)
        near = sum(expert.step_time <= (1.0 + bound) * expert.roomy_time for expert in known) / len(
            known
        )
        yield (
            f"{roomy:.0%} of those with experts have room for {UNEVEN} times the mean on a GPU; "
            f"{near:.0%} are within {bound:.0%} of our best that has it, too"
        )


def _reasons(experts: Sequence[Expert], bound: float) -> Iterator[str]:
    """Yield why plans lose more than the bound, those with one reason together."""
    far = [expert for expert in experts if expert.loss > bound]
    if not far:
        return
    yield ""
    yield f"those that lose more than {bound:.0%}, by the part in which they lose most:"
    yield from _groups("part", far, _part)
    yield from (f"  {part}: {WHY[part]}" for part in dict.fromkeys(map(_part, far)) if part in WHY)
    if any(expert.why for expert in far):
        yield ""
        yield "and by the strongest reason that is known:"
        yield from _groups("reason", far, lambda expert: expert.why.split(":")[0].split(" (")[0])


def _groups(name: str, far: Sequence[Expert], key: Callable[[Expert], str]) -> Iterator[str]:
    groups: dict[str, list[Expert]] = {}
    for expert in far:
        groups.setdefault(key(expert), []).append(expert)
    table = [[name, "recipes", "median loss", "of its memory", "measured", "predicted"]]
    for word, experts_of_word in sorted(groups.items(), key=lambda item: -len(item[1])):
        ran = [one for one in experts_of_word if math.isfinite(one.case.measured)]
        off = [one.step_time / one.case.measured - 1.0 for one in ran]
        shares = (
            np.median([one.loss for one in experts_of_word]),
            np.median([one.memory / one.capacity for one in experts_of_word]),
        )
        bias = f"{100.0 * np.mean(off):+.1f} %" if off else "-"
        table.append(
            [
                word,
                f"{len(experts_of_word)}",
                *map(_percent, map(float, shares)),
                f"{len(ran)}",
                bias,
            ]
        )
    yield from aligned(table, indent="  ")


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100.0 * value:.1f} %"


def _lines(expert: Expert) -> Iterator[str]:
    case, labels = expert.case, expert.case.labels
    yield ""
    yield (
        f"{case.name} {case.model} on {expert.gpus} {labels['hardware']}, {labels['precision']}, "
        f"{case.numbers['global_batch_size']:g} x {case.numbers['sequence_length']:g} tokens: "
        + (f"loses {expert.loss:.1%}" if math.isfinite(expert.loss) else "not ranked")
        + (f", split {expert.rank} of {expert.splits}" if expert.rank else "")
        + (f"; {expert.reason}" if expert.reason else "")
    )
    memory = (
        f" ({expert.memory / 1e9:.4g} of {expert.capacity / 1e9:.4g} GB)" if expert.theirs else ""
    )
    yield f"  theirs: {expert.theirs.name if expert.theirs else _setting(case)}{memory}"
    yield f"  ours:   {expert.ours.name if expert.ours else 'nothing fits'}"
    parts = [f"theirs loses in {', '.join(expert.lost[:3])}"] if expert.lost else []
    parts += [f"gains in {', '.join(expert.gained[:2])}"] if expert.gained else []
    if parts:
        yield f"  {'; '.join(parts)}"
    if expert.why:
        yield f"  why: {expert.why}"


def _setting(case: Case) -> str:
    names = [*("tp", "cp", "pp", "dp", "ep"), "virtual_pipeline_size", "micro_batch_size"]
    return ", ".join(f"{name} {case.numbers[name]:g}" for name in names if name in case.numbers)


def choice_result(experts: Sequence[Expert], attrs: dict[str, str]) -> Result:
    """Return recipes as a dataset of rows."""
    return of_rows([expert.fields() for expert in experts], FIELDS, attrs)
