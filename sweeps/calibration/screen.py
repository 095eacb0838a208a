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
from sweeps.spec.units import format_quantity
from sweeps.validate import SIZE_CLASSES
from sweeps.wrapping import aligned

# What a screen has of each: rows and faults of logs, curves, rows of errors.
_FIRST, _CURVES, _ERRORS = 2, 8, 6
_CLASSES = {"small": "below 256 KiB", "medium": "to 16 MiB", "large": "from 16 MiB"}


def screen_lines(calibration: Calibration) -> Iterator[str]:
    """Yield a calibration's screen: the verdict first, what it rests on, what the fit gains."""
    yield from _answer(calibration)
    yield from _first(calibration, verbose=False)
    yield ""
    yield from _curve_table(calibration)
    yield ""
    yield from _errors(calibration, _ERRORS)
    yield ""
    yield _fit_line(calibration)
    yield from _first_outlier(calibration)
    if calibration.at:
        yield from _other_sizes(calibration)


def rows_lines(calibration: Calibration) -> Iterator[str]:
    """Yield all that was compared: curves, logs with what was left out, rows that fall out."""
    yield from _first(calibration, verbose=True)
    yield from _verdicts(calibration)
    yield ""
    yield from _logs(calibration)
    yield ""
    yield from _outliers(calibration)


def fit_lines(calibration: Calibration) -> Iterator[str]:
    """Yield the constants, fitted and kept, and all errors before and after."""
    yield from _constants(calibration)
    yield ""
    yield from _errors(calibration, None)
    bands = [
        f"{_CLASSES[name]} a factor of {math.exp(WIDTH * scatter):.3g}"
        for name, scatter in zip(SIZE_CLASSES, calibration.scatter.tolist(), strict=True)
        if math.isfinite(scatter)
    ]
    yield f"  band about the fit ({WIDTH:g} robust standard deviations): {', '.join(bands)}"


def source_lines(calibration: Calibration) -> Iterator[str]:
    """Yield whose published curves a verdict rests on, and the logs."""
    yield f"published curves: {TABLE}"
    kinds = {name: band for verdict in calibration.verdicts for name, band in verdict.bands.items()}
    for name, band in kinds.items():
        yield f"  {name}: {len(band.peers)} curves of {WIDER[band.wider]}"
    if any(verdict.case.nodes > 1 for verdict in calibration.verdicts):
        yield f"  between nodes the band is wide ({BETWEEN:g}): a hint, not a verdict"


def _curve_table(calibration: Calibration) -> Iterator[str]:
    """Yield each curve's times over the profile's, beside what is normal."""
    rows = [["curve", "test", "ratio", "normal", "percentile", "result"]]
    for verdict in calibration.verdicts:
        for name, band in verdict.bands.items():
            ratio = verdict.peer.part(name)
            if math.isnan(ratio):
                continue
            normal, position, result = "-", "-", "-"
            if band.peers:
                normal = f"{band.low:.2f} to {band.high:.2f}"
                position = f"{band.percentile(ratio):.0f} of {len(band.peers)}"
                result = "SLOW" if ratio > band.high else "FAST" if ratio < band.low else "ok"
            rows.append([verdict.case.name, name, f"{ratio:.2f}", normal, position, result])
    # Those that are out of their band first.
    kept = [rows[0], *sorted(rows[1:], key=lambda row: row[-1] not in ("SLOW", "FAST"))]
    yield from aligned(kept[: _CURVES + 1], left=2, last=True)
    if len(kept) > _CURVES + 1:
        yield f"  {len(kept) - _CURVES - 1} more: --show rows"


def _no_fit(calibration: Calibration) -> str:
    """Return why the profile's constants stay."""
    whole = calibration.fit.scores[0]
    return "constants: the profile stays; " + (
        f"no fit predicts sizes that were left out a tenth better (mean error {_percent(whole)})"
        if math.isfinite(whole)
        else "these rows do not determine any of them"
    )


def _fit_line(calibration: Calibration) -> str:
    fit = calibration.fit
    whole, fitted = (_percent(score) for score in fit.scores)
    if not fit.groups:
        return _no_fit(calibration)
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


