"""A calibration's screen: the verdict, each curve beside published ones, the fit, what is odd."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from overhead.quantity import VOCABULARY
from sweeps.calibration.device import way_on
from sweeps.calibration.fit import WIDTH, Outlier
from sweeps.calibration.model import bus_factor
from sweeps.calibration.normal import (
    BETWEEN,
    OTHER,
    STRANGER,
    TABLE,
    UNKNOWN,
    WIDER,
    Band,
    Verdict,
)
from sweeps.calibration.report import Calibration
from sweeps.result import aligned
from sweeps.spec.units import format_quantity
from sweeps.validate import SIZE_CLASSES

# What a screen has of each: rows and faults of logs, curves, rows of errors.
_FIRST, _CURVES, _ERRORS = 2, 8, 6
_CLASSES = {"small": "below 256 KiB", "medium": "to 16 MiB", "large": "from 16 MiB"}


def screen_lines(found: Calibration) -> Iterator[str]:
    """Yield a calibration's screen: the verdict first, what it rests on, what the fit gains."""
    yield from _answer(found)
    yield from _first(found, verbose=False)
    yield ""
    yield from _curve_table(found)
    yield ""
    yield from _errors(found, _ERRORS)
    yield ""
    yield _fit_line(found)
    yield from _first_outlier(found)
    if found.at:
        yield from _other_sizes(found)


def rows_lines(found: Calibration) -> Iterator[str]:
    """Yield all that was compared: curves, logs with what was left out, rows that fall out."""
    yield from _first(found, verbose=True)
    yield from _verdicts(found)
    yield ""
    yield from _logs(found)
    yield ""
    yield from _outliers(found)


def fit_lines(found: Calibration) -> Iterator[str]:
    """Yield the constants, fitted and kept, and all errors before and after."""
    yield from _constants(found)
    yield ""
    yield from _errors(found, None)
    bands = [
        f"{_CLASSES[name]} a factor of {math.exp(WIDTH * one):.3g}"
        for name, one in zip(SIZE_CLASSES, found.scatter.tolist(), strict=True)
        if math.isfinite(one)
    ]
    yield f"  band about the fit ({WIDTH:g} robust standard deviations): {', '.join(bands)}"


def source_lines(found: Calibration) -> Iterator[str]:
    """Yield whose published curves a verdict rests on, and the logs."""
    yield f"published curves: {TABLE}"
    kinds = {name: band for one in found.verdicts for name, band in one.bands.items()}
    for name, band in kinds.items():
        yield f"  {name}: {len(band.peers)} curves of {WIDER[band.wider]}"
    if any(verdict.case.nodes > 1 for verdict in found.verdicts):
        yield f"  between nodes the band is wide ({BETWEEN:g}): a hint, not a verdict"


def _curve_table(found: Calibration) -> Iterator[str]:
    """Yield each curve's times over the profile's, beside what is normal."""
    rows = [["curve", "test", "ratio", "normal", "percentile", "result"]]
    for verdict in found.verdicts:
        for name, band in verdict.bands.items():
            ratio = verdict.peer.part(name)
            if math.isnan(ratio):
                continue
            normal, place, result = "-", "-", "-"
            if band.peers:
                normal = f"{band.low:.2f} to {band.high:.2f}"
                place = f"{band.percentile(ratio):.0f} of {len(band.peers)}"
                result = "SLOW" if ratio > band.high else "FAST" if ratio < band.low else "ok"
            rows.append([verdict.case.name, name, f"{ratio:.2f}", normal, place, result])
    # Those that are out of their band first.
    kept = [rows[0], *sorted(rows[1:], key=lambda row: row[-1] not in ("SLOW", "FAST"))]
    yield from aligned(kept[: _CURVES + 1], left=2, last=True)
    if len(kept) > _CURVES + 1:
        yield f"  {len(kept) - _CURVES - 1} more: --show rows"


def _no_fit(found: Calibration) -> str:
    """Return why the profile's constants stay."""
    whole = found.fit.scores[0]
    return "constants: the profile stays; " + (
        f"no fit predicts sizes that were left out a tenth better (mean error {_percent(whole)})"
        if math.isfinite(whole)
        else "these rows do not determine any of them"
    )


def _fit_line(found: Calibration) -> str:
    fit = found.fit
    whole, fitted = (_percent(score) for score in fit.scores)
    if not fit.groups:
        return _no_fit(found)
    names = fit.fitted[:3]
    texts = [
        f"{name} {format_quantity(fit.values[name], VOCABULARY[name].units, digits=3)} "
        f"({format_quantity(fit.base[name], VOCABULARY[name].units, digits=3)})"
        for name in names
    ]
    more = f", {len(fit.fitted) - len(names)} more" if len(fit.fitted) > len(names) else ""
    return (
        f"fitted (profile): {', '.join(texts)}{more}; mean error of sizes held out {whole} with "
        f"the profile, {fitted} fitted"
    )


