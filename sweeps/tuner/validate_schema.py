"""The schema of a configuration: which layers and keys there are, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.errors import fault, nearest
from sweeps.tuner.finding import Finding, Layer
from sweeps.tuner.userbuffers import HIGHEST_PRIORITY, KEYS, LAYERS, METHODS, default_method
from sweeps.tuner.yaml_file import Entry, YamlFile

__all__ = ["read_layers"]

_OWN = ("name", "quantization_mode")
_DOMAINS = {
    "flag": "0, 1, true or false",
    "number": "a whole number from 1",
    "priority": f"a whole number, {HIGHEST_PRIORITY} (highest) to 0",
    "text": f"one of {', '.join(METHODS)}",
}


def read_layers(file: YamlFile) -> tuple[dict[str, Layer], list[Finding]]:
    """Check a configuration's schema."""
    findings = [
        Finding("schema", "error", f"{key}: stands there twice; only the last one counts", line)
        for key, line in file.twice
    ]
    if not file.entries:
        text = "configures nothing: every layer overlaps by Transformer Engine's default"
        findings.append(Finding("schema", "warning", text))
    layers: dict[str, Layer] = {}
    for entry in file.entries:
        if entry.key not in LAYERS:
            wrong = f"{entry.key}: no such layer, which Transformer Engine ignores in silence"
            near = nearest(str(entry.key), LAYERS)
            findings.append(Finding("schema", "error", f"{wrong}; {near}", entry.line))
        elif not _is_mapping(entry):
            wrong = "is no mapping of keys, and stops with an AttributeError"
            text = fault(entry.key, entry.value, wrong, "give its keys, or leave the layer out")
            findings.append(Finding("schema", "error", text, entry.line))
        else:
            found = list(_of_layer(entry))
            findings += found
            layers[entry.key] = _layer(entry)
    return layers, findings


def _is_mapping(entry: Entry) -> bool:
    value = entry.value
    return isinstance(value, tuple) and all(isinstance(one, Entry) for one in value)


def _of_layer(entry: Entry) -> Iterator[Finding]:
    for own in entry.value:
        name = f"{entry.key}.{own.key}"
        if own.key in _OWN:
            text = f"{name}: is Transformer Engine's own, and stops with a TypeError; leave it out"
            yield Finding("schema", "error", text, own.line)
        elif own.key not in KEYS:
            near = nearest(str(own.key), KEYS)
            text = f"{name}: no such key, which stops with a TypeError; {near}"
            yield Finding("schema", "error", text, own.line)
        elif not _holds(KEYS[own.key], own.value):
            wrong = "is empty" if own.value is None else "can't be"
            near = _DOMAINS[KEYS[own.key]]
            if own.key == "method" and isinstance(own.value, str):
                near = nearest(own.value, METHODS)
                near += "; to switch overlap off there are flags" if own.value == "none" else ""
            yield Finding("schema", "error", fault(name, own.value, wrong, near), own.line)


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
    lines = {"": entry.line, **{own.key: own.line for own in entry.value}}
    return Layer(entry.key, good, lines, good.get("method", default_method(entry.key)))
