"""A configuration as a user wrote it: YAML with the lines that things stand on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.errors import InputError

__all__ = ["Entry", "YamlFile", "read_yaml"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value."""

    key: Any  # As YAML reads it: a text, mostly
    value: Any  # A plain value; None where there is none; for a mapping its entries
    line: int  # Where the key stands, from 1


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A file's entries."""

    path: Path  # The file
    # Of the mapping at its top, in order; a key that stands there twice is there twice
    entries: tuple[Entry, ...]
    # Keys that stand in one mapping twice, with the second's line: YAML keeps the last in silence
    twice: tuple[tuple[str, int], ...] = field(default=())


def read_yaml(path: Path) -> YamlFile:
    """Read a file as Megatron-LM does, without running anything in it."""
    import yaml

    text = _text_of(path)
    loader = yaml.SafeLoader(text)
    twice: list[tuple[str, int]] = []

    def line_of(node: Any) -> int:
        return int(node.start_mark.line) + 1

    def entries_of(node: Any, depth: int) -> tuple[Entry, ...]:
        before = {id(key) for key, _ in node.value}
        loader.flatten_mapping(node)
        found: list[Entry] = []
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            # What is merged in stands before, and is there to be overridden.
            if id(key_node) in before:
                if str(key) in seen:
                    twice.append((str(key), line_of(key_node)))
                seen.add(str(key))
            nested = isinstance(value_node, yaml.MappingNode) and depth < 1
            value = (
                entries_of(value_node, depth + 1)
                if nested
                else loader.construct_object(value_node, deep=True)
            )
            found.append(Entry(key, value, line_of(key_node)))
        return tuple(found)

    try:
        node = loader.get_single_node()
        if node is None:
            return YamlFile(path, ())
        if not isinstance(node, yaml.MappingNode):
            message = f"{path}, line {line_of(node)}: is no mapping of layers, such as 'qkv_fprop:'"
            raise InputError(message)
        entries = entries_of(node, 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 1}"
        told = getattr(error, "problem", None) or "can't be read"
        message = f"{path}{place}: is not YAML: {told}"
        raise InputError(message) from None
    except (RecursionError, ValueError, TypeError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"{path}: is not a configuration: {reason}"
        raise InputError(message) from None
    return YamlFile(path, entries, tuple(twice))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"{path}: can't be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        message = f"{path}: is not UTF-8 text (byte {error.start})"
    raise InputError(message)
