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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import Column, Layout
from sweeps.errors import InputError, fault

_ABSOLUTE = re.compile(r"(?:(?<=[=,])|^)(?:[/~]|\.\./)[^,]*")


def created() -> str:
    """Return the time now, or the one that ``SOURCE_DATE_EPOCH`` names."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if not text:
        return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    try:
        return f"{datetime.fromtimestamp(int(text), UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        wrong, allowed = "is not a time", "whole seconds since 1970"
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


# CF attributes, the same in memory and in a file: names, types, and what belongs together.

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_RESERVED = {"_FillValue", "_Encoding", "coordinates", "checksum"}
_FLAGS = {"flag_values", "flag_masks"}


def is_label(column: Column) -> bool:
    """Tell whether a column holds text."""
    return column.dtype.kind in "UOST"


def labels(values: NDArray[Any]) -> NDArray[np.str_]:
    """Return text as numpy's fixed-width strings, as narrow as they can be."""
    array = np.asarray(values)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return np.array([str(each) for each in array.reshape(-1)], dtype=np.str_).reshape(array.shape)


def values_of(column: Column) -> NDArray[Any]:
    """Return a coordinate's values: labels as text, truth values as small integers."""
    values = np.asarray(column.values)
    if is_label(column):
        return labels(values)
    return values.astype(stored_dtype(column), copy=False)


def stored_dtype(column: Column) -> np.dtype[Any]:
    """Return the type of a column that isn't text, in memory and in an exact file."""
    return np.dtype(np.int8) if column.dtype.kind == "b" else column.dtype.newbyteorder("=")


def normalised(attrs: Mapping[str, Any], flags: np.dtype[Any] | None = None) -> dict[str, Any]:
    """Return attributes as netCDF gives them back, so that memory and file agree."""
    return {
        name: _normalised(name, value, flags if name in _FLAGS else None)
        for name, value in attrs.items()
    }


def _normalised(name: str, value: object, dtype: np.dtype[Any] | None) -> object:
    if isinstance(value, str):
        return str(value)
    array = np.asarray(value, dtype=dtype)
    if array.dtype.kind not in "iuf" or array.size == 0 or array.ndim > 1:
        raise InputError(
            fault(name, value, "is not an attribute", "text, or one number or several")
        )
    return array.reshape(-1)[0] if array.size == 1 else array


def attributes(layout: Layout, column: Column) -> dict[str, Any]:
    """Return a column's attributes, with the names of the flags that explain its holes."""
    attrs = normalised(column.attrs, stored_dtype(column) if not is_label(column) else None)
    if column.dtype.kind == "f" and any(each is column for each in layout.variables):
        wanted = {"status", f"{column.name}_status"}
        found = [
            each.name
            for each in layout.variables
            if each.name in wanted and set(each.dims) <= set(column.dims)
        ]
        if found:
            attrs.setdefault("ancillary_variables", " ".join(found))
    return attrs


def check_layout(layout: Layout) -> None:
    """Check that a layout can be a CF file."""
    faults = [
        fault(dim, size, "a dimension has no value", "one or more")
        for dim, size in layout.sizes.items()
        if size < 1
    ]
    columns = (*layout.coordinates, *layout.variables)
    names = [each.name for each in columns]
    faults += [
        fault("name", name, "can't be a netCDF name", "letters, digits and underscores")
        for name in dict.fromkeys((*layout.sizes, *names))
        if not _NAME.fullmatch(name)
    ]
    faults += [
        fault("name", name, "is given twice", "each name once")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    # A label's own name is its dimension's; in the file its text is under another.
    taken = {f"{each.name}_name" for each in columns if is_label(each) and each.name in each.dims}
    taken |= {f"{dim}_strlen" for dim in (*layout.sizes, *names)}
    faults += [
        fault("name", name, "is taken by the file itself", "another name")
        for name in dict.fromkeys((*layout.sizes, *names))
        if name in taken
    ]
    faults += [
        fault(f"{each.name}.{name}", value, "is set by the file itself", "leave it out")
        for each in columns
        for name, value in each.attrs.items()
        if name in _RESERVED
    ]
    faults += [
        _wrong_values(layout, each) for each in layout.coordinates if _is_wrong(layout, each)
    ]
    if faults:
        raise InputError(faults)


def _is_wrong(layout: Layout, column: Column) -> bool:
    shape = None if column.values is None else np.asarray(column.values).shape
    own = column.name not in layout.sizes or column.dims == (column.name,)
    return shape != layout.shape(column) or not own


def _wrong_values(layout: Layout, column: Column) -> str:
    wanted = " x ".join(str(size) for size in layout.shape(column)) or "one"
    return fault(column.name, column.dims, "a coordinate that doesn't fit", f"{wanted} values")
