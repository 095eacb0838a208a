"""The kinds of figures, and the keys of their declarations."""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.plots.schema import Key, Kind

__all__ = ["BREAKDOWNS", "KINDS", "OF_PLANS"]

# Kinds that stack a total's known parts, and all that spread plans out.
BREAKDOWNS = ("memory", "step_parts", "communication")
OF_PLANS = (*BREAKDOWNS, "best_plans")
_ANY = 32  # dimensions that plans may be spread along: numpy has no more

_COMMON = {
    "kind": Key("text", None, "the kind of figure"),
    "name": Key("text", None, "what its file is called after"),
    "title": Key("text", None, "its title; composed from the metadata by default"),
    "at": Key("selection", {}, "dimensions held at one value, or cut down to a list of values"),
}
_PANELS = {"panels": Key("dimension", None, "a panel for every entry of this dimension")}
_SCALES = {
    "xscale": Key("scale", None, "scale of the horizontal axis; by default as the values suggest"),
    "yscale": Key("scale", "log", "scale of the vertical axis"),
}
_BETTER = Key("better", None, "whether less or more is better; more for rates by default")
_CAPACITY = Key("quantity", None, "the limit; by default memory_capacity for a memory")


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


def _breakdown(what: str, **keys: Key) -> dict[str, Key]:
    return {
        **_COMMON,
        **_PANELS,
        "parts": Key("quantities", None, f"what to stack; by default {what}"),
        "x": Key("dimensions", None, "a bar for each entry of these dimensions; plans by default"),
        "sort": Key("quantity", None, "what bars are sorted by, the best first"),
        "better": _BETTER,
        "most": Key("count", 12, "how many bars; of more the best, or some evenly chosen"),
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
            "levels": Key("numbers", (), "lines at these ratios of the second best to the best"),
        },
        ("value",),
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
            "band": Key(
                "number", 0.25, "the error, as a fraction, up to which the ratio is shaded"
            ),
        },
        ("y", "measured"),
        ("x", "lines", "panels"),
        "lines",
        1,
    ),
    "bars": Kind(
        "several variables stacked, for every entry of one or two dimensions",
        {
            **_COMMON,
            **_PANELS,
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
        ("parts",),
        ("x", "panels"),
        "x",
        _ANY,
        axes=(),
    ),
    "step_parts": Kind(
        "the time of a step by part, for each plan",
        _breakdown(
            "the step time's",
            above=Key("quantity", None, "what stands at each bar's end; mfu by default"),
        ),
        ("parts",),
        ("x", "panels"),
        "x",
        _ANY,
        axes=(),
    ),
    "communication": Kind(
        "communication by parallel dimension, for each plan",
        _breakdown(
            "every dimension's", of=Key("measure", "time", "what of the communication is shown")
        ),
        ("parts",),
        ("x", "panels"),
        "x",
        _ANY,
        axes=(),
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
        },
        ("x", "y"),
        ("plans",),
        "plans",
        _ANY,
        axes=(),
    ),
}
