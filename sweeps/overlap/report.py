"""The report of one case for a person: durations, speedups, what bounds it, what shows and why."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from overhead.expression import evaluate as evaluated
from overhead.formula import REGISTRY, Call
from overhead.overlap.mechanisms import MECHANISMS
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault
from sweeps.overlap.evaluate import FAULTS, cell_of
from sweeps.overlap.evaluate import evaluate as evaluate_cells
from sweeps.overlap.request import BOTH, Case, Request, flag_of
from sweeps.spec.units import format_quantity

LINES = (
    ("compute_time", "computation"),
    ("communication_time", "communication"),
    ("sequential_time", "one after the other"),
    ("overlapped_time", "overlapped"),
    ("ideal_overlapped_time", "ideal (the longer one)"),
    ("hidden_time", "hidden"),
    ("exposed_time", "exposed"),
)
RATIOS = (
    ("overlap_ratio", "hidden, of the shorter one"),
    ("hidden_communication_share", "hidden, of communication"),
)
SPEEDUPS = (("overlap_speedup", "speedup"), ("ideal_speedup", "ideal speedup"))
WIDTH = 30
# Less than this share of the time is rounding.
LEAST = 1e-9


def check_cell(request: Request, case: Case) -> None:
    """Refuse a cell that can't be."""
    status = int(evaluate_cells(request, case)["status"])
    told = [(name, text) for name, (bit, text) in FAULTS.items() if status & bit]
    lines = []
    for name, text in told:
        about = {
            "ranks_odd": "ranks",
            "no_multiprocessor_left": "num_sm",
            "micro_batches_not_multiple_of_stages": "micro_batches",
            "virtual_stages_need_interleaving": "virtual_stages",
            "shorter_than_possible": "overlapped_time",
        }[name]
        value = {**case.defaults, **request.constants}[about]
        shown = format_quantity(value, VOCABULARY[about].units)
        lines.append(fault(flag_of(about), shown, name.replace("_", " "), text))
    if lines:
        raise InputError(lines)


def report_lines(request: Request, case: Case, verbose: bool) -> Iterator[str]:
    """Yield the report of one case."""
    check_cell(request, case)
    names = (*BOTH, *(name for name, _ in (*LINES, *RATIOS, *SPEEDUPS)), "overlap_efficiency")
    found = cell_of(request, case, names)
    measured = "overlapped_time" in request.constants
    mechanism = MECHANISMS[case.mechanism]
    yield "measured" if measured else f"{mechanism.name}: {mechanism.title}"
    for name, words in LINES:
        yield _line(words, format_quantity(found[name], "s"))
    for name, words in RATIOS:
        yield _line(words, f"{100 * found[name]:.4g} %")
    for name, words in SPEEDUPS:
        yield _line(words, f"{found[name]:.4g}x")
    yield _line("bounded by", _bound(found))
    if measured:
        return
    if found["exposed_time"] > LEAST * found["overlapped_time"]:
        yield _line("exposed because", mechanism.exposed)
    yield from _notes(case, found)
    if verbose:
        yield from statement_lines(request, case)


def _line(words: str, text: str) -> str:
    return f"  {words.ljust(WIDTH)}{text}"


def _bound(found: Mapping[str, float]) -> str:
    """Say what decides how long it takes."""
    compute, communication = (found[name] for name in BOTH)
    time = found["overlapped_time"]
    both = compute + communication
    if time > found["sequential_time"] * (1.0 + LEAST):
        return "running at once: it costs more than it hides"
    if min(compute, communication) > 0.0 and time >= both * (1.0 - LEAST):
        return "both: nothing overlaps"
    if compute >= communication:
        return "the computation; overlap can hide all of the communication at best"
    return "the communication; what is longer than the computation can't hide"


