"""Check declarations of figures against what there is to show: every fault at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import MappingProxyType
from typing import Any

from sweeps.errors import InputError, fault, nearest
from sweeps.plots.data import Subject, Values, find, is_label
from sweeps.plots.readable import number, parse
from sweeps.plots.schema import FORMS, KINDS, Figure, NotReadableError, listed

__all__ = ["check_figures", "resolve"]

_LISTED = 12  # values of a dimension that a fault lists
_CHOICE = "chosen_"  # variables that already say which is best
_FILE_NAME = re.compile(r"[\w.+-]+")


def check_figures(
    declarations: Sequence[Mapping[str, Any]],
    dims: Mapping[str, Iterable[Any] | int],
    variables: Mapping[str, Sequence[str] | None],
) -> list[Figure]:
    """Check declarations of figures, as a spec's ``[[figures]]`` tables have them.

    Parameters
    ----------
    declarations : sequence of mapping
        The tables.
    dims : mapping of str to (iterable or int)
        Each dimension's values, or its size where it has none; constants as one value.
    variables : mapping of str to (sequence of str or None)
        Each variable's dimensions; None where they aren't known yet.

    Returns
    -------
    list of Figure
        One for each, in order, with its defaults.

    Raises
    ------
    InputError
        With every fault of every declaration.
    """
    subject = Subject(
        {dim: values if isinstance(values, int) else tuple(values) for dim, values in dims.items()},
        {name: None if own is None else tuple(own) for name, own in variables.items()},
    )
    faults: list[str] = []
    figures: list[Figure] = []
    for place, declaration in enumerate(declarations, 1):
        field = f"figures[{place}]"
        figure = _read(declaration, field, faults)
        if figure is not None:
            figure, found = resolve(figure, subject)
            faults += found
            figures.append(figure)
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
        name, count = figure.name or figure.kind, 1
        while not figure.name and name in taken:
            count += 1
            name = f"{figure.kind}-{count}"
        taken.add(name)
        named.append(replace(figure, name=name))
    return named


def resolve(figure: Figure, subject: Subject) -> tuple[Figure, list[str]]:
    """Check a figure's names against what there is, and fill in what follows from it.

    Parameters
    ----------
    figure : Figure
        As read.
    subject : Subject
        What there is.

    Returns
    -------
    figure : Figure
        With the label dimensions that it spreads out by itself.
    faults : list of str
        What is wrong; empty if nothing is.
    """
    faults = [*_unknown_names(figure, subject), *_wrong_choices(figure, subject)]
    if faults:
        return figure, faults
    kind = KINDS[figure.kind]
    used = [dim for key in kind.used for dim in listed(figure[key])]
    faults += [
        fault(f"{figure.where}.at", dim, "is spread out by this figure", "hold another dimension")
        for dim in used
        if dim in figure["at"] and not isinstance(figure["at"][dim], list)
    ]
    if any(subject.variables[name] is None for name in _variables(figure)):
        return figure, faults
    varying = _varying(figure, subject)
    left = [dim for dim in varying if dim not in used]
    if figure[kind.filled] is None and str(figure.options.get("value")).startswith(_CHOICE):
        figure = replace(figure, options=MappingProxyType({**figure.options, "over": ()}))
    if figure[kind.filled] is None:
        taken = _taken(figure, [dim for dim in left if subject.labels(dim)])
        left = [dim for dim in left if dim not in taken]
        figure = replace(figure, options=MappingProxyType({**figure.options, kind.filled: taken}))
    ways = " or ".join(key for key in kind.used if key in {"panels", kind.filled, "best_of"})
    faults += [
        f"{figure.where}: {', '.join(_variables(figure))} varies along {dim}, which this figure "
        f"neither shows nor holds; hold it with at = {{ {dim} = ... }} ({_listing(subject, dim)}), "
        f"or name it in {ways}"
        for dim in left
    ]
    faults += _nothing_along(figure, subject, varying)
    return figure, faults


def _variables(figure: Figure) -> list[str]:
    names = [name for key in KINDS[figure.kind].shown for name in listed(figure[key])]
    return names + listed(figure.options.get("capacity"))


def _taken(figure: Figure, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the dimensions that a figure spreads out by itself, of those of labels left over.

    Topology and algorithm are what is compared; where they vary, another dimension isn't mixed in
    without being named.
    """
    most = KINDS[figure.kind].most
    first = [dim for dim in ("topology", "algorithm") if dim in labels]
    others = [dim for dim in labels if dim not in first]
    if figure.kind != "bars":
        others = [] if first else others[:1]
    return tuple([*first, *others][:most])


