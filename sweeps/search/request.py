"""What a search may vary, and what it varies where nothing is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.completion import needed_shapes
from overhead.frozen import frozen
from overhead.memory.quantities import MODULES
from sweeps.bands import MEMORY_LIMIT
from sweeps.errors import InputError, fault, nearest, needs, refuse, tell_all
from sweeps.measured_step import CLOCK, MEASURED_STEP, is_to_be_fitted
from sweeps.origin import Origin, assumed, once
from sweeps.spec.axis import Axis, divisors, every_plan
from sweeps.spec.catalog import load_model
from sweeps.spec.names import names_of
from sweeps.spec.sweep import Sweep, read_sweep

# How the GPUs are cut; what the first three leave of them is data-parallel.
DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp")
# How a split is run, as far as people choose it.
NUMBER_CHOICES = ("micro_batch_size", "virtual_pipeline_size", "zero_stage", "sequence_parallel")
OVERLAPS = ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap", "hsdp_shard_size")
LABEL_CHOICES = ("recompute", "schedule", "context_parallel")
# Which modules of a layer selective recomputation repeats.
MODULE_CHOICES = tuple(f"recompute_{name}" for name in MODULES)
# What is searched where nothing is said of it; of the others what software has by default is taken.
SEARCHED = (*DEGREES, *NUMBER_CHOICES, "recompute", "schedule")
CHOICES = (*DEGREES, *NUMBER_CHOICES, *OVERLAPS, *LABEL_CHOICES, *MODULE_CHOICES)

# Other names by which people know quantities of a plan, beside those of all quantities.
ALIASES = {
    "batch_size": "global_batch_size",
    "memory": "memory_capacity",
    "zero": "zero_stage",
    "v": "virtual_pipeline_size",
    "mb": "micro_batch_size",
}
SHORT = {
    "micro_batch_size": "b",
    "virtual_pipeline_size": "v",
    "zero_stage": "ZeRO",
    "sequence_parallel": "sp",
}

# Chunks of a stage that are tried even if no divisor of the layers: stages may be uneven.
FEW_CHUNKS = (2, 3, 4)


@frozen(slots=True)
class Habits:
    """What a framework can do, of what a search varies."""

    zero_stages: tuple[int, ...] = (0, 1, 2, 3)  # Stages of ZeRO
    recompute: tuple[str, ...] = ("none", "full")  # What can be recomputed
    schedules: tuple[str, ...] = ("one_f_one_b", "interleaved")  # Schedules of a pipeline
    no_layers: tuple[str, ...] = ()  # Options with which no whole layers can be recomputed
    losses: tuple[str, ...] = ("liger",)  # Those that keep few logits


# Megatron-LM's Megatron-FSDP is ZeRO 2 and 3, its distributed optimizer ZeRO 1.  torchtitan shards
# fully, or keeps what it gathered (2).  DeepSpeed's pipeline isn't interleaved.
# Of Megatron's layers as few are recomputed as fit, none among them; beside graphs of modules and
# overlapped experts its configuration refuses whole layers (transformer_config.py @d98e8a64dd).
HABITS: Mapping[str, Habits] = {
    "megatron-lm": Habits(
        recompute=("block", "full"),
        no_layers=("ep_overlap", "graphs_attention", "graphs_mixers", "graphs_router"),
        losses=("fused", "cut_cross_entropy"),
    ),
    "torchtitan": Habits(
        (2, 3),
        ("none", "per_op", "full"),
        ("one_f_one_b", "interleaved", "zero_bubble_v"),
        losses=("chunked", "liger"),
    ),
    "maxtext": Habits(losses=("vocab_tiling",)),
    "deepspeed": Habits(schedules=("one_f_one_b",)),
    "fms-fsdp": Habits((3,), schedules=("one_f_one_b",)),
    "fsdp-llmfoundry": Habits((3,), schedules=("one_f_one_b",)),
}


def habits_of(framework: str, attention_kernel: str) -> Habits:
    """Return what a framework can do."""
    name, *options = framework.split("+")
    known = HABITS.get(name, Habits())
    if set(options) & set(known.no_layers):
        known = replace(known, recompute=("none",))
    if attention_kernel != "unfused":
        return known
    several = (known.recompute[0], "selective", *known.recompute[1:])
    return replace(known, recompute=several)


def num_micro_batches(global_batch_size: float) -> tuple[int, ...]:
    """Return the micro-batches that any number of data-parallel ranks leaves possible."""
    whole = float(global_batch_size).is_integer()
    return divisors(int(global_batch_size), "global_batch_size") if whole else (1,)


def virtual_pipeline_size(layers: int, stages: Iterable[int]) -> tuple[int, ...]:
    """Return the numbers of chunks into which a stage may be cut."""
    several: Sequence[int] = [count for count in stages if count > 1]
    most = layers // min(several) if several else 1
    known = {*divisors(layers), *divisors(layers + 2), *FEW_CHUNKS}
    return tuple(k for k in sorted(known) if k == 1 or k <= most)


# Every split of a number of GPUs into degrees.

Columns = dict[str, NDArray[np.float64]]


def every_split(
    world_size: int, limits: Mapping[str, NDArray[np.float64]], *, experts: bool
) -> Columns:
    """Enumerate the splits of a number of GPUs."""
    names = ("tp", "cp", "pp", *(("ep",) if experts else ()))
    of_experts = [] if experts else [name for name in ("ep", "etp") if name in limits]
    allowed = "leave it out, or a model with experts"
    tell_all(
        [
            fault(name, _listed(limits[name]), "the model has no experts", allowed)
            for name in of_experts
            if 1.0 not in limits[name]
        ]
    )
    bounds = {name: values for name, values in limits.items() if name in names}
    try:
        columns = every_plan(names, {**bounds, "world_size": np.array([float(world_size)])})
    except InputError as error:
        raise InputError(_contradiction(world_size, limits) or error.faults) from None
    if "dp" in limits:
        columns = _rows(columns, np.isin(columns["dp"], limits["dp"]))
    if experts:
        columns = _with_etp(columns, limits.get("etp"))
    if not len(columns["dp"]):
        raise InputError(_contradiction(world_size, limits))
    return columns


def _listed(values: NDArray[np.float64]) -> str:
    return ",".join(f"{value:g}" for value in values)


def _contradiction(world_size: int, limits: Mapping[str, NDArray[np.float64]]) -> list[str]:
    """Say that the degrees that are allowed never make up the GPUs."""
    texts = {
        name: _listed(limits[name])
        for name in ("tp", "cp", "pp", "dp", "ep", "etp")
        if name in limits
    }
    if not texts:
        return []
    alone = len(texts) == 1 and "," not in "".join(texts.values())
    wrong = (
        f"does not divide {world_size} GPUs"
        if alone
        else f"no layout of {world_size} GPUs has these degrees"
    )
    divisors = [str(divisor) for divisor in range(1, world_size + 1) if world_size % divisor == 0]
    allowed = f"use {', '.join(divisors[:4])}" + ", .." * (len(divisors) > 4)
    return [fault([*texts], tuple(texts.values()), wrong, allowed)]


def _rows(columns: Columns, kept: NDArray[np.bool_]) -> Columns:
    return {name: values[kept] for name, values in columns.items()}


def _with_etp(columns: Columns, allowed: NDArray[np.float64] | None) -> Columns:
    """Add the experts' own tensor parallelism: each row once for each degree."""
    if allowed is None:
        whole = {**columns, "etp": np.ones_like(columns["tp"])}
        like = _rows({**columns, "etp": columns["tp"].copy()}, columns["tp"] > 1.0)
        parts = [whole, like]
    else:
        parts = [{**columns, "etp": np.full_like(columns["tp"], value)} for value in allowed]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# What plans are ranked by.


