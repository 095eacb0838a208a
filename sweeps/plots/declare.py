"""Check declarations of figures against what there is to show: every fault at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import MappingProxyType
from typing import Any

from overhead.everything import load
from overhead.quantity import VOCABULARY
from sweeps.errors import fault, nearest, tell_all
from sweeps.plots.data import Subject, Values, find, is_label
from sweeps.plots.names import plan_dims
from sweeps.plots.schema import (
    BREAKDOWNS,
    FORMS,
    KINDS,
    OF_PLANS,
    Figure,
    NotReadableError,
    column_of_bars,
    known_parts,
    listed,
)
from sweeps.plots.style import number, parse

# Defaults of a declaration that depend on what there is to show.

CAPACITY = "memory_capacity"
COMPARED: tuple[str, ...] = ("topology", "algorithm")  # what is compared, where it varies
_TRAINED: tuple[str, ...] = ("model", "hardware")
_CHOICE = "chosen_"  # variables that already say which is best
_OF_MEMORY = ("memory", "peak_memory")


def with_options(figure: Figure, **options: Any) -> Figure:
    """Return a figure with some options changed."""
    return replace(figure, options=MappingProxyType({**figure.options, **options}))


def fill(figure: Figure, subject: Subject) -> Figure:
    """Give a figure the defaults that follow from the names there are."""
    options: dict[str, Any] = {}
    given = figure.options
    if figure.kind in {"curves", "scaling"}:
        options = _of_lines(figure, subject)
    elif figure.kind in BREAKDOWNS:
        # A part that is the same everywhere, or by machine, is a coordinate.
        there = {*subject.variables, *subject.dims, *(subject.columns or ())}
        measure = given.get("of") or "time"
        parts = known_parts(figure.kind, there, measure)
        if not {*parts} & {*subject.variables}:
            parts = known_parts(figure.kind, subject.variables, measure)
        options = {"parts": given["parts"] or parts or None}
        if "above" in given and given["above"] is None:
            options["above"] = column_of_bars(subject.variables)
    elif str(given.get("value")).startswith(_CHOICE) and given["over"] is None:
        options = {"over": ()}
    wanted = figure.kind == "memory" or given.get("x") in _OF_MEMORY
    if wanted and "capacity" in given and given["capacity"] is None and _holds(subject, CAPACITY):
        options["capacity"] = CAPACITY
    return with_options(figure, **options) if options else figure


def _of_lines(figure: Figure, subject: Subject) -> dict[str, object]:
    given = figure.options
    training = "ranks" not in subject.dims
    relative = given["relative_to"] is not None
    options: dict[str, Any] = {
        "x": given["x"] or ("world_size" if training else "ranks"),
        "y": given["y"] or ("tokens_per_second" if training else "time"),
        "yscale": given["yscale"] or ("linear" if relative else "log"),
        "crossovers": given["crossovers"],
    }
    if given["crossovers"] is None:
        options["crossovers"] = figure.kind == "curves" and not relative
    if figure.kind == "scaling":
        ideal = options["y"] == "tokens_per_second" and not relative
        options["ideal"] = ideal if given["ideal"] is None else given["ideal"]
        if options["x"] == "world_size":
            options["xscale"] = given["xscale"] or "log"
    return options


def _holds(subject: Subject, name: str) -> bool:
    return name in subject.variables or name in subject.dims or name in (subject.columns or ())


def taken(figure: Figure, left: Sequence[str], subject: Subject) -> tuple[str, ...]:
    """Return the dimensions that a figure spreads out by itself, of those left over.

    Topology and algorithm are what is compared, or model and machine; where they vary, another
    dimension isn't mixed in without being named. Figures of plans spread all of a plan's choices.
    """
    labels = [dim for dim in left if subject.labels(dim)]
    if figure.kind in OF_PLANS:
        return tuple(plan_dims(left, subject.dims) or (labels or list(left))[:1])
    most = KINDS[figure.kind].most
    first = [dim for dim in COMPARED if dim in labels]
    if not first and "model" in labels:
        first = [dim for dim in _TRAINED if dim in labels]
    others = [dim for dim in labels if dim not in first]
    if figure.kind != "bars":
        others = [] if first else others[:1]
    return tuple([*first, *others][:most])


_LISTED = 12  # values of a dimension that a fault lists
_COMPANIONS = (
    "capacity",
    "sort",
    "above",
    "by",
)  # keys that name what is shown beside the variables
_DEFERRED = ("quantity", "quantities", "axis")  # forms of names that only a file settles
_FILE_NAME = re.compile(r"[\w.+-]+")


def check_figures(declarations: Sequence[Mapping[str, object]], subject: Subject) -> list[Figure]:
    """Check declarations of figures, as a spec's ``[[figures]]`` tables have them."""
    faults: list[str] = []
    figures: list[Figure] = []
    for index, declaration in enumerate(declarations, 1):
        figure = _read(declaration, f"figures[{index}]", faults)
        if figure is not None:
            settled, unmet = resolve(figure, subject)
            faults += unmet
            # Without a file's columns it isn't known yet what plans' figures show by themselves.
            open_ = subject.columns is None and figure.kind in OF_PLANS
            figures.append(figure if open_ else settled)
    figures = _named(figures, faults)
    tell_all(faults)
    return figures


