"""What a figure's declaration is made of: keys, their forms, and how these are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from types import MappingProxyType
from typing import Any

from sweeps import display
from sweeps.plots.style import long_name


@dataclass(frozen=True, slots=True)
class Figure:
    """A checked declaration of one figure."""

    kind: str  # One of `sweeps.plots.schema.KINDS`
    name: str  # What the figure's file is called after; unique among the figures of a sweep
    where: str = "figure"  # What faults call it, such as ``figures[1]``
    # Every key of its kind; None where a default depends on the data and isn't known yet
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, key: str) -> Any:
        """Return one of its options."""
        return self.options[key]


@dataclass(frozen=True, slots=True)
class Form:
    """The form that a key's value has: how to read it, and what to call it in a fault."""

    read: Callable[[Any], Any]
    meaning: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a declaration."""

    form: str  # One of `FORMS`
    default: Any  # None where it depends on the data, or where there is none
    meaning: str  # What it does, in a phrase


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of figure."""

    meaning: str  # What it shows, in a phrase
    keys: Mapping[str, Key]  # Its keys
    shown: tuple[str, ...]  # The keys that name the variables it shows
    used: tuple[str, ...]  # The keys that name the dimensions it spreads out
    filled: str  # The key of `used` that takes the label dimensions left over when it isn't given
    most: int = 2  # How many dimensions `filled` takes
    axes: tuple[str, ...] = ("x",)  # The keys that name dimensions of numbers


def listed(value: Any) -> list[str]:
    """Return the names that a key gives: none, one or several."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


class NotReadableError(ValueError):
    """A value that doesn't have its key's form."""


def _checked(fine: Callable[[Any], bool], made: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return what reads a value that is fine."""

    def read(value: Any) -> Any:
        if not fine(value):
            raise NotReadableError
        return made(value)

    return read


_text = _checked(lambda value: isinstance(value, str) and bool(value))
_flag = _checked(lambda value: isinstance(value, bool))
_number = _checked(
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value >= 0,
    float,
)
_count = _checked(
    lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1
)


def _texts(value: Any) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple):
        raise NotReadableError
    return tuple(dict.fromkeys(_text(entry) for entry in several))


_some_texts = _checked(bool, _texts)


def _numbers(value: Any) -> tuple[float, ...]:
    several = value if isinstance(value, list | tuple) else [value]
    return tuple(sorted(_number(entry) for entry in several))


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise NotReadableError
    table = {}
    for dim, wanted in value.items():
        several = wanted if isinstance(wanted, list | tuple) else [wanted]
        if not several or not all(isinstance(entry, str | Real) for entry in several):
            raise NotReadableError
        table[dim] = list(several) if isinstance(wanted, list | tuple) else wanted
    return table


def _entries(value: Any) -> dict[str, object]:
    table = _table(value)
    if not table or any(isinstance(entry, list) for entry in table.values()):
        raise NotReadableError
    return table


def _choice(*allowed: str) -> Form:
    known = ", ".join(f'"{entry}"' for entry in allowed)
    return Form(_checked(lambda value: value in allowed, str), f"one of {known}")


FORMS: Mapping[str, Form] = {
    "text": Form(_text, "text"),
    "flag": Form(_flag, "true or false"),
    "dimension": Form(_text, "a dimension's name"),
    "axis": Form(_text, "a dimension's name, or that of a table's column"),
    "dimensions": Form(_texts, "a dimension's name, or a list of them"),
    "variable": Form(_text, "a variable's name"),
    "variables": Form(_some_texts, "a variable's name, or a list of them"),
    "quantity": Form(_text, "the name of a variable or coordinate"),
    "quantities": Form(_some_texts, "the name of a variable or coordinate, or a list of them"),
    "number": Form(_number, "0 or more"),
    "count": Form(_count, "a whole number, 1 or more"),
    "numbers": Form(_numbers, "numbers from 0"),
    "selection": Form(
        _table, 'a table of dimensions, such as { ranks = 64, topology = ["ring", "torus"] }'
    ),
    "entries": Form(
        _entries, 'a table of dimensions with a value each, such as { inter_bandwidth = "50GB/s" }'
    ),
    "scale": _choice("log", "linear"),
    "better": _choice("less", "more"),
    "measure": _choice("time", "volume", "energy"),
}

# The kinds of figures, and the keys of their declarations.

# Kinds that stack a total's known parts, and all that spread plans out.
BREAKDOWNS = ("memory", "step_parts", "communication")
OF_PLANS = (*BREAKDOWNS, "best_plans")
_ANY = 32  # dimensions that plans may be spread along: numpy has no more

