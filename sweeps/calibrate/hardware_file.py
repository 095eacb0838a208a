"""A machine's file with fitted links in the place of its data sheet's."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeps.calibrate.calibration import Calibration
from sweeps.calibrate.constants import BANDWIDTHS, CONSTANTS, LAUNCH
from sweeps.calibrate.fit import DIGITS
from sweeps.errors import InputError, RunError, fault
from sweeps.spec.catalog import read_toml
from sweeps.spec.machine import read_machine
from sweeps.store.durable import NewFile
from sweeps.store.publish import check_output

__all__ = ["check_target", "hardware_text", "write_hardware"]

_UNITS = {"byte s-1": ("GB/s", 1e-9), "s": ("us", 1e6)}
_NAMED = 6  # logs that a source names


def check_target(text: str, *, overwrite: bool) -> Path:
    """Check that a hardware file can be written, before anything is computed for it."""
    path = Path(text)
    if path.suffix != ".toml":
        raise InputError(fault("--write", text, "no hardware file", "FILE.toml"))
    try:
        return check_output(path, overwrite=overwrite)
    except InputError as error:
        raise InputError([f"--write: {line}" for line in error.faults]) from None


def hardware_text(found: Calibration, name: str) -> str:
    """Return a hardware file: the base machine's, with the fitted figures replaced."""
    content = deepcopy(read_toml(found.machine.path))
    base = found.machine
    content["name"] = name
    content["title"] = f"{base.title}, calibrated"
    content["summary"] = (
        f"{base.summary.strip()} Links fitted to measured collectives by sweeps calibrate, on the "
        f"figures of {base.name}: {', '.join(one for one in found.fit.fitted if one != LAUNCH)}; "
        "the rest is as there.\n"
    )
    logs = _logs(found)
    for constant in found.fit.fitted:
        if constant == LAUNCH:
            continue
        section, key = CONSTANTS[constant].place.split(".")
        content.setdefault(section, {})[key] = _figure(found, constant, logs)
    _follow(found, content, logs)
    head = f"# Written by sweeps calibrate from {base.name}: figures called 'measured' are fitted\n"
    head += "# to the logs that their sources name; all others are the base machine's own.\n"
    return head + "\n".join(_lines(content)) + "\n"


def _logs(found: Calibration) -> str:
    """Return what the figures come from: logs, their dates, rows and versions."""
    paths = dict.fromkeys(case.test.path for case in found.cases)
    names = [path.name for path in paths]
    told = ", ".join(names[:_NAMED])
    told += f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    dates = sorted(
        f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}" for path in paths
    )
    dated = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    versions: dict[str, None] = {}
    for case in found.cases:
        for program, version in case.test.versions.items():
            versions[f"{program} {version}"] = None
    which = f"; {', '.join(versions)}" if versions else "; versions not in the logs"
    return f"fitted by sweeps calibrate to {told} ({len(found.rows)} rows, files of {dated}{which})"


def _figure(found: Calibration, constant: str, logs: str) -> dict[str, Any]:
    fit = found.fit
    share = fit.deviation[constant] / fit.values[constant]
    scatter = f"+- {100.0 * share:.2g} %" if math.isfinite(share) else "scatter unknown"
    before = _with_unit(constant, fit.base[constant])
    source = f"{logs}; {scatter} as the rows scatter; {before} in {found.machine.name}"
    return {
        "value": _with_unit(constant, fit.values[constant]),
        "kind": "measured",
        "source": source,
    }


def _with_unit(constant: str, value: float) -> str:
    unit, factor = _UNITS[CONSTANTS[constant].units]
    # Both ends are rounded to the same digits, so that what is read back is what was fitted.
    return f"{float(f'{value * factor:.{DIGITS - 1}e}'):.10g} {unit}"


def _follow(found: Calibration, content: dict[str, Any], logs: str) -> None:
    """Set what has to agree with fitted bandwidths: links, and shares that were taken of them."""
    fitted = [name for name in BANDWIDTHS if name in found.fit.fitted]
    for name in fitted:
        level = name.removesuffix("_bandwidth")
        content.setdefault("training", {})[f"{level}_efficiency"] = {
            "value": 1.0,
            "kind": "measured",
            "source": f"the bandwidth of this file is what messages reach, so that no share is "
            f"taken of it again: {logs}",
        }
    if "inter_bandwidth" in fitted and "oversubscription" in content.get("scale_out", {}):
        content["scale_out"]["oversubscription"] = {
            "value": 1,
            "kind": "measured",
            "source": f"in the fitted bandwidth already: {logs}",
        }
    up = content["scale_up"]
    if "intra_bandwidth" in fitted and "link_bandwidth" in up and "links" in up:
        share = found.fit.values["intra_bandwidth"] / float(up["links"]["value"])
        up["link_bandwidth"] = {
            "value": f"{share * 1e-9:.8g} GB/s",
            "kind": "measured",
            "source": f"the fitted bandwidth by the number of links: {logs}",
        }


def _lines(content: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield a hardware file's content as TOML: tables of figures, a figure a line."""
    tables = {key: one for key, one in content.items() if _is_table(one)}
    if place:
        yield f"\n[{place}]"
    for key, one in content.items():
        if key not in tables:
            yield f"{key} = {_value(one)}"
    for key, one in tables.items():
        yield from _lines(one, f"{place}.{key}" if place else key)


def _is_table(one: object) -> bool:
    """Return whether it holds figures, rather than being one."""
    return isinstance(one, Mapping) and any(isinstance(value, Mapping) for value in one.values())


def _value(one: object) -> str:
    if isinstance(one, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(value)}" for key, value in one.items()) + " }"
    if isinstance(one, list):
        return "[" + ", ".join(map(_value, one)) + "]"
    # JSON's texts and numbers are TOML's.
    return json.dumps(one, ensure_ascii=False)


def write_hardware(found: Calibration, path: Path) -> None:
    """Write a hardware file: whole or not at all, and only if it can be read back."""
    import tomllib

    text = hardware_text(found, path.stem)
    read_machine(path, tomllib.loads(text))
    try:
        with NewFile(path) as file:
            file.write(text.encode("utf-8"))
            file.publish()
    except OSError as error:
        message = f"{path}: can't be written: {error.strerror}"
        raise RunError(message) from error