def _read(declaration: object, field: str, faults: list[str]) -> Figure | None:
    """Read one declaration's keys; None if they can't be."""
    if not isinstance(declaration, Mapping):
        faults.append(fault(field, declaration, "not a table", 'such as { kind = "curves" }'))
        return None
    kind = declaration.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        known = f"known: {', '.join(KINDS)}"
        if kind is None:
            faults.append(f"{field}.kind: not given; {known}")
        else:
            faults.append(
                fault(f"{field}.kind", kind, "no such kind of figure", nearest(f"{kind}", KINDS))
            )
        return None
    keys = KINDS[kind].keys
    before = len(faults)
    options = {name: key.default for name, key in keys.items()}
    for name, value in declaration.items():
        if name not in keys:
            where = f"{field}.{name}"
            faults.append(fault(where, value, f"no such key of {kind}", nearest(f"{name}", keys)))
            continue
        form = FORMS[keys[name].form]
        try:
            options[name] = form.read(value)
        except NotReadableError:
            faults.append(fault(f"{field}.{name}", value, "can't be read", f"give {form.meaning}"))
    name = options.pop("name")
    del options["kind"]
    if name is not None and not _FILE_NAME.fullmatch(name):
        allowed = "letters, digits, '_', '-', '+' and '.'"
        faults.append(fault(f"{field}.name", name, "can't be part of a file's name", allowed))
    if len(faults) > before:
        return None
    return Figure(kind, name or "", field, MappingProxyType(options))


def _named(figures: Sequence[Figure], faults: list[str]) -> list[Figure]:
    """Give a name to every figure that has none; two of one name would share a file."""
    taken: set[str] = set()
    for figure in figures:
        if figure.name and figure.name in taken:
            faults.append(
                fault(f"{figure.where}.name", figure.name, "another figure has it", "another name")
            )
        taken.add(figure.name)
    named = []
    for figure in figures:
        kind = figure.kind.replace("_", "-")
        name, count = figure.name or kind, 1
        while not figure.name and name in taken:
            count += 1
            name = f"{kind}-{count}"
        taken.add(name)
        named.append(replace(figure, name=name))
    return named


