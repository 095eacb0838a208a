"""Changes to a stated sweep from the command line: ``--set KEY=VALUE``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweeps.errors import InputError, fault
from sweeps.spec.dump import with_unit

__all__ = ["KEYS", "changed"]

# What a stated sweep may hold.
KEYS = ("title", "summary", "quantities", "axes", "constants", "reductions", "figures", "measured")


def changed(stated: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return a stated sweep with changes; a bare name of an axis or constant is found there."""
    faults = []
    for setting in settings:
        name, sign, value = setting.partition("=")
        if not sign or not name:
            faults.append(fault("--set", setting, "not a change", "KEY=VALUE"))
            continue
        section, dot, key = name.partition(".")
        if not dot and name not in KEYS:
            many = "," in value or ":" in value or value.strip() == "all"
            section, key = ("axes" if many else "constants"), name
        if dot and section not in ("axes", "constants"):
            allowed = "title=.., quantities=.., axes.NAME=.. or constants.NAME=.."
            faults.append(fault("--set", setting, "can't be changed so", allowed))
        elif key:
            for table in ("axes", "constants"):
                if isinstance(stated.get(table), dict):
                    stated[table].pop(key, None)
            values = stated.setdefault(section, {})
            if isinstance(values, dict):
                values[key] = with_unit(key, value)
        else:
            stated[section] = value.split(",") if section == "quantities" else value
    if faults:
        raise InputError(faults)
    return stated
