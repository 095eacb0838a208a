"""What is normal: times and bus bandwidths of collectives by size, and MFU of training runs.

Both are what was published: of collectives the profile's times by the ratios of peers to it, of
training runs the MFU that their step times are, against the peak without sparsity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.model import Model, bus_factor, machine_for, rows_for
from sweeps.calibrate.peers import LESS_LONG, TABLE, WIDER, Peer, band, least_of, published
from sweeps.errors import InputError, fault
from sweeps.origin import GIVEN, Origin
from sweeps.result import Field, Record, Result, aligned, of_rows, provenance_of
from sweeps.spec.catalog import load_hardware, load_model
from sweeps.spec.figures import rates_of
from sweeps.spec.machine import Machine
from sweeps.spec.units import format_quantity

Floats = NDArray[np.float64]

# A peer tells of sizes that are this near to its own.
_NEAR = 1.5
# So many peers are a class of their own; fewer are shown too, after all widenings.
_ENOUGH = 8
# Quantiles of a band of training runs.
_LOW, _HIGH = 0.05, 0.95
# A model is like another of as many parameters, within this factor.
_LIKE = 3.0
_GPUS = {"to 64": 64.0, "to 512": 512.0, "more": np.inf}
RUNS = "training"
CLASSES = (
    "the same machine, precision, kind and size of model",
    "the same machine, precision and kind of model",
    "the same machine and precision",
)


@dataclass(frozen=True, slots=True)
class Normal:
    """A band by size of message, or by number of GPUs."""

    title: str
    rows: Sequence[Record]
    fields: Sequence[Field]
    sources: str
    asked: Mapping[str, Any]
    points: tuple[Floats, Floats]  # What was published, where a figure shows it

    def result(self, given: Mapping[str, Any]) -> Result:
        """Return it as a dataset of rows."""
        attrs = provenance_of(
            title=self.title, stated={"normal": self.asked}, given=given, references=self.sources,
            inputs=[list(map(dict, self.rows))],
        )  # fmt: skip
        return of_rows(self.rows, self.fields, attrs)


# Collectives.

_ASKED = Origin(None, GIVEN)
_COLLECTIVE = (
    Field("message_bytes", "message_bytes", "message size", "byte", _ASKED),
    Field("time_low_s", "time_low", "least normal time", "s"),
    Field("time_typical_s", "time_typical", "typical time", "s"),
    Field("time_high_s", "time_high", "most normal time", "s"),
    Field("busbw_low", "busbw_low", "least normal bus bandwidth", "byte s-1"),
    Field("busbw_typical", "busbw_typical", "typical bus bandwidth", "byte s-1"),
    Field("busbw_high", "busbw_high", "most normal bus bandwidth", "byte s-1"),
    Field("peers", "peers", "published curves that tell", "1"),
    Field("class", "peer_class", "class of these curves"),
)


def normal_collective(
    operation: str, ranks: int, nodes: int, hardware: str, fabric: str, sizes: Iterable[float]
) -> Normal:
    """Return what is normal of an operation, by message size."""
    machine = machine_for(hardware, fabric)
    node = machine.figures["gpus_per_node"].value
    nodes = nodes or max(1, int(-(-ranks // node)))
    if ranks % nodes or ranks / nodes > node:
        allowed = f"as many on each node, at most {node:g}"
        raise InputError(fault("--ranks", ranks, f"on {nodes} nodes", allowed))
    each = np.array(sorted(sizes), dtype=np.float64)
    model = Model(
        rows_for(operation, ranks, nodes, each), replace(machine, constants={}, profile="")
    )
    times = model.times()
    network = machine.generation if nodes == 1 else machine.fabric
    own = Peer("", machine.name, operation, ranks, nodes, network, each, times, np.ones(len(each)))
    factor = bus_factor(operation, ranks)
    rows, others = [], published()
    for size, time in zip(each.tolist(), times.tolist(), strict=True):
        low, typical, high, count, wider = _ratios(own, others, size)
        by = {"low": low * time, "typical": typical * time, "high": high * time}
        rows.append(
            {"message_bytes": size}
            | {f"time_{name}_s": value for name, value in by.items()}
            | {"busbw_low": factor * size / by["high"]}
            | {"busbw_typical": factor * size / by["typical"]}
            | {"busbw_high": factor * size / by["low"]}
            | {"peers": count, "class": WIDER[wider] if count else "the profile alone"}
        )
    near = [one for one in others if one.like(own, 0) and one.ranks == ranks and not one.forced]
    x, y = (
        (
            np.concatenate([np.array([]), *each])
            for each in zip(
                *((one.sizes, factor * one.sizes / one.times) for one in near), strict=True
            )
        )
        if near
        else (np.array([]), np.array([]))
    )
    shown = (x >= each.min()) & (x <= each.max())
    points = x[shown], y[shown]
    placed = f"{ranks} ranks" if nodes == 1 else f"{nodes} x {ranks // nodes} ranks"
    return Normal(
        f"Normal {operation} of {placed} on {machine.title}",
        rows,
        _COLLECTIVE,
        TABLE,
        {"operation": operation, "ranks": ranks, "nodes": nodes, "hardware": machine.name,
         "fabric": machine.fabric, "message_bytes": each.tolist()},
        points,
    )  # fmt: skip


def _ratios(own: Peer, others: Sequence[Peer], size: float) -> tuple[float, float, float, int, int]:
    """Return the band and the middle of peers' ratios at a size, how many, and of which class."""
    found: list[float] = []
    for wider in range(len(WIDER)):
        alike = (one.at(size, _NEAR) for one in others if one.like(own, wider))
        found = [ratio for ratio in alike if np.isfinite(ratio)]
        if len(found) >= _ENOUGH:
            break
    part = "latency" if size < LESS_LONG else "bandwidth"
    low, high = band(found, least_of(part, own.nodes))
    return low, float(np.median(found)) if found else 1.0, high, len(found), wider


