"""A request's cells: values, and why some of them can't be."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.evaluation import Evaluation
from overhead.formula import REGISTRY, Call, Formula
from overhead.quantity import VOCABULARY
from sweeps.engine.case import Block, Column, Layout
from sweeps.origin import Origin, attributes
from sweeps.overlap.request import Case, Request

Floats = NDArray[np.float64]

# Cells computed at a time.
BLOCK_CELLS = 1 << 17

FAULTS: dict[str, tuple[int, str]] = {
    "ranks_odd": (1, "two chunks at a time need an even number of ranks"),
    "no_multiprocessor_left": (2, "communication must leave a multiprocessor: num_sm below sms"),
    "micro_batches_not_multiple_of_stages": (
        4,
        "interleaving needs a multiple of the stages as micro-batches",
    ),
    "virtual_stages_need_interleaving": (8, "other schedules have one virtual stage a rank"),
    "shorter_than_possible": (16, "both at once can't be shorter than the longer of them"),
}
# Rounding of what was measured.
SLACK = 1e-9


def faults_of(case: Case, evaluation: Evaluation) -> Any:
    """Return flags of why cells can't be, of the shape to which what they depend on broadcasts."""
    found: Any = 0
    held = evaluation.given
    if case.mechanism == "ring_exchange_aggregate":
        odd = (held["ranks"] % 2 == 1) & (held["ranks"] > 1)
        found = found + odd * FAULTS["ranks_odd"][0]
    if case.mechanism.startswith("bulk") and "num_sm" in held and "sms" in held:
        none = held["num_sm"] >= held["sms"]
        found = found + none * FAULTS["no_multiprocessor_left"][0]
    if case.mechanism == "pipeline":
        # Nothing depends on it where compute and communication are given beside the stages.
        several = np.asarray(held.get("virtual_stages", 1.0)) > 1
        if case.labels["schedule"] == "interleaved":
            uneven = several & (held["micro_batches"] % held["pp"] != 0)
            found = found + uneven * FAULTS["micro_batches_not_multiple_of_stages"][0]
        else:
            found = found + several * FAULTS["virtual_stages_need_interleaving"][0]
    if "overlapped_time" in held:
        longer = evaluation["ideal_overlapped_time"]
        short = held["overlapped_time"] < longer * (1.0 - SLACK)
        found = found + short * FAULTS["shorter_than_possible"][0]
    return found


def evaluate(
    request: Request, case: Case, region: Sequence[slice] | None = None
) -> dict[str, NDArray[Any]]:
    """Evaluate a case over a region of the numeric axes."""
    parts = tuple(region or [slice(None)] * len(request.axes))
    held: dict[str, Any] = {**case.defaults, **request.constants}
    shape = []
    for place, (name, values) in enumerate(request.axes.items()):
        own = values[parts[place]]
        shape.append(len(own))
        held[name] = own.reshape((-1,) + (1,) * (len(request.axes) - place - 1))
    evaluation = Evaluation({name: held[name] for name in held if name in case.used}, case.labels)
    with np.errstate(all="ignore"):
        status = np.broadcast_to(faults_of(case, evaluation), shape).astype(np.int32)
        found: dict[str, NDArray[Any]] = {}
        for name in request.outputs:
            value = np.broadcast_to(evaluation[name], shape)
            found[name] = np.where(status == 0, value, np.nan)
    return {**found, "status": status}


