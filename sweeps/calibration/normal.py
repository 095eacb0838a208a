"""What is normal: published curves and MFU; and whether a curve is as they are: the verdict.

A curve is judged by its times over the profile's: the median of short messages, and of long ones.
Normal are, of collectives, the profile's times by the ratios of peers to it; of training runs, the
MFU that their step times are, against the peak without sparsity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.bands import percent
from sweeps.calibration.curves import fields_of
from sweeps.calibration.model import (
    PLAIN,
    Given,
    Model,
    PlacedTest,
    Rows,
    bus_factor,
    cases_of,
    machine_for,
    rows_for,
    rows_of,
)
from sweeps.calibration.odd import PREDICTION, WRONG, OddRow
from sweeps.calibration.settings import NO_NVLS
from sweeps.calibration.table_log import read_table_log
from sweeps.errors import refuse
from sweeps.result import Field, Record, Result, of_rows, provenance_of
from sweeps.spec.catalog import load_hardware, load_model
from sweeps.spec.machine import Machine, rates_of
from sweeps.spec.units import format_quantity
from sweeps.validate.run_table import find_runs, read_runs
from sweeps.wrapping import aligned

Floats = NDArray[np.float64]

TABLE = "nccl-collectives"
HEALTHY, FAST, UNKNOWN = "healthy", "faster than peers", "no messages that tell"
IMPOSSIBLE = "impossible, faster than the machine's wires"
SLOW_LINKS, SLOW_LATENCY, SLOW_HOST = "slow links", "slow latency", "slow host"
WRONG_RESULTS, OUT_OF_LINE = "wrong results", "sizes out of line"
STRANGER = "no verdict: another machine's GPUs"
OTHER = "no verdict"  # Of times that nothing published is like
NOT_HEALTHY = {
    SLOW_LINKS,
    SLOW_LATENCY,
    SLOW_HOST,
    FAST,
    IMPOSSIBLE,
    WRONG_RESULTS,
    OUT_OF_LINE,
    STRANGER,
}
# Messages that tell latency, and bandwidth; where fewer than two are as long, the second.
SHORT, LONG, LESS_LONG = 64.0 * 2**10, 64.0 * 2**20, 16.0 * 2**20
# A host's floor is flat to here, within this factor.
FLAT, LEVEL = 256.0 * 2**10, 1.25
# The least ratio to the middle of peers that is out of their band, in a node and between nodes.
LEAST = {"latency": 1.4, "bandwidth": 1.2}
BETWEEN = 1.5
# A rate fits a run without NVLS within this of it.
FITS = 0.85, 1.15
# So many peers, of so many sources, make a band.
ENOUGH, SOURCES = 8, 3
ROUNDED = 0.01  # of a time in a log
# The share of sources that a band is to hold, were there many of them, and the factor from the
# middle of peers beyond which one is broken and no peer.
HELD, BROKEN = 0.9, 3.0
WIDER = (
    "the same operation, ranks, nodes and network",
    "the same operation and ranks",
    "the same operation",
    "any operation",
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A curve beside the profile of its machine."""

    name: str  # The table, or the log
    hardware: str
    operation: str
    ranks: int
    nodes: int
    network: str  # The GPUs' generation in a node, the network between nodes
    sizes: Floats  # Message sizes [byte], each once
    times: Floats  # Measured [s]
    ratios: Floats  # Measured by the profile's
    forced: str = ""  # Which algorithm its settings left; empty: NCCL's own choice
    least: Floats | None = None  # Times of the wires alone, at their full rate [s]
    without: Floats | None = None  # Measured by the profile's without NVLS, where that is used

    @property
    def impossible(self) -> bool:
        """Whether some of its times are below what its wires take."""
        return self.least is not None and bool(np.any(self.times < self.least * (1.0 - ROUNDED)))

    @property
    def latency(self) -> float:
        """Measured time by the profile's, of short messages; NaN where there are none."""
        return _median(self.ratios[self.sizes <= SHORT])

    @property
    def bandwidth(self) -> float:
        """The same of long messages."""
        long = self.sizes >= LONG
        return _median(self.ratios[long if long.sum() > 1 else self.sizes >= LESS_LONG])

    def part(self, name: str) -> float:
        """Return the latency's ratio or the bandwidth's."""
        return self.latency if name == "latency" else self.bandwidth

    def fastest(self, name: str) -> float:
        """Return the ratio that the wires alone would have, of latency or bandwidth; 0: unknown."""
        if self.least is None:
            return 0.0
        alone = replace(self, ratios=self.least / self.times * self.ratios).part(name)
        return alone if np.isfinite(alone) else 0.0

    def at(self, size: float, near: float) -> float:
        """Return the ratio at a size, between neighbours; NaN far beyond what was measured.

        Beyond a size that is latency alone, or bandwidth alone, it stays as it is there.
        """
        least, most = self.sizes[0], self.sizes[-1]
        low = least <= SHORT or size >= least / near
        high = most >= LONG or size <= most * near
        if not (low and high):
            return np.nan
        return float(np.interp(np.log(size), np.log(self.sizes), self.ratios))

    def like(self, other: Peer, wider: int) -> bool:
        """Return whether two are of one class, of the narrowest on."""
        count = len(WIDER) - wider
        return self._class[:count] == other._class[:count]

    @property
    def _class(self) -> tuple[object, ...]:
        # What a reduce_scatter does, an all_gather does backwards.
        operation = self.operation.replace("reduce_scatter", "all_gather")
        ranks = "2" if self.ranks == 2 else "3 to 8" if self.ranks <= 8 else "more"
        return self.nodes > 1, operation, ranks, self.network

    @property
    def flat(self) -> bool:
        """Whether times stay level up to long messages, as where a host is slow."""
        times = self.times[self.sizes <= FLAT]
        reach = self.sizes[self.sizes <= FLAT].max(initial=0.0) >= FLAT / 2.0
        return bool(reach and len(times) > 2 and times.max() < LEVEL * times.min())


