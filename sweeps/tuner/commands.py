"""Cases run by a command of the user's: configuration in, traces out."""

from __future__ import annotations

import os
import shlex
import signal
import string
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from sweeps.errors import InputError, fault
from sweeps.tuner.cases import Case
from sweeps.tuner.configuration import case_companion, layer_values, to_yaml
from sweeps.tuner.recorded import read_case, trace_files
from sweeps.tuner.times import Result

__all__ = ["PLACES", "YAML_NAME", "Runner", "write_case"]

YAML_NAME = "tp_comm_overlap_cfg.yaml"
FLAGS_NAME = "tp_comm_overlap_flags.sh"
LOG_NAME = "log.txt"
PLACES = (
    "config_id", "folder", "yaml", "flags", "tp_size", "operator", "phase", "method", "num_sm",
    "aggregate", "tokens", "model",
)  # fmt: skip
"""What a command can name in braces; ``{flags}`` by itself becomes Megatron-LM's flags."""


def write_case(folder: Path, case: Case, *, sm_margin: bool = False) -> None:
    """Write a case's configuration and flags into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {} if case.is_baseline else {case.layer: layer_values(case, sm_margin=sm_margin)}
    heading = [case.run_id] if not case.is_baseline else [f"{case.run_id}: nothing overlaps"]
    (folder / YAML_NAME).write_text(to_yaml(values, heading), encoding="utf-8")
    text = case_companion(case).text(YAML_NAME)
    (folder / FLAGS_NAME).write_text(text, encoding="utf-8")


class Runner:
    """Runs cases one after another, each once."""

    def __init__(
        self,
        command: str,
        folder: Path,
        about: Mapping[str, str],
        *,
        sm_margin: bool = False,
        timeout: float | None = None,
        resume: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.words = _words(command)
        self.folder, self.about, self.sm_margin = folder, about, sm_margin
        self.timeout, self.resume, self.tell = timeout, resume, tell
        self.known: dict[str, Result] = {}

    def __call__(self, case: Case) -> Result:
        """Return a case's result: it is run if none before was the same."""
        name = case.run_id
        if name not in self.known:
            self.known[name] = self._run(case.same_as)
        found = self.known[name]
        return Result(case, found.status, found.reason, found.forward, found.backward, found.source)

    def _run(self, case: Case) -> Result:
        folder = self.folder / case.run_id
        write_case(folder, case, sm_margin=self.sm_margin)
        if self.resume and trace_files(folder):
            return read_case(folder, case)
        if self.tell is not None:
            self.tell(case.run_id)
        reason = self._execute(folder, case)
        if reason:
            return Result(case, "failed", reason)
        found = read_case(folder, case)
        if found.status == "missing":
            return Result(case, "failed", "the command left no trace in {folder}")
        return found

    def _execute(self, folder: Path, case: Case) -> str:
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

    def arguments(self, folder: Path, case: Case) -> list[str]:
        """Return the command's words for a case."""
        values = {
            **self.about,
            **{name: str(getattr(case, name)) for name in
               ("tp_size", "operator", "phase", "method", "num_sm", "aggregate")},
            "config_id": case.run_id,
            "folder": str(folder),
            "yaml": str(folder / YAML_NAME),
        }  # fmt: skip
        flags: list[str] = []
        for flag in case_companion(case).flags:
            flags += [flag, values["yaml"]] if flag == "--tp-comm-overlap-cfg" else [flag]
        values["flags"] = " ".join(flags)
        found: list[str] = []
        for word in self.words:
            found += flags if word == "{flags}" else [word.format_map(values)]
        return found


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
        parsed = [part for word in words for part in string.Formatter().parse(word)]
    except ValueError as error:
        wrong = f"can't be read ({error})"
        raise InputError(fault("--command", command, wrong, "braces only around names")) from None
    names = [name for _, name, _, _ in parsed if name is not None]
    faults = [
        fault("--command", f"{{{name}}}", "no such place", f"known: {', '.join(PLACES)}")
        for name in names
        if name not in PLACES
    ]
    if not words:
        faults.append(fault("--command", command, "is empty", "such as 'bash run.sh {folder}'"))
    elif not {"folder", "yaml", "flags", "config_id"} & set(names):
        wrong = "doesn't say which case it runs"
        faults.append(fault("--command", command, wrong, "{folder}, and {yaml} or {flags}"))
    if faults:
        raise InputError(faults)
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
