"""A configuration as a user wrote it: its layers and keys, with the lines that they stand on."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sweeps.errors import fault, nearest, reject
from sweeps.spec.files import text_of
from sweeps.tuner.userbuffers import (
    HIGHEST_PRIORITY,
    KEYS,
    LAYERS,
    METHODS,
    Legality,
    collective_of,
    default_method,
    default_values,
    legality,
)

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    level: str  # Of `LEVELS`
    # ``error``: it stops, or what is written isn't what runs. ``warning``: it runs, and is hardly
    # what is meant. ``note``: to be known
    severity: Severity
    text: str  # What, of which key, and what would be right
    line: int = 0  # Where, from 1; 0 for the file as a whole

    def shown(self, file: str) -> str:
        """Return it as one line."""
        location = f"{file}:{self.line}" if self.line else file
        return f"{location}: {self.severity} ({self.level}): {self.text}"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a configuration whose schema is right."""

    name: str  # Such as ``qkv_fprop``
    values: Mapping[str, Any]  # By key, as written
    lines: Mapping[str, int]  # By key; under the empty text the layer's own
    method: str  # Its method, that of the default where none is written

    @property
    def operator(self) -> str:
        """The linear layer."""
        return self.name.split("_")[0]

    @property
    def phase(self) -> str:
        """What of it."""
        return self.name.split("_")[1]

    def line(self, key: str = "") -> int:
        """Return where a key stands, or the layer."""
        return self.lines.get(key, self.lines[""])

    def on(self, key: str, *, default: bool = False) -> bool:
        """Return whether a flag is set."""
        return bool(self.values.get(key, default))

    def value(self, key: str, tp_size: int = 2) -> Any:
        """Return a key's value: as written, or Transformer Engine's default of this layer."""
        return self.values.get(key, default_values(self.name, tp_size)[key])

    @property
    def legality(self) -> Legality:
        """Whether it can overlap by its method."""
        return legality(self.operator, self.phase, self.method)

    @property
    def collective(self) -> str:
        """What it communicates by its method."""
        return collective_of(self.operator, self.phase, self.method)

    def wrong(
        self, level: str, severity: Severity, key: str, value: object, wrong: str, allowed: str
    ) -> Finding:
        """Return what is wrong with the value of a key, at its line."""
        text = fault(f"{self.name}.{key}", value, wrong, allowed)
        return Finding(level, severity, text, self.line(key))

    def wrong_method(self, level: str, severity: Severity) -> Finding:
        """Return that it can't overlap by its method, and by which it can."""
        good = [m for m in METHODS if legality(self.operator, self.phase, m).level == "legal"]
        reason, allowed = self.legality.reason, " or ".join(good)
        return self.wrong(level, severity, "method", self.method, reason, allowed)


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value."""

    key: Any  # As YAML reads it: a text, mostly
    value: Any  # A plain value; None where there is none; for a mapping its entries
    line: int  # Where the key stands, from 1


def read_yaml(path: Path) -> tuple[Sequence[Entry], list[Finding]]:
    """Read a file as Megatron-LM does, without running anything in it; say what is there twice."""
    import yaml

    text = text_of(path)
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        wrong = f"is not YAML: it has the character U+{error.character:04X}"
        reject(f"{path}, line {line}", wrong)
    twice: list[Finding] = []

    def line_of(node: Any) -> int:
        return int(node.start_mark.line) + 1

    def entries_of(node: Any, depth: int) -> tuple[Entry, ...]:
        before = {id(key) for key, _ in node.value}
        loader.flatten_mapping(node)
        children: list[Entry] = []
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                wrong = "a key is a list or a mapping"
                raise yaml.constructor.ConstructorError(
                    problem=wrong, problem_mark=key_node.start_mark
                )
            # What is merged in stands before, and is there to be overridden.
            if id(key_node) in before:
                if str(key) in seen:
                    wrong = f"{key}: is given twice; only the last one counts"
                    twice.append(Finding("schema", "error", wrong, line_of(key_node)))
                seen.add(str(key))
            nested = isinstance(value_node, yaml.MappingNode) and depth < 1
            value = (
                entries_of(value_node, depth + 1)
                if nested
                else loader.construct_object(value_node, deep=True)
            )
            children.append(Entry(key, value, line_of(key_node)))
        return tuple(children)

    try:
        node = loader.get_single_node()
        if node is None:
            return (), []
        if not isinstance(node, yaml.MappingNode):
            wrong = "is not a mapping of layers, such as 'qkv_fprop:'"
            reject(f"{path}, line {line_of(node)}", wrong)
        entries = entries_of(node, 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        mark_words = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or "can't be read"
        reject(f"{path}{mark_words}", f"is not YAML: {problem}")
    except (RecursionError, ValueError, TypeError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        reject(path, f"is not a configuration: {reason}")
    return entries, twice


_OWN = ("name", "quantization_mode")
_DOMAINS = {
    "flag": "0, 1, true or false",
    "number": "a whole number, 1 or more",
    "priority": f"a whole number, {HIGHEST_PRIORITY} (highest) to 0",
    "text": f"one of {', '.join(METHODS)}",
}


def read_layers(
    entries: Sequence[Entry], noted: Sequence[Finding] = ()
) -> tuple[dict[str, Layer], list[Finding]]:
    """Check a configuration's schema; add to what was noted in reading it."""
    findings = [*noted]
    if not entries:
        text = "configures nothing: every layer overlaps by Transformer Engine's default"
        findings.append(Finding("schema", "warning", text))
    layers: dict[str, Layer] = {}
    for entry in entries:
        if entry.key not in LAYERS:
            wrong = f"{entry.key}: no such layer, which Transformer Engine ignores in silence"
            near = nearest(str(entry.key), LAYERS)
            findings.append(Finding("schema", "error", f"{wrong}; {near}", entry.line))
        elif not _is_mapping(entry):
            wrong = "is not a mapping of keys, and stops with an AttributeError"
            text = fault(entry.key, entry.value, wrong, "give its keys, or leave the layer out")
            findings.append(Finding("schema", "error", text, entry.line))
        else:
            findings += _of_layer(entry)
            layers[entry.key] = _layer(entry)
    return layers, findings


