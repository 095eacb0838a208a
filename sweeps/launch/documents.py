"""TOML, JSON and YAML as flat settings with their lines; nothing in them is run."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from sweeps.errors import InputError, reject
from sweeps.launch.setting import Location, Setting

DEEPEST = 50


def toml_settings(text: str, file: str) -> list[Setting]:
    """Return the settings of a TOML file, named ``table.key``."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reject(file, f"isn't TOML: {error}")
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[+([\w.\" -]+)\]+", line):
            table = head[1].replace('"', "").strip() + "."
        elif key := re.match(r"\s*([\w.\"-]+)\s*=", line):
            lines.setdefault(f"{table}{key[1]}".replace('"', ""), number)
    return [
        Setting(name, value, Location(file, lines.get(name, 0))) for name, value in flat(content)
    ]


def json_settings(text: str, file: str) -> list[Setting]:
    """Return the settings of a JSON file, named by their path."""
    content = json_object(text, file)
    settings: list[Setting] = []
    offset = 0
    for name, value in flat(content):
        key = json.dumps(name.rpartition(".")[2])
        at = text.find(key, offset)
        offset = at if at >= 0 else offset
        line = text.count("\n", 0, at) + 1 if at >= 0 else 0
        settings.append(Setting(name, value, Location(file, line)))
    return settings


def json_object(text: str, file: str) -> Mapping[str, object]:
    """Return a JSON file's object, or refuse it with the lines at fault."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        faults = [*_json_faults(text, file)]
        where = "can't be read"
        if isinstance(error, json.JSONDecodeError):
            where = f"line {error.lineno}: {error.msg}"
        raise InputError(faults or [f"{file}, {where}"]) from None
    if not isinstance(content, dict):
        reject(file, "is no JSON object")
    return content


def _json_faults(text: str, file: str) -> Iterator[str]:
    """Yield what people write into JSON that isn't any: comments, a last comma."""
    comments = [k for k, line in enumerate(text.splitlines(), 1) if re.match(r"\s*(//|#)", line)]
    if comments:
        others = f" ({len(comments) - 1} more lines)" if len(comments) > 1 else ""
        yield f"{file}, line {comments[0]}: comments aren't JSON{others}"
    for match in re.finditer(r",\s*([}\]])", re.sub(r"(?m)^\s*(//|#).*$", "", text)):
        bare = re.sub(r"(?m)^\s*(//|#).*$", "", text)
        number = bare.count("\n", 0, match.start()) + 1
        yield f"{file}, line {number}: a comma before {match[1]} isn't JSON"


def yaml_settings(text: str, file: str) -> list[Setting]:
    """Return the settings of a YAML file, named by their path."""
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        words = getattr(error, "problem", None) or "can't be read"
        reject(file + line, f"isn't YAML: {words}")
    if not isinstance(content, dict):
        reject(file, "is no YAML mapping")
    lines = dict(_yaml_lines(node, "", 0))
    values = dict(flat(content))
    return [
        Setting(name, interpolated(name, value, values), Location(file, lines.get(name, 0)))
        for name, value in values.items()
    ]


_INNER = re.compile(r"\$\{([^${}]+)\}")
_PRODUCT = re.compile(r"multiply:\s*([\d.]+)\s*,\s*([\d.]+)")


def interpolated(name: str, value: Any, values: Mapping[str, object]) -> Any:
    """Return a value with those put in that it refers to, as OmegaConf does: ``${a.b}``, ``${.b}``.

    Of resolvers ``multiply`` is one that NeMo's recipes use; what else stands there stays.
    """
    for _ in range(10):  # One may refer to another
        text = value if isinstance(value, str) else ""
        match = next(
            (
                candidate
                for candidate in _INNER.finditer(text)
                if _known(name, candidate[1], values)
            ),
            None,
        )
        if match is None:
            return value
        (new,) = _known(name, match[1], values)
        value = new if match[0] == text else text.replace(match[0], str(new), 1)
    return value


def _known(name: str, inner: str, values: Mapping[str, object]) -> tuple[Any, ...]:
    """Return what a reference is, in a tuple; an empty one where it isn't known."""
    if product := _PRODUCT.fullmatch(inner.strip()):
        number = float(product[1]) * float(product[2])
        return (int(number) if number.is_integer() else number,)
    ups = len(inner) - len(inner.lstrip("."))
    path = name.split(".")[: -ups or None] if ups else []
    key = ".".join([*path, inner.strip(". ")])
    return (values[key],) if key in values and key != name else ()


def typed(text: str) -> Any:
    """Return a value as YAML reads it where it is a number, a flag or a list; else the text."""
    import yaml

    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return text
    return value if isinstance(value, bool | int | float | list) else text


def _yaml_lines(node: Any, prefix: str, deep: int) -> Iterator[tuple[str, int]]:
    if deep > DEEPEST or not hasattr(node, "value") or not isinstance(node.value, list):
        return
    for pair in node.value:
        if isinstance(pair, tuple):
            key, value = pair
            name = f"{prefix}{key.value}"
            yield name, key.start_mark.line + 1
            yield from _yaml_lines(value, f"{name}.", deep + 1)


def flat(content: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by their path; lists are values."""
    if prefix.count(".") > DEEPEST:
        return
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
