"""What overlap gains over machines and sizes, and NVIDIA's own settings beside the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.bands import percent
from sweeps.errors import InputError, fault, needs, refuse, tell_all
from sweeps.origin import assumed
from sweeps.result import Field, Result, aligned, of_rows
from sweeps.spec.axis import parse_values
from sweeps.spec.fields import FigureReader
from sweeps.spec.files import read_toml
from sweeps.spec.units import parse_quantity
from sweeps.tuner.choose import best_of
from sweeps.tuner.predict import PRECISIONS, Rates, predict, predict_phases, read_rates
from sweeps.tuner.userbuffers import (
    COLUMN,
    LAYERS,
    MOST_SMS,
    OPERATORS,
    PHASES,
    REDUCE_SCATTER,
    LayerOverlap,
    phase_collective,
)
from sweeps.validate.run_table import read_csv

Floats = NDArray[np.float64]
TABLE = "tp_overlap"
AXES = ("tp", "hidden_size", "tokens", "num_sm")
SHAPE = {"head_size": 128.0, "kv_heads": 8.0, "ffn_ratio": 4.0, "gated_mlp": False}
MOST_CELLS = 10**7


@dataclass(frozen=True, slots=True)
class BenefitStudy:
    """What is swept."""

    title: str  # What it is about
    summary: str
    hardware: tuple[Rates, ...]  # Machines
    axes: Mapping[str, Floats]  # ``tp``, ``hidden_size``, ``tokens`` and ``num_sm``
    # How a model's other shapes follow from its hidden size: ``head_size``, ``kv_heads``,
    # ``ffn_ratio``, ``gated_mlp``
    shape: Mapping[str, float]
    sm_margin: bool = False  # Whether products keep off the multiprocessors of the communication
    figures: tuple[Mapping[str, Any], ...] = ()  # Declared figures

    @property
    def dims(self) -> tuple[str, ...]:
        """Dimensions, by the quantities' names."""
        return ("hardware", "tp", "hidden_size", "rank_tokens", "num_sm")

    @property
    def cells(self) -> int:
        """Cells of the grid."""
        return len(self.hardware) * int(np.prod([len(v) for v in self.axes.values()], dtype=object))

    def shapes(self) -> dict[str, Floats]:
        """Return a model's shapes for each hidden size."""
        hidden = self.axes["hidden_size"]
        head = self.shape["head_size"]
        heads = np.maximum(np.floor(hidden / head), 1.0)
        same = np.ones_like(hidden)
        return {
            "hidden_size": hidden,
            "heads": heads,
            "kv_heads": np.minimum(self.shape["kv_heads"], heads),
            "head_size": head * same,
            "ffn_size": np.round(hidden * self.shape["ffn_ratio"]),
            "gated_mlp": float(self.shape["gated_mlp"]) * same,
        }


def is_study(path: Path) -> bool:
    """Return whether a spec file is about tensor-parallel overlap; a broken one isn't."""
    try:
        return TABLE in read_toml(path)
    except InputError:
        return False