@frozen(slots=True)
class Objective:
    """What plans are ranked by."""

    name: str  # What users call it
    quantity: str  # The quantity
    # What decides between equals, and what the Pareto front lays beside it: less is better
    second: str = "peak_memory"
    more: bool = False  # Whether more of the quantity is better
    words: str = ""  # What is best, in words
    timed: bool = True  # Whether it follows from the step's time, which is predicted with an error


OBJECTIVES: dict[str, Objective] = {
    entry.name: entry
    for entry in (
        Objective("time", "step_time", words="the shortest step"),
        Objective("memory", "peak_memory", "step_time", words="the least memory", timed=False),
        Objective("energy", "step_energy", words="the least energy of a step"),
        Objective("cost", "cost_per_trillion_tokens", words="the least cost of tokens"),
        Objective("tokens", "tokens_per_second_per_gpu", more=True, words="the most tokens a GPU"),
    )
}


def objective_of(name: str) -> Objective:
    """Return an objective by its name, or by its quantity's."""
    for objective in OBJECTIVES.values():
        if name in (objective.name, objective.quantity):
            return objective
    known = (*OBJECTIVES, *(entry.quantity for entry in OBJECTIVES.values()))
    raise InputError(fault("objective", name, "unknown", nearest(name, known)))


# What is asked: a model, a machine, a batch; what plans may vary; at which points.

