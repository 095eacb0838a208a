"""Is a configuration valid: its schema, its start, its run, and the flags that it needs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sweeps.errors import fault, nearest, reject
from sweeps.spec.files import text_of
from sweeps.tuner.settings import SCATTERED, SWITCHES
from sweeps.tuner.userbuffers import (
    ALL_GATHER,
    COLUMN,
    EXTERNAL_SINCE,
    HIGHEST_PRIORITY,
    KERNEL_RANKS,
    KEYS,
    LAYERS,
    METHODS,
    MOST_SMS,
    NEWEST,
    REDUCE_SCATTER,
    SINCE,
    Legality,
    Version,
    collective_of,
    default_method,
    default_values,
    flag_group,
    legality,
    shown_version,
)

# What a check of a configuration finds, and what it is checked for.

Severity = Literal["error", "warning", "note"]
LEVELS = ("schema", "init", "runtime", "flags")
"""Where a fault shows: when the file is read, when communicators are made, when a layer runs, in
what the training is started with."""


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
class Setting:
    """What a configuration is to run with, as far as it is known."""

    tp_size: int | None = None  # Tensor-parallel ranks
    tokens: int | None = None  # Tokens that a layer works on
    precision: str | None = None  # ``bf16``, ``fp8`` or ``mxfp8``
    # By linear layer, outputs of its forward on one rank, and under ``_dgrad`` those of its input
    # gradient; what isn't known isn't there
    outputs: Mapping[str, int] = field(default_factory=dict)
    # What Megatron-LM is started with; None where that isn't said
    flags: tuple[str, ...] | None = None
    version: Version = NEWEST  # Transformer Engine's release


# What stops when communicators are made or layers run, and what runs but is hardly meant.

Layers = Mapping[str, Layer]
_PAIRS = (("qkv_fprop", "proj_fprop"), ("fc1_fprop", "fc2_fprop"))
_INHERITED = ("num_sm", "cga_size", "set_sm_margin")
_BLOCK = 128  # rows and columns that MXFP8 scales together


def init_findings(layers: Layers, setting: Setting) -> Iterator[Finding]:
    """Yield what stops when communicators are made."""
    for layer in layers.values():
        yield from _too_new(layer, setting.version)
        if layer.legality.level == "init_error":
            yield layer.wrong_method("init", "error")
        elif layer.operator in COLUMN and layer.phase == "dgrad" and layer.method != "bulk":
            yield from _scattered(layers, layer)
        key, wanted = "is_reduce_scatter", layer.collective == REDUCE_SCATTER
        if key in layer.values and layer.on(key) != wanted:
            wrong = f"the layer has a {layer.collective} here"
            value = int(layer.on(key))
            yield layer.wrong("init", "error", key, value, wrong, f"{int(wanted)}")
        if layer.on("atomic_gemm"):
            yield from _atomic(layers, layer, setting)


def _too_new(layer: Layer, version: Version) -> Iterator[Finding]:
    """Yield what a release doesn't take yet."""
    since = {key: SINCE[key] for key in layer.values if key in SINCE}
    if layer.method == "external":
        since["method"] = EXTERNAL_SINCE
    for key, first in since.items():
        if first > version:
            wrong = f"Transformer Engine {shown_version(version)} doesn't take it, and stops"
            text = f"{layer.name}.{key}: {wrong}; leave it out, or {shown_version(first)}"
            yield Finding("schema", "error", text, layer.line(key))


def _scattered(layers: Layers, layer: Layer) -> Iterator[Finding]:
    """Yield what is wrong with an input gradient that is scattered with its own product."""
    other = f"{layer.operator}_wgrad"
    if other in layers:
        wrong = f"{layer.name} isn't bulk, so {other} has nothing to overlap: a ValueError"
        text = f"{other}: {wrong}; leave {other} out"
        yield Finding("init", "error", text, layers[other].line())
    text = (
        f"{layer.name}.method = '{layer.method}': with several quantization modes at once (fp8 "
        "with first and last layers in bf16) Transformer Engine stops with a ValueError of its own"
    )
    yield Finding("init", "note", text, layer.line("method"))


