"""``sweeps validate``: predictions compared with published measurements.

A table is of one `Kind`: of operations, of presets, of what running takes, or of training runs.
Each is compared by a function of its own, and all are written, shown and judged alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import click
import numpy as np

from overhead.quantity import VOCABULARY
from sweeps.asked import command_line
from sweeps.cli.given import Given
from sweeps.cli.option_table import options
from sweeps.cli.sections import more_line, show_options, shown_sections, wanted_sections
from sweeps.cli.typed import Command, folders_of, refuse_given
from sweeps.cli.validate_report import (
    Screen,
    collective_screen,
    preset_screen,
    quantity_screen,
    training_screen,
)
from sweeps.cli.write import Output
from sweeps.errors import InputError, fault, nearest, refuse, tell_all
from sweeps.impossible import impossible_rows
from sweeps.job import bounds_of, prepare
from sweeps.result import Result, provenance_of
from sweeps.spec.catalog import find_sweep
from sweeps.spec.files import is_file, read_toml
from sweeps.spec.units import parse_quantity
from sweeps.validate.predict import predict, running_result, running_rows
from sweeps.validate.run_table import (
    TABLES,
    find_csv,
    find_runs,
    read_rules,
    read_runs,
    shipped_rules,
)
from sweeps.validate.scores import (
    error_result,
    error_rows,
    records_of,
    result_of,
    scores_by,
    skipped_lines,
)
from sweeps.validate.table import find_table
from sweeps.validate.training_rows import OUTSIDE, PLAN, Cases, cases_of_runs

# A quantity, what it is, and of each point its group, what was measured and what was predicted.
Cloud = tuple[str, str, list[str], list[float], list[float]]
ERRORS = (
    {
        "kind": "bars",
        "name": "errors",
        "x": ["row"],
        "parts": ["median_error"],
        "title": "Median error of predictions, by table and size of message",
    },
)
LONG = 2.0 * 86400.0  # seconds from which a figure has days
WORDS = {"step_time": "step time", "memory": "peak memory per GPU"}
RUNNING = {
    "running": "Failures, goodput and power: predicted and measured",
    "context": "Attention with context parallelism: predicted and measured",
}
USERBUFFERS = "userbuffers"
IN_EACH_ROW = "each row's source_ref says where it stands"
# The error that --strict allows; what half of the points of a group should be within; and the
# share of layers whose setting is near our best.
ALLOWED, HALF, ENOUGH = 0.1, 0.1, 0.95
OF_AN_OPERATION = ("message_bytes", "collective")
STATED = ("algorithm", "topology")  # A table of operations that has both says what ran


class Compared(NamedTuple):
    """What a table comes to: its result, its screen, and whether it is beyond the bound."""

    title: str
    references: str
    inputs: Any  # What the result depends on beside what is asked
    result: Callable[[Mapping[str, str]], Result]  # Made of a result's attributes
    screen: Screen
    beyond: bool = False
    spec: Mapping[str, object] | None = None  # What is asked, where it isn't what all tables have
    figures: Sequence[Mapping[str, object]] | None = None
    draw: Callable[[Path], Iterable[Path]] | None = None


class Kind(NamedTuple):
    """A kind of table: the options that it has no use for, and what compares it."""

    what: str  # What its tables are of
    lacks: str  # What their rows don't have
    idle: tuple[str, ...]
    instead: str  # One that can be given
    compare: Callable[[Sequence[str], Given, float], Compared]


@click.command("validate", cls=Command)
@click.argument("tables", nargs=-1, metavar="[TABLE.csv]...")
@options("validate")
@show_options("validate")
def command(tables: tuple[str, ...], **given: Unpack[Given]) -> int:
    """Compare predictions with published measurements of training runs.

    TABLE is a path, or the name of a table that is shipped: training, memory, outside-fit (sources
    that no constant was fitted to; these three by default), nccl-collectives, outside-collectives
    (no constant was fitted to these), running (failures, spare nodes, goodput, node power), context
    (attention with context parallelism: all-to-all, ring, both), userbuffers (NVIDIA's settings of
    TP overlap compared with ours).

    With --strict the exit status is 1 where the MAPE of any class of measured runs is above --bound
    (10 % by default; sources outside the fit are in no class); of settings, where fewer than 95 %
    of the layers lose at most 2 %.
    """
    kind = _kind_of(tables)
    if kind is not None:
        _check_alone(kind, tables, given)
    if not given["strict"]:
        refuse_given(("bound",), "is what --strict allows", "--strict, too")
    bound = bound_of(given, ALLOWED)
    out = Output(given, "validate").checked()
    compared = (kind.compare if kind else _training)(tables or TABLES, given, bound)
    attrs = provenance_of(
        title=compared.title,
        spec=compared.spec or spec_of(tables or TABLES, given),
        given=given,
        references=compared.references,
        inputs=compared.inputs,
    )
    lines, bodies, also = compared.screen
    wanted = wanted_sections(given, "validate")
    shown = (*lines, *shown_sections(wanted, bodies), *more_line(wanted, bodies, also))
    # Clouds of points aren't drawn from a file: what is drawn another way is not of it.
    figures = compared.figures or (() if compared.draw else None)
    out.deliver(compared.result(attrs), shown, figures, compared.draw)
    return int(given["strict"] and compared.beyond)


def _check_alone(kind: Kind, tables: Sequence[str], given: Given) -> None:
    """Refuse options that a kind of table has no use for, and other tables beside one of it."""
    refuse_given(kind.idle, f"is not of a table of {kind.what}")
    if given["classes"] or given["sources"] or given["kind"] != "all" or len(tables) > 1:
        wrong = f"a table of {kind.what} has neither classes nor {kind.lacks}, and comes alone"
        refuse("TABLE", ", ".join(tables), wrong, kind.instead)


def bound_of(given: Given, usual: float) -> float:
    """Return the error that --strict allows."""
    if given["bound"] is None:
        return usual
    bound = parse_quantity(given["bound"], "1", field="--bound", bare_is_si=True)
    if not 0.0 <= bound <= 1.0:
        refuse("--bound", given["bound"], "no share", "a share, such as 5% or .05")
    return bound


def spec_of(tables: Sequence[str], given: Given) -> dict[str, Any]:
    """Return what is asked, for the file."""
    chosen = {name: list(given[name]) for name in ("classes", "sources") if given[name]}
    rules = {"rules": Path(given["rules"]).name} if given["rules"] else {}
    return {
        "tables": [Path(name).name for name in tables],
        "kind": given["kind"],
        **chosen,
        **rules,
    }


# Training runs: the time of their steps, and their memory.


def _training(tables: Sequence[str], given: Given, bound: float) -> Compared:
    """Compare the tables' training runs of what is asked for."""
    kind = str(given["kind"])
    runs = {name: read_runs(find_runs(name)).runs for name in tables}
    for of_table in runs.values():
        plans = [run.texts.get("kind") == PLAN for run in of_table]
        # Of measured plans, too, a kind tells steps.
        if any(plans) if kind == "all" else all(plans):
            wrong = "has plans, which are no measurements"
            allowed = (
                "beside our best plans they are laid in a checkout of the source: "
                "python -m tests.maintenance.experts_plans"
            )
            if not all(plans):
                allowed = f"--kind step-time takes the measured steps; {allowed}"
            refuse("TABLE", ", ".join(tables), wrong, allowed)
    folders = folders_of(given)
    rules = (*shipped_rules(), *(read_rules(Path(given["rules"])) if given["rules"] else ()))
    kinds = tuple(WORDS) if kind == "all" else (kind.replace("-", "_"),)
    every = [run for of_table in runs.values() for run in of_table]
    cases = chosen_cases(cases_of_runs(every, rules, folders, kinds), given)
    records, skipped = records_of(cases, predict(cases.cases, folders))
    if not records:
        reasons = [line.strip() for line in skipped_lines(skipped)] or ["the table has none"]
        wrong = "no row can be predicted"
        raise InputError([fault("TABLE", ", ".join(tables), wrong, reason) for reason in reasons])
    measured = {
        kind: [row for row in records if row.case.kind == kind and row.case.is_measured]
        for kind in WORDS
    }
    in_the_fit = ([row for row in rows if row.case.group != OUTSIDE] for rows in measured.values())
    beyond = any(
        of_class.mape > bound
        for rows in in_the_fit
        for of_class in scores_by(rows, "class").values()
    )
    sources = dict.fromkeys(record.case.source for record in records)
    clouds = {
        kind: (
            rows[0].case.quantity,
            WORDS[kind],
            [row.case.group for row in rows],
            [row.case.measured for row in rows],
            [row.predicted for row in rows],
        )
        for kind, rows in measured.items()
        if rows
    }
    return Compared(
        "Training runs: predicted and measured",
        f"{', '.join(sources)}: {IN_EACH_ROW}",
        [record.fields() for record in records],
        lambda attrs: result_of(records, attrs),
        training_screen(records, skipped, bound),
        beyond,
        draw=lambda stem: _draw(clouds, stem),
    )