# Of the memory, as the strategy calculator has it: fuller ones lose time to the allocator.
DEFAULT_THRESHOLD = MEMORY_LIMIT
# What nobody can do without, with the number that a person would give.
NEEDED = {
    "world_size": "a number of GPUs, such as 64",
    "global_batch_size": "sequences of a step, such as 512",
    "sequence_length": "tokens of a sequence, such as 4096",
}
# What a search decides by itself, so that it can't be given.
DERIVED = ("num_micro_batches",)

Values = Mapping[str, NDArray[Any]]


@frozen()
class Point:
    """One question: everything has one value but what plans may vary."""

    constants: Mapping[str, float]  # Quantities that are given
    labels: Mapping[str, str]  # Labels that are given
    choices: Values  # What the user says of what plans may vary: the values allowed
    objective: Objective  # What plans are ranked by
    threshold: float = DEFAULT_THRESHOLD  # The share of a GPU's memory that a plan may take
    folders: tuple[Path, ...] = ()  # The user's own folders of machines
    # Its values along the axes of the request
    coordinates: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """The GPUs."""
        return int(self.constants["world_size"])

    def with_constants(self, **changed: float) -> Point:
        """Return the point with other quantities."""
        return replace(self, constants={**self.constants, **changed})

    def with_choices(self, **changed: Sequence[Any] | None) -> Point:
        """Return the point with other choices; None lifts what was said of one."""
        kept = {name: values for name, values in self.choices.items() if name not in changed}
        new = {name: np.asarray(v) for name, v in changed.items() if v is not None}
        return replace(self, choices={**kept, **new})


