"""What decides, beside the model, which plans count: memory left over, repetitions, frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.algorithm import Requirement
from overhead.completion import following
from overhead.frozen import frozen
from overhead.graph import Node
from overhead.labels import CHUNKED, FOLDED, INTERLEAVED, LABELS, PLAIN
from sweeps.engine.evaluate import FoldedValues
from sweeps.engine.grid import Array, LabelCase, Picking, cut
from sweeps.engine.program import Program
from sweeps.engine.validity import DOES_NOT_FIT, training_faults
from sweeps.errors import InputError, fault
from sweeps.origin import assumed
from sweeps.search.request import (
    CHOICES,
    DEGREES,
    MODULE_CHOICES,
    Columns,
    Execution,
    Habits,
    Point,
    every_split,
    habits_of,
    num_micro_batches,
    pipeline_layers,
    virtual_pipeline_size,
)
from sweeps.search.rows import AGAIN, Rows, near_rows, rows_of
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import (
    find_preset,
    load_framework,
    load_hardware,
    load_model,
    usual_framework,
)
from sweeps.spec.framework import among_all
from sweeps.spec.known import unknown_settings
from sweeps.spec.model import complete_shapes
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.sweep import Sweep

FULL = "fuller_than_the_threshold"
SHARE = "recomputed_fraction"
UNSUPPORTED = "not_in_the_framework"

# Settings without effect make a plan that is there already.
REPEATED = (
    Requirement(
        AGAIN,
        "sequence parallelism needs tp above 1",
        lambda tp, sequence_parallel: (tp > 1.0) | (sequence_parallel == 0.0),
    ),
    Requirement(
        AGAIN,
        "ZeRO needs ranks of equal weights to shard over",
        lambda dp, cp, tp, ep, etp, zero_stage, experts: (
            (dp * cp > 1.0) | (zero_stage == 0.0) | ((experts > 0.0) & (tp * cp * dp > etp * ep))
        ),
    ),
)
REPEATED_TEXT = "; ".join(
    (
        *(requirement.text for requirement in REPEATED),
        "interleaving needs pp above 1",
        "a block of all layers is full recomputation",
        "modules are of selective recomputation",
    )
)
# Labels that say nothing where a degree is 1: one of them is enough.
NAMELESS = {"schedule": "pp", "context_parallel": "cp"}
# Of shares of communication that hide, one is enough where there is nothing to hide.
HIDING = {
    "tp_overlap": ("tp",),
    "cp_overlap": ("cp",),
    "ep_overlap": ("ep",),
    "dp_overlap": ("dp", "cp"),
}
# What a framework, or an option of it, refuses of what a search varies.
REFUSED: Mapping[str, tuple[Requirement, ...]] = {
    "megatron-lm": (
        Requirement(
            UNSUPPORTED,
            "Megatron-LM interleaves no stages that Megatron-FSDP shards (ZeRO 2 and 3)",
            lambda zero_stage, virtual_pipeline_size: (
                (zero_stage < 2.0) | (virtual_pipeline_size == 1.0)
            ),
        ),
    ),
    "megatron-lm+ep_overlap": (
        Requirement(
            UNSUPPORTED,
            "Megatron-LM overlaps experts' communication of several stages only where these are"
            " interleaved",
            lambda pp, virtual_pipeline_size: (pp == 1.0) | (virtual_pipeline_size > 1.0),
        ),
    ),
    "megatron-lm+muon": (
        Requirement(
            UNSUPPORTED,
            "Megatron-FSDP (ZeRO 2 and 3) takes no muon",
            lambda zero_stage: zero_stage < 2.0,
        ),
    ),
}


class Limits:
    """What decides, beside the conditions on a plan, whether it counts."""

    def __init__(self, plan: Program, threshold: float, framework: str) -> None:
        self.plan, self.threshold = plan, threshold
        name, *options = framework.split("+")
        of = (name, *(f"{name}+{option}" for option in options))
        self._rules = (*REPEATED, *(rule for library in of for rule in REFUSED.get(library, ())))
        first = 1 << len(plan.faults.texts)
        codes = {FULL: first, AGAIN: first << 1, UNSUPPORTED: first << 2}
        self.bits: dict[str, int] = {**plan.faults.bits, **codes}
        self.masking = plan.faults.masking("step_time") | sum(codes.values())
        self.of_memory = self.bits[DOES_NOT_FIT] | self.bits[FULL]
        refused = "; ".join(r.text for r in self._rules if r.fault == UNSUPPORTED)
        self.texts: dict[str, str] = {
            **plan.faults.texts,
            FULL: f"peak memory above {threshold:.4g} of the GPU memory",
            AGAIN: REPEATED_TEXT,
            UNSUPPORTED: refused or "the framework must be able to run it",
        }
        self._known = {rule: given for rule in self._rules if (given := self._given(rule))}
        self._idle = tuple(self._hiding())
        self._aside = {*HIDING}.difference(*(rule.inputs for rule in self._known))
        self._modules = tuple(self._chosen())
        self._first: dict[str, str] = {}
        for case in sorted(plan.cases, key=lambda case: case.labels["schedule"] != PLAIN):
            for name in NAMELESS:
                if case.labels[name] not in CHUNKED:
                    self._first.setdefault(name, case.labels[name])
        self._capacity = plan.grid.columns["memory_capacity"]
        # A block of all layers is there already where all can be recomputed.
        self.blocks = {case.labels["recompute"] for case in plan.cases} >= {"block", "full"}

    def _given(self, rule: Requirement) -> dict[str, Array] | None:
        """Return what a rule looks at, on the open grid; None where it isn't there."""
        columns = dict(self.plan.grid.columns)
        columns.setdefault("etp", columns["tp"])
        inputs = {name: columns[name] for name in rule.inputs if name in columns}
        return inputs if len(inputs) == len(rule.inputs) else None

    def _hiding(self) -> Iterator[tuple[Array, Array]]:
        """Yield where nothing is sent that could hide, and which shares say so again."""
        columns = self.plan.grid.columns
        for name, degrees in HIDING.items():
            if name in self.plan.grid.names:
                ranks = columns[degrees[0]]
                for degree in degrees[1:]:
                    ranks = ranks * columns[degree]
                yield ranks == 1.0, columns[name] > columns[name].min()

    def _chosen(self) -> Iterator[tuple[str, Array]]:
        """Yield under which recomputation modules that vary make a plan that is there already."""
        columns = self.plan.grid.columns
        varied = [name for name in MODULE_CHOICES if name in self.plan.grid.names]
        kinds = {case.labels["recompute"] for case in self.plan.cases}
        for name in varied:
            yield "others", columns[name] > columns[name].min()
        if varied and kinds & {"none", "block"}:
            every = [columns[name] for name in MODULE_CHOICES if name in columns]
            yield "selective", np.asarray(sum(every) == 0.0)

    def bits_at(
        self, region: Picking, labels: Mapping[str, str], status: Array, peak_memory: Array
    ) -> NDArray[np.int64]:
        """Return why plans don't count, over a region, whatever hides of their communication."""
        capacity = cut(self._capacity, region)
        fits = (status & self.bits[DOES_NOT_FIT]) == 0
        full = fits & (peak_memory > self.threshold * capacity)
        codes = (status & self.masking) | np.where(full, self.bits[FULL], 0)
        for rule, columns in self._known.items():
            holds = rule.holds(**{name: cut(v, region) for name, v in columns.items()})
            if not np.all(holds):
                codes = codes | np.where(holds, 0, self.bits[rule.fault])
        for name, degree in NAMELESS.items():
            if labels[name] not in (*CHUNKED, self._first.get(name)):
                alone = cut(self.plan.grid.columns[degree], region) == 1.0
                codes = codes | np.where(alone, self.bits[AGAIN], 0)
        selective = "selective" if labels["recompute"] == "selective" else "others"
        for kind, again in self._modules:
            if kind == selective:
                codes = codes | np.where(cut(again, region), self.bits[AGAIN], 0)
        return np.asarray(codes, dtype=np.int64)

    def repeated(self, region: Picking) -> NDArray[np.bool_] | None:
        """Return where what hides of nothing makes a plan that is there already; None: nowhere."""
        parts = ((idle, cut(again, region)) for idle, again in self._idle)
        masks = [cut(idle, region) & again for idle, again in parts if again.any()]
        where = reduce(np.logical_or, masks) if masks else None
        return where if where is not None and where.any() else None

    def deciding(self, nodes: Iterable[Node]) -> tuple[int, ...]:
        """Return the axes along which `bits_at` may differ, where it is told of some nodes."""
        dims = frozenset[str]().union(*(node.dims for node in nodes))
        return tuple(
            at
            for at, name in enumerate(self.plan.grid.names)
            if name in dims or name not in self._aside
        )

    def reasons(self, bits: int) -> dict[str, str]:
        """Return the reasons of some bits, with what must hold."""
        return {name: self.texts[name] for name, bit in self.bits.items() if bits & bit}


