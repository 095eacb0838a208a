"""A stored sweep as a page's data: its arrays packed, each over its own dimensions, with words.

Numbers of results are packed in single precision (relative error 6e-8, `DIGITS` digits), unless
one of them has no single; coordinates are packed as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overhead.everything import load
from overhead.labels import HIERARCHY, LABELS
from overhead.quantity import VOCABULARY
from sweeps import display
from sweeps.api import reasons
from sweeps.bands import MEMORY_LIMIT, SET_UP, tie
from sweeps.errors import fault, nearest, refuse, tell_all
from sweeps.origin import read
from sweeps.pages.write import Page
from sweeps.plots import style
from sweeps.plots.axis import better_of
from sweeps.plots.data import Subject, View, entries, find, is_label, shown, subject_of, view_of
from sweeps.plots.declare import CAPACITY, resolve
from sweeps.plots.names import (
    PLAN_NAMES,
    coordinates_of,
    is_of_plans,
    naming,
    without_at,
    word_of,
    worded,
)
from sweeps.plots.schema import BREAKDOWNS, Figure, known_parts, labelled, listed, stacked, total_of

if TYPE_CHECKING:
    import xarray as xr

MOST_CELLS = 10**7
DIGITS = 7
_CHANGES = ("upper_change", "lower_change")  # What a constant moves an answer by
# What an answer takes as it is given, of labels: a smaller model isn't a better one.
_CONDITIONS = ("model", "collective", "environment", "fabric")
# What is told of a best cell besides.
_FACTS = (
    "peak_memory",
    "mfu",
    "busbw",
    "lower_bound_ratio",
    "cost_per_trillion_useful_tokens",
    "chosen_algorithm",
)
# What is told with a band: days of a training with that of its steps.
_BANDS = display.BANDS | dict.fromkeys(("training_days", "run_days"), display.BANDS["step_time"])
_GROUPS = {
    "memory": "Memory, by part",
    "step_parts": "Time of a step, by part",
    "communication": "Communication, by dimension",
}
_SHORT = 20  # letters of a name of a control
_LARGEST = {1: np.uint8, 2: np.uint16, 4: np.int32}


def page_of(
    dataset: xr.Dataset,
    figures: Sequence[Figure],
    name: str,
    *,
    at: Mapping[str, str] | None = None,
    quantities: Sequence[str] = (),
) -> Page:
    """Return the page of a stored sweep.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `sweeps.open` gives it.
    figures : sequence of Figure
        What it is asked: the first is the page's first view.
    name : str
        What the file is called, in faults and on the page.
    at : mapping of str to str, optional
        Dimensions fixed at one entry.
    quantities : sequence of str, optional
        The only results to take; all by default.

    Returns
    -------
    Page
        What `sweeps.pages.write.write_page` writes.

    Raises
    ------
    InputError
        If there is no such entry or result, nothing to show, or more than opens at once.
    """
    load()
    dataset = _named(dataset)
    subject = subject_of(dataset)
    entries = dict(_entries(subject, at or {}))
    known = [str(name) for name in dataset.data_vars]
    unknown = [name for name in quantities if name not in known]
    wrong = "isn't in the file"
    tell_all([fault("--quantity", name, wrong, nearest(name, known)) for name in unknown])
    view = view_of(dataset, entries)
    packed = _Packed(view, quantities)
    packed.check_size(name)
    asked = list(_asked(figures, subject, entries, packed))
    title = str(dataset.attrs.get("title") or name)
    if not asked and set(_CHANGES) <= set(packed.names):
        y, x = _CHANGES
        state = {"view": "points", "y": y, "x": x, "at": dict.fromkeys(packed.dims, "*")}
        asked = [{"name": "sensitivity", "title": title, "state": state}]
    phrases = [view.phrase(dim) for dim in view.fixed]
    # By what the simplest of plans is found that a step's time can't tell apart.
    kinds = [name for name in (*SET_UP, "recompute") if name in packed.columns]
    kinds = kinds if {"step_time", "peak_memory"} <= {*packed.names} else []
    first = asked[0]["title"] if asked else title
    return Page(
        "stored",
        first,
        " · ".join(phrases),
        str(dataset.attrs.get("summary", title)),
        {
            "title": title,
            "file": name,
            "summary": str(dataset.attrs.get("summary", "")),
            "history": str(dataset.attrs.get("history", "")),
            "source": str(dataset.attrs.get("source", "")),
            "fingerprint": str(dataset.attrs.get("fingerprint", "")),
            "spec": str(dataset.attrs.get("spec", "")),
            "digits": DIGITS,
            "dims": [_dim(view, dim) for dim in packed.dims],
            "naming": _naming(view, packed.dims),
            "told": [fact for fact in _FACTS if fact in packed.names],
            "constants": list(_constants(view)),
            "most": _most(view, packed.names),
            "simple": {"tie": tie(), "kinds": kinds, "node": _node(view)} if kinds else {},
            "bands": {name: ends for name, ends in _BANDS.items() if {*ends} <= {*packed.names}},
            "figures": asked,
            "groups": list(packed.groups.values()),
            "arrays": packed.arrays,
        },
        packed.bytes(),
    )


def _entries(subject: Subject, at: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Check what dimensions are fixed at."""
    faults = []
    sizes = {
        name: size if isinstance(size, int) else len(size) for name, size in subject.dims.items()
    }
    several = [name for name, size in sizes.items() if size > 1]
    for dim, text in at.items():
        if dim not in subject.dims:
            faults.append(fault("--at", dim, "is no dimension", nearest(dim, several)))
            continue
        values = subject.dims[dim]
        if isinstance(values, int) and text.isdigit() and int(text) < values:
            yield dim, int(text)
        elif not isinstance(values, int) and find(text, values) is not None:
            yield dim, text
        else:
            known = range(values) if isinstance(values, int) else values
            allowed = ", ".join(str(entry) for entry in list(known)[:8])
            faults.append(fault(f"--at {dim}", text, "isn't in the file", allowed))
    tell_all(faults)