def _first_outlier(calibration: Calibration) -> Iterator[str]:
    if calibration.wrong:
        yield f"rows with wrong results, left out of the fit: {len(calibration.wrong)}"
        yield from (f"  {line}" for line in calibration.wrong[:_FIRST])
    if not calibration.outliers:
        return
    name, operation, placed, size, time, words = _outlier(calibration, calibration.outliers[0])
    count = f"{len(calibration.outliers)} of {len(calibration.rows)} rows fall out"
    yield f"{count}: {name}, {operation} of {placed}, {size} {time}, {words}"


def _percent(value: float, sign: str = "") -> str:
    if math.isnan(value):
        return "-"
    # What rounds to nothing has no side.
    whole = round(100.0 * value)
    return f"{whole:{sign}d} %" if whole else "0 %"


def _logs(calibration: Calibration) -> Iterator[str]:
    machine = calibration.machine
    yield f"{machine.title} ({machine.name}), algorithms: {calibration.request.algorithm}"
    counts = [
        int((calibration.rows.case == index).sum()) for index in range(len(calibration.cases))
    ]
    table = [["log", "operation", "ranks", "rows", "version"]]
    for case, count in zip(calibration.cases, counts, strict=True):
        versions = ", ".join(f"{name} {version}" for name, version in case.test.versions.items())
        table.append([case.test.name, case.operation, case.placed, f"{count}", versions])
    yield from aligned(table, left=5)
    notes: dict[str, list[str]] = {}
    for case in calibration.cases:
        for note in case.notes:
            notes.setdefault(note, []).append(case.test.name)
    for note, names in notes.items():
        yield f"  note, {', '.join(dict.fromkeys(names))}: {note}"


def _constants(calibration: Calibration) -> Iterator[str]:
    fit = calibration.fit
    whole, fitted = (_percent(score) for score in fit.scores)
    if not fit.groups:
        yield _no_fit(calibration)
    else:
        yield (
            f"fitted: {', '.join(fit.groups)}; mean error of rows that were left out of the fit "
            f"{whole} with the profile, {fitted} fitted"
        )
        others = dict.fromkeys(case.test.library for case in calibration.cases if case.test.library)
        if others:
            yield f"  these are constants of {', '.join(others)} as if it ran NCCL's algorithms"
        table = [["constant", "profile", "fitted", "±", "ratio"]]
        for name in fit.fitted:
            base, value, units = fit.base[name], fit.values[name], VOCABULARY[name].units
            ratio = f"{value / base:.3g}" if base else "-"
            words = f"{name} ({VOCABULARY[name].meaning})"
            shown = (format_quantity(number, units) for number in (base, value))
            table.append([words, *shown, _percent(fit.deviation[name]), ratio])
        yield from aligned(table, left=1)
    for name, why in fit.kept.items():
        yield f"  {name}: the profile's; {why}"


def _errors(calibration: Calibration, most: int | None) -> Iterator[str]:
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
        for score in calibration.scores
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


def _outliers(calibration: Calibration) -> Iterator[str]:
    if calibration.wrong:
        yield f"rows with wrong results, left out of the fit: {len(calibration.wrong)}"
        yield from (f"  {line}" for line in calibration.wrong)
    if not calibration.outliers:
        yield "rows that fall out: none"
        return
    yield f"rows that fall out: {len(calibration.outliers)} of {len(calibration.rows)}"
    yield from aligned([_outlier(calibration, outlier) for outlier in calibration.outliers], left=6)


def _outlier(calibration: Calibration, outlier: Outlier) -> list[str]:
    rows = calibration.rows
    case = calibration.cases[int(rows.case[outlier.row])]
    reference = "predicted" if outlier.reason == "fit" else "its neighbours in size"
    by = outlier.excess if outlier.reason == "fit" else outlier.local_excess
    factor, word = (1.0 + by, "slower") if by > 0.0 else (1.0 / (1.0 + by), "faster")
    return [
        calibration.named(outlier.row),
        case.operation,
        case.placed,
        format_quantity(float(rows.message_bytes[outlier.row]), "byte"),
        format_quantity(float(rows.time[outlier.row]), "s"),
        f"{factor:.2f} times {word} than {reference}",
    ]