def collective_lines(found: Normal) -> Iterator[str]:
    """Yield a band of a collective for people."""
    yield found.title
    table = [["size", "time low", "typical", "high", "busbw low", "typical", "high", "peers", ""]]
    classes = dict.fromkeys(str(row["class"]) for row in found.rows)
    marks = dict(zip(classes, ("", "*", "**", "***", "****"), strict=False))
    for row in found.rows:
        times = (row[f"time_{name}_s"] for name in ("low", "typical", "high"))
        rates = (row[f"busbw_{name}"] for name in ("low", "typical", "high"))
        table.append(
            [
                format_quantity(row["message_bytes"], "byte"),
                *(format_quantity(float(f"{one:.3g}"), "s") for one in times),
                *(format_quantity(float(f"{one:.3g}"), "byte s-1") for one in rates),
                str(row["peers"]),
                marks[str(row["class"])],
            ]
        )
    yield from aligned(table, left=0)
    for name, mark in marks.items():
        yield f"  {mark}{' ' if mark else ''}peers: curves of {name}"
    yield "Outside of a band 'sweeps calibrate' says slow, or faster than peers."
    yield f"source: {found.sources}, beside the profile of each machine"


# MFU.

_MFU = (
    Field("gpus", "gpus", "GPUs of the runs"),
    Field("mfu_low", "mfu_low", "low MFU, a twentieth of runs below it", "1"),
    Field("mfu_typical", "mfu_typical", "median MFU", "1"),
    Field("mfu_high", "mfu_high", "high MFU, a twentieth of runs above it", "1"),
    Field("runs", "runs", "published runs", "1"),
    Field("class", "peer_class", "class of these runs"),
)


def normal_mfu(model: str, hardware: str, precision: str) -> Normal:
    """Return what is normal of the MFU of a model's training on a machine, by number of GPUs."""
    machine = load_hardware(hardware)
    shapes = load_model(model)
    size = shapes.quantity("parameters")
    experts = shapes.shapes.get("experts", 0.0) > 0.0
    runs = _runs(machine, precision)
    classes = (
        [one for one in runs if one[3] == experts and size / _LIKE <= one[2] <= size * _LIKE],
        [one for one in runs if one[3] == experts],
        runs,
    )
    place = next((n for n, one in enumerate(classes) if len(one) >= _ENOUGH), len(classes) - 1)
    own = classes[place]
    if not own:
        wrong = f"no {precision} run on it is published here"
        raise InputError(fault("--hardware", machine.name, wrong, "another machine or --precision"))
    gpus, mfu = (np.array([one[column] for one in own]) for column in (0, 1))
    rows, least = [], 0.0
    for name, most in {**_GPUS, "all": np.inf}.items():
        here = mfu[(gpus > (0.0 if name == "all" else least)) & (gpus <= most)]
        least = most
        if here.size:
            low, typical, high = np.quantile(here, (_LOW, 0.5, _HIGH)).tolist()
            rows.append({"gpus": name, "mfu_low": low, "mfu_typical": typical, "mfu_high": high,
                         "runs": int(here.size), "class": CLASSES[place]})  # fmt: skip
    return Normal(
        f"Normal MFU of {model} ({precision}) on {machine.title}",
        rows,
        _MFU,
        f"{RUNS}: {', '.join(sorted({one[4] for one in own}))}",
        {"model": model, "hardware": machine.name, "precision": precision},
        (gpus, mfu),
    )


def _runs(machine: Machine, precision: str) -> list[tuple[float, float, float, bool, str]]:
    """Return GPUs, MFU, parameters, whether experts, and source of a machine's published runs."""
    from sweeps.validate.predict import predict
    from sweeps.validate.run_table import find_runs, read_runs
    from sweeps.validate.training_rows import cases_of_runs

    every = cases_of_runs(read_runs(find_runs(RUNS)).runs, kinds=("step_time",)).cases
    # With its step time given, what is predicted of a run is its own MFU.
    cases = [
        replace(one, quantity="mfu", numbers={**one.numbers, "step_time": one.measured})
        for one in every
        if one.labels.get("hardware") == machine.name
        and rates_of(one.labels["precision"]) == rates_of(precision)
        and one.labels.get("shapes") != "unknown"
        and "lora_rank" not in one.numbers  # Frozen weights have no gradients to compute.
    ]  # fmt: skip
    mfu, sizes = (
        predict([replace(one, quantity=name) for one in cases]).values.tolist()
        for name in ("mfu", "parameters")
    )
    degrees = ("tp", "pp", "cp", "dp")
    return [
        (
            float(np.prod([one.numbers.get(name, 1.0) for name in degrees])),
            value,
            size,
            one.numbers.get("experts", 0.0) > 0.0,
            one.source,
        )
        for one, value, size in zip(cases, mfu, sizes, strict=True)
        if np.isfinite(value)
    ]


def mfu_lines(found: Normal) -> Iterator[str]:
    """Yield a band of MFU for people."""
    yield found.title
    table = [["GPUs", "low", "typical", "high", "runs"]]
    for row in found.rows:
        each = (f"{100.0 * row[f'mfu_{name}']:.1f} %" for name in ("low", "typical", "high"))
        table.append([str(row["gpus"]), *each, str(row["runs"])])
    yield from aligned(table, left=1)
    yield f"  runs: {found.rows[0]['class']}; low and high: 90 % of runs lie between"
    yield "MFU counts masked scores and is against the dense peak at the precision, not the sparse."
    yield f"source: {found.sources}"