def _first_outlier(found: Calibration) -> Iterator[str]:
    if found.wrong:
        yield f"rows with wrong results, left out of the fit: {len(found.wrong)}"
        yield from (f"  {line}" for line in found.wrong[:_FIRST])
    if not found.outliers:
        return
    name, operation, placed, size, time, words = _outlier(found, found.outliers[0])
    count = f"{len(found.outliers)} of {len(found.rows)} rows fall out"
    yield f"{count}: {name}, {operation} of {placed}, {size} {time}, {words}"


def _percent(value: float, sign: str = "") -> str:
    if math.isnan(value):
        return "-"
    # What rounds to nothing has no side.
    whole = round(100.0 * value)
    return f"{whole:{sign}d} %" if whole else "0 %"


def _logs(found: Calibration) -> Iterator[str]:
    machine = found.machine
    yield f"{machine.title} ({machine.name}), algorithms: {found.request.algorithm}"
    counts = [int((found.rows.case == place).sum()) for place in range(len(found.cases))]
    table = [["log", "operation", "ranks", "rows", "version"]]
    for case, count in zip(found.cases, counts, strict=True):
        versions = ", ".join(f"{name} {version}" for name, version in case.test.versions.items())
        table.append([case.test.name, case.operation, case.placed, f"{count}", versions])
    yield from aligned(table, left=5)
    notes: dict[str, list[str]] = {}
    for case in found.cases:
        for note in case.notes:
            notes.setdefault(note, []).append(case.test.name)
    for note, names in notes.items():
        yield f"  note, {', '.join(dict.fromkeys(names))}: {note}"


def _constants(found: Calibration) -> Iterator[str]:
    fit = found.fit
    whole, fitted = (_percent(score) for score in fit.scores)
    if not fit.groups:
        yield _no_fit(found)
    else:
        yield (
            f"fitted: {', '.join(fit.groups)}; mean error of rows that were left out of the fit "
            f"{whole} with the profile, {fitted} fitted"
        )
        others = dict.fromkeys(case.test.library for case in found.cases if case.test.library)
        if others:
            yield f"  these are constants of {', '.join(others)} as if it ran NCCL's algorithms"
        table = [["constant", "profile", "fitted", "±", "ratio"]]
        for name in fit.fitted:
            base, value, units = fit.base[name], fit.values[name], VOCABULARY[name].units
            ratio = f"{value / base:.3g}" if base else "-"
            words = f"{name} ({VOCABULARY[name].meaning})"
            shown = (format_quantity(one, units) for one in (base, value))
            table.append([words, *shown, _percent(fit.deviation[name]), ratio])
        yield from aligned(table, left=1)
    for name, why in fit.kept.items():
        yield f"  {name}: the profile's; {why}"


def _errors(found: Calibration, most: int | None) -> Iterator[str]:
    table = [["operation", "messages", "rows", "before", "signed", "after", "signed"]]
    table += [
        [
            score.operation,
            _CLASSES.get(score.size_class, "all"),
            f"{score.count}",
            _percent(score.before),
            _percent(score.signed_before, "+"),
            _percent(score.after),
            _percent(score.signed_after, "+"),
        ]
        for score in found.scores
    ]
    if most is not None and len(table) > most:
        left = len(table) - most
        table = [*table[: most - 1], table[-1]]
    else:
        left = 0
    yield "predicted and measured, median error before (profile) and after (fitted):"
    yield from aligned(table, left=2)
    if left:
        yield f"  {left} more: --show fit"


def _outliers(found: Calibration) -> Iterator[str]:
    if found.wrong:
        yield f"rows with wrong results, left out of the fit: {len(found.wrong)}"
        yield from (f"  {line}" for line in found.wrong)
    if not found.outliers:
        yield "rows that fall out: none"
        return
    yield f"rows that fall out: {len(found.outliers)} of {len(found.rows)}"
    yield from aligned([_outlier(found, outlier) for outlier in found.outliers], left=6)


def _outlier(found: Calibration, one: Outlier) -> list[str]:
    rows = found.rows
    case = found.cases[int(rows.case[one.row])]
    reference = "predicted" if one.reason == "fit" else "its neighbours in size"
    by = one.excess if one.reason == "fit" else one.local_excess
    factor, word = (1.0 + by, "slower") if by > 0.0 else (1.0 / (1.0 + by), "faster")
    return [
        found.named(one.row),
        case.operation,
        case.placed,
        format_quantity(float(rows.message_bytes[one.row]), "byte"),
        format_quantity(float(rows.time[one.row]), "s"),
        f"{factor:.2f} times {word} than {reference}",
    ]