_COMMON = {
    "kind": Key("text", None, "the kind of figure"),
    "name": Key("text", None, "what its file is called after"),
    "title": Key("text", None, "its title; composed from the metadata by default"),
    "note": Key("text", None, "a sentence below it"),
    "at": Key("selection", {}, "dimensions held at one value, or cut down to a list of values"),
}
_PANELS = {"panels": Key("dimension", None, "a panel for every entry of this dimension")}
_SCALES = {
    "xscale": Key("scale", None, "scale of the horizontal axis; by default as the values suggest"),
    "yscale": Key("scale", "log", "scale of the vertical axis"),
}
_BETTER = Key("better", None, "whether less or more is better; more for rates by default")
_CAPACITY = Key("quantity", None, "the limit; by default memory_capacity for a memory")


# What a breakdown's kind shows, spreads out, fills with plans, and has no axes of numbers for.
_OF_BARS = (("parts",), ("x", "panels"), "x", _ANY, ())


def _lines(x: str | None, y: str | None) -> dict[str, Key]:
    return {
        **_COMMON,
        **_PANELS,
        "xscale": _SCALES["xscale"],
        "yscale": Key("scale", None, "scale of the vertical axis; linear for percentages"),
        "x": Key("axis", x, "the horizontal axis: of a table's column the best rows are shown"),
        "y": Key("variable", y, "the variable to show"),
        "lines": Key("dimensions", None, "a line for each entry of one or two dimensions"),
        "best_of": Key("dimensions", (), "dimensions over which a line takes its best value"),
        "better": _BETTER,
        "relative_to": Key("entries", None, "show each line in % of its value at these entries"),
        "crossovers": Key("flag", None, "mark where the best line changes"),
        "lower_bound": Key("flag", False, "draw the lower bound of the time as well"),
    }


def _breakdown(what: str, most: int = 12, **keys: Key) -> dict[str, Key]:
    return {
        **_COMMON,
        **_PANELS,
        "parts": Key("quantities", None, f"what to stack; by default {what}"),
        "x": Key("dimensions", None, "a bar for each entry of these dimensions; plans by default"),
        "sort": Key("quantity", None, "what bars are sorted by, the best first"),
        "better": _BETTER,
        "most": Key("count", most, "how many bars; of more the best, or some evenly chosen"),
        **keys,
    }


KINDS: Mapping[str, Kind] = {
    "curves": Kind(
        "a variable against message size, with the crossover points",
        _lines("message_bytes", "time"),
        ("y",),
        ("x", "lines", "best_of", "panels"),
        "lines",
    ),
    "scaling": Kind(
        "a variable against the number of ranks or GPUs",
        {
            **_lines(None, None),
            "ideal": Key("flag", None, "draw what each line's first point would scale to"),
        },
        ("y",),
        ("x", "lines", "best_of", "panels"),
        "lines",
    ),
    "best": Kind(
        "a map of the best topology or algorithm over two numeric dimensions",
        {
            **_COMMON,
            **_PANELS,
            "x": Key("dimension", "message_bytes", "the horizontal axis"),
            "y": Key("dimension", "ranks", "the vertical axis"),
            "xscale": _SCALES["xscale"],
            "yscale": Key("scale", None, "scale of the vertical axis; by default as for x"),
            "value": Key(
                "variable", "time", "what is compared, or a flag variable such as chosen_algorithm"
            ),
            "over": Key("dimensions", None, "the dimensions whose best entry is shown"),
            "better": _BETTER,
            "within": Key(
                "number", 0.1, "stipple where the second best is worse by at most this fraction"
            ),
            "bound": Key(
                "variable",
                None,
                "a ratio to a lower bound: stipple where it is within that fraction",
            ),
            "levels": Key("numbers", (), "lines at these ratios of the second best to the best"),
        },
        ("value", "bound"),
        ("x", "y", "over", "panels"),
        "over",
        axes=("x", "y"),
    ),
    "measured": Kind(
        "predictions beside measurements, and their ratio",
        {
            **_COMMON,
            **_PANELS,
            **_SCALES,
            "x": Key("dimension", "message_bytes", "the horizontal axis"),
            "y": Key("variable", "time", "the prediction"),
            "measured": Key("variable", "measured_time", "the measurement"),
            "lines": Key("dimensions", None, "a line for each entry of one dimension"),
        },
        ("y", "measured"),
        ("x", "lines", "panels"),
        "lines",
        1,
    ),
    "bars": Kind(
        "several variables stacked, for every entry of one or two dimensions",
        {
            **_breakdown("", most=40),
            "parts": Key("variables", None, "the variables to stack"),
            "x": Key("dimensions", None, "a bar for each entry of one or two dimensions"),
            "capacity": Key("quantity", None, "what is drawn as the limit, such as the memory"),
        },
        ("parts",),
        ("x", "panels"),
        "x",
        axes=(),
    ),
    "memory": Kind(
        "memory by part with the capacity, for each plan",
        _breakdown("the memory's, related ones together", capacity=_CAPACITY),
        *_OF_BARS,
    ),
    "step_parts": Kind(
        "the time of a step by part, for each plan",
        _breakdown(
            "the step time's",
            above=Key("quantity", None, "what stands at each bar's end; a rate by default"),
        ),
        *_OF_BARS,
    ),
    "communication": Kind(
        "communication by parallel dimension, for each plan",
        _breakdown(
            "every dimension's", of=Key("measure", "time", "what of the communication is shown")
        ),
        *_OF_BARS,
    ),
    "best_plans": Kind(
        "all plans: their step time against their memory, the best named",
        {
            **_COMMON,
            "x": Key("variable", "peak_memory", "the horizontal axis, of which less is better"),
            "y": Key("variable", "step_time", "the vertical axis"),
            "xscale": _SCALES["xscale"],
            "yscale": Key(
                "scale", None, "scale of the vertical axis; by default as the values suggest"
            ),
            "plans": Key("dimensions", None, "a point for each entry of these dimensions"),
            "by": Key("quantity", None, "a coordinate that the points' colours show"),
            "capacity": _CAPACITY,
            "better": _BETTER,
            "labelled": Key("count", 5, "how many of the best are named"),
            "front": Key("flag", True, "draw the Pareto front"),
            "answer": Key("count", None, "the plan to mark as recommended: its row, from 1 on"),
            "deadline": Key("number", None, "a limit of y, as a line; in its unit"),
        },
        ("x", "y"),
        ("plans",),
        "plans",
        _ANY,
        axes=(),
    ),
    "tornado": Kind(
        "what each constant moves an answer by, the one that moves it most on top",
        {
            **_COMMON,
            "lower": Key("variable", "lower_change", "changes at the constants' lower points"),
            "upper": Key("variable", "upper_change", "changes at the constants' upper points"),
            "x": Key("dimensions", None, "a bar for each entry of this dimension"),
            "most": Key("count", 12, "how many bars"),
        },
        ("lower", "upper"),
        ("x",),
        "x",
        1,
        axes=(),
    ),
}

