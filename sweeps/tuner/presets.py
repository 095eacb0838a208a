"""NVIDIA's presets of userbuffers beside the best of the prediction, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sweeps.bands import percent
from sweeps.errors import refuse
from sweeps.origin import assumed
from sweeps.result import Field, Result, of_rows
from sweeps.spec.units import parse_quantity
from sweeps.tuner.choose import best_of
from sweeps.tuner.predict import predict_phases
from sweeps.tuner.rates import PRECISIONS, read_rates
from sweeps.tuner.userbuffers import LAYERS, MOST_SMS, LayerOverlap
from sweeps.validate.run_table import read_csv
from sweeps.wrapping import aligned

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
    return [layer_row for rows in presets.values() for layer_row in _of_preset(path, rows, folders)]


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
    candidates = [
        replace(off, method=method, aggregate=twice, num_sm=count)
        for method in methods
        for twice in ((0, 1) if method == "ring_exchange" else (0,))
        for count in ((1,) if method == "ring_exchange" else COUNTS)
    ]
    legal = [
        candidate
        for candidate in candidates
        if candidate.legality.level == "legal" and candidate.same_as == candidate
    ]
    return list(dict.fromkeys([off, *legal, case.same_as]))


def _comparison(case: LayerOverlap, times: Mapping[LayerOverlap, float]) -> dict[str, object]:
    """Return theirs beside ours."""
    choice_times = {choice: times[choice] for choice in _choices(case)}
    ours = best_of(choice_times, LIKE)
    same = best_of(
        {choice: time for choice, time in choice_times.items() if choice.method == case.method},
        LIKE,
    )
    best = min(choice_times.values())
    loss = choice_times[case.same_as] / best - 1.0
    counted = case.method != "ring_exchange"
    ways: dict[str, float] = {}
    for overlap, time in sorted(choice_times.items(), key=lambda pair: pair[1]):
        ways.setdefault(_way(overlap), time)
    shown = ", ".join(f"{way} {1e6 * time:.0f} µs" for way, time in ways.items())
    scattered = case.method == "pipeline" or ours.method == "pipeline"
    why = "; the time does not decide which NVIDIA uses" if scattered else ""
    return {
        "their_method": _way(case),
        "their_num_sm": case.num_sm if counted else None,
        "our_method": _way(ours),
        "our_num_sm": None if ours.method == "ring_exchange" else ours.num_sm,
        "num_sm_factor": same.num_sm / case.num_sm if counted else None,
        "sequential_us": round(
            1e6 * next(t for choice, t in choice_times.items() if choice.is_baseline), 3
        ),
        "their_time_us": round(1e6 * choice_times[case.same_as], 3),
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
        rows_of_preset = [row for row in rows if row["preset"] == preset]
        for row in rows_of_preset:
            ways = [
                row[f"{who}_method"] + (f" {count}" if (count := row[f"{who}_num_sm"]) else "")
                for who in ("their", "our")
            ]
            spans = [
                f"{row[name]:,.0f} µs" for name in ("sequential_us", "their_time_us", "our_time_us")
            ]
            table.append([row["layer"], *ways, *spans, percent(row["loss"])])
        yield from aligned(table, left=3)
        yield from (f"  {row['layer']}: {row['note']}" for row in rows_of_preset if row["note"])
        yield ""
