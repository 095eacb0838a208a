"""A study as records for programs and as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.formula import REGISTRY, Call, Formula
from overhead.hops import RING, message_energy, message_time
from overhead.quantity import VOCABULARY
from sweeps.engine.describe import coordinate
from sweeps.engine.grid import Column
from sweeps.hop_study.study import (
    LEVEL_NAMES,
    PASSES,
    HopStudy,
    Row,
    Scenario,
    messages_of,
    parted,
)
from sweeps.result import Result, of_columns, table_lines
from sweeps.spec.units import format_quantity
from sweeps.wrapping import prose, wrap

MB, MIB = 1e6, 2.0**20
PCIE = (
    "PCIe's latency is taken to be in that of the link between nodes, and its energy isn't counted "
    "(assumed), unless --card-latency and --card-energy-per-bit say them"
)


def strategy_records(study: HopStudy) -> Iterator[list[dict[str, Any]]]:
    """Yield the records of each case: one for each layer, strategy and sequence length."""
    for case, rows in zip(study.cases, study.rows, strict=True):
        yield [
            _strategy_record(study, case, row, index)
            for row in rows
            for index in range(len(study.sequence_length))
        ]


def _strategy_record(study: HopStudy, case: Scenario, row: Row, index: int) -> dict[str, Any]:
    sent, total = float(row.traffic.rank_bytes[index]), float(row.traffic.total_bytes[index])
    return {
        "case": case.name,
        "hardware": case.where,
        "switching": case.switching,
        "layer": row.layer,
        "layers": study.layers.get(row.layer, 1.0),
        "mode": row.mode,
        "ranks": row.ranks,
        "sequence_length": float(study.sequence_length[index]),
        "volume_bytes": sent,
        "volume_MB": sent / MB,
        "volume_MiB": sent / MIB,
        "total_volume_bytes": total,
        "total_volume_MB": total / MB,
        "total_volume_MiB": total / MIB,
        "latency_s": float(row.traffic.time[index]),
        "energy_j": float(row.traffic.energy[index]),
    }


def message_records(study: HopStudy) -> Iterator[dict[str, object]]:
    """Yield a record for each case, message, mix of hops and sequence length."""
    for case in study.cases:
        for messages in messages_of(study, case):
            time = message_time(
                messages.size,
                messages.hops,
                case.links.latency,
                case.links.bandwidth,
                case.switching,
            )
            energy = message_energy(messages.size, messages.hops, case.links.energy_per_bit)
            for index, length in enumerate(study.sequence_length):
                yield {
                    "case": case.name,
                    "hardware": case.where,
                    "switching": case.switching,
                    "message": messages.what,
                    "hop_mix": case.links.mix(messages.hops),
                    "sequence_length": float(length),
                    "message_bytes": float(messages.size[index]),
                    "latency_s": float(time[index]),
                    "energy_j": float(energy[index]),
                }


def bodies_of(study: HopStudy) -> dict[str, Callable[[], Iterable[str]]]:
    """Return the further sections of a study's report."""
    return {
        "communication": lambda: _case_tables(study),
        # A row for each message and path.
        "rows": lambda: table_lines(
            [_message(study, record) for record in message_records(study)], most=1000, keys=2
        ),
        "formulas": lambda: _derivations(study),
        "defaults": lambda: _links_and_notes(study),
    }


def report_lines(study: HopStudy) -> Iterator[str]:
    """Yield a study for people: the answer, and all cases beside one another."""
    yield from _answer(study)
    yield f"{study.title}\n"
    if study.summary:
        yield from _wrapped(study.summary)
    if study.whole:
        counts = ", ".join(f"{part} {count:.0f}" for part, count in study.layers.items())
        yield f"all layers, one after another ({counts}); a boundary between stages once\n"
    if study.gradient_bytes != study.activation_bytes:
        sizes = (study.gradient_bytes, study.activation_bytes)
        texts = [format_quantity(size, "byte") for size in sizes]
        yield f"gradients of {texts[0]}, activations of {texts[1]}\n"
    yield "\n"
    yield from table_lines(_paired_rows(study), most=FEW, keys=2)
    yield "\n"


