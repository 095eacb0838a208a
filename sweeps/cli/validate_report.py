"""The screens of ``sweeps validate``, one for each kind of table, and their sections."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps import display
from sweeps.bands import change_by, percent
from sweeps.cli.sections import wrapped
from sweeps.spec.units import grouped, in_one_unit
from sweeps.tuner.presets import NEAR, preset_lines, preset_summary
from sweeps.validate import SIZE_CLASSES
from sweeps.validate.predict import running_lines
from sweeps.validate.scores import (
    Record,
    Score,
    error_lines,
    score,
    scores_by,
    skipped_lines,
)
from sweeps.validate.training_rows import FORMULAS, OUTSIDE, SIMULATED, Skipped
from sweeps.wrapping import aligned

Row = Mapping[str, Any]
WORDS = {"step_time": "Step time", "memory": "Memory"}
# Classes of a screen: each run of a GPU or of an MoE model is in one of these, or in none.
FIRST = {
    "step_time": (
        "dense A100",
        "dense H100",
        "dense Blackwell",
        "MoE, settings known",
        "MoE, settings assumed",
        "TPU",
        "LoRA",
    ),
    "memory": ("memory, settings known", "memory, settings assumed", "LoRA"),
}
# Classes and sources of a screen, and what is named of what else there is.
MOST, NAMED, LONGEST = 9, 3, 20
TARGET = "target 80 %"


class Screen(NamedTuple):
    """What is shown of a table."""

    lines: Iterable[str]
    bodies: Mapping[str, Callable[[], Iterable[str]]]  # The sections that --show adds
    also: str  # What else there is


def in_percent(value: float, sign: str = "") -> str:
    """Return a cell of a column of percentages: without decimals from 10 on, with one below."""
    size = 100.0 * value
    return f"{size:{sign}.{0 if abs(size) >= 9.95 else 1}f}"


def _runs(count: int, what: str = "run") -> str:
    return f"{count:,} {what}" + "s" * (count != 1)


# Training runs: the time of their steps, and their memory.


def training_screen(records: Sequence[Record], skipped: Sequence[Skipped], bound: float) -> Screen:
    """Return how far predictions of training runs are off."""
    bodies = {
        "rows": lambda: _score_tables(records, "class"),
        "rejected": lambda: _rejected(skipped),
        "sources": lambda: _score_tables(records, "source"),
        "defaults": lambda: _assumed(records),
    }
    also = "--csv has each run; exit status 1 beyond a bound: --strict"
    return Screen(_training_lines(records, skipped, bound), bodies, also)


def _training_lines(
    records: Sequence[Record], skipped: Sequence[Skipped], bound: float
) -> Iterator[str]:
    measured = {kind: _measured(records, kind) for kind in WORDS}
    outside = {kind: _measured(records, kind, outside=True) for kind in WORDS}
    for title, by_kind in (("Outside the fit, ", outside), ("", measured)):
        for kind, runs in by_kind.items():
            if runs:
                words = WORDS[kind].lower() if title else WORDS[kind]
                yield from wrapped(_answer(f"{title}{words}", score(runs)))
    yield ""
    yield from _class_table(records, outside)
    yield ""
    yield from wrapped(_verdict(measured, bound))
    if any(measured.values()):
        yield from wrapped(f"Worst sources: {_worst(measured)}")
    if any(outside.values()):
        yield from wrapped(f"Worst sources outside the fit: {_worst(outside)}; all: --show sources")
    yield from _notes(records, measured, skipped)
    counts = _unknown(records)
    named = [f"{name} ({count:,})" for name, count in counts.most_common(5)]
    if named:
        more = f"; {len(counts) - len(named)} more" if len(counts) > len(named) else ""
        yield from wrapped(f"Defaults: settings that rows do not state: {', '.join(named)}{more}")


def _measured(records: Iterable[Record], kind: str, *, outside: bool = False) -> list[Record]:
    """Return measured runs of a kind: of sources to which constants were fitted, or of others."""
    return [
        record
        for record in records
        if record.case.kind == kind
        and record.case.is_measured
        and (record.case.group == OUTSIDE) == outside
    ]


def _answer(words: str, total: Score) -> str:
    inside = "no band"
    if not math.isnan(total.within):
        inside = f"{percent(total.within)} in the band ({TARGET})"
    return f"{words}: {_runs(total.rows)}, {inside}, MAPE {percent(total.mape)}"


def _class_table(
    records: Sequence[Record], outside: Mapping[str, Sequence[Record]]
) -> Iterator[str]:
    """Yield the errors of sources outside the fit, and of the classes that matter most."""
    table = [["Errors (%)", *HEADS]]
    table += [["Outside the fit: step time"]] if any(outside.values()) else []
    few = len({run.case.source for run in outside["step_time"]}) <= MOST
    for kind, runs in outside.items():
        by = ("source" if few else "sort") if kind == "step_time" else "class"
        table += [
            _class_row(name, class_score) for name, class_score in scores_by(runs, by).items()
        ]
    for kind, words in WORDS.items():
        scores = scores_by(_measured(records, kind), "class")
        chosen = [name for name in FIRST[kind] if name in scores]
        chosen = chosen or sorted(scores, key=lambda name: -scores[name].rows)[:MOST]
        table += [[f"{words}, by class"]] if chosen else []
        table += [_class_row(name, scores[name]) for name in chosen]
    yield from aligned(table, indent="")


HEADS = ("runs", "MAPE", "median", "P90", "bias", "held out", "inside")


def _class_row(name: str, class_score: Score) -> list[str]:
    errors = (
        class_score.mape,
        class_score.median,
        class_score.p90,
        class_score.bias,
        class_score.without_source,
    )
    cells = [
        "-" if math.isnan(error) else f"{100.0 * error:{'+' * (index == 3)}.1f}"
        for index, error in enumerate(errors)
    ]
    inside = "-" if math.isnan(class_score.within) else f"{100.0 * class_score.within:.0f}"
    words = "memory, all of them" if name == OUTSIDE else name.removeprefix("memory, ")
    return [f"  {words}", f"{class_score.rows:,}", *cells, inside]


def _verdict(measured: Mapping[str, Sequence[Record]], bound: float) -> str:
    """Return which classes are beyond a bound, as --strict has it."""
    beyond = [
        f"{name} ({WORDS[kind].lower()}, {_runs(errors.rows)}, MAPE {percent(errors.mape)})"
        for kind, runs in measured.items()
        for name, errors in scores_by(runs, "class").items()
        if errors.mape > bound
    ]
    limit = f"{100.0 * bound:g} % bound"
    if beyond:
        return f"FAILED the {limit}: {'; '.join(beyond)}"
    return f"Within the {limit}: the MAPE of every class"


def _worst(measured: Mapping[str, Sequence[Record]]) -> str:
    """Return the sources whose runs are predicted worst."""
    errors = [
        (source_score.mape, name, source_score.rows)
        for runs in measured.values()
        for name, source_score in scores_by(runs, "source").items()
    ]
    texts = [
        f"{name} ({_runs(rows)}, {percent(mape)})"
        for mape, name, rows in sorted(errors, reverse=True)[:NAMED]
    ]
    return ", ".join(texts)


# What was in sight when the bands were chosen.
SEEN = ", bands with most rows outside in sight"


def _notes(
    records: Sequence[Record],
    measured: Mapping[str, Sequence[Record]],
    skipped: Sequence[Skipped],
) -> Iterator[str]:
    """Yield what the figures above rest on."""
    if skipped:
        yield from wrapped(f"Excluded: {_runs(len(skipped), 'row')}, by reason in --show rejected")
    wrong = [case for case in skipped if case.reason.startswith("impossible")]
    for skipped_case in wrong[:NAMED]:
        yield from wrapped(
            f"Warning: {skipped_case.name} of {skipped_case.source}: {skipped_case.reason}"
        )
    if len(wrong) > NAMED:
        yield f"Warning: {len(wrong) - NAMED} more such rows: --show rejected"
    held = [run for runs in measured.values() for run in runs if not math.isnan(run.without_source)]
    if held:
        seen = any(record.case.group == OUTSIDE for record in records)
        yield from wrapped(
            f"Note: {len(held):,} of these runs were fitted{SEEN if seen else ''}. Held out: MAPE "
            "without the source of the run; inside: of these, if any"
        )
    others = sum(record.case.group in (SIMULATED, FORMULAS) for record in records)
    if others:
        rows = _runs(others, "row")
        yield from wrapped(f"Note: {rows} ({FORMULAS}, or {SIMULATED}) in no figure above")


def _unknown(records: Iterable[Record]) -> Counter[str]:
    return Counter(name for record in records for name in record.case.assumed)


def _assumed(records: Sequence[Record]) -> Iterator[str]:
    counts = _unknown(records)
    if counts:
        yield "Unknown settings (rows)"
        yield from aligned(
            [["setting", "rows"], *([name, f"{count:,}"] for name, count in counts.most_common())]
        )


def _rejected(skipped: Sequence[Skipped]) -> Iterator[str]:
    if skipped:
        yield f"Excluded, {_runs(len(skipped), 'row')}"
        yield from skipped_lines(skipped, every=True)


def _score_tables(records: Sequence[Record], by: str) -> Iterator[str]:
    """Yield errors of every class, or of every source."""
    for kind, words in WORDS.items():
        records_of_kind = [record for record in records if record.case.kind == kind]
        if records_of_kind:
            table = [[f"{words} by {by}: errors (%)", *HEADS]]
            table += [
                _class_row(name, class_score)
                for name, class_score in scores_by(records_of_kind, by).items()
            ]
            yield from aligned(table, indent="")
            yield ""


# Collectives: errors by table and size of the message.


def collective_screen(rows: Sequence[Row], near: float, impossible: Iterable[str]) -> Screen:
    """Return how far predicted times of collectives are off, a row a table."""
    bodies = {"rows": lambda: error_lines(rows)}
    lines = _collective_lines(rows, near, impossible)
    return Screen(lines, bodies, "points: sweeps run nccl-measured")


def _collective_lines(rows: Sequence[Row], near: float, impossible: Iterable[str]) -> Iterator[str]:
    known = [row["median_error"] for row in rows if not math.isnan(row["median_error"])]
    points = sum(int(row["points"]) for row in rows)
    fine = sum(ratio <= near for ratio in known)
    middle = percent(float(np.median(known))) if known else "not known"
    yield (
        f"Collectives: median error {middle} over {_runs(len(known), 'group')}; {fine} of "
        f"{len(known)} within {100.0 * near:g} %"
    )
    yield from wrapped(
        f"{points:,} points; a group is a table's small, medium or large messages", "  "
    )
    yield from impossible
    yield ""
    yield from error_table(rows)
    worst = sorted(
        (
            (row["median_error"], f"{_table_of(row)}, {row['size_class']}")
            for row in rows
            if row["median_error"] > near
        ),
        reverse=True,
    )
    yield ""
    yield from wrapped(
        f"Beyond {100.0 * near:g} %: {len(worst)} groups"
        + "".join(f"; {name} ({percent(error)})" for error, name in worst[:NAMED])
        if worst
        else f"All groups are within {100.0 * near:g} %"
    )
    yield "Columns: median error by message size; --show rows has its sign"


def error_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield median errors of each table of measurements, by the size of the message."""
    names = [name for name in SIZE_CLASSES if any(row["size_class"] == name for row in rows)]
    table = [["table", "points", *(f"{name} (%)" for name in names)]]
    table_names = dict.fromkeys(_table_of(row) for row in rows)
    # What differs in the last label stands together, such as the library.
    ends = list(dict.fromkeys(name.rpartition(", ")[2] for name in table_names if ", " in name))
    tables = sorted(
        table_names, key=lambda name: ends.index(name.rpartition(", ")[2]) if ends else 0
    )
    for name in tables[:LONGEST]:
        by_size = {row["size_class"]: row for row in rows if _table_of(row) == name}
        count = sum(int(row["points"]) for row in by_size.values())
        table.append([name, f"{count:,}", *(_error(by_size.get(size)) for size in names)])
    yield from aligned(table)
    if len(tables) > LONGEST:
        yield _more_rows(len(tables) - LONGEST)


