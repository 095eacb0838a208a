"""``sweeps trace``: overlap, exposed communication and idle time in profiler traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from sweeps.cli.options import result_options

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
@result_options
@click.option("--verbose", "-v", is_flag=True, help="Which names are what, by time.")
def command(files: tuple[str, ...], **given: Any) -> int:
    """Say how GPUs spent their time: PyTorch profiler traces, .json or .json.gz, one a rank.

    Unions of intervals are exact; the overlap of communication and computation is given as a share
    of communication and of the shorter of the two.
    """
    from sweeps.cli.write import Output
    from sweeps.traces.patterns import load_patterns
    from sweeps.traces.ranks import analyse_files, result_of

    window = _window(given)
    patterns = load_patterns(given["patterns"])
    out = Output(given, "trace")
    out.check()
    ranks = analyse_files(
        files,
        given["mode"],
        patterns=patterns,
        include_last_step=given["include_last_step"],
    )
    if window is not None and window[0] >= max(own.end_to_end for own in ranks.overlaps):
        _refuse_window(given["window"], "is after the last GPU work")
    result = result_of(ranks, given)
    lines = _lines(ranks, verbose=given["verbose"])
    out.deliver(result, lines, draw=lambda stem: _draw(ranks, stem, window))
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
        _refuse_window(text, "is not a window")
    start, end = (parse_quantity(e, "s", field="--window", bare_is_si=True) for e in ends)
    if not 0.0 <= start < end:
        _refuse_window(text, "ends before it starts")
    return start, end


def _refuse_window(text: str, wrong: str) -> NoReturn:
    from sweeps.errors import InputError, fault

    allowed = "two times from the first row of GPU work on, such as 0:20ms"
    raise InputError(fault("--window", text, wrong, allowed))


def _draw(ranks: Ranks, stem: Path, window: tuple[float, float] | None) -> Iterable[Path]:
    from sweeps.plots.timeline import draw_traces

    return draw_traces(ranks, stem, window)


def _lines(ranks: Ranks, *, verbose: bool) -> Iterator[str]:
    """Yield what people read."""
    from sweeps.traces.ranks import kernel_lines, report

    yield from (line + "\n" for line in report(ranks))
    if verbose:
        yield from (line + "\n" for line in kernel_lines(ranks))