FEW = 24  # rows of the table that compares cases


def _case_tables(study: HopStudy) -> Iterator[str]:
    """Yield a table for each case: bytes, time and energy."""
    for case, records in zip(study.cases, strategy_records(study), strict=True):
        yield f"{case.name} ({case.where}, {case.switching.replace('_', ' ')})\n"
        # The notebook's own table has both units.
        both = case is study.cases[0]
        rows = [_row(study, record, both=both) for record in records]
        yield from table_lines(rows, most=1000, keys=2)
        yield "\n"


def _links_and_notes(study: HopStudy) -> Iterator[str]:
    """Yield the links of each case, and what it computes."""
    yield "Links\n"
    yield from table_lines(_links(study))
    given = {"gpu_nic_latency", "gpu_nic_energy_per_bit"}
    if any(
        LEVEL_NAMES["gpu_nic"] in scenario.links.names and not given <= {*scenario.given}
        for scenario in study.cases
    ):
        yield from _wrapped(PCIE)
    for case in study.cases:
        if case.note:
            yield "\n"
            yield from _wrapped(f"{case.name}: {case.note}")


def _answer(study: HopStudy) -> Iterator[str]:
    """Yield which strategy takes longest, then what each further case changes of the first."""
    first, *others = strategy_records(study)
    lines = []
    for records in (first, *others):
        longest = max(records, key=lambda record: record["latency_s"])
        time = format_quantity(longest["latency_s"], "s")
        energy = format_quantity(longest["energy_j"], "J")
        what = f"{longest['layer']} {longest['mode']}"
        lines.append(f"{what} {time}, {energy} ({longest['case']})")
    yield f"longest communication: {'; '.join(lines)} (band not known: no measurements)\n"
    for other in others:
        texts = []
        for name, what in (("latency_s", "the time"), ("energy_j", "the energy")):
            pairs = [(a[name], b[name]) for a, b in zip(other, first, strict=True) if b[name]]
            ends = [f"{best(a / b for a, b in pairs):.2g}" for best in (min, max)] if pairs else []
            if ends:
                both = f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else ends[0]
                texts.append(f"{both} times {what}" if both != "1" else f"just {what}")
        if texts:
            yield f"  {other[0]['case']}: {', '.join(texts)} of {first[0]['case']}, by strategy\n"


def _links(study: HopStudy) -> Iterator[dict[str, object]]:
    for case in study.cases:
        links = case.links
        figures = zip(
            links.names, links.latency, links.bandwidth, links.energy_per_bit, strict=True
        )
        for name, latency, bandwidth, energy in figures:
            yield {
                "case": case.name,
                "link": name,
                "latency": format_quantity(latency, "s"),
                "bandwidth": format_quantity(bandwidth, "byte s-1"),
                "ps a byte": f"{1e12 / bandwidth:.4g}",
                "pJ a bit": f"{1e12 * energy:.4g}",
            }


def _length(study: HopStudy, record: dict[str, object]) -> dict[str, object]:
    several = len(study.sequence_length) > 1
    return {"seq": f"{record['sequence_length']:.0f}"} if several else {}


def _row(study: HopStudy, record: dict[str, Any], *, both: bool) -> dict[str, Any]:
    row = {
        "Layer": record["layer"],
        "Mode": record["mode"],
        **_length(study, record),
        "PerGPU_MB": f"{record['volume_MB']:.3f}",
        "PerGPU_MiB": f"{record['volume_MiB']:.3f}",
        "Total_MB": f"{record['total_volume_MB']:.3f}",
        "Total_MiB": f"{record['total_volume_MiB']:.3f}",
        "Latency_ms": f"{1e3 * record['latency_s']:.3f}",
        "Energy_mJ": f"{1e3 * record['energy_j']:.3f}",
    }
    return {name: text for name, text in row.items() if both or not name.endswith("MiB")}


