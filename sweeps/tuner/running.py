"""Cases run by a command of the user's: configuration in, traces out."""

from __future__ import annotations

import json
import os
import shlex
import signal
import string
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

from sweeps.errors import InputError, fault, refuse, tell_all
from sweeps.spec.files import shipped
from sweeps.spec.units import format_quantity
from sweeps.tuner.rates import CHANGEABLE
from sweeps.tuner.recorded import read_case, trace_files
from sweeps.tuner.settings import TPOverlapTunerConfig, case_companion, layer_values, to_yaml
from sweeps.tuner.times import CaseTimes
from sweeps.tuner.userbuffers import (
    COLUMN,
    FACTS,
    OPERATORS,
    LayerOverlap,
    missing_operators,
    products_of,
)

YAML_NAME = "tp_comm_overlap_cfg.yaml"
FLAGS_NAME = "tp_comm_overlap_flags.sh"
LOG_NAME = "log.txt"


def write_case(folder: Path, case: LayerOverlap, config: TPOverlapTunerConfig) -> None:
    """Write a case's configuration and flags into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    layer_entry = {} if case.is_baseline else layer_values(case, sm_margin=config.sm_margin)
    values = {case.layer: layer_entry} if layer_entry else {}
    heading = [case.run_id] if not case.is_baseline else [f"{case.run_id}: nothing overlaps"]
    text = to_yaml(values, heading, config.version)
    (folder / YAML_NAME).write_text(text, encoding="utf-8")
    text = case_companion(case).text(YAML_NAME, config.machine.generation)
    (folder / FLAGS_NAME).write_text(text, encoding="utf-8")


WORKLOAD = "workload.py"


def _options(config: TPOverlapTunerConfig) -> Iterator[str]:
    """Yield the options of a tuning that aren't as they are by default."""
    size = "max_tp_size" if config.tp_size is None else "tp_size"
    always = ("model_name", "max_token_len", "hardware", "precision", size)
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in always or (field.name in _SETTINGS and value != field.default):
            yield f"--{field.name.replace('_', '-')} {shlex.quote(str(value))}"
    lacking = missing_operators(config.model)
    if set(config.operators) != {name for name in OPERATORS if name not in lacking}:
        yield f"--operators {' '.join(config.operators)}"
    yield from (["--sm-margin"] if config.sm_margin else [])
    if config.pipeline is not None:
        yield "--pipeline" if config.pipeline else "--no-pipeline"
    for name, value in config.rates.items():
        # As it is typed, not as it is read.
        typed = format_quantity(value, CHANGEABLE[name]).replace("µ", "u")
        yield f"--{name.replace('_', '-')} '{typed}'"


_SETTINGS = ("min_num_sm", "max_num_sm", "grid", "search", "objective", "tolerance", "te_version")