def chosen_cases(cases: Cases, given: Given) -> Cases:
    """Keep the classes and sources that are asked for."""
    classes = dict.fromkeys(name for case in cases.cases for name in case.classes)
    sources = dict.fromkeys(case.source for case in cases.cases)
    sources |= dict.fromkeys(skipped.source for skipped in cases.skipped)
    faults = [
        fault(flag, name, "no row has it", nearest(name, known, shown=40))
        for flag, wanted, known in (
            ("--class", given["classes"], classes),
            ("--source", given["sources"], sources),
        )
        for name in wanted
        if name not in known
    ]
    tell_all(faults)
    within = set(given["classes"] or classes)
    wanted = given["sources"] or sources
    return Cases(
        tuple(case for case in cases.cases if case.source in wanted and within & {*case.classes}),
        tuple(
            left_out
            for left_out in cases.skipped
            if left_out.source in wanted and not given["classes"]
        ),
    )


# Operations rather than steps: the tables that a sweep's [measured] takes.


def _collectives(tables: Sequence[str], given: Given, _: float) -> Compared:
    """Tell the errors of a table of collective operations, by table and size of message."""
    (table,) = tables
    spec: dict[str, Any]
    if _heads(table, *STATED):
        spec = {"measured": {"table": table, "columns": {name: name for name in STATED}}}
    else:
        spec = {"constants": {"algorithm": "nccl"}, "measured": {"table": table}}
    if table == "nccl-collectives":
        spec = {
            "constants": {"algorithm": "nccl"},
            "measured": read_toml(find_sweep("nccl-measured"))["measured"],
        }
    folders = folders_of(given)
    job = prepare(spec, command=command_line(), folders=folders)
    dataset = job.dataset()
    rows = error_rows(dataset)
    return Compared(
        "Collectives: errors of predictions against measurements",
        job.attrs["references"],
        job.identity.inputs,
        lambda attrs: error_result(rows, attrs),
        collective_screen(rows, HALF, impossible_rows(dataset, bounds_of(spec, folders))),
        spec={**spec, "tables": list(tables)},
        figures=ERRORS,
    )


