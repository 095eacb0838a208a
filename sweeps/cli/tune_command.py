"""``sweeps tune``: tensor-parallel overlap: cases, prediction, report, YAML."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.options import output_options
from sweeps.cli.tune_options import OperatorsCommand, config_of, setting_of, tune_options

if TYPE_CHECKING:
    from sweeps.tuner.report import TuningReport

__all__ = ["command", "run_study"]

DEFAULT_THRESHOLD = 0.5


@click.command("tune", cls=OperatorsCommand)
@tune_options
@output_options
def command(**given: Any) -> int:
    """Tune the overlap of tensor-parallel communication with matrix products.

    For each tensor-parallel size the userbuffers' method and multiprocessors of every linear layer:
    predicted for a machine, from recorded traces, or by a command that runs each case.  Results: a
    report, a summary, one configuration (YAML) a size with the flags that it needs, and the best.
    """
    if given["validate"] is not None:
        return _validate(given)
    if given["sweep"] is not None:
        from sweeps.spec.catalog import find_sweep

        return run_study(find_sweep(given["sweep"]), given)
    _refuse_files(given)
    from sweeps.cli.tune_options import number_of
    from sweeps.tuner.tuner import TPOverlapTuner

    config = config_of(given)
    text = given["overlap_threshold"]
    threshold = DEFAULT_THRESHOLD if text is None else number_of("overlap_threshold", text)
    tuner = TPOverlapTuner(config, threshold, lambda line: click.echo(f"running {line}", err=True))
    report = tuner.run(overwrite=given["overwrite"])
    _show(report, given)
    return 0


def _refuse_files(given: Mapping[str, Any]) -> None:
    from sweeps.errors import InputError, fault

    found = [
        fault(flag, "set", "is for --sweep", "--output-dir FOLDER for a tuning's files")
        for flag, name in (("--output", "output"), ("--plot", "plot"))
        if given[name]
    ]
    if found:
        raise InputError(found)


def _show(report: TuningReport, given: Mapping[str, Any]) -> None:
    import json

    programs = given["as_json"] or given["as_csv"]
    if given["as_json"]:
        sys.stdout.write(json.dumps(report.record(), indent=1, allow_nan=False) + "\n")
    elif given["as_csv"]:
        from sweeps.overlap.tables import csv_lines

        sys.stdout.writelines(csv_lines(report.record()["cases"]))
    else:
        sys.stdout.write(report.summary())
    notes = sys.stderr if programs else sys.stdout
    notes.write(f"\nwrote {report.output_dir}{'/'}\n")


def _validate(given: Mapping[str, Any]) -> int:
    """Check a configuration; say what was found, and whether it can be used."""
    from collections import Counter

    from sweeps.tuner.validate import validate_file

    path = Path(given["validate"])
    found = validate_file(path, setting_of(given))
    if given["as_json"]:
        import json
        from dataclasses import asdict

        sys.stdout.write(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    else:
        sys.stdout.writelines(one.shown(str(path)) + "\n" for one in found)
        counts = Counter(one.severity for one in found)
        told = ", ".join(f"{counts[kind]} {kind}s" for kind in ("error", "warning", "note"))
        sys.stdout.write(f"{path}: {told}\n")
    return 2 if any(one.severity == "error" for one in found) else 0


def run_study(path: Path, given: Mapping[str, Any]) -> int:
    """Run a spec of overlap's gain: dataset, and figures of where it pays."""
    from sweeps.cli.write import default_folder, draw_figures
    from sweeps.errors import InputError, fault
    from sweeps.tuner.benefit import is_study, read_study
    from sweeps.tuner.dataset import write_study

    if given.get("settings"):
        wrong = "changes a sweep of formulas, and this is one of the tuner's"
        raise InputError(fault("--set", given["settings"][0], wrong, "a spec of your own"))

    if not is_study(path):
        wrong, allowed = "has no table tp_overlap", "such as tp-overlap"
        raise InputError(fault("--sweep", str(path), wrong, allowed))
    study = read_study(path, [Path(folder) for folder in given["hardware_folder"]])
    shape = ", ".join(f"{len(values)} {name}" for name, values in study.axes.items())
    about = f"{study.title}: {len(study.hardware)} machines, {shape}: {study.cells:,} cells"
    notes = sys.stderr if given.get("as_csv") or given.get("as_json") else sys.stdout
    notes.write(about + "\n")
    if given.get("dry_run"):
        return 0
    output = Path(given["output"] or default_folder() / f"{path.stem}.nc")
    values = write_study(study, {"spec": path.name}, given, output)
    if given["plot"]:
        from sweeps.plots.tp_overlap import draw_benefit

        shown = study.shape
        fixed = (
            f"heads of {shown['head_size']:g}, {shown['kv_heads']:g} of key and value, MLP "
            f"{shown['ffn_ratio']:g} times as wide{', gated' if shown['gated'] else ''}"
        )
        names = [rates.name for rates in study.hardware]
        stem = output.with_name(f"{output.stem}-where-it-pays")
        speedup = values["overlap_speedup"]
        for made in draw_benefit(speedup, names, study.axes, stem, fixed):
            notes.write(f"drew {made}\n")
        if study.figures:
            draw_figures(output, [dict(one) for one in study.figures], notes=notes)
    if given.get("as_csv") or given.get("as_json"):
        from sweeps.overlap.tables import csv_lines, json_lines
        from sweeps.tuner.benefit import records_of

        found = records_of(study, values)
        sys.stdout.writelines(json_lines(found) if given["as_json"] else csv_lines(found))
    return 0
