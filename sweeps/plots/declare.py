"""Check declarations of figures against what there is to show: every fault at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import MappingProxyType
from typing import Any

from overhead.everything import load
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.plots.data import Subject, Values, find, is_label
from sweeps.plots.fill import fill, taken, with_options
from sweeps.plots.kinds import KINDS, OF_PLANS
from sweeps.plots.readable import number, parse
from sweeps.plots.schema import FORMS, Figure, NotReadableError, listed

__all__ = ["check_figures", "resolve"]

_LISTED = 12  # values of a dimension that a fault lists
_BESIDE = ("capacity", "sort", "above", "by")  # keys that name what is shown beside the variables
_DEFERRED = ("quantity", "quantities", "axis")  # forms of names that only a file settles
_FILE_NAME = re.compile(r"[\w.+-]+")


def check_figures(
    declarations: Sequence[Mapping[str, Any]],
    dims: Mapping[str, Iterable[Any] | int],
    variables: Mapping[str, Sequence[str] | None],
    columns: Mapping[str, Sequence[str]] | None = None,
) -> list[Figure]:
    """Check declarations of figures, as a spec's ``[[figures]]`` tables have them."""
    subject = Subject(
        {dim: values if isinstance(values, int) else tuple(values) for dim, values in dims.items()},
        {name: None if own is None else tuple(own) for name, own in variables.items()},
        None if columns is None else {name: tuple(own) for name, own in columns.items()},
    )
    faults: list[str] = []
    figures: list[Figure] = []
    for place, declaration in enumerate(declarations, 1):
        field = f"figures[{place}]"
        figure = _read(declaration, field, faults)
        if figure is not None:
            settled, found = resolve(figure, subject)
            faults += found
            # Without a file's columns it isn't known yet what plans' figures show by themselves.
            figures.append(figure if columns is None and figure.kind in OF_PLANS else settled)
    figures = _named(figures, faults)
    if faults:
        raise InputError(faults)
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
    used = _used(figure, subject)
    faults += [
        fault(f"{figure.where}.at", dim, "is spread out by this figure", "hold another dimension")
        for dim in used
        if dim in figure["at"] and not isinstance(figure["at"][dim], list)
    ]
    if any(_unsettled(name, subject) for name in (*_variables(figure), *used)):
        return figure, faults
    varying = _varying(figure, subject)
    left = [dim for dim in varying if dim not in used]
    if figure[kind.filled] is None:
        own = taken(figure, left, subject)
        left = [dim for dim in left if dim not in own]
        figure = with_options(figure, **{kind.filled: own})
    faults += [
        fault(f"{figure.where}.relative_to", dim, "isn't spread out by this figure", "x or lines")
        for dim in figure.options.get("relative_to") or ()
        if dim not in [one for key in ("x", "lines", "panels") for one in listed(figure[key])]
    ]
    ways = " or ".join(key for key in kind.used if key in {"panels", kind.filled, "best_of"})
    faults += [
        f"{figure.where}: {', '.join(_variables(figure))} varies along {dim}, which this figure "
        f"neither shows nor holds; hold it with at = {{ {dim} = ... }} ({_listing(subject, dim)}), "
        f"or name it in {ways}"
        for dim in left
    ]
    faults += _nothing_along(figure, subject, varying)
    return figure, faults


def _used(figure: Figure, subject: Subject) -> list[str]:
    """Return the dimensions that a figure spreads out; of a table's column the table's."""
    columns = subject.columns or {}
    named = [dim for key in KINDS[figure.kind].used for dim in listed(figure[key])]
    return [one for dim in named for one in columns.get(dim, (dim,))]


def _variables(figure: Figure) -> list[str]:
    names = [name for key in KINDS[figure.kind].shown for name in listed(figure[key])]
    return names + [name for key in _BESIDE for name in listed(figure.options.get(key))]


def _unsettled(name: str, subject: Subject) -> bool:
    """Return whether a name's dimensions aren't known before there is a dataset."""
    if name in subject.variables:
        return subject.variables[name] is None
    return name not in subject.dims and name not in (subject.columns or ())


def _varying(figure: Figure, subject: Subject) -> list[str]:
    """Return the dimensions of its variables that vary in what it selects."""
    dims = dict.fromkeys(dim for name in _variables(figure) for dim in subject.varying(name))
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
    beside = [figure[key] for key in figure.options if keys[key].form in _DEFERRED]
    if not {name for one in beside for name in listed(one)} <= {*every, *VOCABULARY}:
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
        for dim in [one for name in listed(figure[key]) for one in columns.get(name, (name,))]:
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
            fault(where, one, "not on this axis", _nearest_value(one, subject, dim))
            for one in (wanted if isinstance(wanted, list) else [wanted])
            if find(one, values) is None
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
    names = ", ".join(_variables(figure))
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