@dataclass(frozen=True, slots=True)
class Band:
    """What is normal of a ratio among peers."""

    low: float
    high: float
    peers: tuple[float, ...]  # Their ratios
    wider: int  # Which of `WIDER` they are

    @property
    def enough(self) -> bool:
        """Whether there are peers enough for a verdict."""
        return len(self.peers) >= ENOUGH  # Of however few sources, where no class has more

    def percentile(self, ratio: float) -> float:
        """Return which share of peers is faster [%]."""
        return 100.0 * float(np.mean(np.array(self.peers) < ratio)) if self.peers else np.nan


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a test looks like beside published curves."""

    case: PlacedTest
    words: tuple[str, ...]
    peer: Peer
    bands: dict[str, Band]
    odd: tuple[OddRow, ...] = ()  # Rows that speak against it, whatever the curve is like
    remark: str = ""  # What its rate fits

    @property
    def healthy(self) -> bool:
        """Whether nothing speaks against it."""
        return not NOT_HEALTHY & {*self.words}


def _median(values: Floats) -> float:
    return float(np.median(values)) if values.size else np.nan


def peers_of(
    cases: Sequence[PlacedTest], rows: Rows, machine: Machine, given: Given = PLAIN
) -> list[Peer]:
    """Return the curve of each case that has rows."""
    plain = replace(machine, constants={})
    model = Model(rows, plain, given=given)
    times = model.times()
    ratios, ideal = rows.time / times, model.times(ideal=True)
    free = rows.forced == ""
    rings = replace(rows, forced=np.where(free, NO_NVLS, rows.forced))
    slower = times if not free.any() else Model(rings, plain, given=given).times()
    # Where NVLS isn't the faster one, nothing tells that it is out.
    without = np.where(slower > 1.02 * times, rows.time / slower, np.nan)
    peers = []
    for index, case in enumerate(cases):
        mask = rows.case == index
        if not mask.any():
            continue
        sizes, at = np.unique(rows.message_bytes[mask], return_inverse=True)
        each = [
            np.array([np.median(values[mask][at == number]) for number in range(len(sizes))])
            for values in (rows.time, ratios, ideal, without)
        ]
        network = machine.generation if case.nodes == 1 else case.test.fabric or machine.fabric
        peers.append(
            Peer(
                case.test.part or case.test.name,
                machine.name,
                case.operation,
                case.ranks,
                case.nodes,
                network,
                sizes,
                each[0],
                each[1],
                case.forced,
                each[2],
                each[3],
            )
        )
    return peers


@cache
def published() -> tuple[Peer, ...]:
    """Return the published curves, each beside the profile of its machine."""
    tests = read_table_log(TABLE)
    peers: list[Peer] = []
    for name in dict.fromkeys(test.hardware for test in tests):
        machine = machine_for(name)
        cases = cases_of([test for test in tests if test.hardware == name], machine)
        peers += peers_of(cases, rows_of(cases, ("out-of-place",)), machine)
    return tuple(peers)


def least_of(name: str, nodes: int) -> float:
    """Return the least ratio to the middle of peers that is out of a band."""
    return LEAST[name] if nodes == 1 else BETWEEN


def band(pairs: Sequence[tuple[str, float]], least: float) -> tuple[float, float]:
    """Return the ends of what is normal among sources' ratios.

    A source counts once, however many curves it has, for they share a machine and its settings;
    of few sources all are held, since the next one is as likely to lie beyond each of them.
    """
    if not pairs:
        return 1.0 / least, least
    names, every = np.array([name for name, _ in pairs]), np.array([ratio for _, ratio in pairs])
    middle = float(np.median(every))
    kept = (every < BROKEN * middle) & (every > middle / BROKEN)
    _, inverse, counts = np.unique(names[kept], return_inverse=True, return_counts=True)
    share = min(1.0, HELD * (1.0 + 1.0 / len(counts)))
    low, high = (
        _quantile(every[kept], 1.0 / counts[inverse], quantile) for quantile in (1.0 - share, share)
    )
    return min(low, 1.0 / least), max(high, least)


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    """Return the least value up to which there is a share of the weights."""
    order = np.argsort(values)
    sums = np.cumsum(weights[order]) / np.sum(weights)
    index = np.searchsorted(sums, share - 1e-9)
    return float(values[order][min(int(index), len(values) - 1)])


def _among(
    others: Sequence[Peer], peer: Peer, ratio: Callable[[Peer], float]
) -> tuple[list[tuple[str, float]], int]:
    """Return sources and ratios of the nearest class with enough peers, and which class it is."""
    ratios: list[tuple[str, float]] = []
    for wider in range(len(WIDER)):
        alike = (
            (other.name, ratio(other))
            for other in others
            if other is not peer
            if other.like(peer, wider)
        )
        ratios = [pair for pair in alike if np.isfinite(pair[1])]
        if len(ratios) >= ENOUGH and len({name for name, _ in ratios}) >= SOURCES:
            break
    return ratios, wider


def band_of(peer: Peer, name: str, others: Sequence[Peer]) -> Band:
    """Return what is normal of latency or bandwidth among the nearest class of enough peers."""
    ratios_of_peers, wider = _among(others, peer, lambda other: other.part(name))
    ratios = tuple(ratio for _, ratio in ratios_of_peers)
    low, high = band(ratios_of_peers, least_of(name, peer.nodes))
    # Nothing is normal that is faster than the wires.
    return Band(min(max(low, peer.fastest(name)), 1.0), high, ratios, wider)


def verdict_of(
    case: PlacedTest, peer: Peer, others: Sequence[Peer], odd: Sequence[OddRow] = ()
) -> Verdict:
    """Judge a curve by published ones, and by its rows that are out of line."""
    known = [name for name in LEAST if not (case.short_unknown and name == "latency")]
    bands = {name: band_of(peer, name, others) for name in known}
    if case.stranger:
        return Verdict(case, (STRANGER,), peer, bands, tuple(odd))
    words = [*_words(peer, bands)]
    if case.unknown and IMPOSSIBLE not in words:
        # Nothing is slow or fast beside what isn't like it.
        words = [OTHER]
    if {SLOW_LINKS, SLOW_LATENCY, SLOW_HOST} & {*words}:
        # Of a curve that is slow as a whole no size is out of line for being so.
        odd = [row for row in odd if row.kind != PREDICTION]
    kinds = {row.kind for row in odd}
    rows = [WRONG_RESULTS] * (WRONG in kinds) + [OUT_OF_LINE] * bool(kinds - {WRONG})
    if rows:
        words = rows + [word for word in words if word not in (HEALTHY, OTHER)]
    remark = case.unknown or case.short_unknown or _remark(peer, bands, words)
    return Verdict(case, tuple(words), peer, bands, tuple(odd), remark)


def _remark(peer: Peer, bands: Mapping[str, Band], words: Sequence[str]) -> str:
    """Return what explains a slow rate: NVLS that isn't used."""
    if SLOW_LINKS not in words or peer.without is None:
        return ""
    ratio = replace(peer, ratios=peer.without).bandwidth
    if not FITS[0] <= ratio <= FITS[1]:
        return ""
    return (
        f"the rate of long messages fits a run without NVLS ({ratio:.2f} times as long as that): "
        "see whether NCCL_NVLS_ENABLE=0 is set or the fabric manager runs"
    )


