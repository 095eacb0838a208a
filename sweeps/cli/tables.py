"""A result's cells as a table for people, with what it says in a line or two."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from sweeps import display
from sweeps.bands import (
    AT_RISK,
    FIT,
    FITS,
    MAY_NOT_FIT,
    NO_ROOM,
    band_of,
    band_words,
    brief,
    percent,
)
from sweeps.cli.numbers import column, shown
from sweeps.cli.sections import first_rows
from sweeps.engine.validity import NOTES, ONE_RANK
from sweeps.impossible import impossible, too_many
from sweeps.result import Record, Result, table_lines
from sweeps.spec.units import format_bytes, is_binary
from sweeps.wrapping import aligned, fitted

FOLLOWING = ("gpus_per_node", "mesh_nx", "mesh_ny", "mesh_nz")  # Axes that others tell
PLAN = display.rows("plan", screen="table")
STATES = "first_stage_model_state_memory"


def _wanted(result: Result, *, training: bool) -> list[str]:
    """Return the variables that a table shows."""
    values = {column.name: np.asarray(column.values) for column in result.layout.variables}
    if not training:
        shown = display.rows("collective", screen="table")
        wanted = [name for name in shown if name in values]
        known = {*wanted, *display.rows("collective", screen="report"), "chunks", "status"}
        return wanted + [name for name in values if name not in known]
    memory = "peak_memory" if "peak_memory" in values else STATES
    times = [name for name in values if name.endswith("_communication_time")]
    # Of what some plans have alone, what none here has is left out.
    perhaps = {*times, "bubble_fraction"}
    more = display.rows("communication", "step", "rates", "cost", screen="table")
    first = [name for name in ("step_time", "tokens_per_second_per_gpu", "mfu") if name in more]
    usual = dict.fromkeys((*PLAN, *first, memory, *times, *more))
    return [
        name
        for name in usual
        if name in values and (name not in perhaps or np.any(values[name] > 0.0))
    ] or list(values)


_MOST_COMPARED = 5000  # Cells among which the best is looked for before a table
# What is compared: one of two that wins is named.
_SAID = {
    "message_bytes": "message",
    "world_size": "GPUs",
    "global_batch_size": "batch",
    "sequence_length": "tokens per sequence",
}
_RIVALS = ("algorithm", "topology", "hardware", "software", "mechanism", "model", "schedule")


def extremes(result: Result, *, training: bool) -> Iterator[str]:
    """Yield in a line or two what a table of many cells says: the ends, and what wins where."""
    rows = list(result.values(_MOST_COMPARED + 1))
    variables = {column.name for column in result.layout.variables}
    main = next((name for name in ("step_time", "time") if name in variables), "")
    done = [row for row in rows if main and np.isfinite(float(row[main]))]
    if not done or len(rows) > _MOST_COMPARED:
        return
    dims = {column.name: column.dims for column in result.layout.coordinates}
    # What follows from an axis, as machines' networks, isn't told beside it.
    axes = [
        name
        for name in rows[0]
        if name in dims and ((name,) == dims[name] or dims[name][0] not in dims)
        if len({row[name] for row in rows}) > 1
    ]
    if training:
        yield from _best_steps(rows, done, axes)
    else:
        ends = (pick(done, key=lambda row: float(row[main])) for pick in (min, max))
        yield "from " + " to ".join(
            f"{shown(main, row[main])} ({_where(row, axes)}; {band_of(main, row.get)})"
            for row in ends
        )
    # Models are no rivals: their steps are of other work.
    rivals = [name for name in axes if name in _RIVALS and name != "model"]
    if rivals:
        others = [n for n in axes if n not in (rivals[0], *FOLLOWING)]
        yield from _winners(done, main, rivals[0], others)
    yield from idle_axes(rows, axes)


# Why an axis may change nothing, where that isn't plain.
_IDLE = {
    "oversubscription": (
        ": only what leaves a leaf switch pays it, and a ring leaves one once (--nodes-per-leaf)"
    )
}


def idle_axes(rows: Sequence[Record], axes: Sequence[str]) -> Iterator[str]:
    """Yield which of the values asked for change no result."""
    for axis in axes:
        cases: dict[str, list[Record]] = {}
        for row in rows:
            others = {name: value for name, value in row.items() if name in axes and name != axis}
            cases.setdefault(repr(others), []).append(row)
        alike = ({repr({**row, axis: None}) for row in case} for case in cases.values())
        several = any(len(case) > 1 for case in cases.values())
        if several and all(len(results) == 1 for results in alike):
            said = _SAID.get(axis) or axis.replace("_", " ")
            yield f"{said} changes nothing here{_IDLE.get(axis, '')}"


def _where(row: Mapping[str, object], axes: Sequence[str]) -> str:
    return ", ".join(
        str(row[name])
        if name in (*_RIVALS, "collective")
        else f"{_SAID.get(name) or name.replace('_', ' ')} {shown(name, row[name])}"
        for name in axes
        if name not in FOLLOWING
    )


def _best_steps(
    rows: Sequence[Mapping[str, object]], done: Sequence[Mapping[str, object]], axes: Sequence[str]
) -> Iterator[str]:
    """Yield the best step of each model, with its band; never one model's beside another's."""
    models = dict.fromkeys(str(row.get("model", "")) for row in rows)
    rest = [name for name in axes if name != "model"]
    for model in models:
        every, compared = (
            [row for row in some if str(row.get("model", "")) == model] for some in (rows, done)
        )
        head = f"{model}: " if len(models) > 1 else ""
        if not compared:
            yield f"{head}nothing fits or can be"
            continue
        yield head + _best_step(every, compared, rest)


def _best_step(every: Sequence[Record], done: Sequence[Record], axes: Sequence[str]) -> str:
    """Return the best step of one model: the shortest, or of unlike work the most tokens a GPU."""
    rate = "tokens_per_second_per_gpu"
    work = {(row.get("global_batch_size"), row.get("sequence_length")) for row in done}
    fits = [row for row in done if float(row.get("memory_state", FITTING)) > 0.0]
    if len(work) > 1 and rate in done[0]:
        best = max(fits or done, key=lambda row: float(row[rate]))
        text = f"{float(best[rate]):,.0f} tokens/s per GPU ({band_of('step_time', best.get)})"
        what = "most, steps being of unlike batches"
    else:
        best = min(fits or done, key=lambda row: float(row["step_time"]))
        text, what = (
            f"{brief(best['step_time'], 's')} per step ({band_of('step_time', best.get)})",
            "shortest",
        )
    text += f", MFU {percent(float(best['mfu']))}" if "mfu" in best else ""
    if not fits:
        text += f": {NO_ROOM}"
    elif float(best.get("memory_state", FITTING)) < FITTING:
        text += f": {_risk(best)}"
    where = _where(best, axes)
    text += f"; {what}, with {where}" if where else ""
    few = f"; {len(every) - len(fits):,} of {len(every):,} don't fit or can't be"
    return text + few * (0 < len(fits) < len(every))


# The state of memory that fits, by the formula's number.
FITTING = float(FIT.index(FITS))


def _winners(rows: Sequence[Record], main: str, rival: str, others: Sequence[str]) -> Iterator[str]:
    """Yield which of what is compared has the least, in how many cases."""
    cases: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        cases.setdefault(tuple(row[name] for name in others), []).append(row)
    won: dict[str, int] = {}
    compared = [case for case in cases.values() if len(case) > 1]
    for group in compared:
        best = str(min(group, key=lambda row: float(row[main]))[rival])
        won[best] = won.get(best, 0) + 1
    if not compared:
        return
    order = sorted(won.items(), key=lambda item: -item[1])
    texts = [f"{name} in {count:,}" for name, count in order]
    of = f" of {len(compared):,}" if len(compared) > 1 else ""
    line = f"{texts[0]}{of}" + "".join(f", {text}" for text in texts[1:])
    yield f"shortest time by {rival}: " + (line if of else order[0][0])


_SENT = ("sent_bytes", "link_bytes")  # What stands beside a message's size


def _of_row(result: Result, record: Record) -> Callable[[str, Any], str]:
    """Return what writes a cell: all bytes in powers of two where the message is, else of ten."""
    scalars = {c.name: c.values for c in result.layout.coordinates if not c.dims}
    message = record.get("message_bytes", scalars.get("message_bytes"))
    binary = message is not None and is_binary(float(message))

    def cell(name: str, value: Any) -> str:
        if message is not None and name in _SENT:
            return format_bytes(float(value), binary=binary)
        return shown(name, value)

    return cell


# Columns that ``--show rows`` adds.
MORE = frozenset(
    (
        "steps",
        "sent_bytes",
        "energy",
        "time_band_low",
        "time_band_high",
        "error_band_samples",
        "communication_upper_bound",
        "time_is_upper_bound",
    )
)
# What stands above a column, where it isn't what stands there in all rows.
HEADS = {
    "ranks": "ranks",
    "message_bytes": "message",
    "world_size": "GPUs",
    "step_time": "step",
    "tokens_per_second_per_gpu": "tokens/s per GPU",
    "global_batch_size": "batch",
    "micro_batch_size": "micro-batch",
    "sequence_length": "tokens",
    "lower_bound_ratio": "vs lower bound",
    "chosen_algorithm": "algorithm",
    "zero_stage": "ZeRO",
}
# Rows of a screen, and of ``--show rows``.
FEW, MANY = 24, 1000
# Lines of a screen for an answer and its table, and rows that it has however narrow the screen.
SCREEN, LEAST = 28, 12


def as_table(result: Result, *, training: bool, notes: Sequence[str] = ()) -> Iterator[str]:
    """Yield the answer, if there is one, and a screen's table: main columns, each in one unit.

    Notes stand below the answer's first line.
    """
    columns = (*result.layout.variables, *result.layout.coordinates)
    values = {column.name: column.values for column in columns}
    answer = [
        *extremes(result, training=training),
        *impossible(values),
        *too_many(values.get("world_size" if training else "ranks", 0.0)),
    ]
    head = [*answer[:1], *notes, *answer[1:]]
    yield from (*head, "") if head else ()
    variables = [column.name for column in result.layout.variables]
    records = list(result.values(FEW))
    axes = [name for name in records[0] if name not in variables]
    if np.all(values.get("cp", 0.0) == 1.0) and "context_parallel" not in result.layout.sizes:
        axes = [name for name in axes if name != "context_parallel"]
    axes.sort(key=lambda name: not isinstance(records[0][name], str))  # words to the left
    wanted = [
        name
        for name in _wanted(result, training=training)
        if name not in MORE and not name.endswith("_communication_time")
    ]
    if all(record.get("algorithm") == record.get("chosen_algorithm") for record in records):
        wanted = [name for name in wanted if name != "chosen_algorithm"]
    table = [_column(name, records) for name in dict.fromkeys((*axes, *wanted))]
    if not training and any("time_band_low" in record for record in records):
        index = 1 + next(i for i, row in enumerate(table) if row[0].startswith("time"))
        table.insert(index, _bands(records))
    main = "step_time" if training else "time"
    reasons = [_why(record, training=training, main=main) for record in records]
    if any(reasons):
        table.append(["", *reasons])
    lefts = sum(isinstance(records[0][name], str) for name in axes)
    write = partial(aligned, left=lefts, keys=len(axes), last=any(reasons))
    room = SCREEN - sum(1 for _ in fitted(answer))
    lines, count = first_rows(list(zip(*table, strict=True)), room, write, least=LEAST)
    yield from (line + "\n" for line in lines)
    if result.cells > count:
        cut = result.cells - count
        yield f"  {cut:,} more row{'s' * (cut > 1)}: --show rows, or --csv"


def _column(name: str, records: Sequence[Mapping[str, object]]) -> list[str]:
    """Return a column: its head with its unit, and its cells."""
    values = [record.get(name, np.nan) for record in records]
    binary = name in ("message_bytes", *_SENT)
    if binary and not isinstance(values[0], str):
        # Sizes of messages lie far apart: each has its own unit.
        return [HEADS.get(name, name), *(shown(name, value) for value in values)]
    unit, texts = column(name, values)
    head = HEADS.get(name) or display.title(name)
    return [f"{head} ({unit})" if unit and head.split()[0] != unit else head, *texts]


def _bands(records: Sequence[Record]) -> list[str]:
    """Return the column of the bands of a time."""
    ends = (
        [record.get(f"time_band_{end}", np.nan) for end in ("low", "high")] for record in records
    )
    return ["band", *(band_words(*map(float, pair)) for pair in ends)]


def _risk(record: Record) -> str:
    """Return what memory is whose band has the capacity inside."""
    return MAY_NOT_FIT if float(record.get("memory_headroom", 0.0)) < 0.0 else AT_RISK


def _why(record: Record, *, training: bool, main: str = "") -> str:
    """Return why a row's values are missing, or that its memory is at risk.

    What only some quantities lack is left out, unless the `main` one does for no other reason.
    """
    why = set(str(record.get("status", "ok")).split()) - {"ok", ONE_RANK}
    others = why - {*NOTES}
    if main and (others or np.isfinite(float(record.get(main, np.nan)))):
        why = others
    if training and float(record.get("memory_state", FITTING)) == 1.0:
        why.add(_risk(record))
    return " ".join(sorted(why))


def every_row(result: Result, *, training: bool) -> Iterator[str]:
    """Yield the cells as a table of all columns, cut after some rows."""
    rows = []
    wanted = _wanted(result, training=training)
    variables = {column.name for column in result.layout.variables}
    for record in result.values(MANY):
        cell = _of_row(result, record)
        row = {
            name: cell(name, record[name])
            for name in (*(name for name in record if name not in variables), *wanted)
            if name in record
        }
        if why := _why(record, training=training):
            row["why"] = why
        rows.append(row)
    if any("why" in row for row in rows):
        # Behind what is missing, not behind all columns.
        head = [*itertools.takewhile(lambda name: name not in ("time", "step_time"), rows[0])]
        order = dict.fromkeys([*head, *(n for n in ("step_time", "time") if n in rows[0]), "why"])
        rows = [{name: row.get(name, "") for name in dict.fromkeys([*order, *row])} for row in rows]
    yield from table_lines(
        rows,
        lambda _, text: text,
        most=MANY,
        total=result.cells,
        title=lambda name: display.title(name) if name in variables else name,
        keys=sum(name not in variables for name in next(iter(rows), {})),
    )
