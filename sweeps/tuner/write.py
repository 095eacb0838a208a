"""A tuning's files: report, summary, a configuration for each size with its flags."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from sweeps.errors import RunError
from sweeps.tuner.cases import Case
from sweeps.tuner.commands import write_case
from sweeps.tuner.report import BEST_YAML, TuningReport

__all__ = ["write_cases", "write_report"]


def write_cases(folder: Path, cases: Iterable[Case], *, sm_margin: bool = False) -> None:
    """Write the configuration and flags of each case: what is needed to record it."""
    try:
        for name, case in {c.run_id: c for c in cases if c.legality.level == "legal"}.items():
            write_case(folder / "traces" / name, case.same_as, sm_margin=sm_margin)
    except OSError as error:
        _refuse(folder, error)


def write_report(report: TuningReport, folder: Path) -> list[Path]:
    """Write a report's files."""
    texts: dict[str, str] = {}
    stem = BEST_YAML.removesuffix(".yaml")
    named = {f"{stem}_tp{choice.tp_size}": choice for choice in report.choices}
    for name, choice in {**named, stem: report.best}.items():
        texts[f"{name}.yaml"] = report.yaml(choice)
        texts[f"{name}.flags.sh"] = report.companion(choice).text(f"{name}.yaml")
    texts["summary.txt"] = report.summary()
    # Last, for it says that all is there.
    texts["tuning_report.json"] = json.dumps(report.record(), indent=1, allow_nan=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _put(folder / name, text)
    except OSError as error:
        _refuse(folder, error)
    return [folder / name for name in texts]


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _refuse(folder: Path, error: OSError) -> None:
    message = f"{folder}: can't be written: {error.strerror or os.strerror(error.errno or 0)}"
    raise RunError(message) from error
