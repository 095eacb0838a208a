"""Machines and sweeps by name: the user's own folder first, then what is shipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from overhead.labels import LABELS, usual_spelling
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, nearest, refuse
from sweeps.origin import Origin, assumed
from sweeps.spec.fields import FigureReader
from sweeps.spec.files import StrPath, copied, is_file, read_toml, shared_toml, shipped
from sweeps.spec.machine import Machine, read_machine

if TYPE_CHECKING:
    from sweeps.spec.framework import Framework
    from sweeps.spec.model import Model
    from sweeps.spec.preset import Preset

_WORDS = {
    "hardware": "machine",
    "models": "model",
    "frameworks": "framework",
    "software": "profile of a library",
    "operation": "file of what running takes",
    "sweeps": "sweep",
}


def spec_names(kind: str, folders: Sequence[StrPath] = ()) -> tuple[str, ...]:
    """Return the names of all specs of a kind, sorted."""
    return tuple(sorted({p.stem for f in _folders(kind, folders) for p in f.glob("*.toml")}))


def has_spec(kind: str, name: str, folders: Sequence[StrPath] = ()) -> bool:
    """Return whether there is a spec of just this name, without a look at all that there are."""
    return any(is_file(folder / f"{name}.toml") for folder in _folders(kind, folders))


def hardware_names(folders: Sequence[StrPath] = ()) -> tuple[str, ...]:
    """Return the names of all machines, sorted; `folders` as in `load_hardware`."""
    return spec_names("hardware", folders)


def model_names(folders: Sequence[StrPath] = ()) -> tuple[str, ...]:
    """Return the names of all models, sorted; `folders` as in `load_model`."""
    return spec_names("models", folders)


def framework_names(folders: Sequence[StrPath] = ()) -> tuple[str, ...]:
    """Return the names of all frameworks, sorted; `folders` as in `load_framework`."""
    return spec_names("frameworks", folders)


def find_spec(kind: str, name_or_path: StrPath, folders: Sequence[StrPath] = ()) -> Path:
    """Find a spec by its name or path."""
    text, _ = _split(kind, os.fspath(name_or_path))
    field, word = ("sweep" if kind == "sweeps" else kind.removesuffix("s")), _WORDS[kind]
    if text.endswith(".toml") or Path(text).name != text:
        if is_file(text):
            return Path(text)
        near = nearest(Path(text).stem, spec_names(kind, folders))
        refuse(field, text, "no such file", f"as a name: {near}")
    for folder in _folders(kind, folders):
        path = folder / f"{text}.toml"
        if text and is_file(path):
            return path
    names = spec_names(kind, folders)
    if (usual := usual_name(text, names)) != text:
        return find_spec(kind, usual, folders)
    if is_file(text):
        refuse(field, text, "isn't a TOML file by its name", "a name in .toml")
    wrong = f"no such {word}" if kind == "sweeps" else "not in the catalog"
    near = ""
    if kind == "sweeps" and not nearest(text, names, shown=0).startswith("did"):
        near = f"shipped: {', '.join(names[:3])}, .. ('sweeps run' lists them)"
    return refuse(field, text, wrong, near or nearest(text, names, shown=13))


def usual_name(word: str, names: Sequence[str]) -> str:
    """Return the catalog's name that a word means: however spelled, ``h100`` for ``dgx-h100``."""
    usual = usual_spelling(word, names)
    short = f"dgx-{usual.lower()}"
    return short if usual not in names and short in names else usual


def _split(kind: str, text: str) -> tuple[str, tuple[str, ...]]:
    """Return a name or path without the options of a framework, and these."""
    if kind != "frameworks" or is_file(text):
        return text, ()
    position = text.find("+", text.rfind(os.sep) + 1)
    return (text, ()) if position < 0 else (text[:position], tuple(text[position + 1 :].split("+")))


def find_sweep(name_or_path: StrPath) -> Path:
    """Find a sweep's spec by its name or path, as `find_spec` does."""
    return find_spec("sweeps", name_or_path)


def _folders(kind: str, folders: Sequence[StrPath]) -> list[Path]:
    return [*map(Path, folders), Path("specs") / kind, shipped(kind)]


def load_hardware(name_or_path: StrPath, folders: Sequence[StrPath] = ()) -> Machine:
    """Read a machine."""
    path = find_spec("hardware", name_or_path, folders)
    if "like" in shared_toml(path):
        return read_machine(path, machine_content(path, folders))
    return _read_once(path, read_machine)


def machine_content(path: Path, folders: Sequence[StrPath] = ()) -> dict[str, Any]:
    """Read a machine's file, with what it leaves to the machine that it is like."""
    content = read_toml(path)
    if "like" not in content:
        return content
    like = content.pop("like")
    if not isinstance(like, str):
        refuse(f"{path}: like", like, "is not a name", "the name of a machine")
    try:
        other = read_toml(find_spec("hardware", like, (*folders, path.parent)))
    except InputError as error:
        raise InputError([f"{path}: like: {line}" for line in error.faults]) from None
    if "like" in other:
        refuse(f"{path}: like", like, "is itself like another", "a machine with figures of its own")
    tables = {key: table for key, table in other.items() if isinstance(table, dict)}
    # A price is of the one who lets the machine.
    tables.get("device", {}).pop("gpu_hour_price", None)
    return _joined(_taken(tables, like), content)


def _taken(table: Mapping[str, object], name: str) -> dict[str, object]:
    """Return a machine's tables as another takes them: measured there is assumed elsewhere."""
    if "value" not in table:
        each = table.items()
        return {
            key: _taken(value, name) if isinstance(value, dict) else value for key, value in each
        }
    kind = "assumed" if table.get("kind") == "measured" else table.get("kind")
    return {**table, "kind": kind, "source": f"as on {name}: {table.get('source')}"}