def resolve(figure: Figure, subject: Subject) -> tuple[Figure, list[str]]:
    """Check a figure's names against what there is, and fill in what follows from it."""
    figure = fill(figure, subject)
    faults = [*_unknown_names(figure, subject), *_wrong_choices(figure, subject)]
    if faults:
        return figure, faults
    kind = KINDS[figure.kind]
    columns = subject.columns or {}
    named = [dim for key in KINDS[figure.kind].used for dim in listed(figure[key])]
    used = [column for dim in named for column in columns.get(dim, (dim,))]
    faults += [
        fault(f"{figure.where}.at", dim, "is spread out by this figure", "hold another dimension")
        for dim in used
        if dim in figure["at"] and not isinstance(figure["at"][dim], list)
    ]
    if any(_unsettled(name, subject) for name in (*variables_of(figure), *used)):
        return figure, faults
    varying = _varying(figure, subject)
    left = [dim for dim in varying if dim not in used]
    if figure[kind.filled] is None:
        dims = taken(figure, left, subject)
        left = [dim for dim in left if dim not in dims]
        figure = with_options(figure, **{kind.filled: dims})
    faults += [
        fault(f"{figure.where}.relative_to", dim, "isn't spread out by this figure", "x or lines")
        for dim in figure.options.get("relative_to") or ()
        if dim not in [entry for key in ("x", "lines", "panels") for entry in listed(figure[key])]
    ]
    ways = " or ".join(key for key in kind.used if key in {"panels", kind.filled, "best_of"})
    faults += [
        f"{figure.where}: {', '.join(variables_of(figure))} varies along {dim}, which this figure "
        f"neither shows nor holds; hold it with at = {{ {dim} = ... }} ({_listing(subject, dim)}), "
        f"or name it in {ways}"
        for dim in left
    ]
    faults += _nothing_along(figure, subject, varying)
    return figure, faults


def variables_of(figure: Figure) -> list[str]:
    """Return the names of what a figure shows, and of what stands beside it."""
    names = [name for key in KINDS[figure.kind].shown for name in listed(figure[key])]
    return names + [name for key in _COMPANIONS for name in listed(figure.options.get(key))]


def _unsettled(name: str, subject: Subject) -> bool:
    """Return whether a name's dimensions aren't known before there is a dataset."""
    if name in subject.variables:
        return subject.variables[name] is None
    return name not in subject.dims and name not in (subject.columns or ())


def _varying(figure: Figure, subject: Subject) -> list[str]:
    """Return the dimensions of its variables that vary in what it selects."""
    dims = dict.fromkeys(dim for name in variables_of(figure) for dim in subject.varying(name))
    at = figure["at"]
    return [
        dim for dim in dims if dim not in at or (isinstance(at[dim], list) and len(at[dim]) > 1)
    ]


def _every_name(figure: Figure, subject: Subject) -> set[str]:
    """Return what variables and coordinates may be called; before a file is, any quantity."""
    every = {*subject.variables, *subject.dims, *(subject.columns or ())}
    if subject.columns is not None:
        return every
    keys = KINDS[figure.kind].keys
    more = [figure[key] for key in figure.options if keys[key].form in _DEFERRED]
    if not {name for value in more for name in listed(value)} <= {*every, *VOCABULARY}:
        load()  # quantities are those of all modules, of which only some may be there
    return every | {*VOCABULARY}


def _unknown_names(figure: Figure, subject: Subject) -> list[str]:
    faults = []
    every = _every_name(figure, subject)
    for key, value in figure.options.items():
        form = KINDS[figure.kind].keys[key].form
        known: Collection[str]
        if form.startswith("dimension"):
            known, what = subject.dims.keys(), "no such dimension"
        elif form.startswith("variable"):
            known, what = subject.variables.keys(), "no such variable here"
        elif form in {"quantity", "quantities"}:
            known, what = every, "no such variable or coordinate here"
        elif form == "axis":
            known, what = every - {*subject.variables}, "no such dimension"
        else:
            continue
        faults += [
            fault(f"{figure.where}.{key}", name, what, nearest(name, known))
            for name in listed(value)
            if name not in known
        ]
    if "parts" in figure.options and figure["parts"] is None:
        none = "not given" if figure.kind == "bars" else f"none of {figure.kind} is here"
        known_names = ", ".join(list(subject.variables)[:_LISTED])
        faults.append(f"{figure.where}.parts: {none}; variables: {known_names}")
    return faults


