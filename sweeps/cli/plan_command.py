"""``sweeps plan``: the best parallel plan at one point, with reasons, or at many, as a table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.options import file_options, output_options
from sweeps.cli.plan_options import Asked, plan_options, read_options
from sweeps.errors import InputError, fault

if TYPE_CHECKING:
    from sweeps.engine.layout import Layout
    from sweeps.plans.interface import Plans
    from sweeps.plans.request import Request

__all__ = ["command"]

# Splits that records and files of one point hold, beside the Pareto front.
KEPT = 50


@click.command("plan")
@plan_options
@output_options
def command(**given: Any) -> int:
    """The best parallel plan for a model on a machine, and why.

    One value for every argument prints a report; several of what isn't the plan's to choose, such
    as --gpus 64:4096:x2, give the best plan at each point.  Several values of tp, recompute and
    the like limit what is searched.  With --params in place of --model it does what the parallel
    strategy calculator does.
    """
    from sweeps.own_formulas import load_formulas

    for path in given["formulas"]:
        load_formulas(Path(path))
    asked = read_options(given)
    if asked.calculator:
        from sweeps.cli.plan_calculator import calculator

        return calculator(asked, given)
    request = _request(asked, given)
    if request.axes:
        return _many(request, asked, given)
    return _one(request, asked, given)


def _request(asked: Asked, given: Mapping[str, Any]) -> Request:
    from sweeps.plans.request import read_request
    from sweeps.spec.units import parse_quantity

    threshold = parse_quantity(
        given["memory_threshold"], "1", field="--memory-threshold", bare_is_si=True
    )
    folders = [Path(folder) for folder in given["hardware_folder"]]
    return read_request(
        asked.given, objective=given["objective"], threshold=threshold, folders=folders
    )


def _one(request: Request, asked: Asked, given: dict[str, Any]) -> int:
    """Answer a question at one point."""
    from sweeps.cli.plan_report import answer_lines, nothing_lines
    from sweeps.cli.write import Progress
    from sweeps.plans.answer import answer
    from sweeps.plans.interface import Plans

    if asked.explain:
        from sweeps.cli.plan_explain import explain

        return explain(request, asked, given)
    progress = Progress("searching")
    found = answer(request.first, progress=progress)
    progress.end()
    plans = Plans(request, answer=found)
    if found.recommended is None:
        sys.stdout.writelines(line + "\n" for line in nothing_lines(found, asked))
        return 1
    if given["as_csv"] or given["as_json"]:
        lines: Iterable[str] = _records(plans.layout({}, KEPT), given)
    else:
        lines = (line + "\n" for line in answer_lines(found, asked, given))
    _write(plans, given)
    sys.stdout.writelines(lines)
    return 0


def _many(request: Request, asked: Asked, given: dict[str, Any]) -> int:
    """Answer a question at many points."""
    from sweeps.cli.write import Progress
    from sweeps.plans.interface import Plans
    from sweeps.plans.ranges import best_at

    for name in ("explain", "lost_nodes", "tokens", "days"):
        if given[name] is not None:
            told = f"--{name.replace('_', '-')}"
            wrong = "is told of one point, and there are many"
            raise InputError(fault(told, given[name], wrong, "one value for every argument"))
    progress = Progress("searching")
    best = best_at(request, progress)
    progress.end()
    plans = Plans(request, best=best)
    layout = plans.layout({})
    if given["as_csv"] or given["as_json"]:
        lines: Iterable[str] = _records(layout, given)
    else:
        lines = (line + "\n" for line in _table(plans, layout, asked))
    _write(plans, given)
    sys.stdout.writelines(lines)
    return 0 if any(best.plans) else 1


SHOWN = {
    "best_split": "best split",
    "dp": "dp",
    "virtual_stages": "chunks",
    "micro_batch": "mb",
    "zero_stage": "ZeRO",
    "recompute": "recompute",
    "step_time": "step time",
    "peak_memory": "memory",
    "mfu": "MFU",
    "tokens_per_second_per_gpu": "tokens/s a GPU",
    "cost_per_trillion_tokens": "1e12 tokens",
}


def _table(plans: Plans, layout: Layout, asked: Asked) -> Iterator[str]:
    from sweeps.cli.plan_table import aligned, range_rows

    assert plans.best is not None
    first = plans.request.first
    count = len(plans.best.plans)
    yield f"the plan with {first.objective.words} at each of {count:,} points"
    yield from (f"  ({line})" for line in asked.readings)
    rows = range_rows(layout, SHOWN)
    yield from aligned(rows, left=len(plans.request.axes) + 1, indent="")
    lines = dict.fromkeys(line for own in plans.best.refused.values() for line in own)
    yield from (f"refused at some points: {line}" for line in lines)
    if asked.assumed:
        yield f"not given, so taken as: {', '.join(asked.assumed)}"


def _records(layout: Layout, given: Mapping[str, Any]) -> Iterator[str]:
    from sweeps.cli.plan_table import records
    from sweeps.cli.records import csv_lines, json_lines

    rows = records(layout)
    yield from json_lines(rows) if given["as_json"] else csv_lines(rows)


def _write(plans: Plans, given: dict[str, Any]) -> None:
    """Write the table and draw its figures, if that is asked for."""
    if not (given["output"] or given["plot"]):
        return
    from sweeps.cli.write import Progress, default_folder, draw_figures, readable
    from sweeps.plans.interface import attributes, bare, blocks
    from sweeps.store.publish import check_output
    from sweeps.store.read import is_complete
    from sweeps.store.write import write

    path = Path(given["output"] or default_folder() / "plan.nc")
    attrs = attributes(plans.request, ["sweeps", *sys.argv[1:]], file_options(given))
    notes = sys.stderr if given["as_csv"] or given["as_json"] else sys.stdout
    if not given["overwrite"] and is_complete(path, attrs["fingerprint"]):
        notes.write(f"{path} is complete already: the same question to the same code\n")
    else:
        check_output(path, overwrite=bool(given["overwrite"]))
        layout = plans.layout(attrs, KEPT)
        progress = Progress("writing")
        written = write(
            path, bare(layout), blocks(layout), overwrite=bool(given["overwrite"]),
            compress=bool(given["compress"]), digits=given["digits"], dtype=given["dtype"],
            progress=progress,
        )  # fmt: skip
        progress.end()
        notes.write(f"wrote {path} ({readable(written.nbytes)})\n")
    if given["plot"]:
        draw_figures(path, _figures(path, plans), notes=notes)


def _figures(path: Path, plans: Plans) -> Sequence[Mapping[str, Any]]:
    """Return the figures of a table: those that suit it, and which plan wins where."""
    from sweeps.plans.figures import point_figures, range_figures
    from sweeps.plots.defaults import default_figures
    from sweeps.store.read import open_dataset

    usual = default_figures(open_dataset(path, require_ours=False))
    if plans.answer is None:
        return [*range_figures(plans.request), *usual]
    own = point_figures(plans.answer)
    named = {figure["kind"] for figure in own}
    return [*own, *(figure for figure in usual if figure["kind"] not in named)]