@frozen()
class Request:
    """A question, at one point or at many."""

    first: Point  # The question at the first point
    axes: tuple[Axis, ...] = ()  # What varies from point to point
    batch_tokens: float | None = None  # Tokens of a step, where these say how large a batch is
    # How many tokens a sequence has where that isn't given, once for each model; none where it is
    lengths: tuple[Origin, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """How many points there are along each axis."""
        return tuple(len(axis) for axis in self.axes)

    def points(self) -> Iterator[Point]:
        """Yield the points, in C order."""
        for index in product(*(range(len(axis)) for axis in self.axes)):
            constants, labels = dict(self.first.constants), dict(self.first.labels)
            coordinates: dict[str, float | str] = {}
            for axis, at in zip(self.axes, index, strict=True):
                for name, values in axis.columns.items():
                    if values.dtype.kind in "UO":
                        labels[name] = coordinates[name] = str(values[at])
                    else:
                        constants[name] = coordinates[name] = float(values[at])
            tokens = constants.pop("tokens_per_step", self.batch_tokens)
            if tokens is not None:
                constants["global_batch_size"] = sequences_of(tokens, constants["sequence_length"])
            yield replace(self.first, constants=constants, labels=labels, coordinates=coordinates)


def sequences_of(tokens: float, length: float) -> float:
    """Return the sequences of a batch of so many tokens, or refuse one that isn't whole."""
    batch = tokens / length
    if batch.is_integer():
        return batch
    few = max(int(batch), 1)
    near = " or ".join(f"{count * length:,.0f} ({count})" for count in (few, few + 1))
    wrong = f"{batch:,.4g} sequences of {length:,.0f}, and only whole ones can be"
    raise InputError(fault("tokens_per_step", f"{tokens:,.0f}", wrong, f"{near}, for example"))


def read_request(
    given: Mapping[str, Any],
    *,
    objective: str = "time",
    threshold: float = DEFAULT_THRESHOLD,
    folders: Sequence[Path] = (),
    usual_length: float | None = None,
) -> Request:
    """Check what is asked.

    Sequences that aren't given are as long as the model's publication says, or the usual ones.
    """
    named = {ALIASES.get(name, name): value for name, value in given.items()}
    faults = [
        fault(name, str(named[name]), "follows from the plan", "leave it out")
        for name in DERIVED
        if name in named
    ]
    faults += [
        fault(
            name,
            str(given[name]),
            f"stands beside {alias} = {given[alias]}, which is the same",
            "one of the two",
        )
        for name, alias in ALIASES.items()
        if {name, alias} <= given.keys() and given[name] != given[alias]
    ]
    if not 0.0 < threshold <= 1.0:
        allowed = "a share of the memory above 0, up to 1"
        faults.append(fault("memory_threshold", f"{threshold:g}", "is not a share", allowed))
    if faults:
        raise InputError(faults)
    asked, chosen = _read(named, folders), objective_of(objective)
    if is_to_be_fitted(asked):
        allowed = f"{CLOCK} beside it, as analysis of what was measured prints it"
        raise InputError(needs(MEASURED_STEP, "the clock that it tells", allowed))
    sweep, lengths = _with_length(asked, folders, usual_length)
    _check(sweep)
    point, axes = _split(sweep)
    prices = [axis.columns.get("gpu_hour_price", ()) for axis in axes]
    if chosen.name == "cost" and 0.0 in (point.constants.get("gpu_hour_price"), *chain(*prices)):
        refuse("gpu_hour_price", 0, "makes all plans cost the same", "a price above 0")
    return Request(
        replace(point, objective=chosen, threshold=threshold, folders=tuple(folders)),
        axes,
        sweep.constants.get("tokens_per_step"),
        lengths,
    )


def _with_length(
    sweep: Sweep, folders: Sequence[Path], usual: float | None
) -> tuple[Sweep, tuple[Origin, ...]]:
    """Return a sweep with sequences as long as its models' publications say, and their origins."""
    if "sequence_length" in sweep.given:
        return sweep, ()
    axis = next((candidate for candidate in sweep.axes if "model" in candidate.columns), None)
    names = [sweep.labels.get("model", "")] if axis is None else axis.columns["model"].tolist()
    lengths = [_length_of(str(name), folders, usual) for name in names]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths):
        return sweep, ()
    values = np.array([float(length.value) for length in known])
    if axis is None or np.all(values == values[0]):
        constants = {**sweep.constants, "sequence_length": float(values[0])}
        return replace(sweep, constants=constants), once(known)
    longer = Axis(axis.name, {**axis.columns, "sequence_length": values})
    axes = tuple(longer if candidate is axis else candidate for candidate in sweep.axes)
    return replace(sweep, axes=axes), once(known)


def _length_of(model: str, folders: Sequence[Path], usual: float | None) -> Origin | None:
    """Return how long a model's sequences are, as its publication says, or the usual length."""
    known = load_model(model, folders).published("sequence_length") if model else None
    if known is None and usual is not None:
        known = assumed(usual)
    return known