def highs_of(peer: Peer, others: Sequence[Peer]) -> Floats:
    """Return the slow end of what is normal of a curve's ratios, at each of its sizes."""
    highs = np.empty(len(peer.sizes))
    for index, size in enumerate(peer.sizes.tolist()):
        highs[index] = _ratios(peer, others, size)[0]["high"]
    return highs


def _words(peer: Peer, bands: dict[str, Band]) -> Iterator[str]:
    if peer.impossible:
        yield IMPOSSIBLE
        return
    parts = {name: peer.part(name) for name in bands}
    if all(np.isnan(part) for part in parts.values()):
        yield UNKNOWN
        return
    # What isn't known is neither above nor below.
    slow = {name for name, part in parts.items() if part > bands[name].high}
    if "latency" in slow:
        host = peer.flat and "bandwidth" not in slow and not np.isnan(peer.bandwidth)
        yield SLOW_HOST if host else SLOW_LATENCY
    if "bandwidth" in slow:
        yield SLOW_LINKS
    if not slow:
        fast = any(part < bands[name].low for name, part in parts.items())
        yield FAST if fast else HEALTHY


# A peer tells of sizes that are this near to its own.
_NEAR = 1.5
# So many runs are a class of their own; fewer are shown too, after all widenings.
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

    def result(self, given: Mapping[str, object]) -> Result:
        """Return it as a dataset along the message size, or the number of GPUs."""
        attrs = provenance_of(
            title=self.title,
            spec={"normal": self.asked},
            given=given,
            references=self.sources,
            inputs=[list(map(dict, self.rows))],
        )
        return of_rows(self.rows, self.fields, attrs, dim=self.fields[0].name)