def read_study(path: Path, folders: Sequence[Path] = ()) -> BenefitStudy:
    """Read a spec of tensor-parallel overlap."""
    reader = FigureReader(path, read_toml(path))
    content = reader.content
    reader.unknown("", content, ("title", "summary", "figures", TABLE))
    table, shape = reader.table(TABLE), reader.table(f"{TABLE}.shape")
    reader.unknown(TABLE, table, ("hardware", "precision", "sm_margin", "shape", *AXES))
    reader.unknown(f"{TABLE}.shape", shape, SHAPE)
    shapes = {**SHAPE, **shape}
    for name, value in shapes.items():
        flag = name == "gated_mlp"
        good = isinstance(value, bool) if flag else _number(value) and value > 0
        if not good:
            reader.fault(
                f"{TABLE}.shape.{name}",
                value,
                "isn't allowed",
                "true, false" if flag else "above 0",
            )
    axes: dict[str, Floats] = {}
    for name in AXES:
        values = reader.of(_axis, path, name, table)
        if values is not None:
            axes[name] = values
    machines = _machines(reader, table, folders)
    margin = table.get("sm_margin", False)
    if not isinstance(margin, bool):
        reader.fault(f"{TABLE}.sm_margin", margin, "isn't allowed", "true or false")
    title = reader.text("", content, "title", default="Tensor-parallel overlap")
    summary = reader.text("", content, "summary", default="")
    listed = content.get("figures", [])
    figures = listed if isinstance(listed, list) else []
    if figures is not listed:
        reader.fault("figures", listed, "is not a list of tables", "[[figures]]")
    reader.tell()
    study = BenefitStudy(title, summary, machines, axes, shapes, margin, tuple(figures))
    _check(study, path)
    return study


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _axis(path: Path, name: str, table: Mapping[str, object]) -> Floats:
    place = f"{path}: {TABLE}.{name}"
    if name not in table:
        raise InputError(needs("the table", name, f"{place}, one value or many"))
    values = parse_values(table[name], "1", field=place, integer=True, bare_is_si=False)
    highest = {"num_sm": float(MOST_SMS), "tp": float(MOST_SMS)}.get(name, 2.0**40)
    lowest = 2.0 if name == "tp" else 1.0
    if values[0] < lowest or values[-1] > highest:
        shown = f"{values[0]:g} to {values[-1]:g}"
        refuse(place, shown, "isn't allowed", f"{lowest:g} to {highest:g}")
    return values


def _machines(
    reader: FigureReader, table: Mapping[str, Any], folders: Sequence[Path]
) -> tuple[Rates, ...]:
    names = table.get("hardware", [])
    names = [names] if isinstance(names, str) else names
    precision = table.get("precision", PRECISIONS[0])
    if precision not in PRECISIONS:
        reader.fault(f"{TABLE}.precision", precision, "unknown", " or ".join(PRECISIONS))
        return ()
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        reader.fault(f"{TABLE}.hardware", names, "names no machine", "['dgx-h100']")
        return ()
    found = [reader.of(read_rates, name, precision, folders=tuple(folders)) for name in names]
    return tuple(one for one in found if one is not None)


def _check(study: BenefitStudy, path: Path) -> None:
    """Refuse what can't be split evenly, and more ranks than a machine has."""
    tp, tokens = study.axes["tp"], study.axes["tokens"]
    found = []
    shapes = study.shapes()
    split = {"tokens": tokens, "heads": shapes["heads"], "ffn_size": shapes["ffn_size"]}
    for name, values in split.items():
        odd = [(v, n) for v in values for n in tp if v % n]
        if odd:
            value, ranks = odd[0]
            wrong = f"{value:g} can't be split over {ranks:g} ranks"
            found.append(fault(f"{path}: {TABLE}.{name}", f"{value:g}", wrong, "a multiple"))
    for machine in study.hardware:
        if tp[-1] > machine.ranks:
            wrong = f"{machine.name} has {machine.ranks} GPUs in a node"
            found.append(fault(f"{path}: {TABLE}.tp", f"{tp[-1]:g}", wrong, "fewer ranks"))
    if study.cells > MOST_CELLS:
        wrong = f"{study.cells:,} cells"
        found.append(fault(f"{path}: {TABLE}", wrong, "are too many", f"at most {MOST_CELLS:,}"))
    tell_all(found)


def benefit(study: BenefitStudy) -> dict[str, Floats]:
    """Compute what overlap gains."""
    shape = tuple(len(values) for values in study.axes.values())
    shapes = study.shapes()
    hidden, tokens = len(shapes["hidden_size"]), len(study.axes["tokens"])
    spread = {name: np.repeat(values, tokens) for name, values in shapes.items()}
    every_tokens = np.tile(study.axes["tokens"], hidden)
    sequential = np.empty((len(study.hardware), *shape))
    overlapped = np.empty_like(sequential)
    for k, rates in enumerate(study.hardware):
        for j, size in enumerate(study.axes["tp"].astype(int).tolist()):
            base, total = _one_size(study, rates, size, spread, every_tokens)
            sequential[k, j] = base.reshape(hidden, tokens, 1)
            overlapped[k, j] = total.reshape(hidden, tokens, -1)
    return {
        "sequential_time": sequential,
        "overlapped_time": overlapped,
        "overlap_speedup": sequential / overlapped,
    }


