"""``sweeps calibrate``: links fitted to logs of nccl-tests, and what falls out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sweeps.calibrate.calibration import Calibration


@click.command("calibrate")
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--hardware", metavar="NAME", help="The machine (default: dgx-h100), or its file.")
@click.option("--write", metavar="FILE.toml", help="Write a hardware file with the fitted links.")
@click.option("--op", metavar="NAME", help="The operation, where a log doesn't say it.")
@click.option("--ranks", type=click.IntRange(2), help="All ranks, where a log doesn't say it.")
@click.option("--gpus-per-node", type=click.IntRange(1), help="Ranks of a node, likewise.")
@click.option("--algorithm", default="nccl", metavar="NAME", help="As in 'collective' (nccl).")
@click.option(
    "--placement",
    type=click.Choice(["out-of-place", "in-place", "both"]),
    default="out-of-place",
    help="Which of a log's two columns (out-of-place).",
)
@click.option("--csv", "as_csv", is_flag=True, help="One record a row, as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON record.")
@click.option("--output", metavar="FILE", help="Write the rows: FILE.nc as netCDF, or FILE.csv.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--plot", is_flag=True, help="Draw bus bandwidth over size beside the output.")
@click.option("--hardware-folder", multiple=True, metavar="FOLDER", help="Own machines.")
@click.option("--verbose", "-v", is_flag=True, help="Every row that falls out, every comparison.")
def command(logs: tuple[str, ...], **given: Any) -> int:
    """Fit a machine's links to logs of nccl-tests, and say whether they look as they should.

    LOG is what all_reduce_perf and the like print, the JSON that they write (-J), or a CSV table
    with the columns of the shipped nccl-collectives; several at once are one fabric.
    """
    from overhead.labels import LABELS
    from sweeps.calibrate.calibration import Request, calibrate
    from sweeps.calibrate.report import check_target, write_hardware
    from sweeps.errors import InputError, fault

    if not logs:
        raise InputError(fault("LOG", "(not given)", "needed", "logs of nccl-tests"))
    target = _checked(given)
    written = check_target(given["write"], overwrite=given["overwrite"]) if given["write"] else None
    request = Request(
        logs=logs,
        hardware=given["hardware"] or LABELS["hardware"].default,
        algorithm=given["algorithm"],
        operation=given["op"],
        ranks=given["ranks"] or 0,
        gpus_per_node=given["gpus_per_node"] or 0,
        placement=given["placement"],
        folders=[Path(folder) for folder in given["hardware_folder"]],
    )
    found = calibrate(request)
    notes = sys.stderr if given["as_csv"] or given["as_json"] else sys.stdout
    _show(found, given)
    if target is not None:
        _write(found, target, overwrite=given["overwrite"])
        notes.write(f"wrote {given['output']}\n")
    if written is not None:
        write_hardware(found, written)
        notes.write(f"wrote {given['write']}: sweeps catalog {given['write']}\n")
    if given["plot"]:
        for made in _draw(found, given):
            notes.write(f"drew {made}\n")
    return 0


def _checked(given: Mapping[str, Any]) -> Path | None:
    """Check the output's name before anything is read."""
    from sweeps.errors import InputError, fault
    from sweeps.store.publish import check_output

    if given["plot"]:
        for ending in ("png", "svg"):
            stem = _stem(given)
            check_output(stem.with_name(f"{stem.name}.{ending}"), overwrite=given["overwrite"])
    if not given["output"]:
        return None
    path = Path(given["output"])
    if path.suffix not in (".nc", ".csv"):
        raise InputError(fault("--output", str(path), "no such format", "FILE.nc or FILE.csv"))
    check_output(path, overwrite=given["overwrite"])
    return path


def _show(found: Calibration, given: Mapping[str, Any]) -> None:
    from sweeps.calibrate.report import row_records, whole_record

    if given["as_json"]:
        sys.stdout.write(json.dumps(whole_record(found), indent=1, allow_nan=False) + "\n")
    elif given["as_csv"]:
        from sweeps.result import csv_lines

        sys.stdout.writelines(csv_lines(row_records(found)))
    else:
        from sweeps.calibrate.report import report_lines

        if not given["hardware"]:
            sys.stdout.write(f"--hardware isn't given: taken as {found.machine.name}\n")
        for line in report_lines(found, verbose=given["verbose"]):
            sys.stdout.write(line + "\n")


def _write(found: Calibration, path: Path, *, overwrite: bool) -> None:
    from sweeps.calibrate.report import row_records
    from sweeps.result import csv_lines
    from sweeps.store.publish import check_output

    text = "".join(csv_lines(row_records(found)))
    if path.suffix == ".csv":
        from sweeps.errors import RunError
        from sweeps.store.publish import NewFile

        target = check_output(path, overwrite=overwrite)
        try:
            with NewFile(target) as file:
                file.write(text.encode("utf-8"))
                file.publish()
        except OSError as error:
            message = f"{path}: can't be written: {error.strerror}"
            raise RunError(message) from error
        return
    from sweeps.calibrate.report import layout_of_calibration
    from sweeps.store.metadata import code_digest, fingerprint, provenance
    from sweeps.store.write import write

    names = dict.fromkeys(case.test.name for case in found.cases)
    attrs = provenance(
        title="Collective operations: measured, and predicted with fitted links",
        spec_text="",
        command=["sweeps", *sys.argv[1:]],
        fingerprint=fingerprint(text, code_digest()),
        references=f"logs {', '.join(names)}, on the figures of {found.machine.name}",
    )
    layout, blocks = layout_of_calibration(found, attrs)
    write(path, layout, blocks, overwrite=overwrite)


def _draw(found: Calibration, given: Mapping[str, Any]) -> list[Path]:
    from sweeps.calibrate.calibration import curves_of
    from sweeps.plots.measured import draw_calibrated

    panels, more = curves_of(found)
    title = f"Bus bandwidth on {found.machine.title}: measured, and as fitted"
    return draw_calibrated(panels, _stem(given), title=title, notes=more)


def _stem(given: Mapping[str, Any]) -> Path:
    """Return where figures go, without the ending."""
    from sweeps.cli.write import default_folder

    if given["output"]:
        return Path(given["output"]).with_suffix("")
    return default_folder() / "calibrate"
