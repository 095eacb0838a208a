"""``sweeps tune``: tensor-parallel overlap: cases, prediction, report, YAML."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

import click

from sweeps.cli.given import Given, Options, texts_of
from sweeps.cli.option_table import options
from sweeps.cli.options import output_options
from sweeps.cli.sections import further_lines, show_options, wanted_sections
from sweeps.cli.typed import Command, folders_of, refuse_given
from sweeps.cli.write import Output
from sweeps.errors import Faults, needs, refuse
from sweeps.plots.tuning import draw_tuning
from sweeps.result import csv_lines
from sweeps.spec.catalog import load_model
from sweeps.spec.units import parse_quantity
from sweeps.tuner.rates import CHANGEABLE
from sweeps.tuner.report import result_of_tuning
from sweeps.tuner.running import write_workload
from sweeps.tuner.settings import TPOverlapTunerConfig
from sweeps.tuner.tuner import THRESHOLD, TPOverlapTuner
from sweeps.tuner.userbuffers import NEWEST, outputs_of, read_version
from sweeps.tuner.validate import Setting, validate_file

# The options of ``sweeps tune``, and what they are read to.

MOST_SMS = 10_000  # a hundred GPUs' worth: beyond it counts aren't worth trying one by one
WHOLE = ("max_tp_size", "tp_size", "max_token_len", "min_num_sm", "max_num_sm")
SHARES = ("tolerance", "overlap_threshold")
NAMES = (
    "hardware",
    "precision",
    "grid",
    "search",
    "objective",
    "output_dir",
    "from_traces",
    "command",
    "te_version",
)


class OperatorsCommand(Command):
    """A command whose ``--operators`` takes words with spaces between them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the words after ``--operators``."""
        joined: list[str] = []
        rest = iter(args)
        for word in rest:
            joined.append(word)
            if word != "--operators":
                continue
            words: list[str] = []
            for argument in rest:
                if argument.startswith("-"):
                    joined += [",".join(words), argument] if words else [argument]
                    words = []
                    break
                words.append(argument)
            if words:
                joined.append(",".join(words))
        return super().parse_args(ctx, joined)


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def number_of(option: str, text: str, units: str = "1", *, whole: bool = False) -> float:
    """Read the number of an option."""
    flag = _flag(option)
    value = parse_quantity(text, units, field=flag, bare_is_si=True)
    if whole and not value.is_integer():
        refuse(flag, text, "is not whole", "write a whole number")
    return value


def config_of(given: Given) -> TPOverlapTunerConfig:
    """Return what is to be tuned."""
    faults, limits = Faults(), {"tolerance": "1", "timeout": "s"}
    every = texts_of(given, (*NAMES, *WHOLE, *limits, *CHANGEABLE))
    texts = {name: text for name, text in every.items() if text is not None}
    values: dict[str, Any] = {name: texts[name] for name in NAMES if name in texts}
    rates: dict[str, float] = {}
    for name, text in texts.items():
        if name in WHOLE:
            values[name] = int(faults.of(number_of, name, text, whole=True) or 0)
        elif name in limits:
            value = faults.of(number_of, name, text, limits[name])
            if value is not None and value < 0.0:
                faults.add(_flag(name), text, "isn't allowed", "from 0")
            values[name] = value
        elif name in CHANGEABLE:
            rate = faults.of(number_of, name, text, CHANGEABLE[name])
            if rate is not None and not (rate > 0.0 or (name == "latency" and rate == 0.0)):
                faults.add(_flag(name), text, "isn't allowed", "above 0")
            elif name == "sms" and rate is not None and rate > MOST_SMS:
                faults.add(_flag(name), text, "isn't allowed", f"at most {MOST_SMS}")
            rates[name] = rate or 0.0
    if given["model_name"] is None:
        faults.faults.append(needs("a tuning", "a model", "--model, such as Qwen/Qwen3-0.6B"))
    if given["tp_size"] is not None and given["max_tp_size"] is not None:
        faults.add("--max-tp-size", given["max_tp_size"], "--tp-size is given too", "one")
    faults.tell()
    operators = [w for w in (given["operators"] or "").replace(",", " ").split() if w]
    if given["operators"] is not None and not operators:
        refuse("--operators", given["operators"], "names none", "qkv proj")
    return TPOverlapTunerConfig(
        model_name=given["model_name"] or "",
        operators=operators,
        rates=rates,
        sm_margin=given["sm_margin"],
        pipeline=given["pipeline"],
        resume=given["resume"],
        hardware_folders=tuple(folders_of(given)),
        **values,
    )


def setting_of(given: Given) -> Setting:
    """Return what a configuration is checked for, as far as it is given."""
    faults = Faults()
    numbers: dict[str, int | None] = {}
    for name in ("tp_size", "max_token_len"):
        text = given[name]
        value = None if text is None else faults.of(number_of, name, text, whole=True)
        if value is not None and value < 1.0:
            faults.add(_flag(name), text, "isn't allowed", "a whole number, 1 or more")
        numbers[name] = None if value is None else int(value)
    precision = given["precision"]
    if precision not in {None, "bf16", "fp8", "mxfp8"}:
        faults.add("--precision", precision, "unknown", "bf16, fp8 or mxfp8")
    model = None if given["model_name"] is None else faults.of(load_model, given["model_name"])
    try:
        flags = None if given["flags"] is None else tuple(shlex.split(given["flags"]))
    except ValueError as error:
        faults.add("--flags", given["flags"], f"can't be read ({error})", "as on a command line")
        flags = None
    faults.tell()
    outputs: dict[str, int] = {}
    if model is not None and numbers["tp_size"]:
        outputs = outputs_of(model, numbers["tp_size"])
    version = given["te_version"] and read_version(given["te_version"])
    return Setting(
        numbers["tp_size"], numbers["max_token_len"], precision, outputs, flags, version or NEWEST
    )


@click.command("tune", cls=OperatorsCommand)
@options("tune")
@show_options("tune")
@output_options
def command(**given: Unpack[Given]) -> int:
    """Tune the overlap of tensor-parallel communication with GEMMs.

    For each tensor-parallel size the userbuffers' method and multiprocessors of every linear layer:
    predicted for a machine, from recorded traces, or by a command that runs each case.  Results: a
    report, a summary, one configuration (YAML) a size with the flags that it needs, and the best.
    """
    _refuse_idle(given)
    if given["validate"] is not None:
        return _validate(Path(given["validate"]), given)
    if given["write_workload"] is not None:
        command = write_workload(Path(given["write_workload"]), config_of(given))
        click.echo(f"wrote {given['write_workload']}; record and tune:\n{command}")
        return 0
    out = Output(given, "tune").checked()
    config = config_of(given)
    text = given["overlap_threshold"]
    threshold = THRESHOLD if text is None else number_of("overlap_threshold", text)
    tuner = TPOverlapTuner(config, threshold, lambda line: click.echo(f"running {line}", err=True))
    report = tuner.run(overwrite=given["overwrite"])
    result = result_of_tuning(report, given)
    bodies = {"reasons": report.reasons, "defaults": report.defaults}
    lines = [*report.screen(), *further_lines(wanted_sections(given, "tune"), bodies)]
    out.deliver(result, lines, figures=(), draw=lambda stem: draw_tuning(report, stem))
    out.notes.write(f"\nwrote {report.output_dir}{'/'}\n")
    return 0


# What takes the place of a tuning, and the options that it heeds.
SHOWN = {"as_csv", "as_json"}
INSTEAD: dict[str, set[str]] = {
    "validate": {
        "model_name",
        "tp_size",
        "max_token_len",
        "precision",
        "flags",
        "te_version",
        *SHOWN,
    },
    "write_workload": {
        *NAMES,
        *WHOLE,
        *SHARES,
        *CHANGEABLE,
        "model_name",
        "operators",
        "sm_margin",
        "pipeline",
        "hardware_folder",
    }
    - {"from_traces", "command", "output_dir"},
}


def _refuse_idle(given: Given) -> None:
    """Refuse options that would do nothing beside one that takes the place of a tuning."""
    every: Options = given
    mode = next((name for name in INSTEAD if every[name] is not None), None)
    if mode is None:
        refuse_given(("flags",), "is what --validate checks for", "--validate FILE, too")
    else:
        idle = every.keys() - INSTEAD[mode] - {mode}
        refuse_given(idle, f"is not of {_flag(mode)}")


def _validate(path: Path, given: Given) -> int:
    """Check a configuration; say what was found, and whether it can be used."""
    findings = validate_file(path, setting_of(given))
    if given["as_json"]:
        sys.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=1) + "\n")
    elif given["as_csv"]:
        sys.stdout.writelines(csv_lines(map(asdict, findings)))
    else:
        sys.stdout.writelines(finding.shown(str(path)) + "\n" for finding in findings)
        counts = Counter(finding.severity for finding in findings)
        summary = ", ".join(f"{counts[kind]} {kind}s" for kind in ("error", "warning", "note"))
        sys.stdout.write(f"{path}: {summary}\n")
    return 2 if any(finding.severity == "error" for finding in findings) else 0