def _is_mapping(entry: Entry) -> bool:
    value = entry.value
    return isinstance(value, tuple) and all(isinstance(item, Entry) for item in value)


def _of_layer(entry: Entry) -> Iterator[Finding]:
    for child in entry.value:
        name = f"{entry.key}.{child.key}"
        if child.key in _OWN:
            text = f"{name}: is Transformer Engine's own, and stops with a TypeError; leave it out"
            yield Finding("schema", "error", text, child.line)
        elif child.key not in KEYS:
            near = nearest(str(child.key), KEYS)
            text = f"{name}: no such key, which stops with a TypeError; {near}"
            yield Finding("schema", "error", text, child.line)
        elif not _holds(KEYS[child.key], child.value):
            wrong = "is empty" if child.value is None else "isn't allowed"
            near = _DOMAINS[KEYS[child.key]]
            if child.key == "method" and isinstance(child.value, str):
                near = nearest(child.value, METHODS)
                near += "; to switch overlap off there are flags" if child.value == "none" else ""
            yield Finding("schema", "error", fault(name, child.value, wrong, near), child.line)


def _holds(kind: str, value: object) -> bool:
    if kind == "text":
        return isinstance(value, str) and value in METHODS
    if kind == "flag":
        return isinstance(value, bool) or (isinstance(value, int) and value in {0, 1})
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and (kind == "priority" or value >= 1)  # type: ignore[operator]


def _layer(entry: Entry) -> Layer:
    """Return a layer with those of its keys that are right."""
    good = {o.key: o.value for o in entry.value if o.key in KEYS and _holds(KEYS[o.key], o.value)}
    lines = {"": entry.line, **{child.key: child.line for child in entry.value}}
    return Layer(entry.key, good, lines, good.get("method", default_method(entry.key)))
