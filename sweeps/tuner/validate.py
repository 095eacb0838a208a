"""Is a configuration valid: its schema, its start, its run, and the flags that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sweeps.tuner.configuration import SCATTERED, SWITCHES
from sweeps.tuner.finding import LEVELS, Finding, Layer, Setting
from sweeps.tuner.userbuffers import COLUMN, LAYERS, default_method, flag_group
from sweeps.tuner.validate_layers import init_findings, runtime_findings
from sweeps.tuner.validate_schema import read_layers
from sweeps.tuner.yaml_file import read_yaml

__all__ = ["validate_file"]

Layers = Mapping[str, Layer]
NEEDED = ("--tp-comm-overlap", "--sequence-parallel", "--tp-comm-overlap-cfg")


def validate_file(path: Path, setting: Setting | None = None) -> list[Finding]:
    """Check a configuration of tensor-parallel overlap."""
    setting = setting or Setting()
    layers, found = read_layers(read_yaml(path))
    found += init_findings(layers, setting)
    found += runtime_findings(layers, setting)
    found += _flag_findings(layers, setting)
    return sorted(found, key=lambda one: (LEVELS.index(one.level), one.line))


def _flag_findings(layers: Layers, setting: Setting) -> Iterator[Finding]:
    """Yield what has to stand beside the file: flags, and layers that nothing is said of."""
    dgrads = {operator: _dgrad(layers, operator) for operator in COLUMN}
    scattered = {operator for operator, method in dgrads.items() if method != "bulk"}
    if len(scattered) == 1:
        shown = ", ".join(f"{name}_dgrad {method}" for name, method in dgrads.items())
        text = f"{shown}: {SCATTERED} is one for both; both bulk, or neither"
        yield Finding("flags", "error", text, _line(layers, f"{min(scattered)}_dgrad"))
    needed = [*NEEDED, *([SCATTERED] if scattered else [])]
    if setting.flags is None:
        text = (
            f"needs {' '.join(needed[:2])} {needed[2]} FILE{''.join(f' {f}' for f in needed[3:])}"
        )
        yield Finding("flags", "note", text)
    else:
        yield from _given(layers, needed, scattered, setting.flags)
    absent = [name for name in LAYERS if name not in layers and not _unasked(name, scattered)]
    if absent:
        shown = ", ".join(absent)
        text = f"no key for {shown}: these overlap by default all the same, unless a flag says not"
        yield Finding("flags", "note", text)


def _dgrad(layers: Layers, operator: str) -> str:
    name = f"{operator}_dgrad"
    return layers[name].method if name in layers else default_method(name)


def _line(layers: Layers, name: str) -> int:
    return layers[name].line() if name in layers else 0


def _unasked(name: str, scattered: set[str]) -> bool:
    """Tell whether a layer has nothing to overlap that a key would be about."""
    operator, phase = name.split("_")
    return phase == "wgrad" and (operator not in COLUMN or operator in scattered)


def _given(
    layers: Layers, needed: list[str], scattered: set[str], flags: tuple[str, ...]
) -> Iterator[Finding]:
    names = {flag.partition("=")[0] for flag in flags}
    for flag in needed:
        if flag not in names:
            why = f" ({min(scattered)}_dgrad isn't bulk)" if flag == SCATTERED else ""
            yield Finding("flags", "error", f"{flag} is missing{why}; add it")
    if SCATTERED in names and not scattered:
        text = f"{SCATTERED} is set, and qkv_dgrad and fc1_dgrad are bulk; leave it out"
        yield Finding("flags", "error", text)
    for group, flag in SWITCHES.items():
        if flag not in names:
            continue
        off = [n for n, own in layers.items() if flag_group(own.operator, own.phase) == group]
        off = [n for n in off if not (n.endswith("dgrad") and n.split("_")[0] in scattered)]
        if off:
            text = f"{flag} is set: {', '.join(off)} won't overlap; leave out the one or the other"
            yield Finding("flags", "warning", text, layers[off[0]].line())
