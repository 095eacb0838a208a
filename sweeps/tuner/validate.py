"""Is a configuration valid: its schema, its start, its run, and the flags that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.errors import fault
from sweeps.tuner.config_file import Finding, Layer, Severity, read_layers, read_yaml
from sweeps.tuner.settings import SCATTERED, SWITCHES
from sweeps.tuner.userbuffers import (
    ALL_GATHER,
    COLUMN,
    EXTERNAL_SINCE,
    KERNEL_RANKS,
    LAYERS,
    MOST_SMS,
    NEWEST,
    REDUCE_SCATTER,
    SINCE,
    Version,
    default_method,
    default_values,
    flag_group,
    shown_version,
)

LEVELS = ("schema", "init", "runtime", "flags")
"""Where a fault shows: when the file is read, when communicators are made, when a layer runs, in
what the training is started with."""


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


NEEDED = ("--tp-comm-overlap", "--sequence-parallel", "--tp-comm-overlap-cfg")


def validate_file(path: Path, setting: Setting | None = None) -> list[Finding]:
    """Check a configuration of tensor-parallel overlap."""
    setting = setting or Setting()
    layers, findings = read_layers(*read_yaml(path))
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
