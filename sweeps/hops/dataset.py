"""A study as a dataset in a file, and what charts compare it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.formula import REGISTRY
from overhead.hops import message_energy, message_time
from sweeps.engine.layout import Column
from sweeps.hops.study import Case, Study, parted, rows_of
from sweeps.overlap.arrays import attrs_of, label_column, number_column, store

__all__ = ["charts_of", "write_study"]

STRATEGY = ("strategy_time", "strategy_energy", "rank_volume", "total_volume")
MESSAGE = ("path_time", "path_energy")


def write_study(
    study: Study, stated: Mapping[str, str], given: Mapping[str, Any], output: Path
) -> None:
    """Write a study as netCDF."""
    mixes = _mixes(study)
    labels = [f"{row.layer} {row.mode}" for row in rows_of(study, study.cases[0])]
    names = [case.name for case in study.cases]
    coordinates = [
        label_column("case", ("case",), names, "case"),
        label_column("strategy", ("strategy",), labels, "layer and strategy"),
        label_column("hop_mix", ("hop_mix",), list(mixes), "links of the path"),
    ]
    dims: tuple[str, ...] = ("case", "strategy")
    if len(study.sequence_length) > 1:
        dims = (*dims, "sequence_length")
        coordinates.append(number_column("sequence_length", dims[2:], study.sequence_length))
    coordinates += [
        number_column("message_bytes", ("message_bytes",), study.message_bytes),
        *(_of_cases(study, name) for name in ("hardware", "switching")),
        label_column("model", (), study.model.name, "model"),
    ]
    if len(dims) == 2:
        coordinates.append(number_column("sequence_length", (), study.sequence_length[0]))
    variables = [_variable(study, name, dims) for name in STRATEGY]
    varying = ("case", "hop_mix", "message_bytes")
    variables += [_variable(study, name, varying) for name in MESSAGE]
    store(
        coordinates,
        variables,
        {**_strategies(study), **_messages(study, mixes)},
        title=study.title,
        summary=study.summary,
        stated={"hops": dict(stated)},
        given=given,
        output=output,
    )


def _of_cases(study: Study, name: str) -> Column:
    words = {"hardware": "machine or network", "switching": "how links pass a message on"}
    values = [case.where if name == "hardware" else case.switching for case in study.cases]
    return label_column(name, ("case",), values, words[name])


def _variable(study: Study, name: str, dims: tuple[str, ...]) -> Column:
    declared = [REGISTRY.returning(name, {"switching": case.switching}) for case in study.cases]
    return Column(name, dims, np.dtype(np.float64), attrs_of(name, declared))


def _strategies(study: Study) -> dict[str, NDArray[Any]]:
    rows = [[row.traffic for row in rows_of(study, case)] for case in study.cases]
    taken = {
        "strategy_time": [[one.time for one in row] for row in rows],
        "strategy_energy": [[one.energy for one in row] for row in rows],
        "rank_volume": [[one.rank_bytes for one in row] for row in rows],
        "total_volume": [[one.total_bytes for one in row] for row in rows],
    }
    several = len(study.sequence_length) > 1
    return {
        name: np.array(values, dtype=np.float64)[..., slice(None) if several else 0]
        for name, values in taken.items()
    }


def _mixes(study: Study) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return, by mix of hops in words, what it is in each case that has it."""
    mixes: dict[str, dict[str, tuple[float, ...]]] = {}
    for case in study.cases:
        for hops in _paths(study, case):
            mixes.setdefault(case.links.mix(hops), {})[case.name] = hops
    return mixes


def _paths(study: Study, case: Case) -> list[tuple[float, ...]]:
    """Return what lies between the first rank and those that strategies reach, each once."""
    most = max([2, *study.data_parallel, *study.tensor_parallel])
    others = [np.arange(1, min(most, case.network.ranks or most))]
    others += [np.array([parted(case.network, level)[1]]) for level in study.pipeline.values()]
    hops = case.network.hops(0, np.unique(np.concatenate(others)))
    found = dict.fromkeys(tuple(float(n) for n in path) for path in hops.T)
    return [path for path in found if any(path)]


def _messages(
    study: Study, mixes: Mapping[str, Mapping[str, tuple[float, ...]]]
) -> dict[str, NDArray[Any]]:
    shape = (len(study.cases), len(mixes), len(study.message_bytes))
    time, energy = np.full(shape, np.nan), np.full(shape, np.nan)
    for place, case in enumerate(study.cases):
        links = case.links
        for index, by_case in enumerate(mixes.values()):
            hops = by_case.get(case.name)
            if hops is None:
                continue
            size = study.message_bytes
            time[place, index] = message_time(
                size, hops, links.latency, links.bandwidth, case.switching
            )
            energy[place, index] = message_energy(size, hops, links.energy_per_bit)
    return {"path_time": time, "path_energy": energy}


def charts_of(study: Study) -> list[dict[str, Any]]:
    """Return declarations of the charts that compare a study's strategies and cases."""
    mixes = _mixes(study)
    several = len(study.cases) > 1
    length = {"sequence_length": float(study.sequence_length[0])}
    at = length if len(study.sequence_length) > 1 else {}
    panels = {"panels": "case"} if several else {}
    bars = [
        {"kind": "bars", "name": name, "parts": [part], "x": ["strategy"], **panels, "at": at,
         "title": title}
        for name, part, title in (
            ("latency", "strategy_time", "Latency of a layer's communication, by strategy"),
            ("energy", "strategy_energy", "Energy of a layer's communication, by strategy"),
            ("volume", "rank_volume", "Bytes that a GPU sends for a layer, by strategy"),
        )
    ]  # fmt: skip
    if len(study.message_bytes) < 2:
        return bars
    lines = ["hop_mix"] if len(mixes) > 1 else []
    curves = {
        "kind": "curves", "name": "messages", "x": "message_bytes", "y": "path_time",
        "lines": lines, **panels, "crossovers": False,
        "title": "Latency of one message, by mix of hops",
    }  # fmt: skip
    return [*bars, *([curves] if lines or not several else [])]