def _regions(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield regions of at most so many cells, which cover a grid in C order."""
    inner = len(shape)
    size = 1
    while inner and size * shape[inner - 1] <= most:
        inner -= 1
        size *= shape[inner]
    if not inner:
        yield tuple(slice(0, n) for n in shape)
        return
    step = max(most // size, 1)
    for place in np.ndindex(*shape[: inner - 1]):
        for start in range(0, shape[inner - 1], step):
            end = min(start + step, shape[inner - 1])
            yield (
                *(slice(k, k + 1) for k in place),
                slice(start, end),
                *(slice(0, n) for n in shape[inner:]),
            )


def _places(request: Request) -> Iterator[tuple[tuple[int, ...], Case]]:
    places = product(*(range(len(values)) for values in request.labels.values()))
    yield from zip(places, request.cases, strict=True)


def blocks(request: Request, cells: int = BLOCK_CELLS) -> Iterator[Block]:
    """Yield every output and the status, block by block; each cell once."""
    sizes = [len(values) for values in request.axes.values()]
    for place, case in _places(request):
        labelled = tuple(slice(k, k + 1) for k in place)
        for region in _regions(sizes, cells):
            for name, values in evaluate(request, case, region).items():
                shape = (1,) * len(place) + values.shape
                yield Block(name, (*labelled, *region), values.reshape(shape))


def records(request: Request) -> Iterator[dict[str, Any]]:
    """Yield a record for each cell: coordinates, constants, outputs, why it can't be."""
    sizes = [len(values) for values in request.axes.values()]
    for place, case in _places(request):
        chosen = zip(request.labels.items(), place, strict=True)
        names = {"mechanism": case.mechanism}
        names |= {label: values[k] for (label, values), k in chosen}
        for region in _regions(sizes, BLOCK_CELLS):
            found = evaluate(request, case, region)
            for index in np.ndindex(found["status"].shape):
                cell: dict[str, Any] = {**names, **request.constants}
                for part, at, (name, values) in zip(
                    region, index, request.axes.items(), strict=True
                ):
                    cell[name] = float(values[part.start + at])
                cell |= {name: float(found[name][index]) for name in request.outputs}
                flags = int(found["status"][index])
                told = [name for name, (bit, _) in FAULTS.items() if flags & bit]
                yield {**cell, "status": " ".join(told) or "ok"}


def cell_of(request: Request, case: Case, names: Sequence[str]) -> Mapping[str, float]:
    """Return further quantities of a request's one cell; what can't be had is left out."""
    held = {**case.defaults, **request.constants}
    evaluation = Evaluation(held, case.labels)
    found: dict[str, float] = {}
    with np.errstate(all="ignore"):
        for name in names:
            value = evaluation.value(name, {})
            if value is not None:
                found[name] = float(value)
    return found


# Values on named dimensions as a dataset: its layout, and its file.


def number_column(
    name: str, dims: Sequence[str], values: Any, origin: Sequence[Origin] = (), long_name: str = ""
) -> Column:
    """Return a coordinate that holds numbers of a quantity."""
    attrs = {**VOCABULARY[name].attrs(), **attributes(origin)}
    if long_name:
        attrs["long_name"] = long_name
    return Column(name, tuple(dims), np.dtype(np.float64), attrs, np.asarray(values, np.float64))


def label_column(name: str, dims: Sequence[str], values: Any, long_name: str) -> Column:
    """Return a coordinate that holds names."""
    text = np.asarray(values, dtype=np.str_)
    return Column(name, tuple(dims), text.dtype, {"long_name": long_name, **attributes()}, text)


def attrs_of(name: str, declared: Iterable[Formula | Call | None]) -> dict[str, Any]:
    """Return the metadata of a variable that holds a quantity: unit, formulas, sources."""
    attrs: dict[str, Any] = dict(VOCABULARY[name].attrs())
    known = [one for one in declared if one is not None]
    if known:
        attrs["formula"] = "; ".join(dict.fromkeys(one.statement for one in known))
    formulas = [one for one in known if isinstance(one, Formula)]
    if formulas:
        attrs["references"] = "; ".join(dict.fromkeys(one.source.at() for one in formulas))
    assumed = dict.fromkeys(phrase for one in formulas for phrase in one.assumes)
    if assumed:
        attrs["comment"] = f"Assumes {'; '.join(assumed)}."
    return attrs


def status_attrs(faults: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Return the metadata of a variable whose flags say why a value doesn't exist."""
    return {
        "long_name": "why a value doesn't exist (0: it does)",
        "flag_masks": [bit for bit, _ in faults.values()],
        "flag_meanings": " ".join(faults),
        "comment": "; ".join(f"{name}: {text}" for name, (_, text) in faults.items()),
    }


def store(
    coordinates: Sequence[Column],
    variables: Sequence[Column],
    blocks: Iterable[Block] | Mapping[str, NDArray[Any]],
    *,
    title: str,
    stated: Mapping[str, Any],
    given: Mapping[str, Any],
    output: Path,
    summary: str = "",
) -> None:
    """Write a dataset as netCDF, and say so."""
    from sweeps.store.metadata import code_digest, fingerprint, provenance
    from sweeps.store.publish import readable
    from sweeps.store.read import is_complete
    from sweeps.store.write import write

    kept = {name: given[name] for name in ("compress", "digits", "dtype")}
    text = _toml({"title": title, **stated})
    sources = (str(column.attrs.get("references", "")) for column in variables)
    told = dict.fromkeys(one for text in sources for one in text.split("; ") if one)
    attrs = provenance(
        title=title,
        summary=summary,
        spec_text=text,
        command=["sweeps", *sys.argv[1:]],
        fingerprint=fingerprint(text, code_digest(), {**kept, "coordinates": _digest(coordinates)}),
        references="; ".join(told),
    )
    # Programs read records from standard output, so what is for people goes elsewhere.
    notes = sys.stderr if given.get("as_csv") or given.get("as_json") else sys.stdout
    if not given["overwrite"] and is_complete(output, attrs["fingerprint"]):
        notes.write(f"{output} is complete already: the same sweep by the same code\n")
    else:
        if isinstance(blocks, Mapping):
            blocks = [
                Block(name, tuple(slice(0, n) for n in values.shape), values)
                for name, values in blocks.items()
            ]
        sizes = {
            column.name: len(column.values)
            for column in coordinates
            if column.values is not None and column.dims == (column.name,)
        }
        layout = Layout(sizes, tuple(coordinates), tuple(variables), attrs)
        written = write(output, layout, blocks, overwrite=bool(given["overwrite"]), **kept)
        notes.write(f"wrote {output} ({readable(written.nbytes)})\n")


def _toml(stated: Mapping[str, Any]) -> str:
    from sweeps.spec.units import to_toml

    return to_toml(stated)


def _digest(coordinates: Sequence[Column]) -> str:
    """Return what tells coordinates apart: machines' figures change without the request."""
    return repr([(c.name, np.asarray(c.values).tolist()) for c in coordinates if not c.dims])


# A request's cells as a dataset in a file, and what figures suit it.

LABEL_NAMES = {
    "mechanism": "mechanism of overlap",
    "efficiency_of": "what the efficiency is of",
    "schedule": "schedule of the pipeline",
}
TITLE = "Overlap of computation and communication"
MOST_LINES = 16


def write_dataset(
    request: Request, asked: Mapping[str, str], given: Mapping[str, Any], output: Path
) -> None:
    """Write a request's cells as netCDF."""
    variables = [_variable(request, name) for name in request.outputs]
    status = status_attrs(FAULTS)
    variables.append(Column("status", request.dims, np.dtype(np.int32), status))
    store(
        _coordinates(request),
        variables,
        blocks(request),
        title=TITLE,
        summary="What of computation and communication overlaps, by closed forms.",
        stated={"overlap": dict(asked)},
        given=given,
        output=output,
    )


def _coordinates(request: Request) -> list[Column]:
    found: list[Column] = []
    for name, values in request.labels.items():
        found.append(label_column(name, (name,), values, LABEL_NAMES[name]))
    for name, numbers in request.axes.items():
        found.append(number_column(name, (name,), numbers))
    for name, value in request.constants.items():
        found.append(number_column(name, (), value))
    # What is taken besides is one value where all mechanisms that take it take the same.
    for name, origin in request.origins.items():
        taken = {case.defaults[name] for case in request.cases if name in case.defaults}
        if len(taken) == 1:
            found.append(number_column(name, (), taken.pop(), [origin]))
    first = request.cases[0].labels
    found += [
        label_column(name, (), first[name], words)
        for name, words in LABEL_NAMES.items()
        if name not in request.labels and (name == "mechanism" or _heeded(request, name))
    ]
    return found


def _heeded(request: Request, label: str) -> bool:
    heeding = {"efficiency_of": "two_durations", "schedule": "pipeline"}[label]
    return any(case.mechanism == heeding for case in request.cases)


def _variable(request: Request, name: str) -> Column:
    declared = [REGISTRY.returning(name, case.labels) for case in request.cases]
    attrs = {**attrs_of(name, declared), "ancillary_variables": "status"}
    return Column(name, request.dims, np.dtype(np.float64), attrs)


def figures_of(request: Request) -> list[dict[str, Any]]:
    """Return declarations of figures that suit: lines over the longest axis, else bars."""
    if not request.axes:
        return _bars(request)
    x = max(request.axes, key=lambda name: len(request.axes[name]))
    free = [name for name in request.dims if name != x]
    lines: list[str] = []
    for name in sorted(free, key=lambda name: name != "mechanism"):
        if int(np.prod([_size(request, n) for n in (*lines, name)])) <= MOST_LINES:
            lines.append(name)
    lines = lines[:2]
    at = {name: _middle(request, name) for name in free if name not in lines}
    common = {"kind": "curves", "x": x, "lines": lines, "at": at, "crossovers": False}
    speedup = {
        "y": "overlap_speedup",
        "yscale": "linear",
        "better": "more",
        "title": "Speedup by overlap",
    }
    return [
        {**common, "name": "time", "y": "overlapped_time", "title": "Time with overlap"},
        {**common, "name": "speedup", **speedup},
    ]


def _bars(request: Request) -> list[dict[str, Any]]:
    """Return bars of what hides and what shows, for each mechanism."""
    if "mechanism" not in request.labels:
        return []
    at = {name: values[0] for name, values in request.labels.items() if name != "mechanism"}
    # What costs time hides nothing: no bar of less than nothing.
    saves = all(record["hidden_time"] >= 0.0 for record in records(request))
    parts = ["hidden_time", "exposed_time"] if saves else ["exposed_time"]
    title = "What hides of the communication, and what shows"
    shown = {"parts": parts, "x": ["mechanism"], "at": at, "title": title}
    return [{"kind": "bars", "name": "hidden", **shown}]


def _size(request: Request, name: str) -> int:
    return dict(zip(request.dims, request.shape, strict=True))[name]


def _middle(request: Request, name: str) -> Any:
    if name in request.labels:
        return request.labels[name][0]
    values = request.axes[name]
    return float(values[len(values) // 2])