# The space of a search: every split of the GPUs, times all ways to run it, as a grid.

# More than this are a slip of the pen: they would take an hour.
MOST_CELLS = 4 * 10**9
# The axis of splits with their chunks and micro-batches.
PLAN = "plan"
# Rows from which it pays to look for those that are the same to a quantity
MANY_ROWS = 1 << 12
IN_ROWS = (*DEGREES, "virtual_pipeline_size", "micro_batch_size")


@frozen()
class Space:
    """All plans of one point."""

    point: Point  # The question
    rows: Rows  # Splits with chunks and micro-batches that can be, and why others can't
    resolved: Resolved  # With all constants
    plan: Program | None  # The graph on the grid of plans; None where no row is left
    limits: Limits | None  # What decides beside the model which plans count
    choices: Mapping[str, NDArray[Any]]  # What varies, and over what

    @property
    def cases(self) -> Sequence[LabelCase]:
        """The sets of labels of its plans; its program may have others, by which it bounds them."""
        kinds = {*map(str, self.choices["recompute"])}
        every = self.plan.cases if self.plan else ()
        return [case for case in every if case.labels["recompute"] in kinds]

    @cached_property
    def folds(self) -> FoldedValues | None:
        """What is computed once for many rows; None where rows are few."""
        several = self.plan is not None and len(self.rows) > MANY_ROWS
        return FoldedValues(self.plan.grid, PLAN) if several and self.plan else None

    @property
    def ways(self) -> int:
        """In how many ways each row can be run, under one schedule."""
        fixed = (*IN_ROWS, "schedule")
        sizes = [len(values) for name, values in self.choices.items() if name not in fixed]
        return int(np.prod(sizes, dtype=object))

    @property
    def texts(self) -> Mapping[str, str]:
        """What must hold of a plan, by the name of the reason why it falls where it doesn't."""
        if self.limits is not None:
            return self.limits.texts
        return {**training_faults().texts, AGAIN: REPEATED_TEXT}

    @property
    def cells(self) -> int:
        """All plans, those that can't be among them."""
        return self.ways * self.rows.all