def records_of(study: BenefitStudy, values: Mapping[str, Floats]) -> Iterator[dict[str, object]]:
    """Yield a record for each cell: where it is, and what overlap gains there."""
    names = [rates.name for rates in study.hardware]
    axes = list(study.axes.values())
    speedup = values["overlap_speedup"]
    for index in np.ndindex(speedup.shape):
        places = (float(axis[k]) for axis, k in zip(axes, index[1:], strict=True))
        yield {
            "hardware": names[index[0]],
            **dict(zip(study.dims[1:], places, strict=True)),
            "sequential_s": float(values["sequential_time"][index]),
            "overlapped_s": float(values["overlapped_time"][index]),
            "overlap_speedup": float(speedup[index]),
        }


def _one_size(
    study: BenefitStudy, rates: Rates, size: int, shapes: Mapping[str, Floats], tokens: Floats
) -> tuple[Floats, Floats]:
    """Return the times of one size without overlap, and with all of it, over multiprocessors."""
    counts = study.axes["num_sm"].astype(int).tolist()
    cases = [LayerOverlap(size, operator, "fprop") for operator in OPERATORS]
    # Of each layer the places of its rings, which take no multiprocessors, and of what takes them.
    groups: list[tuple[str, slice, slice]] = []
    for operator, phase in product(OPERATORS, PHASES):
        collective = phase_collective(operator, phase)
        bulk = operator in COLUMN and phase != "fprop"
        layer = LayerOverlap(size, operator, phase)
        rings = [replace(layer, method="ring_exchange", aggregate=k) for k in (0, 1)]
        rings = [] if bulk or not collective else rings
        counted = [replace(layer, method="bulk" if bulk else "pipeline", num_sm=n) for n in counts]
        counted = counted if bulk or collective == REDUCE_SCATTER else []
        start, end = len(cases), len(cases) + len(rings)
        groups.append((operator, slice(start, end), slice(end, end + len(counted))))
        cases += rings + counted
    found = predict(shapes, tokens, cases, rates, sm_margin=study.sm_margin)
    time = np.asarray(found.forward.e2e + found.backward.e2e)
    base = time[:, : len(OPERATORS)]
    total = np.repeat(base.sum(axis=1)[:, None], len(counts), axis=1)
    for operator, rings_at, counted_at in groups:
        ring = time[:, rings_at].min(axis=1, keepdims=True, initial=np.inf)
        own = np.minimum(ring, time[:, counted_at]) if counted_at.start < counted_at.stop else ring
        if np.isfinite(own).all():
            total = total + own - base[:, [OPERATORS.index(operator)]]
    return base.sum(axis=1), total


# NVIDIA's presets of userbuffers beside the best of the prediction, layer by layer.

NEAR = 0.02
"""A setting whose layer loses at most this share of the best one's time is as good."""
COUNTS = (2, 4, 8, 16, 24, 32)
"""Multiprocessors of NVIDIA's settings: in clusters of two."""
LIKE = 0.01  # Counts whose layer's time differs by less from the best are as good
MACHINES = {"H100": "dgx-h100", "B200": "dgx-b200"}
NUMBERS = ("tp", "tokens", "hidden", "ffn_hidden", "gated", "heads", "kv_groups")
PRESET = ("preset", "gpu", "precision", *NUMBERS, "layer", "method", "num_sm", "aggregate")


def preset_rows(path: Path, folders: Sequence[Path] = ()) -> list[dict[str, object]]:
    """Return a table's settings with our choice for each layer, and what theirs loses."""
    _, ((_, heading), *lines) = read_csv(path, "TABLE", quantities=False)
    lacking = [name for name in PRESET if name not in heading]
    if lacking:
        refuse("TABLE", str(path), f"has no column {', '.join(lacking)}", ", ".join(PRESET))
    presets: dict[str, list[dict[str, str]]] = {}
    for line, cells in lines:
        row = {**dict(zip(heading, cells, strict=False)), "line": str(line)}
        presets.setdefault(row["preset"], []).append(row)
    return [one for rows in presets.values() for one in _of_preset(path, rows, folders)]