def _atomic(layers: Layers, layer: Layer, setting: Setting) -> Iterator[Finding]:
    key = "atomic_gemm"
    if setting.precision == "bf16":
        yield layer.wrong("init", "error", key, 1, "is for FP8 alone", "0 in bf16")
    for pair in _PAIRS:
        if layer.name not in pair:
            continue
        both = [layers.get(name) for name in pair]
        if not all(o and o.on("atomic_gemm") and o.method == "ring_exchange" for o in both):
            wrong = f"needs {' and '.join(pair)} both with it, and both as ring_exchange"
            yield layer.wrong("init", "error", key, 1, wrong, "0, or both so")
    if layer.method in {"bulk", "external"}:
        yield layer.wrong("init", "warning", key, 1, f"{layer.method} ignores it", "0")


def runtime_findings(layers: Layers, setting: Setting) -> Iterator[Finding]:
    """Yield what stops, or isn't what is meant, when layers run."""
    yield from _sizes(setting)
    for layer in layers.values():
        if layer.legality.level == "run_error":
            yield layer.wrong_method("runtime", "error")
        elif layer.legality.level == "runs_as_other":
            yield layer.wrong_method("runtime", "warning")
        yield from _multiprocessors(layer)
        yield from _set_aside(layer)
        yield from _inherited(layer, setting)
        yield from _parts(layer, setting)
        if layer.on("aggregate"):
            yield from _aggregate(layer, setting)
        if "fp8_buf" in layer.values and layer.method != "pipeline":
            gathers = layer.collective == ALL_GATHER
            if layer.on("fp8_buf") != gathers:
                wrong = "only pipeline heeds it, elsewhere it follows from the layer"
                value = int(layer.on("fp8_buf"))
                yield layer.wrong("runtime", "warning", "fp8_buf", value, wrong, f"{int(gathers)}")


def _sizes(setting: Setting) -> Iterator[Finding]:
    size, tokens = setting.tp_size, setting.tokens
    if size is not None and size not in KERNEL_RANKS:
        allowed = ", ".join(map(str, KERNEL_RANKS))
        text = fault("--tp-size", size, "userbuffers have no kernels for it", allowed)
        yield Finding("runtime", "error", text)
    if size and tokens and tokens % size:
        wrong = f"{size} ranks can't share them evenly"
        text = fault("--max-token-len", tokens, wrong, f"a multiple of {size}")
        yield Finding("runtime", "error", text)
    elif size and tokens and setting.precision == "mxfp8" and tokens // size % _BLOCK:
        wrong = f"a chunk has {tokens // size} tokens, and MXFP8 scales {_BLOCK} together"
        text = fault("--max-token-len", tokens, wrong, f"a multiple of {size * _BLOCK}")
        yield Finding("runtime", "error", text)


def _multiprocessors(layer: Layer) -> Iterator[Finding]:
    count = layer.values.get("num_sm")
    if count is None:
        return
    if count > MOST_SMS:
        wrong = f"userbuffers have room for {MOST_SMS}, and nothing checks it"
        yield layer.wrong("runtime", "error", "num_sm", count, wrong, f"1 to {MOST_SMS}")
    cluster = layer.value("cga_size")
    if layer.method != "ring_exchange" and count % cluster:
        wrong = f"is not a multiple of cga_size {cluster}, so clusters are of 1"
        yield layer.wrong("runtime", "warning", "num_sm", count, wrong, "a multiple")


def _set_aside(layer: Layer) -> Iterator[Finding]:
    """Yield multiprocessors of a ring that carry nothing.

    Copy engines carry its chunks (comm_gemm_overlap/userbuffers/userbuffers.cu, userbuffers_send:
    a kernel of one block only signals), whereas set_sm_margin takes num_sm from each of its
    products (comm_gemm_overlap.cpp, _math_sms). With use_ce 0 kernels of num_sm blocks carry them.
    """
    count = layer.value("num_sm")
    ring = layer.method == "ring_exchange" and layer.on("use_ce", default=True)
    if not ring or layer.on("atomic_gemm") or count < 2:
        return
    if layer.value("set_sm_margin"):
        key, value, right = "set_sm_margin", 1, "set_sm_margin 0, num_sm 1"
        wrong = f"takes {count} SMs from each product, and a ring's copy engines don't use them"
    elif "num_sm" in layer.values:
        key, value, right = "num_sm", count, "num_sm 1, or use_ce 0"
        wrong = "a ring ignores it: copy engines carry its chunks"
    else:
        return
    yield layer.wrong("runtime", "warning", key, value, wrong, right)


