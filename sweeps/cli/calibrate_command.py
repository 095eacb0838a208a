"""A library fitted to what was measured, and what is normal: calibrate, normal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

import click

from overhead.labels import LABELS
from sweeps.calibration.curves import FIELDS
from sweeps.calibration.device import device_of
from sweeps.calibration.log import known_operations, operation_of
from sweeps.calibration.machine_file import check_target, write_hardware
from sweeps.calibration.model import Given
from sweeps.calibration.normal import (
    Normal,
    collective_lines,
    mfu_lines,
    normal_collective,
    normal_mfu,
)
from sweeps.calibration.report import (
    Calibration,
    CalibrationRequest,
    calibrate,
    curves_of,
    result_of,
)
from sweeps.calibration.screen import fit_lines, rows_lines, screen_lines, source_lines
from sweeps.cli.given import Measured, texts_of
from sweeps.cli.option_table import options
from sweeps.cli.sections import further_lines, sections_of, show_options
from sweeps.cli.typed import Command, folders_of
from sweeps.cli.write import Output
from sweeps.errors import InputError, needs, refuse
from sweeps.plots.measured import draw_calibrated, draw_normal
from sweeps.plots.style import use
from sweeps.spec.axis import label_values, numbers_of, parse_values
from sweeps.spec.software import load_software
from sweeps.spec.units import parse_quantity
from sweeps.store.publish import check_output


@click.command("calibrate", cls=Command)
@click.argument("logs", nargs=-1, metavar="LOG...")
@options("calibrate")
@show_options("calibrate")
@options("calibrate screen")
def command(logs: tuple[str, ...], **given: Unpack[Measured]) -> int:
    """Fit a library's constants on a machine to logs of nccl-tests, and judge them.

    Every command takes the file that --write writes as --hardware. LOG is what nccl-tests,
    rccl-tests or OSU's benchmarks print, their JSON, lines of NCCL's Inspector, or a CSV table;
    plain or .gz, a folder of them, or - for a pipe; several at once are one fabric. What can't be
    read is left out with its reason; under --strict that is exit code 1, too.
    """
    if not logs:
        raise InputError(needs("a calibration", "logs of nccl-tests", "their files"))
    out = Output(given, "calibrate", {field.name: field.units for field in FIELDS if field.units})
    if given["at"] and given["as_csv"]:
        refuse("--at", given["at"], "no rows of the log, as --csv has", "--json, or neither")
    _check(out)
    written = check_target(given["write"], overwrite=given["overwrite"]) if given["write"] else None
    request = CalibrationRequest(
        logs=logs,
        hardware=given["hardware"] or "",
        algorithm=str(given["algorithm"]),
        operation=given["op"],
        ranks=given["ranks"] or 0,
        gpus_per_node=given["gpus_per_node"] or 0,
        placement=given["placement"],
        fabric=given["fabric"] or "",
        given=_network(given),
        sizes=_sizes(given["at"]),
        folders=folders_of(given),
    )
    calibration = calibrate(request)
    if all(case.nodes == 1 for case in calibration.cases):
        between = ("nics_per_node", "inter_bandwidth", *([] if written else ["fabric"]))
        for name, text in texts_of(given, between).items():
            if text:
                wrong, allowed = "changes nothing: no log is of several nodes", "leave it out"
                refuse(f"--{name.replace('_', '-')}", text, wrong, allowed)
    result = result_of(calibration, given)
    out.deliver(result, _lines(calibration, given), draw=lambda stem: _draw(calibration, stem))
    if written is not None:
        write_hardware(calibration, written)
        out.notes.write(f"wrote {given['write']}: sweeps catalog {given['write']}\n")
    healthy = all(verdict.healthy for verdict in calibration.verdicts)
    whole = not any(left_out.counts for left_out in calibration.left)
    return int(given["strict"] and not (healthy and whole))


def _network(given: Measured) -> Given:
    """Return what is said of the network and of the library."""
    rate = 0.0
    if text := given["inter_bandwidth"]:
        rate = parse_quantity(text, "byte s-1", field="--inter-bandwidth", bare_is_si=True)
        if not 0.0 < rate < math.inf:
            refuse("--inter-bandwidth", text, "no rate", "one above 0, such as 400Gbit/s")
    if given["software"]:
        load_software(given["software"])
    return Given(rate, given["nics_per_node"] or 0, given["software"] or "")


def _sizes(text: str | None) -> list[float]:
    """Return message sizes [byte] of a list of them."""
    if not text:
        return []
    values = parse_values(text, "byte", field="--at", bare_is_si=True)
    for size in values.tolist():
        if not size > 0.0:
            refuse("--at", text, "no message size", "sizes above 0")
    return list(values.tolist())


def _check(out: Output) -> None:
    """Refuse files that can't be before anything is read."""
    out.checked()
    for ending in use().endings if out.given["plot"] else ():
        figure = out.figure_stem.with_name(f"{out.figure_stem.name}.{ending}")
        check_output(figure, overwrite=out.given["overwrite"])