def _answer(calibration: Calibration) -> Iterator[str]:
    """Yield whether the fabric is as it should be, in a line."""
    wrong = [outcome for outcome in calibration.verdicts if not outcome.healthy]
    unknown = sum(bool({UNKNOWN, OTHER} & {*outcome.words}) for outcome in calibration.verdicts)
    others = dict.fromkeys(
        outcome.case.unknown for outcome in calibration.verdicts if OTHER in outcome.words
    )
    count = len(calibration.verdicts)
    curves, where = f"{count} curve{'s' * (count != 1)}", _network(calibration)
    if not wrong:
        rest = f"; {unknown} can't be judged" if unknown else ""
        judged = "HEALTHY" if unknown < count else "UNKNOWN"
        if others and unknown == count:
            reason = next(iter(others)).partition(": times of")[0]
            yield f"{judged}: {curves} on {where}: {reason}"
            return
        yield f"{judged}: {curves} on {where} compared with published ones{rest}"
        return
    strangers = [outcome for outcome in wrong if STRANGER in outcome.words]
    if strangers:
        case = strangers[0].case
        yield (
            f"UNKNOWN: the GPUs of {case.test.name} are {case.stranger}; --hardware is "
            f"{calibration.machine.name}: give {way_on(case.stranger)}"
        )
        return
    lines = [(outcome, row) for outcome in wrong for row in outcome.odd]
    if lines:
        verdict, row = lines[0]
        yield (
            f"UNHEALTHY: {', '.join(verdict.words)}: {verdict.case.operation} of "
            f"{verdict.case.placed}, {row.text}; {len(wrong)} of {curves} on {where}"
        )
        return
    (first, worst), *_ = sorted(_slowest(wrong), key=lambda pair: -pair[1][0])
    ratio, name, band = worst
    messages = "short" if name == "latency" else "long"
    normal = f"normal is {band.low:.2f} to {band.high:.2f}"
    whose = f"{first.case.operation} of {first.case.placed}"
    yield (
        f"UNHEALTHY: {', '.join(first.words)}: {whose} takes "
        f"{ratio:.2f} times as long as usual for {messages} messages ({normal}); {len(wrong)} "
        f"of {curves} on {where}"
    )


def _first(calibration: Calibration, verbose: bool) -> Iterator[str]:
    """Yield what has to be known at once: rows that are out of line, and what was left out."""
    rows = [(verdict, row) for verdict in calibration.verdicts for row in verdict.odd]
    shown = None if verbose else _FIRST
    if len(rows) > 1:
        yield from (f"  {verdict.case.name}, {row.text}" for verdict, row in rows[:shown])
        if not verbose and len(rows) > _FIRST:
            yield f"  and {len(rows) - _FIRST} more rows: --show rows"
    yield from (
        f"  {verdict.case.name}: {verdict.remark}"
        for verdict in calibration.verdicts
        if verdict.remark
    )
    left = [left_out.reason for left_out in calibration.left]
    yield from (f"  left out: {reason}" for reason in left[:shown])
    if not verbose and len(left) > _FIRST:
        yield f"  and {len(left) - _FIRST} more left out: --show rows"


def _network(calibration: Calibration) -> str:
    """Return the machine that was compared with, and the network between its nodes."""
    machine, given = calibration.machine, calibration.request.given
    if not any(case.nodes > 1 for case in calibration.cases):
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
        yield (
            verdict,
            max(
                there,
                key=lambda band_at: max(band_at[0] / band_at[2].high, band_at[2].low / band_at[0]),
            ),
        )


def _verdicts(calibration: Calibration) -> Iterator[str]:
    yield "verdict against published curves (times over the profile's; 1.1: a tenth slower):"
    for verdict in calibration.verdicts:
        yield f"  {verdict.case.name}: {', '.join(verdict.words)}"
        for line in _comparison(verdict):
            yield f"    {line}"
    if any(verdict.case.nodes > 1 for verdict in calibration.verdicts):
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


def _other_sizes(calibration: Calibration) -> Iterator[str]:
    """Yield the times of curves at sizes that were asked for."""
    if not calibration.at:
        return
    yield ""
    yield "times at other sizes, along the curves that were measured:"
    table = [["test", "size", "time", "busbw"]]
    for case, times in calibration.at:
        factor = bus_factor(case.operation, case.ranks)
        for size, time in zip(calibration.request.sizes, times.tolist(), strict=True):
            rate = format_quantity(factor * size / time, "byte s-1")
            sizes = format_quantity(size, "byte"), format_quantity(time, "s")
            table.append([case.name, *sizes, rate])
    yield from aligned(table, left=1)