def _paired_rows(study: HopStudy) -> Iterator[dict[str, object]]:
    """Yield time and energy of all cases in one row."""
    for rows in zip(*strategy_records(study), strict=True):
        first = rows[0]
        row = {"Layer": first["layer"], "Mode": first["mode"], **_length(study, first)}
        for case, record in zip(study.cases, rows, strict=True):
            row[f"{case.name} (ms)"] = f"{1e3 * record['latency_s']:.3f}"
        for case, record in zip(study.cases, rows, strict=True):
            row[f"{case.name} (mJ)"] = f"{1e3 * record['energy_j']:.1f}"
        yield row


def _message(study: HopStudy, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "Case": record["case"],
        "Message": record["message"],
        **_length(study, record),
        "MB": f"{record['message_bytes'] / MB:.3f}",
        "Hops": record["hop_mix"],
        "Latency_us": f"{1e6 * record['latency_s']:.3f}",
        "Energy_nJ": f"{1e9 * record['energy_j']:.0f}",
    }


def _derivations(study: HopStudy) -> Iterator[str]:
    """Yield the formulas with their sources, and where each strategy's numbers come from."""
    yield "formulas\n"
    shown: dict[str, Formula] = {}
    for case in study.cases:
        for name in (
            "path_time",
            "path_latency",
            "path_serialization_time",
            "path_energy",
            "path_energy_per_bit",
            "time",
            "energy",
        ):
            labels = RING if name in ("time", "energy") else {"switching": case.switching}
            declaration = REGISTRY.returning(name, labels)
            if isinstance(declaration, Formula):
                shown.setdefault(declaration.statement, declaration)
    for statement, declared in shown.items():
        assumed = f"; assumes {'; '.join(declared.assumes)}" if declared.assumes else ""
        yield f"  {statement}\n    ({declared.source.at()}{assumed})\n"
    length = float(study.sequence_length[0])
    for case, records in zip(study.cases, strategy_records(study), strict=True):
        yield f"\nnumbers put in: {case.name}\n"
        for record in records:
            if record["sequence_length"] == length:
                yield from _numbers(study, case, record)