def _named(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset whose labels name cells also where they are results: machines bought."""
    labels = {
        str(name): variable
        for name, variable in dataset.data_vars.items()
        if name in LABELS and "flag_meanings" in variable.attrs
    }
    words = {name: _words_of(each.to_numpy(), each.attrs) for name, each in labels.items()}
    return dataset.drop_vars(list(labels)).assign_coords(
        {
            name: (each.dims, words[name].astype(np.str_), {"long_name": LABELS[name].meaning})
            for name, each in labels.items()
        }
    )


class _Packed:
    """Arrays of a view as bytes, with what a page is told of each."""

    def __init__(self, view: View, quantities: Sequence[str]) -> None:
        self.view = view
        data = view.dataset
        names = [
            str(data_var) for data_var in data.data_vars if not quantities or data_var in quantities
        ]
        # Why values don't exist comes last.
        self.states = [
            str(quantity) for quantity in data.data_vars if "flag_masks" in data[quantity].attrs
        ]
        self.names = [
            variable
            for variable in names
            if variable not in self.states
            and data[variable].size
            and data[variable].dtype.kind in "fiubOUS"
        ]
        self.states = [state for state in self.states if data[state].ndim]
        varying = {dim for variable in self.names for dim in data[variable].dims}
        self.dims = [str(dim) for dim in data.dims if dim in varying]
        self.columns = [
            name
            for name, coordinate in coordinates_of(data)
            if coordinate.ndim and set(coordinate.dims) <= varying
        ]
        self.groups = {group["name"]: group for group in _groups(view, self.names, self.columns)}
        self.parts: list[bytes] = []
        self.arrays: list[dict[str, Any]] = []

    def check_size(self, name: str) -> None:
        """Refuse what can't be opened at once, before it is read; then pack."""
        data = self.view.dataset
        if not self.dims:
            refuse(name, "page", "has no result with a dimension", "a sweep over one axis or more")
        sizes = {variable: int(data[variable].size) for variable in self.names}
        largest = max(sizes, key=sizes.__getitem__)
        if sizes[largest] > MOST_CELLS or sum(sizes.values()) > 20 * MOST_CELLS:
            cells = f"{sizes[largest]:,} cells of {largest}"
            longest = max(data[largest].dims, key=lambda dim: data.sizes[dim])
            allowed = f"hold or reduce its longest dimension, {longest} ({data.sizes[longest]:,})"
            wrong = f"are more than a page's {MOST_CELLS:,}"
            refuse(name, cells, wrong, f"{allowed}: --at {longest}=VALUE")
        for column in self.columns:
            self._add(column, data.variables[column], "column")
        for quantity in self.names:
            self._add(quantity, data.variables[quantity], "quantity")
        for state in self.states:
            why = reasons(data[[state]].rename({state: "status"}))
            self._pack(state, why.dims, *_categories_of(why.to_numpy()), role="status")

    def _add(self, name: str, variable: xr.Variable, role: str) -> None:
        units = self.view.units(name)
        attrs = variable.attrs
        values = np.asarray(variable.values)
        about: dict[str, object] = {
            "label": style.sentence(style.long_name(name, attrs, short=True)),
            "title": _title(name, attrs),
            "units": units,
            "percent": display.percent(name) or name in _CHANGES,
        }
        if role == "column":
            # People say some values without their names: 64 ranks, but tp 8.
            phrase = display.phrase(name, "{}") or f"{word_of(name)} {{}}"
            whole = name in VOCABULARY and VOCABULARY[name].integer
            about |= {"word": word_of(name), "phrase": phrase, "whole": whole}
            about |= {"plan": name in PLAN_NAMES, "without": without_at(name)}
            if name == "sequence_parallel":
                about["said"] = [worded(name, value, units) for value in (0.0, 1.0)]
        if role == "quantity":
            companions = str(attrs.get("ancillary_variables", "")).split()
            about |= {
                "better": "more" if name in _CHANGES or better_of(None, units, name) else "less",
                "status": next((state for state in self.states if state in companions), ""),
                "meaning": style.long_name(name, attrs),
                **{
                    key: str(attrs[key])
                    for key in ("formula", "references", "comment")
                    if key in attrs
                },
            }
            limited = CAPACITY in self.view.dataset.coords and self.view.units(CAPACITY) == units
            about["limit"] = CAPACITY if limited and name in ("memory", "peak_memory") else ""
        if "flag_meanings" in attrs:
            values = _words_of(values, attrs)
        if values.dtype.kind in "OUSb":
            codes, texts = _categories_of(values)
            self._pack(name, variable.dims, codes, texts, role=role, **about)
            if role == "column":
                said = [display.phrase(name, text) or worded(name, text, units) for text in texts]
                self.arrays[-1]["said"] = said
            return
        numbers = _numbers(values, exact=role == "column")
        self._pack(name, variable.dims, numbers, [], role=role, **about)

    def _pack(
        self,
        name: str,
        dims: Sequence[Any],
        values: NDArray[Any],
        texts: Sequence[str],
        **about: Any,
    ) -> None:
        """Keep an array's bytes, the first of each number first: these are alike."""
        kind = f"{values.dtype.kind}{values.dtype.itemsize}"
        plain = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))).reshape(-1)
        mixed = plain.view(np.uint8).reshape(len(plain), -1).T
        self.parts.append(mixed.tobytes())
        self.arrays.append(
            {"name": name, "dims": [str(dim) for dim in dims], "type": kind, **about}
            | ({"texts": list(texts)} if texts else {})
        )

    def bytes(self) -> bytes:
        """Return all arrays, one after another."""
        return b"".join(self.parts)


