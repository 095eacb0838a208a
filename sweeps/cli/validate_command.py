"""``sweeps validate``: predictions compared with published measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import click

from overhead.quantity import VOCABULARY
from sweeps.asked import command_line
from sweeps.cli.given import Given
from sweeps.cli.option_table import options
from sweeps.cli.sections import show_options, wanted_sections
from sweeps.cli.typed import Command, folders_of, refuse_given
from sweeps.cli.validate_report import (
    collective_lines,
    preset_screen,
    quantity_lines,
    training_lines,
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
    Record,
    error_result,
    error_rows,
    records_of,
    result_of,
    scores_by,
    skipped_lines,
)
from sweeps.validate.table import find_table
from sweeps.validate.training_rows import OUTSIDE, PLAN, Cases, Skipped, cases_of_runs

KINDS = {"step-time": ("step_time",), "memory": ("memory",), "all": ("step_time", "memory")}
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
    if any(_heads(table, *_OPERATION) for table in tables):
        refuse_given(("rules", "bound", "strict"), "is not of a table of operations")
        return _collectives(tables, given)
    if any(table == USERBUFFERS or _heads(table, "preset", "layer") for table in tables):
        refuse_given(("rules",), "is not of a table of presets")
        return _presets(tables, given)
    if any(table in RUNNING or _heads(table, "quantity", "given") for table in tables):
        refuse_given(("rules",), "is not of a table of what running takes")
        return _running(tables, given)
    if any(_is_of_plans(table, str(given["kind"])) for table in tables):
        wrong = "has plans, which are no measurements"
        allowed = (
            "--kind step-time takes their measured steps; beside our best plans they are laid "
            "in a checkout of the source: python -m tests.maintenance.experts_plans"
        )
        refuse("TABLE", ", ".join(tables), wrong, allowed)
    if not given["strict"]:
        refuse_given(("bound",), "is what --strict allows", "--strict, too")
    bound = bound_of(given, 0.1)
    out = Output(given, "validate").checked()
    records, skipped = _compared(tables or TABLES, given)
    result = _result(records, tables or TABLES, given)
    lines = training_lines(records, skipped, bound, _wanted(given))
    out.deliver(result, lines, draw=lambda stem: _draw(records, stem))
    return int(given["strict"] and _beyond(records, bound))


def _wanted(given: Given) -> tuple[str, ...]:
    return wanted_sections(given, "validate")


def bound_of(given: Given, usual: float) -> float:
    """Return the error that --strict allows."""
    if given["bound"] is None:
        return usual
    bound = parse_quantity(given["bound"], "1", field="--bound", bare_is_si=True)
    if not 0.0 <= bound <= 1.0:
        refuse("--bound", given["bound"], "no share", "a share, such as 5% or .05")
    return bound


def _beyond(records: Sequence[Record], bound: float) -> bool:
    """Return whether the mean error of any class of what was measured is beyond a bound."""
    measured = [
        record for record in records if record.case.is_measured and record.case.group != OUTSIDE
    ]
    kinds = {prediction.case.kind for prediction in measured}
    return any(
        score.mape > bound
        for kind in kinds
        for score in scores_by(
            [prediction for prediction in measured if prediction.case.kind == kind], "class"
        ).values()
    )


def _result(records: Sequence[Record], tables: Sequence[str], given: Given) -> Result:
    """Return the rows with where they come from."""
    sources = dict.fromkeys(record.case.source for record in records)
    attrs = provenance_of(
        title="Training runs: predicted and measured",
        spec=spec_of(tables, given),
        given=given,
        references=f"{', '.join(sources)}: each row's source_ref says where it stands",
        inputs=[record.fields() for record in records],
    )
    return result_of(records, attrs)


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


def _compared(tables: Sequence[str], given: Given) -> tuple[list[Record], list[Skipped]]:
    """Read the tables, predict, and keep what is asked for."""
    folders = folders_of(given)
    runs = [run for name in tables for run in read_runs(find_runs(name)).runs]
    rules = shipped_rules()
    if given["rules"]:
        rules = (*rules, *read_rules(Path(given["rules"])))
    cases = chosen_cases(cases_of_runs(runs, rules, folders, KINDS[str(given["kind"])]), given)
    records, skipped = records_of(cases, predict(cases.cases, folders))
    if not records:
        reasons = [line.strip() for line in skipped_lines(skipped)] or ["the table has none"]
        wrong = "no row can be predicted"
        raise InputError([fault("TABLE", ", ".join(tables), wrong, reason) for reason in reasons])
    return records, skipped


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
    kept = [case for case in cases.cases if within & {*case.classes}]
    wanted = given["sources"] or sources
    return Cases(
        tuple(case for case in kept if case.source in wanted),
        tuple(
            left_out
            for left_out in cases.skipped
            if left_out.source in wanted and not given["classes"]
        ),
    )


def _draw(records: Sequence[Record], stem: Path) -> list[Path]:
    """Draw a figure for each kind of what was measured."""
    made = []
    for kind, words in WORDS.items():
        records_of_kind = [
            record for record in records if record.case.kind == kind and record.case.is_measured
        ]
        if records_of_kind:
            groups = [prediction.case.group for prediction in records_of_kind]
            pairs = (
                [prediction.case.measured for prediction in records_of_kind],
                [prediction.predicted for prediction in records_of_kind],
            )
            path = stem.with_name(f"{stem.name}-{kind.replace('_', '-')}")
            made += _predicted(records_of_kind[0].case.quantity, words, groups, *pairs, path)
    return made


def _predicted(
    quantity: str,
    words: str,
    groups: Sequence[str],
    measured: Sequence[float],
    predicted: Sequence[float],
    path: Path,
) -> list[Path]:
    """Draw what was predicted of a quantity against what was measured."""
    import numpy as np

    from sweeps.plots.measured import Cloud, draw_predicted
    from sweeps.plots.style import as_read

    units, scale = as_read(quantity, VOCABULARY[quantity].units), 1.0
    if units == "s" and max(measured) > LONG:
        units, scale = "days", 86400.0
    attrs = {"long_name": words, "units": units}
    cloud = Cloud(attrs, list(groups), np.array(measured) / scale, np.array(predicted) / scale)
    title = f"{words[0].upper()}{words[1:]}: predicted and measured"
    return [*draw_predicted(cloud, path, title=title)]


# Plans that experts published.


def _is_of_plans(name: str, kind: str) -> bool:
    """Return whether a table's plans are asked for: of measured ones, too, a kind tells steps."""
    plans = [run.texts.get("kind") == PLAN for run in read_runs(find_runs(name)).runs]
    return any(plans) if kind == "all" else all(plans)