def _joined(other: Mapping[str, object], content: Mapping[str, object]) -> dict[str, object]:
    """Return tables with what another has that they lack; a figure is taken whole."""
    joined = {**other, **content}
    for key, table in content.items():
        left = other.get(key)
        if isinstance(table, dict) and isinstance(left, dict) and "value" not in table:
            joined[key] = _joined(left, table)
    return joined


Read = TypeVar("Read")
# Files that were read, with what they said then: sweeps ask for the same few again and again.
_READ: dict[Path, tuple[object, Any]] = {}


def _read_once(path: Path, read: Callable[[Path, dict[str, Any]], Read]) -> Read:
    """Return what a file says, read again only where its text changed."""
    content = shared_toml(path)
    known, result = _READ.get(path, (None, None))
    if known is not content:
        result = read(path, copied(content))
        _READ[path] = content, result
    return cast("Read", result)


def load_framework(name_or_path: StrPath, folders: Sequence[StrPath] = ()) -> Framework:
    """Read a framework: the software that trains."""
    from sweeps.spec.framework import read_framework

    path = find_spec("frameworks", name_or_path, folders)
    framework = _read_once(path, read_framework)
    return framework.with_options(_split("frameworks", os.fspath(name_or_path))[1])


def options_of(framework: str) -> tuple[str, tuple[str, ...]]:
    """Return a framework's name or path without its options, and these."""
    return _split("frameworks", framework)


def presets_of(framework: str = "", folders: Sequence[StrPath] = ()) -> dict[str, Preset]:
    """Return the recipe presets of a framework, or of all frameworks, by name."""
    names = (framework,) if framework else framework_names(folders)
    presets: dict[str, Preset] = {}
    for name in names:
        presets |= load_framework(name, folders).presets
    return presets


def find_preset(name: str, framework: str = "", folders: Sequence[StrPath] = ()) -> Preset:
    """Find a recipe preset, of a framework where one is given."""
    known = presets_of(framework, folders)
    if (spelling := usual_spelling(name, known)) in known:
        return known[spelling]
    every = presets_of("", folders)
    usual = usual_spelling(name, every)
    if usual in every:
        whose = every[usual].framework
        wrong = f"is of {whose}, and the framework is {framework}"
        near = f"one of {framework}'s: {', '.join(known)}" if known else f"--framework {whose}"
        refuse("preset", name, wrong, near)
    return refuse("preset", name, "is no preset of a release", nearest(name, every, shown=20))


@cache
def load_operation(path: Path) -> dict[str, Origin]:
    """Read what running a training takes, by quantity: failures, storage, each with its source."""
    reader = FigureReader(path, read_toml(path))
    figures: dict[str, Origin] = {}
    reader.text("", reader.content, "title")
    for table in (name for name in reader.content if name not in ("name", "title", "summary")):
        for name, given in reader.table(table).items():
            if name not in VOCABULARY:
                allowed = nearest(name, VOCABULARY)
                reader.fault(f"{table}.{name}", "..", "is not a quantity", allowed)
                continue
            figure = reader.constant(f"{table}.{name}", name, given)
            if figure is not None:
                figures[name] = figure.origin
    return reader.checked(figures)


def usual_operation() -> dict[str, Origin]:
    """Return what running takes where nothing is said: `load_operation` of ``usual``."""
    return load_operation(find_spec("operation", "usual"))


def usual_framework(machine: Machine) -> Origin:
    """Return what trains on a machine where nothing is said: its own, or the usual one."""
    if machine.framework:
        return assumed(machine.framework, "the machine's own").of(machine.name)
    return assumed(LABELS["framework"].default)


def load_model(name_or_path: StrPath, folders: Sequence[StrPath] = ()) -> Model:
    """Read a model."""
    text = os.fspath(name_or_path)
    config = Path(text) if text.endswith(".json") else Path(text) / "config.json"
    named = Path(text).name == text
    if text.endswith(".json") or (is_file(config) and not named):
        from sweeps.spec.hugging_face import read_config

        if not is_file(config):
            refuse("model", text, "no such file", "the path of a config.json, or a catalog name")
        return read_config(config)
    name = text if text.endswith(".toml") else _catalogue_name(text, folders)
    path = find_spec("models", name, folders)
    from sweeps.spec.model import read_model

    model = _read_once(path, read_model)
    other = name not in (text, usual_spelling(text, (name,)))
    return replace(model, note=f"{text}: has the shapes of {name}, by its name") if other else model


def _catalogue_name(name: str, folders: Sequence[StrPath]) -> str:
    """Return the catalogue's name of a model, whose name may be a release's on Hugging Face."""
    named = Path(name).name == name
    if named and has_spec("models", name, folders):
        return name
    if named and usual_spelling(name, (names := model_names(folders))) in names:
        return name
    known: dict[str, list[str]] = {}
    for model_name in model_names(folders):
        try:
            given = read_toml(find_spec("models", model_name, folders)).get("hugging_face", [])
        except InputError:  # a broken file isn't the one that is asked for
            continue
        known[model_name] = [
            str(model_type) for model_type in (given if isinstance(given, list) else [given])
        ]
    from sweeps.spec.releases import release_of

    known_name = release_of(name, known)
    if known_name is not None or named:
        return known_name or name
    wrong = "no such file or folder, and not in the catalog"
    near = nearest(name, [alias for names in known.values() for alias in names], shown=6)
    return refuse("model", name, wrong, f"{near}; or give the path of its config.json")