def space_of(point: Point) -> Space:
    """Span the space of a point."""
    return spanned(point, common_of(point), splits_of(point, shapes_of(point)))


Common = tuple[dict[str, float], dict[str, str], Resolved]


def splits_of(
    point: Point,
    shapes: Mapping[str, float],
    degrees: Mapping[str, NDArray[np.float64]] | None = None,
) -> Columns:
    """Return every split of the GPUs that the point allows, of all degrees or of some."""
    limits = {name: values for name, values in point.choices.items() if name in DEGREES}
    for name, values in (degrees or {}).items():
        limits[name] = values[np.isin(values, limits[name])] if name in limits else values
    return every_split(point.world_size, limits, experts=shapes.get("experts", 0.0) > 0.0)


def spanned(
    point: Point,
    known: Common,
    splits: Columns,
    near: Callable[[NDArray[np.float64]], NDArray[np.bool_]] | None = None,
) -> Space:
    """Span the space of some splits, from what all plans have in common.

    Where it is said which splits are `near` with which micro-batches, those alone, and how many
    others fall isn't counted.
    """
    constants, labels, common = known
    framework = common.labels["framework"]
    choices = choices_of(point, common, splits)
    constants = constants | preset_modules(point, common)[1]
    micro_batches = choices["micro_batch_size"]
    combined = (
        splits,
        choices["virtual_pipeline_size"],
        micro_batches,
        {**common.constants, **constants},
        labels_of_all(common),
        [str(schedule) for schedule in choices["schedule"]],
    )
    rows = rows_of(*combined) if near is None else near_rows(*combined, near(micro_batches))
    _check_size(rows, choices)
    if not len(rows):
        return Space(point, rows, common, None, None, choices)
    kinds = choices["recompute"]
    if near is not None and "block" in kinds and "none" not in kinds:
        # Recomputing nothing bounds the others, and needs no memory to be known.
        kinds = np.array([*kinds, "none"])
    axes, numbers, names = axes_of({**choices, "recompute": kinds}, rows)
    sweep = Sweep(
        "", axes=tuple(axes), constants={**constants, **numbers}, labels={**labels, **names}
    )
    resolved = _with_origins(resolve(sweep, point.folders), point)
    plan = _graph(resolved, point)
    limited = Limits(plan, point.threshold, framework)
    return Space(point, rows, resolved, plan, limited, choices)


