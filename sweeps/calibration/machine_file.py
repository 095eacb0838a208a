"""A machine's file with the constants that were fitted, in place of its library's profile's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from overhead.quantity import VOCABULARY
from sweeps.calibration.fit import DIGITS
from sweeps.calibration.report import Calibration
from sweeps.errors import InputError, RunError, few, refuse
from sweeps.spec.catalog import machine_content
from sweeps.spec.machine import read_machine
from sweeps.spec.units import format_quantity, toml_value
from sweeps.store.publish import check_output, write_whole

_UNITS = {"byte s-1": ("GB/s", 1e-9), "s": ("us", 1e6), "1": ("", 1.0)}
_NAMED = 6  # logs that a source names


def check_target(text: str, *, overwrite: bool) -> Path:
    """Check that a hardware file can be written, before anything is computed for it."""
    path = Path(text)
    if path.suffix != ".toml":
        refuse("--write", text, "no hardware file", "FILE.toml")
    try:
        return check_output(path, overwrite=overwrite)
    except InputError as error:
        raise InputError([f"--write: {line}" for line in error.faults]) from None


def hardware_text(calibration: Calibration, name: str) -> str:
    """Return a hardware file: the base machine's, with the fitted figures replaced."""
    content = deepcopy(machine_content(calibration.machine.path))
    base = calibration.machine
    content["name"] = name
    content["title"] = f"{base.title}, calibrated"
    fit = calibration.fit
    groups = ", ".join(fit.groups) or "nothing: the profile predicts these logs as well as any fit"
    content["summary"] = (
        f"{base.summary.strip()} Constants of its library fitted to measured collectives by sweeps "
        f"calibrate, on those of {base.name}: {groups}; the rest is as there.\n"
    )
    software = content.setdefault("software", {})
    if base.fabric:
        software["fabric"] = base.fabric
    software["profile"] = calibration.library
    source = _hardware_file_logs(calibration)
    for constant in fit.fitted:
        software[constant] = _figure(calibration, constant, source)
    head = f"# Written by sweeps calibrate from {base.name}: figures of [software] called\n"
    head += "# 'measured' are fitted to the logs that their sources name; others are the base's.\n"
    return head + "\n".join(_lines(content)) + "\n"


def _hardware_file_logs(calibration: Calibration) -> str:
    """Return what the figures come from: logs, their dates, rows and versions."""
    paths = dict.fromkeys(case.test.path for case in calibration.cases)
    logs = few([path.name for path in paths], _NAMED)
    dates = sorted(
        f"{datetime.fromtimestamp(dated, UTC):%Y-%m-%d}"
        for dated in (case.test.dated or _written(case.test.path) for case in calibration.cases)
    )
    dated = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    versions = dict.fromkeys(
        f"{program} {version}"
        for case in calibration.cases
        for program, version in case.test.versions.items()
    )
    which = f"; {', '.join(versions)}" if versions else "; versions not in the logs"
    rows = f"{len(calibration.rows)} rows, files of {dated}{which}"
    return f"fitted by sweeps calibrate to {logs} ({rows})"


def _written(path: Path) -> float:
    """Return when a file was written; of a pipe now."""
    try:
        return path.stat().st_mtime
    except OSError:
        return datetime.now(UTC).timestamp()


def _figure(calibration: Calibration, constant: str, logs: str) -> dict[str, Any]:
    fit = calibration.fit
    before = format_quantity(fit.base[constant], VOCABULARY[constant].units)
    unit, factor = _UNITS[VOCABULARY[constant].units]
    # Both ends are rounded to the same digits, so that what is read back is what was fitted.
    value = float(f"{fit.values[constant] * factor:.{DIGITS - 1}e}")
    return {
        "value": f"{value:.10g} {unit}" if unit else value,
        "kind": "measured",
        "source": f"{logs}; {before} before",
        "uncertainty": float(f"{fit.deviation[constant]:.2g}"),
    }


def _lines(content: Mapping[str, Any], table_name: str = "") -> Iterator[str]:
    """Yield a hardware file's content as TOML: tables of figures, a figure a line."""
    tables = {key: value for key, value in content.items() if _has_figures(value)}
    if table_name:
        yield f"\n[{table_name}]"
    for key, item in content.items():
        if key not in tables:
            yield f"{key} = {toml_value(item)}"
    for key, table in tables.items():
        yield from _lines(table, f"{table_name}.{key}" if table_name else key)


def _has_figures(content: object) -> bool:
    """Return whether it holds figures, rather than being one."""
    return isinstance(content, Mapping) and any(
        isinstance(value, Mapping) for value in content.values()
    )


def write_hardware(calibration: Calibration, path: Path) -> None:
    """Write a hardware file: whole or not at all, and only if it can be read back."""
    import tomllib

    text = hardware_text(calibration, path.stem)
    read_machine(path, tomllib.loads(text))
    try:
        write_whole(path, text.encode("utf-8"))
    except OSError as error:
        message = f"{path}: can't be written: {error.strerror}"
        raise RunError(message) from error