def _read(named: Mapping[str, Any], folders: Sequence[Path]) -> Sweep:
    axes: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, value in named.items():
        many = isinstance(value, list | Mapping) or (
            isinstance(value, str) and ("," in value or ":" in value or value.strip() == "all")
        )
        (axes if many else constants)[name] = value
    spec: dict[str, Any] = {"title": "Parallel plans", "quantities": ["step_time"]}
    spec |= {"axes": axes} if axes else {}
    spec |= {"constants": constants} if constants else {}
    return read_sweep(spec, bare_is_si=True, folders=folders)


def _check(sweep: Sweep) -> None:
    """Refuse a question that lacks what it can't do without."""
    tokens = {"global_batch_size"} if "tokens_per_step" in sweep.given else set()
    faults = [
        needs("a plan", allowed, names_of(name)[0])
        for name, allowed in NEEDED.items()
        if name not in sweep.given | tokens
    ]
    if tokens & sweep.given:
        wrong = "stands beside tokens_per_step"
        faults.append(fault("global_batch_size", "..", wrong, "one of the two"))
    lacking = [name for name in needed_shapes(sweep.given) if name not in sweep.given]
    if "model" in sweep.given and "parameters" in sweep.given:
        wrong = "can't be given with a model, whose shapes give it"
        faults.append(fault("parameters", "..", wrong, "one of the two"))
    elif "model" not in sweep.given and lacking:
        what = "a model's shapes"
        if "parameters" in sweep.given:
            what += ", which a number of parameters doesn't have"
        give = f"model, of the catalog or a config.json, or {', '.join(lacking)}"
        faults.append(needs("the time of a plan", what, give))
    if faults:
        raise InputError(faults)


def _split(sweep: Sweep) -> tuple[Point, tuple[Axis, ...]]:
    """Take apart what plans may vary, what is the same, and what varies from point to point."""
    choices: dict[str, NDArray[Any]] = {}
    axes = []
    for axis in sweep.axes:
        names = [name for name in axis.columns if name in CHOICES]
        if names and list(axis.columns) == names == [axis.name]:
            choices[axis.name] = axis.columns[axis.name]
        elif names:
            wrong = "is a choice of plans, and can't be a column of a table"
            raise InputError([fault(name, "..", wrong, "an argument of its own") for name in names])
        else:
            axes.append(axis)
    constants, labels = dict(sweep.constants), dict(sweep.labels)
    for name in CHOICES:
        if name in constants:
            choices[name] = np.array([constants.pop(name)])
        elif name in labels:
            choices[name] = np.array([labels.pop(name)])
    point = Point(constants, labels, choices, objective_of("time"))
    if "forward_only" in choices.get("schedule", ()):
        wrong = "has no backward: it is none of training"
        raise InputError(fault("schedule", "forward_only", wrong, "another schedule"))
    first = next(Request(point, tuple(axes), constants.get("tokens_per_step")).points())
    return replace(first, coordinates={}), tuple(axes)


# One plan: a split of the GPUs and the way it is run.

SCHEDULES = {
    "one_f_one_b": "1F1B",
    "interleaved": "interleaved",
    "gpipe": "GPipe",
    "zero_bubble_h1": "ZB-H1",
    "zero_bubble_h2": "ZB-H2",
    "zero_bubble_v": "ZB-V",
    "v_half": "V-half",
    "v_min": "V-min",
    "dual_pipe": "DualPipe",
    "dual_pipe_v": "DualPipeV",
}


def pipeline_layers(given: Mapping[str, float]) -> float:
    """Return the layers that a pipeline cuts into stages."""
    return given["layers"] + given.get("separate_moe_layers", 0.0)