def _more_rows(count: int) -> str:
    return f"  {count} more row{'s' * (count > 1)}: --show rows"


def _table_of(row: Row) -> str:
    parts = [
        str(value) for name, value in row.items() if name != "size_class" and isinstance(value, str)
    ]
    return ", ".join(parts) or "all"


def _error(row: Row | None) -> str:
    if row is None or math.isnan(row["median_error"]):
        return "-"
    return in_percent(row["median_error"])


# What running takes, and attention with context parallelism: any quantity.


def quantity_screen(rows: Sequence[Row], bound: float) -> Screen:
    """Return rows of several quantities, a table for each; or of classes, a row for each."""
    bodies = {"rows": lambda: running_lines(rows), "sources": lambda: _told(rows)}
    also = "exit status 1 beyond the bound: --strict"
    return Screen(_quantity_lines(rows, bound), bodies, also)


def _quantity_lines(rows: Sequence[Row], bound: float) -> Iterator[str]:
    near = sum(abs(row["error"]) <= bound for row in rows)
    mape = float(np.mean([abs(row["error"]) for row in rows]))
    verdict = f"{near} of {len(rows)} rows are within {100.0 * bound:g} %, MAPE {percent(mape)}"
    grouped_rows = bool(rows) and "group" in rows[0]
    yield ("Attention: " if grouped_rows else "Running: ") + verdict
    yield ""
    yield from _by_class(rows) if grouped_rows else _by_quantity(rows)
    yield ""
    if near < len(rows):
        worst = max(rows, key=lambda row: abs(float(row["error"])))
        name = f"{worst['class']}, {worst['group']}" if grouped_rows else worst["row_id"]
        yield from wrapped(
            f"FAILED the {100.0 * bound:g} % bound: {len(rows) - near} rows; worst "
            f"{name} ({change_by(worst['error'])})"
        )