def _numbers(values: NDArray[Any], *, exact: bool) -> NDArray[Any]:
    """Return numbers in single precision, where that is precise enough."""
    whole = values.astype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = whole.astype(np.float32)
        back = single.astype(np.float64)
        close = np.abs(back - whole) <= (0.0 if exact else 10.0**-DIGITS) * np.abs(whole)
    same = (close & np.isfinite(back)) | (back == whole) | (np.isnan(back) & np.isnan(whole))
    return single if bool(same.all()) else whole


def _words_of(values: NDArray[Any], attrs: Mapping[str, Any]) -> NDArray[Any]:
    """Return flags as their meanings; no text where there is none."""
    flags = np.atleast_1d(attrs.get("flag_values", ()))
    words = str(attrs["flag_meanings"]).split()
    known = {int(flag): word for flag, word in zip(flags, words, strict=False)}
    codes, inverse = np.unique(values, return_inverse=True)
    texts = [known.get(int(code), "") if np.isfinite(code) else "" for code in codes.tolist()]
    names = np.array(["" if text == "none" else text for text in texts], dtype=object)
    return np.asarray(names[inverse].reshape(values.shape))


def _categories_of(values: NDArray[Any]) -> tuple[NDArray[Any], list[str]]:
    """Return names as places in a list of them."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    texts, inverse = np.unique(values.astype(str), return_inverse=True)
    size = 1 if len(texts) <= 2**8 else 2 if len(texts) <= 2**16 else 4
    return inverse.reshape(values.shape).astype(_LARGEST[size]), [str(text) for text in texts]


def _title(name: str, attrs: Mapping[str, object]) -> str:
    """Return what a list or a table calls a quantity."""
    row = display.row(name)
    if row.title or row.words.strip():
        return row.title or row.words.strip()
    if name in VOCABULARY and name not in PLAN_NAMES:
        return display.of_part(style.long_name(name, attrs, short=True))
    reduced = "long_name" in attrs and name not in PLAN_NAMES
    return style.long_name(name, attrs, short=True) if reduced else style.plain(name)


def _most(view: View, names: Collection[str]) -> dict[str, float]:
    """Return what memory a plan may fill to be called the best, as searches have it."""
    capacity = view.dataset.coords.get(CAPACITY)
    if capacity is None or capacity.ndim:
        return {}
    limit = MEMORY_LIMIT * float(capacity)
    return {
        name: limit
        for name in ("peak_memory", "memory")
        if name in names and view.units(name) == view.units(CAPACITY)
    }


def _dim(view: View, dim: str) -> dict[str, object]:
    """Return what a page is told of a dimension."""
    values = entries(view.dataset, dim)
    named = dim in view.dataset.coords and not isinstance(values, int)
    number = named and not is_label(values)  # type: ignore[arg-type]
    label = style.long_name(dim, view.attrs(dim), short=True)
    if dim in PLAN_NAMES or not number or len(label) > _SHORT:
        label = word_of(dim)
    if dim not in PLAN_NAMES:
        label = display.axis(dim) or label
    return {
        "name": dim,
        "size": view.dataset.sizes[dim],
        "label": label,
        "key": dim if named else "",
        "number": number,
        # Of the best ones the first is shown.
        "first": dim.endswith("_rank"),
        "plans": is_of_plans(dim, values),
        # Whether a best one is looked for along it, or it is what is asked about.
        "chosen": dim not in _CONDITIONS and (is_of_plans(dim, values) or not number),
    }


def _naming(view: View, dims: Sequence[str]) -> list[str]:
    """Return the columns that name cells: of rows with a machine or model each that alone."""
    names = naming(view.dataset, dims)
    # Plans of several machines or models that are bought are numbered.
    sold = [
        name
        for name in ("model", "hardware")
        if name in view.dataset.coords and len(np.unique(view.dataset[name].values)) > 1
    ]
    names = [*(name for name in sold if name not in names), *names]
    for name in ("hardware", "model"):
        column = view.dataset.variables.get(name)
        if name in names and column is not None and len(np.unique(column.values)) == column.size:
            names = [
                each
                for each in names
                if each == name or view.dataset.variables[each].dims != column.dims
            ]
    return names


def _node(view: View) -> float | None:
    """Return the GPUs of a node, beyond which TP isn't simple; None where there are no nodes."""
    constants = {
        name: coordinate.values.item()
        for name, coordinate in coordinates_of(view.dataset)
        if not coordinate.ndim
    }
    nodes = constants.get("topology") == HIERARCHY
    return float(constants["gpus_per_node"]) if nodes and "gpus_per_node" in constants else None