def write_workload(folder: Path, config: TPOverlapTunerConfig) -> str:
    """Write a program that records cases, with the model's sizes; return the command to run it."""
    # Sizes of whole layers: the program splits them over its ranks.
    whole = products_of(config.model.shapes, 1.0, config.attention)
    sizes: dict[str, object] = {
        "model": config.model_name,
        "tokens": config.max_token_len,
        "precision": config.precision,
        "hidden_size": config.hidden_size,
    }
    for operator in config.operators:
        side = "matmul_n" if operator in COLUMN else "matmul_k"
        sizes[operator] = int(whole[operator, "fprop"][side])
    program = folder / WORKLOAD
    command = (
        f"sweeps tune {' '.join(_options(config))} --command 'torchrun --nproc-per-node "
        f"{{tp_size}} {program} {{folder}} {{config_id}}'"
    )
    first = {"size": max(config.sizes), "operator": config.operators[0]}
    texts = {
        WORKLOAD: (shipped("tuner") / WORKLOAD).read_text(encoding="utf-8"),
        "model.json": json.dumps(sizes, indent=1) + "\n",
        "README.md": FACTS["recording"].format(program=program, command=command, **first, **sizes),
    }
    present = [name for name in texts if (folder / name).exists()]
    if present:
        wrong = f"{', '.join(present)} is there already"
        refuse("--write-workload", str(folder), wrong, "another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        wrong = f"can't be written: {error.strerror or error}"
        raise InputError(fault("--write-workload", str(folder), wrong, "another folder")) from None
    return command


class Runner:
    """Runs cases one after another, each once."""

    def __init__(
        self,
        command: str,
        folder: Path,
        about: Mapping[str, str],
        config: TPOverlapTunerConfig,
        *,
        timeout: float | None = None,
        resume: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.words = _words(command)
        self.folder, self.about, self.config = folder, about, config
        self.timeout, self.resume, self.tell = timeout, resume, tell
        self.known: dict[str, CaseTimes] = {}

    def __call__(self, case: LayerOverlap) -> CaseTimes:
        """Return a case's result: it is run if none before was the same."""
        name = case.run_id
        if name not in self.known:
            self.known[name] = self._run(case.same_as)
        return replace(self.known[name], case=case)

    def _run(self, case: LayerOverlap) -> CaseTimes:
        folder = self.folder / case.run_id
        write_case(folder, case, self.config)
        if self.resume and trace_files(folder):
            return read_case(folder, case, self.config)
        if self.tell is not None:
            self.tell(case.run_id)
        reason = self._execute(folder, case)
        if reason:
            return CaseTimes(case, "failed", reason)
        result = read_case(folder, case, self.config)
        if result.status == "missing":
            return CaseTimes(case, "failed", "the command left no trace in {folder}")
        return result

    def _execute(self, folder: Path, case: LayerOverlap) -> str:
        """Run the command; return what went wrong, or nothing."""
        with (folder / LOG_NAME).open("wb") as log:
            try:
                process = subprocess.Popen(
                    self.arguments(folder, case),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                return f"can't be started: {error.strerror or error}"
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                _end(process)
                return f"took longer than {self.timeout:g} s"
            except BaseException:
                _end(process)
                raise
        return f"exit code {code}: {_last_line(folder / LOG_NAME)}" if code else ""

    def arguments(self, folder: Path, case: LayerOverlap) -> list[str]:
        """Return the command's words for a case."""
        values = {
            **self.about,
            **{
                name: str(getattr(case, name))
                for name in ("tp_size", "operator", "phase", "method", "num_sm", "aggregate")
            },
            "config_id": case.run_id,
            "folder": str(folder),
            "yaml": str(folder / YAML_NAME),
        }
        flags: list[str] = []
        for flag in case_companion(case).flags:
            flags += [flag, values["yaml"]] if flag == "--tp-comm-overlap-cfg" else [flag]
        values["flags"] = " ".join(flags)
        words: list[str] = []
        for word in self.words:
            words += flags if word == "{flags}" else [word.format_map(values)]
        return words


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
        parsed = [part for word in words for part in string.Formatter().parse(word)]
    except ValueError as error:
        wrong = f"can't be read ({error})"
        raise InputError(fault("--command", command, wrong, "braces only around names")) from None
    names = [name for _, name, _, _ in parsed if name is not None]
    faults = [
        fault("--command", f"{{{name}}}", "no such place", f"known: {', '.join(FACTS['places'])}")
        for name in names
        if name not in FACTS["places"]
    ]
    if not words:
        faults.append(fault("--command", command, "is empty", "such as 'bash run.sh {folder}'"))
    elif not {"folder", "yaml", "flags", "config_id"} & set(names):
        wrong = "doesn't say which case it runs"
        faults.append(fault("--command", command, wrong, "{folder}, and {yaml} or {flags}"))
    tell_all(faults)
    return words


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command with everything that it started."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(5.0)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_bytes()[-2000:].decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1][-200:] if lines else "it said nothing"
