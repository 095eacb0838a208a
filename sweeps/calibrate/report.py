"""What a calibration tells people: constants, errors, what falls out, verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sweeps.calibrate.calibration import Calibration, Verdict
from sweeps.calibrate.constants import BANDWIDTHS, CONSTANTS, LAUNCH
from sweeps.calibrate.outliers import WIDTH, Outlier
from sweeps.spec.units import format_quantity
from sweeps.validate.sizes import SIZE_CLASSES

__all__ = ["report_lines"]

_SHOWN = 12  # outliers; all with verbose
_CLASSES = {
    "small": "below 256 KiB",
    "medium": "to 16 MiB",
    "large": "from 16 MiB",
}


def report_lines(found: Calibration, *, verbose: bool = False) -> Iterator[str]:
    """Yield a calibration's report."""
    yield from _logs(found, verbose)
    yield ""
    yield from _constants(found)
    yield ""
    yield from _errors(found)
    yield ""
    yield from _outliers(found, verbose)
    yield ""
    yield from _verdicts(found, verbose)


def _table(rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield rows with their columns below each other: the first ones to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        words = [text.ljust(width) for text, width in zip(row, widths, strict=True)][:left]
        numbers = [text.rjust(width) for text, width in zip(row, widths, strict=True)][left:]
        yield "  " + "  ".join([*words, *numbers]).rstrip()


def _percent(value: float, sign: str = "") -> str:
    return "-" if math.isnan(value) else f"{100.0 * value:{sign}.0f} %"


def _logs(found: Calibration, verbose: bool) -> Iterator[str]:
    machine = found.machine
    yield f"{machine.title} ({machine.name}), algorithms: {found.request.algorithm}"
    counts = [int((found.rows.case == place).sum()) for place in range(len(found.cases))]
    table = []
    for case, count in zip(found.cases, counts, strict=True):
        versions = ", ".join(f"{name} {one}" for name, one in case.test.versions.items())
        table.append([case.test.name, case.operation, case.placed, f"{count} rows", versions])
    yield from _table(table, left=5)
    notes: dict[str, list[str]] = {}
    for case in found.cases:
        for note in case.notes:
            notes.setdefault(note, []).append(case.test.name)
    for note, names in notes.items():
        told = (
            ", ".join(dict.fromkeys(names)) if verbose or len(names) < 4 else f"{len(names)} tests"
        )
        yield f"  note, {told}: {note}"


def _constants(found: Calibration) -> Iterator[str]:
    fit = found.fit
    table = [["constant", "data sheet", "fitted", "+-", "ratio"]]
    for name in fit.fitted:
        units = CONSTANTS[name].units
        value, spread = fit.values[name], fit.deviation[name] / fit.values[name]
        before = "-" if name == LAUNCH else format_quantity(fit.base[name], units)
        ratio = "-" if name == LAUNCH else f"{value / fit.base[name]:.3g}"
        after = format_quantity(value, units)
        around = "unknown" if math.isnan(spread) else f"{100.0 * spread:.2g} %"
        table.append([f"{name} ({CONSTANTS[name].words})", before, after, around, ratio])
    yield "fitted constants (+-: one standard deviation as the rows scatter):"
    yield from _table(table, left=1)
    for name, why in fit.kept.items():
        before = "none" if name == LAUNCH else _known(found, name)
        yield f"  {name}: {before}, kept; {why}"
    if LAUNCH in fit.fitted:
        yield (
            "  The launch is in these predictions and in no hardware file: files have no such "
            "figure, so that"
        )
        yield "  predictions with a file that is written here are shorter by it."
    for name in BANDWIDTHS:
        if name in fit.fitted and fit.values[name] > 1.02 * fit.base[name]:
            yield f"  {name} is above the data sheet's: is {found.machine.name} the machine?"


def _known(found: Calibration, name: str) -> str:
    value = found.fit.base[name]
    return "none" if math.isnan(value) else format_quantity(value, CONSTANTS[name].units)


def _errors(found: Calibration) -> Iterator[str]:
    table = [["operation", "messages", "rows", "before", "signed", "after", "signed"]]
    table += [
        [
            score.operation, _CLASSES.get(score.size_class, "all"), f"{score.count}",
            _percent(score.before), _percent(score.signed_before, "+"),
            _percent(score.after), _percent(score.signed_after, "+"),
        ]
        for score in found.scores
    ]  # fmt: skip
    yield "predicted beside measured, median error before (data sheet) and after (fitted):"
    yield from _table(table, left=2)
    bands = [
        f"{_CLASSES[name]} a factor of {math.exp(WIDTH * one):.3g}"
        for name, one in zip(SIZE_CLASSES, found.scatter.tolist(), strict=True)
        if math.isfinite(one)
    ]
    yield f"  band about the fit ({WIDTH:g} robust standard deviations): {', '.join(bands)}"


def _outliers(found: Calibration, verbose: bool) -> Iterator[str]:
    if found.wrong:
        yield f"rows with wrong results, left out of the fit: {len(found.wrong)}"
        yield from (f"  {line}" for line in found.wrong[: None if verbose else _SHOWN])
    if not found.outliers:
        yield "rows that fall out: none"
        return
    yield f"rows that fall out: {len(found.outliers)} of {len(found.rows)}"
    shown = found.outliers if verbose else found.outliers[:_SHOWN]
    yield from _table([_outlier(found, one) for one in shown], left=6)
    if len(shown) < len(found.outliers):
        yield f"  and {len(found.outliers) - len(shown)} more (--verbose)"


def _outlier(found: Calibration, one: Outlier) -> list[str]:
    rows = found.rows
    case = found.cases[int(rows.case[one.row])]
    beside = "predicted" if one.reason == "fit" else "its neighbours in size"
    by = one.excess if one.reason == "fit" else one.beside
    factor, word = (1.0 + by, "slower") if by > 0.0 else (1.0 / (1.0 + by), "faster")
    return [
        found.named(one.row),
        case.operation,
        case.placed,
        format_quantity(float(rows.message_bytes[one.row]), "byte"),
        format_quantity(float(rows.time[one.row]), "s"),
        f"{factor:.2f} times {word} than {beside}",
    ]


def _verdicts(found: Calibration, verbose: bool) -> Iterator[str]:
    yield f"beside what is published of {found.machine.name} (share of the data sheet's rate):"
    sources: dict[str, None] = {}
    for verdict in found.verdicts:
        yield f"  {verdict.case.name}: {', '.join(verdict.words)}"
        for line in _compared(verdict, verbose):
            yield f"    {line}"
        sources |= dict.fromkeys(one.source for one in verdict.comparisons)
    for source in sources:
        yield f"  source: {source}"


def _compared(verdict: Verdict, verbose: bool) -> Iterator[str]:
    for one in verdict.comparisons:
        band = f"{one.low:.2f}" if one.low == one.high else f"{one.low:.2f} to {one.high:.2f}"
        slow = ": slower" if one.slower else ""
        if verbose or one.slower or one.size_class == "large":
            yield f"{_CLASSES[one.size_class]}: {one.share:.2f}, published {band}{slow}"
