"""``sweeps trace``: overlap, exposed communication and idle time in profiler traces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from sweeps.traces.ranks import Ranks


@click.command("trace")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--mode",
    type=click.Choice(["full", "hta"]),
    default="full",
    show_default=True,
    help="hta: as HolisticTraceAnalysis counts.",
)
@click.option("--include-last-step", is_flag=True, help="Of the last step too (hta).")
@click.option("--patterns", metavar="FILE.toml", help="Own patterns for what rows are.")
@click.option("--window", metavar="START:END", help="What the timeline shows, such as 0:20ms.")
@click.option("--output", metavar="FILE.nc", help="Write the dataset as netCDF.")
@click.option("--overwrite", is_flag=True, help="Replace an output that exists.")
@click.option("--plot", is_flag=True, help="Draw a timeline and a summary beside the output.")
@click.option("--csv", "as_csv", is_flag=True, help="One record a trace, step, stream, as CSV.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.option("--verbose", "-v", is_flag=True, help="Which names are what, by time.")
def command(files: tuple[str, ...], **given: Any) -> int:
    """Say how GPUs spent their time: PyTorch profiler traces, .json or .json.gz, one a rank.

    Unions of intervals are exact; the overlap of communication and computation is given as a share
    of communication and of the shorter of the two.
    """
    from sweeps.traces.patterns import load_patterns
    from sweeps.traces.ranks import analyse_files

    window = _window(given)
    patterns = load_patterns(given["patterns"])
    if given["output"] or given["plot"]:
        _check(given)
    ranks = analyse_files(
        files,
        given["mode"],
        patterns=patterns,
        include_last_step=given["include_last_step"],
    )
    if window is not None and window[0] >= max(own.end_to_end for own in ranks.overlaps):
        _refuse_window(given["window"], "is after the last GPU work")
    if given["output"] or given["plot"]:
        _write(ranks, given, window)
    sys.stdout.writelines(_lines(ranks, given))
    return 0


def _window(given: dict[str, Any]) -> tuple[float, float] | None:
    """Read what the timeline is to show; check options that go together."""
    from sweeps.errors import InputError, fault
    from sweeps.spec.units import parse_quantity

    if given["include_last_step"] and given["mode"] != "hta":
        wrong, allowed = "the full mode leaves out no step", "--mode hta"
        raise InputError(fault("--include-last-step", "set", wrong, allowed))
    text = given["window"]
    if text is None:
        return None
    ends = text.split(":")
    if len(ends) != 2:
        _refuse_window(text, "is no window")
    start, end = (parse_quantity(e, "s", field="--window", bare_is_si=True) for e in ends)
    if not 0.0 <= start < end:
        _refuse_window(text, "ends before it starts")
    return start, end


def _refuse_window(text: str, wrong: str) -> NoReturn:
    from sweeps.errors import InputError, fault

    allowed = "two times from the first row of GPU work on, such as 0:20ms"
    raise InputError(fault("--window", text, wrong, allowed))


def _output(given: dict[str, Any]) -> Path:
    from sweeps.cli.write import default_folder

    return Path(given["output"] or default_folder() / "trace.nc")


def _check(given: dict[str, Any]) -> None:
    """Refuse an output that can't be before anything is read; one that exists may be the same."""
    from sweeps.store.publish import check_output

    check_output(_output(given), overwrite=bool(given["overwrite"]) or _output(given).is_file())


def _write(ranks: Ranks, given: dict[str, Any], window: tuple[float, float] | None) -> None:
    """Write the dataset and draw the figures, and say so."""
    from sweeps.store.read import is_complete
    from sweeps.store.write import write
    from sweeps.traces.report import layout_of

    output = _output(given)
    # Programs read records from standard output, so what is for people goes elsewhere.
    notes = sys.stderr if given["as_csv"] or given["as_json"] else sys.stdout
    layout, blocks = layout_of(ranks, ["sweeps", *sys.argv[1:]])
    if not given["overwrite"] and is_complete(output, layout.attrs["fingerprint"]):
        notes.write(f"{output} is complete already: the same traces by the same code\n")
    else:
        written = write(output, layout, blocks, overwrite=bool(given["overwrite"]))
        notes.write(f"wrote {output} ({written.nbytes:,} bytes)\n")
    if given["plot"]:
        from sweeps.plots.traces import draw_traces

        for made in draw_traces(ranks, output.with_suffix(""), window):
            notes.write(f"drew {made}\n")


def _lines(ranks: Ranks, given: dict[str, Any]) -> Iterator[str]:
    """Yield what is printed: records for programs, a report for people."""
    if given["as_json"] or given["as_csv"]:
        yield from _records(ranks, as_json=given["as_json"])
        return
    from sweeps.traces.report import kernel_lines, report

    yield from (line + "\n" for line in report(ranks))
    if given["verbose"]:
        yield from (line + "\n" for line in kernel_lines(ranks))


def _records(ranks: Ranks, *, as_json: bool) -> Iterator[str]:
    """Yield records, a line each; what doesn't exist is null, or empty."""
    import csv
    import io
    import json
    import math

    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value

    records = [{name: plain(v) for name, v in record.items()} for record in ranks.records()]
    if as_json:
        yield "[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n"
        return
    text = io.StringIO()
    table = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(records)
    yield text.getvalue()