def _constants(view: View) -> Iterator[dict[str, object]]:
    """Yield what is the same everywhere, with where it comes from."""
    for name, coordinate in coordinates_of(view.dataset):
        if coordinate.ndim:
            continue
        value = coordinate.values.item()
        origins = "; ".join(dict.fromkeys(origin.words for origin in read(coordinate.attrs)))
        text = shown(value, view.units(name)) if not isinstance(value, bytes) else value.decode()
        number = float(value) if isinstance(value, int | float) else None
        label = style.long_name(name, coordinate.attrs, short=True)
        yield {
            "name": name,
            "label": label,
            "text": text,
            "origin": origins,
            "value": number,
            "units": view.units(name),
        }


def _groups(view: View, names: Sequence[str], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what is stacked: totals with their parts, as the figures stack them."""
    constants = [name for name, coordinate in coordinates_of(view.dataset) if not coordinate.ndim]
    for kind in BREAKDOWNS:
        # A part may be what a step was given: the same for all, or each machine's.
        variables = known_parts(kind, [*names, *columns, *constants])
        if not any(variable in names for variable in variables) or len(variables) < 2:
            continue
        parts = stacked(kind, variables, chosen=False)
        labels = labelled(parts, {variable: view.attrs(variable) for variable in variables})
        for index, part in enumerate(parts):
            if display.row(part.variables[0]).words and not part.label:
                labels[index] = display.words(part.variables[0])
        total = total_of(kind, variables)
        yield {
            "name": kind,
            "label": _GROUPS[kind],
            "total": total if total in names else "",
            "parts": [
                {"label": label, "variables": part.variables, "colour": part.colour}
                for part, label in zip(parts, labels, strict=True)
            ],
        }


def _asked(
    figures: Sequence[Figure], subject: Subject, fixed: Mapping[str, Any], packed: _Packed
) -> Iterator[dict[str, Any]]:
    """Yield the views that a sweep's figures are: each a question with the state of the page."""
    for declared in figures:
        figure, faults = resolve(declared, subject)
        state = None if faults else _state(figure, packed)
        if state is None:
            continue
        at = {**dict.fromkeys(state.pop("all", ()), "*")}
        for dim, wanted in figure["at"].items():
            values = subject.dims.get(dim)
            entry = wanted[0] if isinstance(wanted, list) else wanted
            if dim in packed.dims and dim not in fixed and values is not None:
                position = find(entry, values)
                at |= {} if position is None else {dim: position}
        known = {dim: index for dim, index in at.items() if dim in packed.dims}
        question = figure["title"] or _question(state, packed)
        yield {"name": figure.name, "title": question, "state": {**state, "at": known}}


def _question(state: Mapping[str, Any], packed: _Packed) -> str:
    """Return what a figure without a title is called."""
    titles = {array["name"]: array.get("title", array["name"]) for array in packed.arrays}
    if state["view"] == "bars":
        return _GROUPS[state["g"]]
    y, x = (titles.get(state[key], style.plain(state[key])) for key in ("y", "x"))
    return style.sentence(f"{y} over {x}")


def _state(figure: Figure, packed: _Packed) -> dict[str, Any] | None:
    """Return the state of the page that shows a figure; None where it has no such view."""
    kind = figure.kind
    known = {*packed.names, *packed.columns, *packed.dims}
    if kind == "best_plans":
        state = {
            "view": "points",
            "y": figure["y"],
            "x": figure["x"],
            "by": figure["by"] or "",
            "all": figure["plans"],
        }
    elif kind in BREAKDOWNS:
        state = {"view": "bars", "g": kind, "sort": figure["sort"] or "", "all": figure["x"]}
        return state if kind in packed.groups else None
    elif kind in ("curves", "scaling", "measured"):
        lines = listed(figure["lines"])
        over = listed(figure.options.get("best_of"))
        state = {
            "view": "lines",
            "y": figure["y"],
            "x": figure["x"],
            "by": next((line for line in lines if line in known), ""),
            "all": over,
        }
    elif kind == "best":
        over = listed(figure["over"])
        state = {
            "view": "map",
            "y": figure["value"],
            "x": figure["x"],
            "by": figure["y"],
            "c": over[0] if over else "",
            "all": over,
        }
    else:
        return None
    names = [state[key] for key in ("x", "y", "by") if state[key]]
    return state if set(names) <= known else None