def choices_of(point: Point, common: Resolved, splits: Columns) -> dict[str, NDArray[Any]]:
    """Return what the plans of some splits vary, and over what."""
    habits = habits_of(common.labels["framework"], common.labels["attention_kernel"])
    others = {name: v for name, v in point.choices.items() if name not in DEGREES}
    preset, _ = preset_modules(point, common)
    free = free_choices(point, shapes_of(point), splits, habits)
    return _agreeing({**free, **preset, **others})


def preset_modules(
    point: Point, common: Resolved
) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    """Return what a preset recomputes where it names modules; else the search decides."""
    named = "preset" in point.labels and common.labels.get("recompute") == "selective"
    if not named or {"recompute", *MODULE_CHOICES} & {*point.choices, *point.labels}:
        return {}, {}
    modules = {name: common.constants[name] for name in MODULE_CHOICES if name in common.constants}
    return {"recompute": np.array(["selective"])}, modules


def shapes_of(point: Point) -> dict[str, float]:
    """Return the shapes of the model, completed."""
    if "model" in point.labels:
        return load_model(point.labels["model"], point.folders).shapes
    given = dict(point.constants)
    return {**given, **{name: value for name, (value, _) in complete_shapes(given).items()}}


def common_of(point: Point) -> Common:
    """Return what all plans have in common, and what follows from it."""
    labels = dict(point.labels)
    machine = load_hardware(labels.get("hardware", LABELS["hardware"].default), point.folders)
    if "preset" not in labels:
        labels.setdefault("framework", str(usual_framework(machine).value))
    framework = load_framework(_base(labels, point), point.folders)
    if "context_parallel" in framework.choices and "context_parallel" not in point.choices:
        way = framework.choices["context_parallel"].value
        labels["context_parallel"] = among_all(way, shapes_of(point).get("index_heads", 0.0))
    constants = dict(point.constants)
    # A plan says itself what is recomputed.
    unknown = unknown_settings((*point.labels, *CHOICES))
    constants.setdefault("unknown_settings", float(len(unknown)))
    constants.setdefault("target_memory_fraction", point.threshold)
    kinds = point.choices.get("context_parallel")
    some = {} if kinds is None else {"context_parallel": str(kinds[0])}
    once = resolve(Sweep("", constants=constants, labels={**labels, **some}), point.folders)
    return constants, labels, once


def _base(labels: Mapping[str, str], point: Point) -> str:
    """Return the framework that is given, or a preset's."""
    return labels.get("framework") or find_preset(labels["preset"], "", point.folders).framework


def _with_origins(resolved: Resolved, point: Point) -> Resolved:
    """Say of what was decided here, rather than given, where it comes from."""
    origins = {
        "framework": "the default",
        "context_parallel": f"the default of {resolved.labels.get('framework', '')}",
        "sharding": "the ranks of a shard are given",
        "unknown_settings": "settings that aren't given",
        "target_memory_fraction": "the threshold of memory",
    }
    values = {**resolved.constants, **resolved.labels}
    asked = {*point.labels, *point.constants, *point.choices}
    new = {
        name: (assumed(values.get(name), why),)
        for name, why in origins.items()
        if name not in asked
    }
    return replace(resolved, origins={**new, **resolved.origins})


def labels_of_all(common: Resolved) -> dict[str, str]:
    """Return the labels that hold for every plan, for the conditions on it."""
    # The stage of ZeRO, which mechanisms ask for, varies, too
    free = ("recompute", "schedule", "dp_mechanism")
    kept = {name: label for name, label in common.labels.items() if name not in free}
    return following({**kept, **common.implied}, common.constants)


def free_choices(
    point: Point, shapes: Mapping[str, float], splits: Columns, habits: Habits
) -> dict[str, NDArray[Any]]:
    """Return what plans may vary where the user says nothing."""
    stages = sorted({int(pp) for pp in splits["pp"].tolist()})
    pipelined = max(stages) > 1 and not {*CHUNKED}.isdisjoint(habits.schedules)
    schedules = habits.schedules if max(stages) > 1 else habits.schedules[:1]
    chunks = virtual_pipeline_size(int(pipeline_layers(shapes)), stages) if pipelined else (1,)
    switch = (0.0, 1.0) if float(splits["tp"].max()) > 1.0 else (0.0,)
    return {
        "micro_batch_size": np.array(
            num_micro_batches(point.constants["global_batch_size"]), dtype=float
        ),
        "virtual_pipeline_size": np.array(chunks, dtype=float),
        "zero_stage": np.array(habits.zero_stages, dtype=float),
        "sequence_parallel": np.array(switch),
        "recompute": np.array(habits.recompute),
        "schedule": np.array(schedules),
    }


