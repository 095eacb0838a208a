"""Where a dataset comes from: the global attributes that CF asks for; what identifies a sweep."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sweeps.errors import InputError, fault

__all__ = ["code_digest", "created", "fingerprint", "portable", "provenance", "versions"]

_ABSOLUTE = re.compile(r"(?:(?<=[=,])|^)(?:[/~]|\.\./)[^,]*")


def created() -> str:
    """Return the time now, or the one that ``SOURCE_DATE_EPOCH`` names."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if not text:
        return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    try:
        return f"{datetime.fromtimestamp(int(text), UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        wrong, allowed = "is no time", "whole seconds since 1970"
        raise InputError(fault("SOURCE_DATE_EPOCH", text, wrong, allowed)) from None


def versions(names: Sequence[str] = ("overhead-sweeps", "numpy", "netCDF4")) -> dict[str, str]:
    """Return the versions of the distributions that a result comes from."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def code_digest(packages: Sequence[str] = ("overhead", "sweeps")) -> str:
    """Return a digest of the source that computes results."""
    digest = hashlib.sha256()
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in sorted(spec.submodule_search_locations or ()) if spec else ():
            root = Path(folder)
            for file in sorted(root.rglob("*.py")):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{package}/{file.relative_to(root).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def fingerprint(spec_text: str, code: str, options: Mapping[str, object] | None = None) -> str:
    """Return what identifies a file: the same one means the same numbers in it."""
    parts = {"spec": spec_text, "code": code, "options": dict(options or {})}
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def portable(command: Sequence[str]) -> str:
    """Return a command line without the places of the machine that it ran on."""

    def last_name(found: re.Match[str]) -> str:
        return found.group().rstrip("/").rpartition("/")[2]

    return shlex.join(_ABSOLUTE.sub(last_name, argument) for argument in command)


def provenance(
    *,
    title: str,
    spec_text: str,
    command: Sequence[str],
    fingerprint: str,
    summary: str = "",
    references: str = "",
    comment: str = "",
    institution: str = "not stated",
    software: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the global attributes of a dataset."""
    when = created()
    used = versions() if software is None else software
    attrs = {
        "Conventions": "CF-1.11",
        "title": title or "Sweep",
        "summary": summary,
        "institution": institution,
        "source": ", ".join(f"{name} {version}" for name, version in used.items()) or "sweeps",
        "history": f"{when} {portable(command)}",
        "references": references or "none",
        "comment": comment or "none",
        "date_created": when,
        "spec": spec_text,
        "spec_sha256": hashlib.sha256(spec_text.encode()).hexdigest(),
        "fingerprint": fingerprint,
    }
    return {name: text for name, text in attrs.items() if text}