# What running takes: any quantity beside what was measured of it, from what the row gives.


def _running(tables: Sequence[str], given: Given, bound: float) -> Compared:
    """Tell what running takes as it was published, beside what our formulas say."""

    def ask(spec: Mapping[str, Any], where: str) -> float:
        (quantity,) = spec["quantities"]
        return float(prepare(spec, folders=folders_of(given), where=where).dataset()[quantity])

    rows = running_rows(find_csv(tables[0], "TABLE", tuple(RUNNING)), ask)
    clouds = {}
    for name in dict.fromkeys(str(row["quantity"]) for row in rows):
        of_quantity = [row for row in rows if row["quantity"] == name]
        groups = [str(row.get("class", name)).replace("_", " ") for row in of_quantity]
        measured, predicted = (
            [float(row[which]) for row in of_quantity] for which in ("measured", "predicted")
        )
        clouds[name] = (name, VOCABULARY[name].meaning, groups, measured, predicted)
    return Compared(
        RUNNING.get(tables[0], RUNNING["running"]),
        IN_EACH_ROW,
        rows,
        lambda attrs: running_result(rows, attrs),
        quantity_screen(rows, bound),
        any(abs(row["error"]) > bound for row in rows),
        draw=lambda stem: _draw(clouds, stem),
    )