# Operations rather than steps: the tables that a sweep's [measured] takes.


def _heads(name: str, *names: str) -> bool:
    """Return whether the headings of a file or of a shipped table have some names."""
    try:
        path = Path(name) if is_file(Path(name)) else find_table(name)
        with path.open(encoding="utf-8-sig") as file:
            heading = next((line for line in file if not line.startswith("#")), "")
    except (InputError, OSError, UnicodeDecodeError):
        return False
    return all(name in heading for name in names)


_HALF = 0.1  # what half of the points of a group should be within
_OPERATION = ("message_bytes", "collective")
_STATED = ("algorithm", "topology")  # A table that has both says what ran


def _spec_of_collectives(table: str) -> dict[str, Any]:
    """Return the spec that lays predictions beside a table of operations."""
    if table == "nccl-collectives":
        measured = read_toml(find_sweep("nccl-measured"))["measured"]
    elif _heads(table, *_STATED):
        return {"measured": {"table": table, "columns": {name: name for name in _STATED}}}
    else:
        measured = {"table": table}
    return {"constants": {"algorithm": "nccl"}, "measured": measured}


def _collectives(tables: Sequence[str], given: Given) -> int:
    """Tell the errors of tables of collective operations, by table and size of message."""
    if given["classes"] or given["sources"] or len(tables) > 1:
        wrong = "a table of operations has neither classes nor sources, and comes alone"
        allowed = "one table; a spec with [measured] has more: 'sweeps run nccl-measured'"
        refuse("TABLE", ", ".join(tables), wrong, allowed)
    out = Output(given, "validate").checked()
    spec = _spec_of_collectives(tables[0])
    folders = folders_of(given)
    job = prepare(spec, command=command_line(), folders=folders)
    dataset = job.dataset()
    rows = error_rows(dataset)
    bounds = bounds_of(spec, folders)
    attrs = provenance_of(
        title="Collectives: errors of predictions against measurements",
        spec={**spec, "tables": list(tables)},
        given=given,
        references=job.attrs["references"],
        inputs=job.identity.inputs,
    )
    result = error_result(rows, attrs)
    lines = collective_lines(rows, _HALF, impossible_rows(dataset, bounds), _wanted(given))
    out.deliver(result, lines, ERRORS)
    return 0