def _varying(figure: Figure, subject: Subject) -> list[str]:
    """Return the dimensions of its variables that vary in what it selects."""
    dims = dict.fromkeys(dim for name in _variables(figure) for dim in subject.varying(name))
    at = figure["at"]
    return [
        dim for dim in dims if dim not in at or (isinstance(at[dim], list) and len(at[dim]) > 1)
    ]


def _unknown_names(figure: Figure, subject: Subject) -> list[str]:
    faults = []
    for key, value in figure.options.items():
        form = KINDS[figure.kind].keys[key].form
        if form.startswith("dimension"):
            known, what = subject.dims.keys(), "no such dimension"
        elif form.startswith("variable"):
            known, what = subject.variables.keys(), "no such variable here"
        else:
            continue
        faults += [
            fault(f"{figure.where}.{key}", name, what, nearest(name, known))
            for name in listed(value)
            if name not in known
        ]
    if figure.kind == "bars" and figure["parts"] is None:
        known_names = ", ".join(subject.variables)
        faults.append(f"{figure.where}.parts: not given; variables: {known_names}")
    return faults


def _wrong_choices(figure: Figure, subject: Subject) -> list[str]:
    """Return the faults of `at`, and of keys that don't go together."""
    faults = []
    for dim, wanted in figure["at"].items():
        where = f"{figure.where}.at.{dim}"
        if dim not in subject.dims:
            faults.append(fault(where, wanted, "no such dimension", nearest(dim, subject.dims)))
            continue
        values = subject.dims[dim]
        faults += [
            fault(where, one, "not on this axis", _nearest_value(one, subject, dim))
            for one in (wanted if isinstance(wanted, list) else [wanted])
            if find(one, values) is None
        ]
    kind = KINDS[figure.kind]
    most = {"lines": kind.most, "x": 2, "over": 2}
    for key in ("lines", "x", "over"):
        named = listed(figure.options.get(key))
        if len(named) > most[key]:
            text = ", ".join(named)
            faults.append(fault(f"{figure.where}.{key}", text, "too many", f"at most {most[key]}"))
    roles: dict[str, str] = {}
    for key in kind.used:
        for dim in listed(figure[key]):
            if dim in roles:
                wrong = f"is {roles[dim]} already"
                faults.append(fault(f"{figure.where}.{key}", dim, wrong, "another dimension"))
            roles[dim] = key
    if figure.options.get("lower_bound"):
        faults += _bound_faults(figure, subject)
    return faults


def _bound_faults(figure: Figure, subject: Subject) -> list[str]:
    where = f"{figure.where}.lower_bound"
    if "lower_bound" not in subject.variables:
        return [f"{where} = true: there is no variable lower_bound; add it to the quantities"]
    if figure["y"] != "time":
        return [f"{where} = true: it bounds the time, and y is {figure['y']}; leave it out"]
    return []


def _nothing_along(figure: Figure, subject: Subject, varying: Sequence[str]) -> list[str]:
    """Return a fault for each numeric axis along which there is one value, or none."""
    axes = {"best": ("x", "y"), "bars": ()}.get(figure.kind, ("x",))
    names = ", ".join(_variables(figure))
    faults = []
    for key in axes:
        dim = figure[key]
        where = f"{figure.where}.{key}"
        if is_label(_values(subject, dim)):
            numeric = [other for other in varying if not subject.labels(other)]
            allowed = f"known: {', '.join(numeric)}" if numeric else "none here is numeric"
            faults.append(fault(where, dim, "holds names, not numbers", allowed))
        elif dim not in varying:
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