@frozen()
class Execution:
    """One plan."""

    given: Mapping[str, float]  # Every quantity that is given: the plan, the model, the machine
    labels: Mapping[str, str]  # The labels that hold
    # Quantities that the search has computed
    known: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """Return a number of the plan."""
        if name in self.given:
            return self.given[name]
        if name == "etp":
            return self.given["tp"]
        if name == "pipeline_layers":
            return pipeline_layers(self.given)
        if name == "num_micro_batches":
            several = self["dp"] * self["micro_batch_size"]
            return max(float(np.ceil(self["global_batch_size"] / several)), 1.0)
        if name == "edp":
            ranks = self["tp"] * self["cp"] * self["dp"]
            return float(np.ceil(ranks / (self["etp"] * self["ep"])))
        if name in self.labels:
            where = f"{name} is a label: .labels[{name!r}]"
            raise KeyError(where)
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        try:
            self[name]
        except KeyError:
            return False
        return True

    def __repr__(self) -> str:
        return f"<plan: {self.name}>"

    @property
    def routed(self) -> bool:
        """Whether the model has experts."""
        return self.given.get("experts", 0.0) > 0.0

    @property
    def crosses_nodes(self) -> bool:
        """Whether tensor parallelism crosses nodes, on a network that has nodes."""
        node = self.given.get("gpus_per_node", np.inf)
        return self.labels["topology"] == "hierarchical" and self["tp"] > node

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from other plans of the same question."""
        numbers = (
            "tp",
            "cp",
            "pp",
            "dp",
            "ep",
            "etp",
            "virtual_pipeline_size",
            "micro_batch_size",
            "zero_stage",
            "sequence_parallel",
        )
        more = ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap", "embedding_layer_weight")
        return (
            *(self[name] for name in numbers),
            *(self.given.get(name, 0.0) for name in more),
            *(self.labels[name] for name in ("recompute", "schedule", "context_parallel")),
            *self.modules,
        )

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of each layer that selective recomputation repeats."""
        chosen = self.labels["recompute"] == "selective"
        given = [name for name in MODULES if self.given.get(f"recompute_{name}", 0.0) > 0.0]
        return tuple(given) if chosen else ()

    @property
    def split(self) -> str:
        """The degrees, in words."""
        names = ["tp", "pp", "dp"]
        if self["cp"] > 1.0:
            names.insert(1, "cp")
        if self.routed:
            names += ["ep"] + (["etp"] if self["tp"] > 1.0 else [])
        return ", ".join(f"{name} {self[name]:g}" for name in names)

    @property
    def way(self) -> str:
        """How it is run, in words."""
        parts = [f"micro-batch {self['micro_batch_size']:g}", f"ZeRO {self['zero_stage']:g}"]
        if self["pp"] > 1.0:
            schedule = self.labels["schedule"]
            name = SCHEDULES.get(schedule, schedule)
            chunks = self["virtual_pipeline_size"]
            parts.insert(0, f"{name}, {chunks:g} chunks" if chunks > 1.0 else name)
        if self["tp"] > 1.0:
            parts.append(
                "sequence parallel" if self["sequence_parallel"] else "no sequence parallelism"
            )
        if self["cp"] > 1.0:
            parts.append(f"context by {self.labels['context_parallel']}")
        again = self.labels["recompute"]
        if again == "block" and "recompute_layers" in self.known:
            again = f"{self.known['recompute_layers']:g} of each chunk's layers"
        if again == "selective":
            again = f"{again} ({', '.join(self.modules) or 'nothing'})"
        parts.append("nothing recomputed" if again == "none" else f"recompute {again}")
        return ", ".join(parts)

    @property
    def name(self) -> str:
        """The plan, in words."""
        return f"{self.split}; {self.way}"

    @property
    def flag(self) -> str:
        """The degrees as one word, but for what they leave to data parallelism."""
        parts = [part for part in self.split.split(", ") if not part.startswith("dp ")]
        return "_".join(part.replace(" ", "") for part in parts)

    def changed(
        self, numbers: Mapping[str, float] | None = None, labels: Mapping[str, str] | None = None
    ) -> Execution:
        """Return the plan with some numbers and labels changed."""
        return Execution({**self.given, **(numbers or {})}, {**self.labels, **(labels or {})})