def _by_quantity(rows: Sequence[Row]) -> Iterator[str]:
    """Yield each quantity's rows in its unit."""
    for number, name in enumerate(dict.fromkeys(str(row["quantity"]) for row in rows)):
        yield from [""] * (number > 0)
        rows_of_quantity = [row for row in rows if row["quantity"] == name]
        both = [row[which] for row in rows_of_quantity for which in ("measured", "predicted")]
        unit, texts = _in_one(name, [float(value) for value in both])
        mape = float(np.mean([abs(row["error"]) for row in rows_of_quantity]))
        title = VOCABULARY[name].meaning
        yield from wrapped(
            f"{title[0].upper()}{title[1:]}{f' ({unit})' if unit else ''}: MAPE {percent(mape)}"
        )
        for index, row in enumerate(rows_of_quantity[:MOST]):
            measured, predicted = texts[2 * index : 2 * index + 2]
            error = in_percent(row["error"], "+")
            yield f"  {row['row_id']:<14}{measured:>9} measured{predicted:>9} predicted{error:>7} %"
        if len(rows_of_quantity) > MOST:
            yield _more_rows(len(rows_of_quantity) - MOST)


def _in_one(name: str, values: Sequence[float]) -> tuple[str, list[str]]:
    """Return values of one quantity in one unit."""
    units = VOCABULARY[name].units
    if display.percent(name):
        return "%", [grouped(100.0 * value) for value in values]
    if units == "s" and min(values) > 3600.0:
        long = float(np.median(values)) > 2 * 86400.0
        return (
            ("days", [f"{number / 86400.0:.3g}" for number in values])
            if long
            else ("h", [f"{number / 3600.0:.3g}" for number in values])
        )
    return in_one_unit(list(values), units, binary=False, write=grouped)