# Collectives.


def normal_collective(
    operation: str, ranks: int, nodes: int, hardware: str, fabric: str, sizes: Iterable[float]
) -> Normal:
    """Return what is normal of an operation, by message size."""
    machine = machine_for(hardware, fabric)
    node = machine.figures["gpus_per_node"].value
    nodes = nodes or max(1, int(-(-ranks // node)))
    if ranks % nodes or ranks / nodes > node:
        refuse("--ranks", ranks, f"on {nodes} nodes", f"as many on each node, at most {node:g}")
    each = np.array(sorted(sizes), dtype=np.float64)
    model = Model(
        rows_for(operation, ranks, nodes, each), replace(machine, constants={}, profile="")
    )
    times = model.times()
    network = machine.generation if nodes == 1 else machine.fabric
    asked_peer = Peer(
        "", machine.name, operation, ranks, nodes, network, each, times, np.ones(len(each))
    )
    factor = bus_factor(operation, ranks)
    rows, others = [], published()
    # Nothing is normal beyond the wires' limit, but for what was measured on this very machine.
    case = machine.name, operation, ranks, nodes
    same = [
        other
        for other in others
        if (other.hardware, other.operation, other.ranks, other.nodes) == case
    ]
    seen = max((float(np.max(peer.sizes / peer.times)) for peer in same), default=0.0)
    for size, time, limit in zip(
        each.tolist(), times.tolist(), model.limits().tolist(), strict=True
    ):
        ratios, count, wider = _ratios(asked_peer, others, size)
        least = min(limit, size / seen) if seen else limit
        by = {name: max(ratio * time, least) for name, ratio in ratios.items()}
        rows.append(
            {"message_bytes": size}
            | {f"time_{name}_s": value for name, value in by.items()}
            # Of the longest time the rate is the lowest.
            | {
                f"busbw_{name}": factor * size / by[end]
                for name, end in (("low", "high"), ("typical", "typical"), ("high", "low"))
            }
            | {"peers": count, "class": WIDER[wider] if count else "the profile alone"}
        )
    near = [
        peer
        for peer in others
        if peer.like(asked_peer, 0) and peer.ranks == ranks and not peer.forced
    ]
    measured = np.concatenate([np.empty(0), *(peer.sizes for peer in near)])
    busbw = np.concatenate([np.empty(0), *(factor * peer.sizes / peer.times for peer in near)])
    shown = (measured >= each.min()) & (measured <= each.max())
    points = measured[shown], busbw[shown]
    placed = f"{ranks} ranks" if nodes == 1 else f"{nodes} x {ranks // nodes} ranks"
    return Normal(
        f"Normal {operation} of {placed} on {machine.title}",
        rows,
        fields_of("collective"),
        TABLE,
        {
            "operation": operation,
            "ranks": ranks,
            "nodes": nodes,
            "hardware": machine.name,
            "fabric": machine.fabric,
            "message_bytes": each.tolist(),
        },
        points,
    )


def _ratios(peer: Peer, others: Sequence[Peer], size: float) -> tuple[dict[str, float], int, int]:
    """Return the band and the middle of peers' ratios at a size, how many, and of which class."""
    pairs, wider = _among(others, peer, lambda other: other.at(size, _NEAR))
    part = "latency" if size < LESS_LONG else "bandwidth"
    low, high = band(pairs, least_of(part, peer.nodes))
    middle = float(np.median([ratio for _, ratio in pairs])) if pairs else 1.0
    return {"low": low, "typical": middle, "high": high}, len(pairs), wider


def collective_lines(normal: Normal) -> Iterator[str]:
    """Yield a band of a collective for people."""
    least, most = normal.rows[0], normal.rows[-1]
    time, rate = least["time_typical_s"], most["busbw_typical"]
    yield (
        f"{normal.title}: {format_quantity(float(f'{time:.3g}'), 's')} for "
        f"{format_quantity(least['message_bytes'], 'byte')}, busbw "
        f"{format_quantity(float(f'{rate:.3g}'), 'byte s-1')} for "
        f"{format_quantity(most['message_bytes'], 'byte')}"
    )
    table = [["size", "time low", "typical", "high", "busbw low", "typical", "high", "peers", ""]]
    classes = dict.fromkeys(str(row["class"]) for row in normal.rows)
    marks = dict(zip(classes, ("", "*", "**", "***", "****"), strict=False))
    for row in normal.rows:
        times = (row[f"time_{name}_s"] for name in ("low", "typical", "high"))
        rates = (row[f"busbw_{name}"] for name in ("low", "typical", "high"))
        table.append(
            [
                format_quantity(row["message_bytes"], "byte"),
                *(format_quantity(float(f"{value:.3g}"), "s") for value in times),
                *(format_quantity(float(f"{value:.3g}"), "byte s-1") for value in rates),
                str(row["peers"]),
                marks[str(row["class"])],
            ]
        )
    yield from aligned(table, left=0)
    for name, mark in marks.items():
        yield f"  {mark}{' ' if mark else ''}peers: curves of {name}"
    yield "Outside of a band 'sweeps calibrate' says slow, or faster than peers."
    yield f"source: {normal.sources}, beside the profile of each machine"


# MFU.


def normal_mfu(model: str, hardware: str, precision: str) -> Normal:
    """Return what is normal of the MFU of a model's training on a machine, by number of GPUs."""
    machine = load_hardware(hardware)
    shapes = load_model(model)
    size = shapes.quantity("parameters")
    experts = shapes.shapes.get("experts", 0.0) > 0.0
    runs = _runs(machine, precision)
    classes = (
        [run for run in runs if run[3] == experts and size / _LIKE <= run[2] <= size * _LIKE],
        [run for run in runs if run[3] == experts],
        runs,
    )
    index = next(
        (n for n, class_runs in enumerate(classes) if len(class_runs) >= _ENOUGH), len(classes) - 1
    )
    chosen = classes[index]
    if not chosen:
        wrong = f"no {precision} run on it is published here"
        refuse("--hardware", machine.name, wrong, "another machine or --precision")
    gpus, mfu = (np.array([run[column] for run in chosen]) for column in (0, 1))
    rows, least = [], 0.0
    for name, most in {**_GPUS, "all": np.inf}.items():
        here = mfu[(gpus > (0.0 if name == "all" else least)) & (gpus <= most)]
        least = most
        if here.size:
            low, typical, high = np.quantile(here, (_LOW, 0.5, _HIGH)).tolist()
            rows.append(
                {
                    "gpus": name,
                    "mfu_low": low,
                    "mfu_typical": typical,
                    "mfu_high": high,
                    "runs": int(here.size),
                    "class": CLASSES[index],
                }
            )
    return Normal(
        f"Normal MFU of {model} ({precision}) on {machine.title}",
        rows,
        fields_of("mfu"),
        f"{RUNS}: {', '.join(sorted({run[4] for run in chosen}))}",
        {"model": model, "hardware": machine.name, "precision": precision},
        (gpus, mfu),
    )


def _runs(machine: Machine, precision: str) -> list[tuple[float, float, float, bool, str]]:
    """Return GPUs, MFU, parameters, whether experts, and source of a machine's published runs."""
    from sweeps.validate.predict import predict
    from sweeps.validate.training_rows import cases_of_runs

    every = cases_of_runs(read_runs(find_runs(RUNS)).runs, kinds=("step_time",)).cases
    # With its step time given, what is predicted of a run is its own MFU.
    cases = [
        replace(row, quantity="mfu", numbers={**row.numbers, "step_time": row.measured})
        for row in every
        if row.labels.get("hardware") == machine.name
        and rates_of(row.labels["precision"]) == rates_of(precision)
        and row.labels.get("shapes") != "unknown"
        and "lora_rank" not in row.numbers  # Frozen weights have no gradients to compute.
    ]
    mfu, sizes = (
        predict([replace(case, quantity=name) for case in cases]).values.tolist()
        for name in ("mfu", "parameters")
    )
    degrees = ("tp", "pp", "cp", "dp")
    return [
        (
            float(np.prod([run.numbers.get(name, 1.0) for name in degrees])),
            value,
            size,
            run.numbers.get("experts", 0.0) > 0.0,
            run.source,
        )
        for run, value, size in zip(cases, mfu, sizes, strict=True)
        if np.isfinite(value)
    ]


def mfu_lines(normal: Normal) -> Iterator[str]:
    """Yield a band of MFU for people."""
    low, middle, high = (
        percent(normal.rows[-1][f"mfu_{level}"]) for level in ("low", "typical", "high")
    )
    yield f"{normal.title}: {middle}, {low} to {high}"
    table = [["GPUs", "low", "typical", "high", "runs"]]
    for row in normal.rows:
        each = (percent(row[f"mfu_{name}"]) for name in ("low", "typical", "high"))
        table.append([str(row["gpus"]), *each, str(row["runs"])])
    yield from aligned(table, left=1)
    yield f"  runs: {normal.rows[0]['class']}; low and high: the central 90 % of runs"
    basis = "relative to the dense peak at the precision, not the sparse"
    yield f"MFU counts full-attention FLOPs, {basis}"
    yield f"source: {normal.sources}"