# NVIDIA's settings of tensor-parallel overlap.


def _presets(tables: Sequence[str], given: Given, _: float) -> Compared:
    """Lay settings of overlap beside ours, and tell what theirs lose by our model."""
    from sweeps.plots.tuning import draw_presets
    from sweeps.tuner.presets import preset_result, preset_rows, preset_summary

    rows = preset_rows(find_csv(tables[0], "TABLE", (USERBUFFERS,)), folders_of(given))
    return Compared(
        "NVIDIA's settings of TP overlap, compared with the best predicted",
        "NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/comm_overlap.py",
        rows,
        lambda attrs: preset_result(rows, attrs),
        preset_screen(rows, ENOUGH),
        preset_summary(rows)["near"] < ENOUGH,
        draw=lambda stem: draw_presets(rows, stem),
    )


OF_OPERATIONS = Kind(
    "operations",
    "sources",
    ("rules", "bound", "strict"),
    "one table; a spec with [measured] has more: 'sweeps run nccl-measured'",
    _collectives,
)
OF_PRESETS = Kind("presets", "kinds", ("rules", "bound"), "sweeps validate userbuffers", _presets)
OF_RUNNING = Kind("what running takes", "kinds", ("rules",), "sweeps validate running", _running)


def _kind_of(tables: Sequence[str]) -> Kind | None:
    """Return the kind of the tables; of training runs, which may be several, nothing."""
    if any(_heads(table, *OF_AN_OPERATION) for table in tables):
        return OF_OPERATIONS
    if any(table == USERBUFFERS or _heads(table, "preset", "layer") for table in tables):
        return OF_PRESETS
    if any(table in RUNNING or _heads(table, "quantity", "given") for table in tables):
        return OF_RUNNING
    return None


def _heads(name: str, *names: str) -> bool:
    """Return whether the headings of a file or of a shipped table have some names."""
    try:
        path = Path(name) if is_file(Path(name)) else find_table(name)
        with path.open(encoding="utf-8-sig") as file:
            heading = next((line for line in file if not line.startswith("#")), "")
    except (InputError, OSError, UnicodeDecodeError):
        return False
    return all(name in heading for name in names)


# Figures: what was predicted of a quantity against what was measured.


def _draw(clouds: Mapping[str, Cloud], stem: Path) -> list[Path]:
    """Draw a figure for each of what was measured, in its own units."""
    from sweeps.plots import measured as figures
    from sweeps.plots.style import as_read

    made: list[Path] = []
    for name, (quantity, words, groups, *pairs) in clouds.items():
        units, scale = as_read(quantity, VOCABULARY[quantity].units), 1.0
        if units == "s" and max(pairs[0]) > LONG:
            units, scale = "days", 86400.0
        attrs = {"long_name": words, "units": units}
        cloud = figures.Cloud(attrs, groups, *(np.array(values) / scale for values in pairs))
        title = f"{words[0].upper()}{words[1:]}: predicted and measured"
        path = stem.with_name(f"{stem.name}-{name.replace('_', '-')}")
        made += figures.draw_predicted(cloud, path, title=title)
    return made
