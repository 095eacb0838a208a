"""What overlap gains over machines, sizes, hidden sizes, tokens and multiprocessors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault, needs
from sweeps.spec.axis import parse_values
from sweeps.spec.catalog import read_toml
from sweeps.spec.figures import FigureReader
from sweeps.tuner.predict import PRECISIONS, Rates, predict, read_rates
from sweeps.tuner.userbuffers import COLUMN, MOST_SMS, OPERATORS, PHASES, LayerOverlap

Floats = NDArray[np.float64]
TABLE = "tp_overlap"
AXES = ("tp", "hidden_size", "tokens", "num_sm")
SHAPE = {"head_size": 128.0, "kv_heads": 8.0, "ffn_ratio": 4.0, "gated": False}
MOST_CELLS = 10**7


@dataclass(frozen=True, slots=True)
class BenefitStudy:
    """What is swept."""

    title: str  # What it is about
    summary: str  # What it is about
    hardware: tuple[Rates, ...]  # Machines
    axes: Mapping[str, Floats]  # ``tp``, ``hidden_size``, ``tokens`` and ``num_sm``
    # How a model's other shapes follow from its hidden size: ``head_size``, ``kv_heads``,
    # ``ffn_ratio``, ``gated``
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
            "gated": float(self.shape["gated"]) * same,
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
    held = {**SHAPE, **shape}
    for name, value in held.items():
        flag = name == "gated"
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
    figures = content.get("figures", [])
    reader.tell()
    study = BenefitStudy(title, summary, machines, axes, held, margin, tuple(figures))
    _check(study, path)
    return study


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _axis(path: Path, name: str, table: Mapping[str, Any]) -> Floats:
    place = f"{path}: {TABLE}.{name}"
    if name not in table:
        raise InputError(needs("the table", name, f"{place}, one value or many"))
    values = parse_values(table[name], "1", field=place, integer=True, bare_is_si=False)
    highest = {"num_sm": float(MOST_SMS), "tp": float(MOST_SMS)}.get(name, 2.0**40)
    lowest = 2.0 if name == "tp" else 1.0
    if values[0] < lowest or values[-1] > highest:
        shown = f"{values[0]:g} to {values[-1]:g}"
        raise InputError(fault(place, shown, "isn't allowed", f"{lowest:g} to {highest:g}"))
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
    if found:
        raise InputError(found)


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


def records_of(study: BenefitStudy, values: Mapping[str, Floats]) -> Iterator[dict[str, Any]]:
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
    groups: list[slice] = []

    def add(more: list[LayerOverlap]) -> None:
        groups.append(slice(len(cases), len(cases) + len(more)))
        cases.extend(more)

    for operator in OPERATORS:
        for phase in PHASES[:2] if operator not in COLUMN else PHASES[:1]:
            add([LayerOverlap(size, operator, phase, "ring_exchange", k) for k in (0, 1)])
    rings = len(groups)
    for operator in COLUMN:
        for phase in PHASES[1:]:
            add([LayerOverlap(size, operator, phase, "bulk", num_sm=n) for n in counts])
    found = predict(shapes, tokens, cases, rates, sm_margin=study.sm_margin)
    time = np.asarray(found.forward.e2e + found.backward.e2e)
    place = {operator: k for k, operator in enumerate(OPERATORS)}
    base = time[:, : len(OPERATORS)]
    total = np.repeat(base.sum(axis=1)[:, None], len(counts), axis=1)
    for k, group in enumerate(groups):
        own = time[:, group]
        if k < rings:
            own = own.min(axis=1)[:, None]
        total = total + own - base[:, [place[cases[group.start].operator]]]
    return base.sum(axis=1), total