def _wrong_choices(figure: Figure, subject: Subject) -> list[str]:
    """Return the faults of what is held, and of keys that don't go together."""
    faults = [
        line for key in ("at", "relative_to") for line in _wrong_entries(figure, key, subject)
    ]
    kind = KINDS[figure.kind]
    named = listed(figure[kind.filled])
    if len(named) > kind.most:
        where = f"{figure.where}.{kind.filled}"
        faults.append(fault(where, ", ".join(named), "too many", f"at most {kind.most}"))
    roles: dict[str, str] = {}
    columns = subject.columns or {}
    for key in kind.used:
        for dim in [
            column for name in listed(figure[key]) for column in columns.get(name, (name,))
        ]:
            if dim in roles:
                wrong = f"is {roles[dim]} already"
                faults.append(fault(f"{figure.where}.{key}", dim, wrong, "another dimension"))
            roles[dim] = key
    if figure.options.get("lower_bound"):
        faults += _bound_faults(figure, subject)
    return faults


def _wrong_entries(figure: Figure, key: str, subject: Subject) -> list[str]:
    """Return the faults of a table of dimensions with their entries."""
    faults = []
    for dim, wanted in (figure.options.get(key) or {}).items():
        where = f"{figure.where}.{key}.{dim}"
        if key != "at" and dim == figure["x"] and dim not in subject.dims:
            continue  # a table's column
        if dim not in subject.dims:
            faults.append(fault(where, wanted, "no such dimension", nearest(dim, subject.dims)))
            continue
        values = subject.dims[dim]
        faults += [
            fault(where, entry, "not on this axis", _nearest_value(entry, subject, dim))
            for entry in (wanted if isinstance(wanted, list) else [wanted])
            if find(entry, values) is None
        ]
    return faults


def _bound_faults(figure: Figure, subject: Subject) -> list[str]:
    where = f"{figure.where}.lower_bound"
    if "lower_bound" not in subject.variables:
        return [f"{where} = true: there is no variable lower_bound; add it to the quantities"]
    if figure["y"] != "time":
        return [f"{where} = true: it bounds the time, and y is {figure['y']}; leave it out"]
    if figure["relative_to"] is not None:
        return [f"{where} = true: relative_to makes percentages; leave one of the two out"]
    return []


def _nothing_along(figure: Figure, subject: Subject, varying: Sequence[str]) -> list[str]:
    """Return a fault for each numeric axis along which there is one value, or none."""
    axes = KINDS[figure.kind].axes
    names = ", ".join(variables_of(figure))
    faults = []
    for key in axes:
        dim = figure[key]
        where = f"{figure.where}.{key}"
        if is_label(_values(subject, dim)):
            numeric = [other for other in varying if not subject.labels(other)]
            allowed = f"known: {', '.join(numeric)}" if numeric else "none here is numeric"
            faults.append(fault(where, dim, "holds names, not numbers", allowed))
        elif dim not in varying and not {*(subject.columns or {}).get(dim, ())} & {*varying}:
            allowed = f"it varies along {', '.join(varying)}" if varying else "it varies nowhere"
            faults.append(fault(where, dim, f"{names} doesn't vary along it", allowed))
    return faults


def _values(subject: Subject, dim: str) -> Values:
    values = subject.dims.get(dim, ())
    return () if isinstance(values, int) else values


def _listing(subject: Subject, dim: str) -> str:
    values = subject.dims[dim]
    if isinstance(values, int):
        return f"0 to {values - 1}"
    texts = [value if isinstance(value, str) else number(value, 6) for value in values]
    if len(texts) <= _LISTED:
        return ", ".join(texts)
    return f"{', '.join(texts[:3])}, ..., {texts[-1]}: {len(texts)} values"


def _nearest_value(wanted: object, subject: Subject, dim: str) -> str:
    values = subject.dims[dim]
    if isinstance(wanted, str) and is_label(_values(subject, dim)):
        return nearest(wanted, _values(subject, dim))
    wanted = parse(wanted) if isinstance(wanted, str) else wanted
    if not isinstance(values, int) and isinstance(wanted, Real) and not is_label(values):
        close = sorted(values, key=lambda value: abs(value - wanted))[:2]
        return f"nearest: {', '.join(number(value, 6) for value in sorted(close))}"
    return f"values: {_listing(subject, dim)}"