def _of_preset(
    path: Path, rows: Sequence[Mapping[str, str]], folders: Sequence[Path]
) -> Iterator[dict[str, object]]:
    first = rows[0]
    numbers = {}
    for name in NUMBERS:
        where = f"{path.name}, line {first['line']}: {name}"
        value = parse_quantity(first[name], "1", field=where, bare_is_si=True)
        if name != "gated" and not (value >= 1.0 and value.is_integer()):
            refuse(where, first[name], "isn't allowed", "a whole number, 1 or more")
        numbers[name] = value
    gpu = first["gpu"]
    if gpu not in MACHINES or first["precision"] not in PRECISIONS:
        where = f"{path.name}, line {first['line']}: gpu, precision"
        wrong = f"{gpu} in {first['precision']}"
        allowed = f"{' or '.join(MACHINES)} in {' or '.join(PRECISIONS)}"
        refuse(where, wrong, "unknown", allowed)
    shapes = {
        "hidden_size": numbers["hidden"],
        "heads": numbers["heads"],
        "kv_heads": numbers["kv_groups"],
        "ffn_size": numbers["ffn_hidden"],
        "head_size": numbers["hidden"] / numbers["heads"],
        "gated_mlp": numbers["gated"],
    }
    rates = read_rates(MACHINES[gpu], first["precision"], folders=tuple(folders))
    theirs = {row["layer"]: _theirs(path, row, int(numbers["tp"])) for row in rows}
    # Where weights are frozen there is no weight gradient, and input gradients are scattered.
    every = [case for their in theirs.values() if their is not None for case in _choices(their)]
    phases = predict_phases(shapes, numbers["tokens"], every, rates)
    times = {case: float(phases[case.phase].e2e[0, index]) for index, case in enumerate(every)}
    for row in rows:
        case = theirs[row["layer"]]
        if case is not None:
            known = {name: row[name] for name in ("layer", "preset", "gpu", "precision")}
            yield {
                **known,
                "tp": int(numbers["tp"]),
                "tokens": int(numbers["tokens"]),
                **_comparison(case, times),
            }


def _theirs(path: Path, row: Mapping[str, str], tp: int) -> LayerOverlap | None:
    """Return a row as a case; nothing where the layer has nothing to overlap."""
    where = f"{path.name}, line {row['line']}: "
    if row["method"] == "none":
        return None
    if row["layer"] not in LAYERS or row["method"] not in ("ring_exchange", "pipeline", "bulk"):
        wrong, allowed = "unknown", "a layer and method of userbuffers"
        refuse(f"{where}layer, method", row["layer"], wrong, allowed)
    count = parse_quantity(row["num_sm"], "1", field=f"{where}num_sm", bare_is_si=True)
    if not (count.is_integer() and 1 <= count <= MOST_SMS):
        refuse(f"{where}num_sm", row["num_sm"], "isn't allowed", f"1 to {MOST_SMS}")
    operator, phase = row["layer"].split("_")
    ring = row["method"] == "ring_exchange"
    twice = int(ring and row["aggregate"] == "True")
    return LayerOverlap(tp, operator, phase, row["method"], twice, 1 if ring else int(count))


def _choices(case: LayerOverlap) -> list[LayerOverlap]:
    """Return what a layer can overlap as, beside none and theirs."""
    off = LayerOverlap(case.tp_size, case.operator, case.phase)
    methods = ("bulk",) if case.method == "bulk" else ("ring_exchange", "pipeline")
    found = [
        replace(off, method=method, aggregate=twice, num_sm=count)
        for method in methods
        for twice in ((0, 1) if method == "ring_exchange" else (0,))
        for count in ((1,) if method == "ring_exchange" else COUNTS)
    ]
    legal = [one for one in found if one.legality.level == "legal" and one.same_as == one]
    return list(dict.fromkeys([off, *legal, case.same_as]))