def _answer(found: Calibration) -> Iterator[str]:
    """Yield whether the fabric is as it should be, in a line."""
    wrong = [one for one in found.verdicts if not one.healthy]
    unknown = sum(bool({UNKNOWN, OTHER} & {*one.words}) for one in found.verdicts)
    others = dict.fromkeys(one.case.unknown for one in found.verdicts if OTHER in one.words)
    count = len(found.verdicts)
    curves, where = f"{count} curve{'s' * (count != 1)}", _network(found)
    if not wrong:
        rest = f"; {unknown} can't be judged" if unknown else ""
        judged = "HEALTHY" if unknown < count else "UNKNOWN"
        if others and unknown == count:
            reason = next(iter(others)).partition(": times of")[0]
            yield f"{judged}: {curves} on {where}: {reason}"
            return
        yield f"{judged}: {curves} on {where} compared with published ones{rest}"
        return
    strangers = [one for one in wrong if STRANGER in one.words]
    if strangers:
        case = strangers[0].case
        yield (
            f"UNKNOWN: the GPUs of {case.test.name} are {case.stranger}; --hardware is "
            f"{found.machine.name}: give {way_on(case.stranger)}"
        )
        return
    lines = [(one, row) for one in wrong for row in one.odd]
    if lines:
        verdict, row = lines[0]
        yield (
            f"UNHEALTHY: {', '.join(verdict.words)}: {verdict.case.operation} of "
            f"{verdict.case.placed}, {row.text}; {len(wrong)} of {curves} on {where}"
        )
        return
    (first, worst), *_ = sorted(_slowest(wrong), key=lambda one: -one[1][0])
    ratio, name, band = worst
    messages = "short" if name == "latency" else "long"
    normal = f"normal is {band.low:.2f} to {band.high:.2f}"
    whose = f"{first.case.operation} of {first.case.placed}"
    yield (
        f"UNHEALTHY: {', '.join(first.words)}: {whose} takes "
        f"{ratio:.2f} times as long as usual for {messages} messages ({normal}); {len(wrong)} "
        f"of {curves} on {where}"
    )


def _first(found: Calibration, verbose: bool) -> Iterator[str]:
    """Yield what has to be known at once: rows that are out of line, and what was left out."""
    rows = [(verdict, row) for verdict in found.verdicts for row in verdict.odd]
    shown = None if verbose else _FIRST
    if len(rows) > 1:
        yield from (f"  {one.case.name}, {row.text}" for one, row in rows[:shown])
        if not verbose and len(rows) > _FIRST:
            yield f"  and {len(rows) - _FIRST} more rows: --show rows"
    yield from (f"  {one.case.name}: {one.remark}" for one in found.verdicts if one.remark)
    left = [one.reason for one in found.left]
    yield from (f"  left out: {reason}" for reason in left[:shown])
    if not verbose and len(left) > _FIRST:
        yield f"  and {len(left) - _FIRST} more left out: --show rows"


def _network(found: Calibration) -> str:
    """Return the machine that was compared with, and the network between its nodes."""
    machine, given = found.machine, found.request.given
    if not any(case.nodes > 1 for case in found.cases):
        return machine.name
    cards = given.nics_per_node or int(machine.figures["nics_per_node"].value)
    rate = given.inter_bandwidth or machine.figures["inter_bandwidth"].value
    return (
        f"{machine.name} ({machine.fabric or 'its network'}, {cards} x "
        f"{format_quantity(rate, 'byte s-1')} a node)"
    )


def _slowest(wrong: Sequence[Verdict]) -> Iterator[tuple[Verdict, tuple[float, str, Band]]]:
    """Yield verdicts with the part that is furthest out of its band."""
    for verdict in wrong:
        parts = [(verdict.peer.part(name), name, band) for name, band in verdict.bands.items()]
        there = [part for part in parts if math.isfinite(part[0])]
        yield verdict, max(there, key=lambda one: max(one[0] / one[2].high, one[2].low / one[0]))


def _verdicts(found: Calibration) -> Iterator[str]:
    yield "verdict against published curves (times over the profile's; 1.1: a tenth slower):"
    for verdict in found.verdicts:
        yield f"  {verdict.case.name}: {', '.join(verdict.words)}"
        for line in _comparison(verdict):
            yield f"    {line}"
    if any(verdict.case.nodes > 1 for verdict in found.verdicts):
        yield f"  between nodes the band is wide ({BETWEEN:g}): a hint, not a verdict"
    yield f"  source: {TABLE}"


def _comparison(verdict: Verdict) -> Iterator[str]:
    for name, band in verdict.bands.items():
        ratio = verdict.peer.part(name)
        if math.isnan(ratio):
            yield f"{name}: no messages that tell it"
            continue
        if not band.peers:
            yield f"{name}: {ratio:.2f}; nothing is published to compare with"
            continue
        among = f"{len(band.peers)} curves of {WIDER[band.wider]}"
        few = "" if band.enough else "; few peers"
        yield (
            f"{name}: {ratio:.2f}, normal {band.low:.2f} to {band.high:.2f}; slower than "
            f"{band.percentile(ratio):.0f} % of {among}{few}"
        )


def _other_sizes(found: Calibration) -> Iterator[str]:
    """Yield the times of curves at sizes that were asked for."""
    if not found.at:
        return
    yield ""
    yield "times at other sizes, along the curves that were measured:"
    table = [["test", "size", "time", "busbw"]]
    for case, times in found.at:
        factor = bus_factor(case.operation, case.ranks)
        for size, time in zip(found.request.sizes, times.tolist(), strict=True):
            rate = format_quantity(factor * size / time, "byte s-1")
            sizes = format_quantity(size, "byte"), format_quantity(time, "s")
            table.append([case.name, *sizes, rate])
    yield from aligned(table, left=1)