def _lines(calibration: Calibration, given: Measured) -> Iterator[str]:
    """Yield what people read."""
    yield from screen_lines(calibration)
    yield ""
    if not given["hardware"]:
        named = any(device_of(case.test.device) for case in calibration.cases)
        why = "as the logs' GPUs" if named else "no log names its GPU"
        yield f"Defaults: --hardware {calibration.machine.name} ({why})"
    if not given["write"]:
        yield "Next: --write my.toml uses this fit in every command (--hardware)"
    bodies = {
        "fit": lambda: fit_lines(calibration),
        "rows": lambda: rows_lines(calibration),
        "sources": lambda: source_lines(calibration),
    }
    also = ("fit", "rows") if given["verbose"] else ()
    show = tuple(name for name in sections_of("calibrate") if name in (*given["show"], *also))
    yield from further_lines(show, bodies, "exit status 1 unless healthy: --strict")


def _draw(calibration: Calibration, stem: Path) -> list[Path]:
    panels, more = curves_of(calibration)
    title = f"Bus bandwidth on {calibration.machine.title}: measured, and as fitted"
    return draw_calibrated(panels, stem, title=title, notes=more)


# What is normal.

SIZES = "1KiB:8GiB:x2"
OF_COLLECTIVES, OF_MFU = ("ranks", "nodes", "sizes", "fabric"), ("model", "precision")


@click.command("normal", cls=Command)
@click.argument("what", metavar="OPERATION|mfu", default="")
@options("normal")
def normal_command(what: str, **given: Unpack[Measured]) -> int:
    """What is normal: of a collective's times by message size, or of a training run's MFU.

    Bands are of published curves and runs of the same class; 'sweeps calibrate' judges by them.
    """
    strange = OF_COLLECTIVES if what == "mfu" else OF_MFU
    for name, text in texts_of(given, strange).items():
        if text is not None:
            flag = "--M" if name == "sizes" else f"--{name}"
            refuse(flag, text, f"doesn't apply to {what}", "leave it out")
    out = Output(given, f"normal-{what}").checked()
    normal = _normal(what, given)
    result = normal.result(given)
    lines = mfu_lines(normal) if what == "mfu" else collective_lines(normal)
    out.deliver(
        result,
        lines,
        figures=(),
        draw=lambda stem: draw_normal(normal.rows, normal.points, stem, title=normal.title),
    )
    return 0


def _normal(what: str, given: Measured) -> Normal:
    hardware = given["hardware"] or LABELS["hardware"].default
    if what == "mfu":
        precision = given["precision"] or LABELS["precision"].default
        if precision not in (known := label_values("precision")):
            refuse("--precision", precision, "unknown", ", ".join(known))
        return normal_mfu(given["model"] or "llama3-70b", hardware, precision)
    if not what:
        raise InputError(needs("a band", "an operation, or mfu", "one, such as all_reduce"))
    operation = operation_of(what)
    if not operation:
        refuse("OPERATION", what, "is not an operation", f"mfu, or {known_operations(what)}")
    sizes = numbers_of("message_bytes", given["sizes"] or SIZES, "--M")
    if not (sizes > 0.0).all():
        refuse("--M", given["sizes"], "no message size", "sizes above 0")
    ranks, nodes = given["ranks"] or 8, given["nodes"] or 0
    return normal_collective(operation, ranks, nodes, hardware, given["fabric"] or "", sizes)