# What running takes: any quantity beside what was measured of it, from what the row gives.

RUNNING = {
    "running": "Failures, goodput and power: predicted and measured",
    "context": "Attention with context parallelism: predicted and measured",
}


def _running(tables: Sequence[str], given: Given) -> int:
    """Tell what running takes as it was published, beside what our formulas say."""
    if given["classes"] or given["sources"] or given["kind"] != "all" or len(tables) > 1:
        wrong = "a table of what running takes has neither classes nor kinds, and comes alone"
        refuse("TABLE", ", ".join(tables), wrong, "sweeps validate running")
    if not given["strict"]:
        refuse_given(("bound",), "is what --strict allows", "--strict, too")
    bound = bound_of(given, 0.1)
    out = Output(given, "validate").checked()

    def ask(spec: Mapping[str, Any], where: str) -> float:
        (quantity,) = spec["quantities"]
        return float(prepare(spec, folders=folders_of(given), where=where).dataset()[quantity])

    rows = running_rows(find_csv(tables[0], "TABLE", tuple(RUNNING)), ask)
    attrs = provenance_of(
        title=RUNNING.get(tables[0], RUNNING["running"]),
        spec=spec_of(tables, given),
        given=given,
        references="each row's source_ref says where it stands",
        inputs=rows,
    )
    fine = all(abs(row["error"]) <= bound for row in rows)
    lines = quantity_lines(rows, bound, _wanted(given))
    result = running_result(rows, attrs)
    out.deliver(result, lines, draw=lambda stem: _draw_quantities(rows, stem))
    return int(given["strict"] and not fine)


def _draw_quantities(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Draw a figure for each quantity, in its own units."""
    made = []
    for name in dict.fromkeys(str(row["quantity"]) for row in rows):
        rows_of_quantity = [row for row in rows if row["quantity"] == name]
        groups = [str(row.get("class", name)).replace("_", " ") for row in rows_of_quantity]
        measured, predicted = (
            [float(row[which]) for row in rows_of_quantity] for which in ("measured", "predicted")
        )
        path = stem.with_name(f"{stem.name}-{name.replace('_', '-')}")
        made += _predicted(name, VOCABULARY[name].meaning, groups, measured, predicted, path)
    return made


# NVIDIA's settings of tensor-parallel overlap.

USERBUFFERS = "userbuffers"
ENOUGH = 0.95  # Share of layers whose setting is near our best


def _presets(tables: Sequence[str], given: Given) -> int:
    """Lay settings of overlap beside ours, and tell what theirs lose by our model."""
    from sweeps.plots.breakdown import draw_presets
    from sweeps.tuner.presets import preset_result, preset_rows, preset_summary

    if given["classes"] or given["sources"] or given["kind"] != "all" or len(tables) > 1:
        wrong = "a table of presets has neither classes nor kinds, and comes alone"
        refuse("TABLE", ", ".join(tables), wrong, "sweeps validate userbuffers")
    refuse_given(("bound",), "is not of a table of presets: 2 % in 95 % of the layers")
    out = Output(given, "validate").checked()
    rows = preset_rows(find_csv(tables[0], "TABLE", (USERBUFFERS,)), folders_of(given))
    attrs = provenance_of(
        title="NVIDIA's settings of TP overlap, compared with the best predicted",
        spec=spec_of(tables, given),
        given=given,
        references="NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/comm_overlap.py",
        inputs=rows,
    )
    near = preset_summary(rows)["near"]
    lines = preset_screen(rows, ENOUGH, _wanted(given))
    out.deliver(preset_result(rows, attrs), lines, draw=lambda stem: draw_presets(rows, stem))
    return int(given["strict"] and near < ENOUGH)