def _comparison(case: LayerOverlap, times: Mapping[LayerOverlap, float]) -> dict[str, object]:
    """Return theirs beside ours."""
    own = {choice: times[choice] for choice in _choices(case)}
    ours = best_of(own, LIKE)
    same = best_of({one: time for one, time in own.items() if one.method == case.method}, LIKE)
    best = min(own.values())
    loss = own[case.same_as] / best - 1.0
    counted = case.method != "ring_exchange"
    ways: dict[str, float] = {}
    for one, time in sorted(own.items(), key=lambda pair: pair[1]):
        ways.setdefault(_way(one), time)
    shown = ", ".join(f"{way} {1e6 * time:.0f} µs" for way, time in ways.items())
    scattered = case.method == "pipeline" or ours.method == "pipeline"
    why = "; the time does not decide which NVIDIA uses" if scattered else ""
    return {
        "their_method": _way(case),
        "their_num_sm": case.num_sm if counted else None,
        "our_method": _way(ours),
        "our_num_sm": None if ours.method == "ring_exchange" else ours.num_sm,
        "num_sm_factor": same.num_sm / case.num_sm if counted else None,
        "sequential_us": round(1e6 * next(t for one, t in own.items() if one.is_baseline), 3),
        "their_time_us": round(1e6 * own[case.same_as], 3),
        "our_time_us": round(1e6 * best, 3),
        "loss": loss,
        "note": f"predicted {shown}{why}" if loss > NEAR else "",
    }


def _way(case: LayerOverlap) -> str:
    return "sequential" if case.is_baseline else case.method + "_aggregate" * case.aggregate


def preset_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return how near their settings are: shares of layers, and the median factor of num_sm."""
    factors = [row["num_sm_factor"] for row in rows if row["num_sm_factor"]]
    ratios = [max(factor, 1.0 / factor) for factor in factors]
    return {
        "layers": float(len(rows)),
        "near": float(np.mean([row["loss"] <= NEAR for row in rows])),
        "same_method": float(np.mean([row["our_method"] == row["their_method"] for row in rows])),
        "num_sm_factor": float(np.median(ratios)) if ratios else 1.0,
        "num_sm_ratio": float(np.median(factors)) if factors else 1.0,
    }


def preset_result(rows: Sequence[dict[str, object]], attrs: Mapping[str, str]) -> Result:
    """Return the layers as a dataset of rows."""
    return of_rows(list(rows), fields_of(rows), attrs)


def fields_of(rows: Sequence[Mapping[str, object]], chosen: Sequence[str] = ()) -> list[Field]:
    """Return the columns of rows by their names: times in µs, text, numbers that were chosen."""
    fields = []
    for name in rows[0]:
        words = name.removesuffix("_us").replace("_", " ")
        if any(isinstance(row[name], str) for row in rows):
            fields.append(Field(name, name, words))
        elif name.endswith("_us"):
            fields.append(Field(name, name.removesuffix("_us"), words, "s", None, 1e-6))
        else:
            origin = assumed(None, "the grid's cases") if name in chosen else None
            fields.append(Field(name, name, words, "1", origin))
    return fields


def preset_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each layer, by preset: their setting and ours, and the times of both."""
    for preset in dict.fromkeys(row["preset"] for row in rows):
        yield preset
        table = [["layer", "theirs", "ours", "sequential", "theirs", "ours", "loss"]]
        own = [row for row in rows if row["preset"] == preset]
        for row in own:
            ways = [
                row[f"{who}_method"] + (f" {count}" if (count := row[f"{who}_num_sm"]) else "")
                for who in ("their", "our")
            ]
            spans = [
                f"{row[name]:,.0f} µs" for name in ("sequential_us", "their_time_us", "our_time_us")
            ]
            table.append([row["layer"], *ways, *spans, percent(row["loss"])])
        yield from aligned(table, left=3)
        yield from (f"  {row['layer']}: {row['note']}" for row in own if row["note"])
        yield ""