def _agreeing(choices: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Leave out schedules that none of the chunks allowed suits."""
    chunks = choices["virtual_pipeline_size"]
    kept = [str(name) for name in choices["schedule"] if _has_chunks(name, chunks).any()]
    if not kept:
        text = ",".join(f"{value:g}" for value in chunks)
        wrong = f"doesn't go with schedule {', '.join(map(str, choices['schedule']))}"
        allowed = "1, more with schedule interleaved, or 2 with a folded one"
        raise InputError(fault("virtual_pipeline_size", text, wrong, allowed))
    return {**choices, "schedule": np.array(kept)}


def _has_chunks(schedule: str, chunks: NDArray[Any]) -> NDArray[Any]:
    """Return which numbers of chunks suit a schedule."""
    if schedule in FOLDED:
        return chunks == 2.0
    return (chunks > 1.0) if schedule in CHUNKED else (chunks == 1.0)


def axes_of(
    choices: Mapping[str, NDArray[Any]], rows: Rows
) -> tuple[Sequence[Axis], dict[str, float], dict[str, str]]:
    """Make axes of what varies, and constants and labels of what doesn't."""
    axes = [Axis(PLAN, rows.columns)]
    numbers: dict[str, float] = {}
    labels: dict[str, str] = {}
    for name, values in choices.items():
        if name in IN_ROWS:
            continue
        if len(values) > 1:
            axes.append(Axis(name, {name: values}))
        elif values.dtype.kind in "UO":
            labels[name] = str(values[0])
        else:
            numbers[name] = float(values[0])
    return axes, numbers, labels


def _graph(resolved: Resolved, point: Point) -> Program:
    objective = point.objective
    wanted = dict.fromkeys(
        ("step_time", "peak_memory", SHARE, objective.quantity, objective.second)
    )
    return Program.of_sweep(resolved, tuple(wanted))


def recomputing_only_adds(cases: Iterable[LabelCase]) -> bool:
    """Whether a step that recomputes nothing is the shortest, all else the same.

    Not where weights' gradients fill a bubble, nor where saved activations go to the host.
    """
    return all(
        case.labels["schedule"] in (PLAIN, INTERLEAVED) and case.labels.get("stashing") != "host"
        for case in cases
    )


def _check_size(rows: Rows, choices: Mapping[str, NDArray[Any]]) -> None:
    others = {name: len(v) for name, v in choices.items() if name not in IN_ROWS}
    cells = len(rows) * int(np.prod(list(others.values()), dtype=object))
    if cells > MOST_CELLS:
        sizes = " x ".join(f"{name} {size}" for name, size in {PLAN: len(rows), **others}.items())
        allowed = f"{MOST_CELLS:,} at most: limit some of the choices"
        raise InputError(fault("choices", sizes, f"{cells:,} plans", allowed))


def executions_at(
    space: Space,
    cells: NDArray[np.int64],
    known: Mapping[str, NDArray[np.float64]] | None = None,
) -> tuple[Execution, ...]:
    """Return the plans at places of the grid (flat indices, in C order)."""
    if space.plan is None or not len(cells):
        return ()
    grid = space.plan.grid
    index = np.unravel_index(cells, grid.shape)
    columns = {
        name: np.broadcast_to(
            values[
                tuple(
                    at if length > 1 else 0 for at, length in zip(index, values.shape, strict=True)
                )
            ],
            len(cells),
        ).tolist()
        for name, values in grid.columns.items()
    }
    labels = [
        dict(case.labels)
        for at in zip(*(column.tolist() for column in index), strict=True)
        for case in space.plan.cases
        if all(part.start == at[position] for position, part in case.fixed.items())
    ]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    values = {name: values_of.tolist() for name, values_of in (known or {}).items()}
    return tuple(
        Execution(given, label, {name: column[number] for name, column in values.items()})
        for number, (given, label) in enumerate(zip(rows, labels, strict=True))
    )