def _by_class(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the errors of each class: as predicted, and with the kernel's rate of the others."""
    table = [["", "rows", "MAPE (%)", "median (%)", "held out (%)", "median (%)"]]
    for name in dict.fromkeys(str(row["class"]) for row in rows):
        rows_of_class = [row for row in rows if row["class"] == name]
        columns = []
        for which in ("error", "left_out_error"):
            errors = np.array([row[which] for row in rows_of_class], dtype=float)
            errors = errors[np.isfinite(errors)]
            columns += (
                [
                    in_percent(float(np.mean(np.abs(errors)))),
                    in_percent(float(np.median(errors)), "+"),
                ]
                if errors.size
                else ["-", "-"]
            )
        table.append([name, str(len(rows_of_class)), *columns])
    yield from aligned(table)
    yield "  held out: with the attention kernel's rate of the other kinds"


def _told(rows: Sequence[Row]) -> Iterator[str]:
    """Yield where each row stands."""
    yield "Sources"
    by: dict[str, list[str]] = {}
    for row in rows:
        by.setdefault(str(row["source_ref"]), []).append(str(row["row_id"]))
    for source, names in by.items():
        few = ", ".join(names[:4]) + f" and {len(names) - 4} more" * (len(names) > 4)
        yield from wrapped(f"{few}: {source}", "  ")


# NVIDIA's settings of tensor-parallel overlap.


def preset_screen(rows: Sequence[Row], enough: float) -> Screen:
    """Return how near settings of overlap are to ours, a row a preset."""
    bodies = {"rows": lambda: preset_lines(rows)}
    also = "exit status 1 below the target: --strict"
    return Screen(_preset_lines(rows, enough), bodies, also)


def _preset_lines(rows: Sequence[Row], enough: float) -> Iterator[str]:
    summary = preset_summary(rows)
    near = percent(summary["near"])
    yield from wrapped(
        f"Userbuffers: {near} of {summary['layers']:.0f} layers of NVIDIA's presets "
        f"are within {100.0 * NEAR:g} % of the best predicted setting (target "
        f"{100.0 * enough:g} %)"
    )
    yield from wrapped(
        f"same method in {percent(summary['same_method'])}; SMs: ours / theirs "
        f"{summary['num_sm_ratio']:.3g} in the median",
        "  ",
    )
    yield ""
    table = [["preset", "layers", "near", "same method", "largest loss (%)"]]
    for preset in dict.fromkeys(str(row["preset"]) for row in rows):
        layers = [row for row in rows if row["preset"] == preset]
        same = sum(row["our_method"] == row["their_method"] for row in layers)
        close = sum(row["loss"] <= NEAR for row in layers)
        worst = in_percent(max(float(row["loss"]) for row in layers))
        label = preset.removeprefix("userbuffers_")
        table.append([label, str(len(layers)), str(close), str(same), worst])
    yield from aligned(table)
    yield ""
    yield from wrapped(
        "Note: not timings. What an SM moves, and how many SMs a GEMM spares below the power cap, "
        "are inferred from 9 of these presets: agreement does not validate a time"
    )