def _inherited(layer: Layer, setting: Setting) -> Iterator[Finding]:
    """Yield what a layer keeps of its default method's values though its method is another."""
    usual = default_method(layer.name)
    lacking = [key for key in _INHERITED if key not in layer.values]
    if usual == layer.method or not lacking:
        return
    values = default_values(layer.name, setting.tp_size or 2)
    kept = ", ".join(f"{key} {int(values[key])}" for key in lacking)
    text = f"{layer.name}: without keys of its own it keeps the {usual} default's {kept}; give them"
    yield Finding("runtime", "warning", text, layer.line("method"))


def _parts(layer: Layer, setting: Setting) -> Iterator[Finding]:
    if layer.method != "pipeline":
        return
    parts = layer.value("num_splits")
    key = layer.operator if layer.phase == "fprop" else f"{layer.operator}_dgrad"
    outputs = setting.outputs.get(key)
    if outputs is not None and outputs % parts:
        wrong = f"the product's {outputs} outputs can't be split so"
        yield layer.wrong("runtime", "error", "num_splits", parts, wrong, "a divisor")


def _aggregate(layer: Layer, setting: Setting) -> Iterator[Finding]:
    severity: Severity = "warning"
    if layer.method != "ring_exchange" or layer.collective != ALL_GATHER:
        wrong = "only a ring's all_gather heeds it"
    elif setting.tp_size == 2:
        wrong = "two ranks overlap nothing so: the only chunk that comes is waited for first"
    elif setting.tp_size is not None and setting.tp_size % 2:
        severity, wrong = "error", "two chunks at a time need an even number of ranks"
    else:
        return
    yield layer.wrong("runtime", severity, "aggregate", 1, wrong, "0")


# A configuration as a user wrote it: YAML with the lines that things stand on.


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
    # Of the mapping at its top, in order; a key that is given twice is there twice
    entries: tuple[Entry, ...]
    # Keys that stand in one mapping twice, with the second's line: YAML keeps the last in silence
    twice: tuple[tuple[str, int], ...] = field(default=())


def read_yaml(path: Path) -> YamlFile:
    """Read a file as Megatron-LM does, without running anything in it."""
    import yaml

    text = text_of(path)
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        wrong = f"is not YAML: it has the character U+{error.character:04X}"
        reject(f"{path}, line {line}", wrong)
    twice: list[tuple[str, int]] = []

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
                    twice.append((str(key), line_of(key_node)))
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
            return YamlFile(path, ())
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
    return YamlFile(path, entries, tuple(twice))


# The schema of a configuration: which layers and keys there are, and what they hold.

_OWN = ("name", "quantization_mode")
_DOMAINS = {
    "flag": "0, 1, true or false",
    "number": "a whole number, 1 or more",
    "priority": f"a whole number, {HIGHEST_PRIORITY} (highest) to 0",
    "text": f"one of {', '.join(METHODS)}",
}


def read_layers(file: YamlFile) -> tuple[dict[str, Layer], list[Finding]]:
    """Check a configuration's schema."""
    findings = [
        Finding("schema", "error", f"{key}: is given twice; only the last one counts", line)
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


NEEDED = ("--tp-comm-overlap", "--sequence-parallel", "--tp-comm-overlap-cfg")


def validate_file(path: Path, setting: Setting | None = None) -> list[Finding]:
    """Check a configuration of tensor-parallel overlap."""
    setting = setting or Setting()
    layers, findings = read_layers(read_yaml(path))
    findings += init_findings(layers, setting)
    findings += runtime_findings(layers, setting)
    findings += _flag_findings(layers, setting)
    return sorted(findings, key=lambda finding: (LEVELS.index(finding.level), finding.line))


def _flag_findings(layers: Layers, setting: Setting) -> Iterator[Finding]:
    """Yield what has to stand beside the file: flags, and layers that nothing is said of."""
    dgrads = {operator: _dgrad(layers, operator) for operator in COLUMN}
    scattered = {operator for operator, method in dgrads.items() if method != "bulk"}
    if len(scattered) == 1:
        shown = ", ".join(f"{name}_dgrad {method}" for name, method in dgrads.items())
        text = f"{shown}: {SCATTERED} is one for both; both bulk, or neither"
        name = f"{min(scattered)}_dgrad"
        line = layers[name].line() if name in layers else 0
        yield Finding("flags", "error", text, line)
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
        off = [n for n, layer in layers.items() if flag_group(layer.operator, layer.phase) == group]
        off = [n for n in off if not (n.endswith("dgrad") and n.split("_")[0] in scattered)]
        if off:
            text = f"{flag} is set: {', '.join(off)} won't overlap; leave out the one or the other"
            yield Finding("flags", "warning", text, layers[off[0]].line())