def _numbers(study: HopStudy, case: Scenario, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a strategy's time and energy are made of."""
    layer, mode, count = record["layer"], record["mode"], record["layers"]
    times = f"{count:.0f} layers x " if count > 1.0 else ""
    yield f"  {layer} {mode}: {format_quantity(record['latency_s'], 's')}, " + (
        f"{format_quantity(record['energy_j'], 'J')}\n"
    )
    size = float(study.activations[0])
    if mode.startswith("PP"):
        level = study.pipeline[mode.removeprefix("PP-")]
        hops = case.network.hops(*parted(case.network, level))
        yield f"    {format_quantity(size, 'byte')} over {case.links.mix(hops)}\n"
        return
    for kind, ranks, stride in _groups(mode):
        inner = int(mode.split(" x ")[0][3:]) if stride > 1 else 1
        message = study.weights(case)[layer] / inner if kind == "DP" else size
        each = f"{PASSES} " if kind == "TP" else ""
        what = f"{times}{each}all_reduce of {message:.0f} byte over {ranks} ranks"
        what += f", every {stride}th" if stride > 1 else ""
        if kind == "TP" and case.tensor == "messages":
            path = case.links.mix(case.network.hops(0, min(1, ranks - 1)))
            what = f"{times}{PASSES} messages of {message:.0f} byte over {path}"
        elif case.algorithm:
            figures = case.constants(ranks, stride)
            given = "".join(f" --{n.replace('_', '-')} {v:.15g}" for n, v in figures.items())
            what += f": sweeps collective --topology hierarchical --algorithm {case.algorithm}" + (
                f" --M {message:.0f} --hardware {case.where}{given} --verbose"
            )
        else:
            source = np.arange(ranks)
            hops = case.network.hops(stride * source, stride * ((source + 1) % ranks))
            kinds, counts = np.unique(hops, axis=1, return_counts=True)
            rings = [f"{n} x {case.links.mix(mix)}" for mix, n in zip(kinds.T, counts, strict=True)]
            what += f": {2 * (ranks - 1)} steps of {message / ranks:.0f} byte round a ring of "
            what += ", ".join(rings)
        yield f"    {what}\n"


def _groups(mode: str) -> Iterator[tuple[str, int, int]]:
    """Yield the kinds of groups of a strategy: their ranks, and how far apart they are."""
    stride = 1
    for part in mode.split(" x "):
        kind, _, ranks = part.partition("-")
        yield kind, int(ranks), stride
        stride *= int(ranks)


def _wrapped(text: str) -> Iterator[str]:
    yield from (f"{line}\n" for line in wrap(text, prose()))


# A study as a dataset in a file, and what charts compare it.

# By variable what it is of a strategy's traffic.
STRATEGY = {
    "strategy_time": "time",
    "strategy_energy": "energy",
    "rank_volume": "rank_bytes",
    "total_volume": "total_bytes",
}
MESSAGE = ("path_time", "path_energy")
WHERE, PASSED_ON = "machine or network", "how links pass a message on"


def result_of(
    study: HopStudy,
    inputs: Mapping[str, str],
    given: Mapping[str, object],
    *,
    messages: bool = False,
) -> Result:
    """Return a study as a dataset; as records, its strategies or its messages."""
    mixes = _mixes(study)
    labels = [f"{row.layer} {row.mode}" for row in study.rows[0]]
    cases = study.cases
    names = [case.name for case in cases]
    coordinates = [
        coordinate("case", ("case",), names, words="case"),
        coordinate("strategy", ("strategy",), labels, words="layer and strategy"),
        coordinate("hop_mix", ("hop_mix",), list(mixes), words="links of the path"),
    ]
    dims: tuple[str, ...] = ("case", "strategy")
    if len(study.sequence_length) > 1:
        dims = (*dims, "sequence_length")
        coordinates.append(coordinate("sequence_length", dims[2:], study.sequence_length))
    coordinates += [
        coordinate("message_bytes", ("message_bytes",), study.message_bytes),
        coordinate("hardware", ("case",), [case.where for case in cases], words=WHERE),
        coordinate("switching", ("case",), [case.switching for case in cases], words=PASSED_ON),
        coordinate("model", (), study.model.name, words="model"),
    ]
    if len(dims) == 2:
        coordinates.append(coordinate("sequence_length", (), study.sequence_length[0]))
    values = {**_strategies(study), **_messages(study, mixes)}
    varying = ("case", "hop_mix", "message_bytes")
    variables = [_variable(study, name, dims, values[name]) for name in STRATEGY]
    variables += [_variable(study, name, varying, values[name]) for name in MESSAGE]
    if messages:
        rows = [*message_records(study)]
    else:
        rows = [record for records in strategy_records(study) for record in records]
    return of_columns(
        coordinates,
        variables,
        title=study.title,
        summary=study.summary,
        spec={"hops": dict(inputs)},
        given=given,
        rows=rows,
    )


def _attrs_of(name: str, declared: Iterable[Formula | Call | None]) -> dict[str, object]:
    """Return the metadata of a variable that holds a quantity: unit, formulas, sources."""
    attrs: dict[str, Any] = dict(VOCABULARY[name].attrs())
    known = [declaration for declaration in declared if declaration is not None]
    if known:
        attrs["formula"] = "; ".join(dict.fromkeys(declaration.statement for declaration in known))
    formulas = [declaration for declaration in known if isinstance(declaration, Formula)]
    if formulas:
        attrs["references"] = "; ".join(dict.fromkeys(formula.source.at() for formula in formulas))
    assumed = dict.fromkeys(phrase for formula in formulas for phrase in formula.assumes)
    if assumed:
        attrs["comment"] = f"Assumes {'; '.join(assumed)}."
    return attrs


def _variable(study: HopStudy, name: str, dims: tuple[str, ...], values: NDArray[Any]) -> Column:
    declared = [REGISTRY.returning(name, {"switching": case.switching}) for case in study.cases]
    return Column(name, dims, np.dtype(np.float64), _attrs_of(name, declared), values)


def _strategies(study: HopStudy) -> dict[str, NDArray[Any]]:
    along = slice(None) if len(study.sequence_length) > 1 else 0
    return {
        name: np.array(
            [[getattr(row.traffic, part) for row in rows] for rows in study.rows], np.float64
        )[..., along]
        for name, part in STRATEGY.items()
    }


def _mixes(study: HopStudy) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return, by mix of hops in words, what it is in each case that has it."""
    mixes: dict[str, dict[str, tuple[float, ...]]] = {}
    for case in study.cases:
        for hops in _paths(study, case):
            mixes.setdefault(case.links.mix(hops), {})[case.name] = hops
    return mixes


def _paths(study: HopStudy, case: Scenario) -> list[tuple[float, ...]]:
    """Return what lies between the first rank and those that strategies reach, each once."""
    most = max([2, *study.data_parallel, *study.tensor_parallel])
    others = [np.arange(1, min(most, case.network.ranks or most))]
    others += [np.array([parted(case.network, level)[1]]) for level in study.pipeline.values()]
    hops = case.network.hops(0, np.unique(np.concatenate(others)))
    paths = dict.fromkeys(tuple(float(n) for n in path) for path in hops.T)
    return [path for path in paths if any(path)]


def _messages(
    study: HopStudy, mixes: Mapping[str, Mapping[str, tuple[float, ...]]]
) -> dict[str, NDArray[Any]]:
    shape = (len(study.cases), len(mixes), len(study.message_bytes))
    time, energy = np.full(shape, np.nan), np.full(shape, np.nan)
    for number, case in enumerate(study.cases):
        links = case.links
        for index, by_case in enumerate(mixes.values()):
            hops = by_case.get(case.name)
            if hops is None:
                continue
            size = study.message_bytes
            time[number, index] = message_time(
                size, hops, links.latency, links.bandwidth, case.switching
            )
            energy[number, index] = message_energy(size, hops, links.energy_per_bit)
    return {"path_time": time, "path_energy": energy}


def charts_of(study: HopStudy) -> list[dict[str, Any]]:
    """Return declarations of the charts that compare a study's strategies and cases."""
    mixes = _mixes(study)
    several = len(study.cases) > 1
    length = {"sequence_length": float(study.sequence_length[0])}
    at = length if len(study.sequence_length) > 1 else {}
    panels = {"panels": "case"} if several else {}
    what = "all layers" if study.whole else "a layer"
    bars = [
        {
            "kind": "bars",
            "name": name,
            "parts": [part],
            "x": ["strategy"],
            **panels,
            "at": at,
            "title": title,
        }
        for name, part, title in (
            ("latency", "strategy_time", f"Communication time of {what}, by strategy"),
            ("energy", "strategy_energy", f"Communication energy of {what}, by strategy"),
            ("volume", "rank_volume", f"Bytes sent per GPU for {what}, by strategy"),
        )
    ]
    if len(study.message_bytes) < 2:
        return bars
    lines = ["hop_mix"] if len(mixes) > 1 else []
    curves = {
        "kind": "curves",
        "name": "messages",
        "x": "message_bytes",
        "y": "path_time",
        "lines": lines,
        **panels,
        "crossovers": False,
        "title": "Message time by path",
    }
    return [*bars, *([curves] if lines or not several else [])]