def _notes(case: Case, found: Mapping[str, float]) -> Iterator[str]:
    """Yield what a reader may trip over."""
    compute, communication = (found[name] for name in BOTH)
    if case.labels.get("efficiency_of") == "communication" and case.mechanism == "two_durations":
        bare = compute + communication * (1.0 - found["overlap_efficiency"])
        if bare < max(compute, communication) * (1.0 - LEAST):
            told = format_quantity(bare, "s")
            yield f"  (computation + communication*(1 - efficiency) would be {told}, less than the"
            yield "  communication by itself: no more of it hides than there is computation)"
    if case.mechanism == "layer_by_layer":
        yield "  (a plain transformer's next layer needs the all_reduce: it hides only behind what"
        yield "  doesn't, say another half of the batch; --independent-share says how much that is)"


def statement_lines(request: Request, case: Case) -> Iterator[str]:
    """Yield the mechanism's formula and source, with the numbers put in."""
    declared = REGISTRY.returning("overlapped_time", case.labels)
    if declared is None or isinstance(declared, Call):
        return
    yield ""
    yield f"{declared.name}: {declared.statement}"
    values = cell_of(request, case, declared.inputs)
    if len(values) == len(set(declared.inputs)):

        def put_in(match: re.Match[str]) -> str:
            return f"{values[match.group()]:.6g}" if match.group() in values else match.group()

        shown: Any = evaluated(declared.expression, values)
        yield f"  = {re.sub(r'[A-Za-z_][A-Za-z_0-9]*', put_in, declared.expression)}"
        yield f"  = {format_quantity(float(shown), 's')}"
    yield "  where"
    for name in declared.inputs:
        quantity = VOCABULARY[name]
        text = format_quantity(values[name], quantity.units) if name in values else ".."
        yield f"    {name} = {text}  ({quantity.meaning})"
    for phrase in declared.assumes:
        yield f"  assumes {phrase}"
    yield f"  source  {declared.reference}"


def assumed_lines(request: Request) -> Iterator[str]:
    """Yield what wasn't given, with its value and origin."""
    told: dict[str, str] = {}
    for name, origin in request.origins.items():
        values = dict.fromkeys(c.defaults[name] for c in request.cases if name in c.defaults)
        shown = ", ".join(format_quantity(v, VOCABULARY[name].units) for v in values)
        told[name] = f"  {name} = {shown}  [{origin.words}]"
    if told:
        yield "not given, so taken as:"
        yield from told.values()


# Records as CSV, as JSON and as a table for people.

Record = Mapping[str, Any]


def csv_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield records as CSV, the first line their names; what doesn't exist is empty."""
    header: list[str] | None = None
    for record in records:
        if header is None:
            header = list(record)
            yield _tables_line(header)
        yield _tables_line([_plain(record[name]) for name in header])


def _tables_line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return str(value)


def json_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield records as a JSON array, one a line; what doesn't exist is null."""
    first = True
    for record in records:
        members = (f"{json.dumps(name)}: {_json(value)}" for name, value in record.items())
        yield ("[\n" if first else ",\n") + "{" + ", ".join(members) + "}"
        first = False
    yield "[\n]\n" if first else "\n]\n"


def _json(value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "null"
    # JSON has no infinity; every reader makes one of a number that is too large.
    return str(json.dumps(value)).replace("Infinity", "1e999")


def shown(name: str, value: Any) -> str:
    """Return a value as people read it."""
    if isinstance(value, str):
        return value
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    return format_quantity(value, units)


def table_lines(
    records: Iterable[Record],
    write: Callable[[str, Any], str] = shown,
    *,
    most: int = 40,
    total: int | None = None,
) -> Iterator[str]:
    """Yield records as a table with aligned columns, cut after some rows."""
    rows: list[Record] = []
    for count, record in enumerate(records):
        if count == most:
            break
        rows.append(record)
    header = list(dict.fromkeys(name for row in rows for name in row))
    lines = [header, *([write(n, row[n]) if n in row else "" for n in header] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip() + "\n"
    if total is not None and total > len(rows):
        left = total - len(rows)
        yield f"... and {left:,} more: --csv, --json or --output give them all\n"
