"""A study as records for programs and as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from overhead.hops import message_energy, message_time
from sweeps.hops.study import Study, messages_of, rows_of
from sweeps.overlap.tables import table_lines
from sweeps.spec.units import format_quantity

__all__ = ["message_records", "report_lines", "strategy_records"]

MB, MIB = 1e6, 2.0**20


def strategy_records(study: Study) -> Iterator[dict[str, Any]]:
    """Yield a record for each case, layer, strategy and sequence length."""
    for case in study.cases:
        for row in rows_of(study, case):
            for place, length in enumerate(study.sequence_length):
                sent = float(row.traffic.rank_bytes[place])
                total = float(row.traffic.total_bytes[place])
                yield {
                    "case": case.name,
                    "hardware": case.where,
                    "switching": case.switching,
                    "layer": row.layer,
                    "mode": row.mode,
                    "ranks": row.ranks,
                    "sequence_length": float(length),
                    "volume_bytes": sent,
                    "volume_MB": sent / MB,
                    "volume_MiB": sent / MIB,
                    "total_volume_bytes": total,
                    "total_volume_MB": total / MB,
                    "total_volume_MiB": total / MIB,
                    "latency_s": float(row.traffic.time[place]),
                    "energy_j": float(row.traffic.energy[place]),
                }


def message_records(study: Study) -> Iterator[dict[str, Any]]:
    """Yield a record for each case, message, mix of hops and sequence length."""
    for case in study.cases:
        for one in messages_of(study, case):
            time = message_time(
                one.size, one.hops, case.links.latency, case.links.bandwidth, case.switching
            )
            energy = message_energy(one.size, one.hops, case.links.energy_per_bit)
            for place, length in enumerate(study.sequence_length):
                yield {
                    "case": case.name,
                    "hardware": case.where,
                    "switching": case.switching,
                    "message": one.what,
                    "hop_mix": case.links.mix(one.hops),
                    "sequence_length": float(length),
                    "message_bytes": float(one.size[place]),
                    "latency_s": float(time[place]),
                    "energy_j": float(energy[place]),
                }


def report_lines(study: Study) -> Iterator[str]:
    """Yield a study for people: links, a table for each case, all side by side, messages, notes."""
    yield f"{study.title}\n"
    if study.summary:
        yield from _wrapped(study.summary)
    yield "\nlinks\n"
    yield from table_lines(_links(study), _text)
    for case in study.cases:
        yield f"\n{case.name} ({case.where}, {case.switching.replace('_', ' ')})\n"
        records = [r for r in strategy_records(study) if r["case"] == case.name]
        yield from table_lines([_row(study, r) for r in records], _text, most=1000)
    if len(study.cases) > 1:
        yield "\nside by side\n"
        yield from table_lines(_beside(study), _text, most=1000)
    yield "\nper message, by mix of hops\n"
    rows = [_message(study, record) for record in message_records(study)]
    yield from table_lines(rows, _text, most=1000)
    if any(case.note for case in study.cases):
        yield "\n"
    for case in study.cases:
        if case.note:
            yield from _wrapped(f"{case.name}: {case.note}")


def _text(name: str, value: Any) -> str:
    return str(value)


def _links(study: Study) -> Iterator[dict[str, Any]]:
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


def _length(study: Study, record: dict[str, Any]) -> dict[str, Any]:
    several = len(study.sequence_length) > 1
    return {"seq": f"{record['sequence_length']:.0f}"} if several else {}


def _row(study: Study, record: dict[str, Any]) -> dict[str, Any]:
    return {
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


def _beside(study: Study) -> Iterator[dict[str, Any]]:
    """Yield latency and energy of all cases in one row, and the first case's by the others'."""
    by_case = [[r for r in strategy_records(study) if r["case"] == c.name] for c in study.cases]
    for rows in zip(*by_case, strict=True):
        first = rows[0]
        row = {"Layer": first["layer"], "Mode": first["mode"], **_length(study, first)}
        for case, record in zip(study.cases, rows, strict=True):
            row[f"ms, {case.name}"] = f"{1e3 * record['latency_s']:.3f}"
        for case, record in zip(study.cases[1:], rows[1:], strict=True):
            ratio = record["latency_s"] / first["latency_s"] if first["latency_s"] else np.nan
            row[f"{case.name} / {study.cases[0].name}"] = f"{ratio:.3g}"
        for case, record in zip(study.cases, rows, strict=True):
            row[f"mJ, {case.name}"] = f"{1e3 * record['energy_j']:.3f}"
        yield row


def _message(study: Study, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "Case": record["case"],
        "Message": record["message"],
        **_length(study, record),
        "MB": f"{record['message_bytes'] / MB:.3f}",
        "Hops": record["hop_mix"],
        "Latency_us": f"{1e6 * record['latency_s']:.3f}",
        "Energy_nJ": f"{1e9 * record['energy_j']:.0f}",
    }


def _wrapped(text: str) -> Iterator[str]:
    import textwrap

    yield from (f"{line}\n" for line in textwrap.wrap(text, 100))