# What the totals of a training step are made of: known parts, their order, names, colours.

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
    Part(("gradient_memory", "unsharded_gradient_memory", "placeholder_memory"), "gradients", 1),
    Part(("optimizer_memory",), "states of the optimizer", 2),
    Part(("zero3_gathered_memory",), "gathered weights", 5),
    Part(
        (
            "saved_activation_memory",
            "recompute_activation_memory",
            "embedding_activation_memory",
            "output_activation_memory",
            "gathered_sequence_memory",
        ),
        "activations",
        3,
    ),
    Part(("logits_memory",), "logits", 4),
    Part(
        ("bucket_memory", "workspace_bytes", "nccl_buffer_memory", "context_bytes"),
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
    Part(("exposed_offload_time",), "", 13),
    Part(("stage_imbalance_time",), "", 11),
    Part(("bubble_time",), "", 6),
    Part(("exposed_pp_time",), "", 4),
    Part(("exposed_dp_time",), "", 12),
    Part(("tied_all_reduce_backward_time",), "", 14),
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


def colour_of(name: str) -> int | None:
    """Return the area's colour of a part of a step or of its memory, the same everywhere."""
    quantity = name.removeprefix("peak_")
    for part in _MEMORY:
        if quantity in part.variables:
            return part.colour + _MOST_COLOURS // 2 * (quantity != part.variables[0])
    return _COLOURS.get(name)


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


def column_of_bars(names: Collection[str]) -> str | None:
    """Return what stands at each bar's end of a step's parts, if it is there."""
    return next((name for name in display.rows("rates", place="bar") if name in names), None)


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
        taken = [known[name] for name in variables if name in known]
        free = [colour for colour in range(_MOST_COLOURS) if colour not in taken]
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


def labelled(parts: Iterable[Part], attrs: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return what parts are called: from the metadata, without what all of it begins with."""
    parts = list(parts)
    names = {name: long_name(name, attrs[name]) for part in parts for name in part.variables}
    short = _distinct(names)
    short |= {name: display.words(name) for name in names if display.row(name).group == "step part"}
    return [part.label or short[part.variables[0]] for part in parts]


def _distinct(names: Mapping[str, str]) -> dict[str, str]:
    """Return names without what they share: what follows or leads a colon, first, last words."""
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
    while all(len(word) > 1 and word[0] == words[0][0] for word in words):
        words = [word[1:] for word in words]
    while all(len(word) > 1 and word[-1] == words[0][-1] for word in words):
        words = [word[:-1] for word in words]
    return {name: " ".join(word).rstrip(",") for name, word in zip(short, words, strict=True)}
