"""What stops when communicators are made or layers run, and what runs but is hardly meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweeps.errors import fault
from sweeps.tuner.finding import Finding, Layer, Setting
from sweeps.tuner.userbuffers import (
    ALL_GATHER,
    COLUMN,
    KERNEL_RANKS,
    METHODS,
    MOST_SMS,
    REDUCE_SCATTER,
    collective_of,
    default_method,
    default_values,
    legality,
)

__all__ = ["init_findings", "runtime_findings"]

Layers = Mapping[str, Layer]
_PAIRS = (("qkv_fprop", "proj_fprop"), ("fc1_fprop", "fc2_fprop"))
_INHERITED = ("num_sm", "cga_size", "set_sm_margin")
_BLOCK = 128  # rows and columns that MXFP8 scales together


def init_findings(layers: Layers, setting: Setting) -> Iterator[Finding]:
    """Yield what stops when communicators are made."""
    for layer in layers.values():
        found = legality(layer.operator, layer.phase, layer.method)
        if found.level == "init_error":
            text = fault(f"{layer.name}.method", layer.method, found.reason, _allowed(layer))
            yield Finding("init", "error", text, layer.line("method"))
        elif layer.operator in COLUMN and layer.phase == "dgrad" and layer.method != "bulk":
            yield from _scattered(layers, layer)
        wanted = collective_of(layer.operator, layer.phase, layer.method) == REDUCE_SCATTER
        if "is_reduce_scatter" in layer.values and layer.on("is_reduce_scatter") != wanted:
            what = REDUCE_SCATTER if wanted else ALL_GATHER
            wrong = f"the layer has a {what} here"
            value = int(layer.on("is_reduce_scatter"))
            text = fault(f"{layer.name}.is_reduce_scatter", value, wrong, f"{int(wanted)}")
            yield Finding("init", "error", text, layer.line("is_reduce_scatter"))
        if layer.on("atomic_gemm"):
            yield from _atomic(layers, layer, setting)


def _allowed(layer: Layer) -> str:
    good = [m for m in METHODS if legality(layer.operator, layer.phase, m).level == "legal"]
    return f"{' or '.join(good)}"


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
    name, line = f"{layer.name}.atomic_gemm", layer.line("atomic_gemm")
    if setting.precision == "bf16":
        yield Finding("init", "error", fault(name, 1, "is for FP8 alone", "0 in bf16"), line)
    for pair in _PAIRS:
        if layer.name not in pair:
            continue
        both = [layers.get(one) for one in pair]
        if not all(o and o.on("atomic_gemm") and o.method == "ring_exchange" for o in both):
            wrong = f"needs {' and '.join(pair)} both with it, and both as ring_exchange"
            yield Finding("init", "error", fault(name, 1, wrong, "0, or both so"), line)
    if layer.method in {"bulk", "external"}:
        text = fault(name, 1, f"{layer.method} ignores it", "0")
        yield Finding("init", "warning", text, line)


def runtime_findings(layers: Layers, setting: Setting) -> Iterator[Finding]:
    """Yield what stops, or isn't what is meant, when layers run."""
    yield from _sizes(setting)
    for layer in layers.values():
        found = legality(layer.operator, layer.phase, layer.method)
        if found.level in {"run_error", "runs_as_other"}:
            severity = "error" if found.level == "run_error" else "warning"
            text = fault(f"{layer.name}.method", layer.method, found.reason, _allowed(layer))
            yield Finding("runtime", severity, text, layer.line("method"))  # type: ignore[arg-type]
        yield from _multiprocessors(layer)
        yield from _inherited(layer, setting)
        yield from _parts(layer, setting)
        if layer.on("aggregate"):
            yield from _aggregate(layer, setting)
        if "fp8_buf" in layer.values and layer.method != "pipeline":
            gathers = collective_of(layer.operator, layer.phase, layer.method) == ALL_GATHER
            if layer.on("fp8_buf") != gathers:
                wrong = "only pipeline heeds it, elsewhere it follows from the layer"
                value = int(layer.on("fp8_buf"))
                text = fault(f"{layer.name}.fp8_buf", value, wrong, f"{int(gathers)}")
                yield Finding("runtime", "warning", text, layer.line("fp8_buf"))


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
    name, line = f"{layer.name}.num_sm", layer.line("num_sm")
    if count > MOST_SMS:
        wrong = f"userbuffers have room for {MOST_SMS}, and nothing checks it"
        yield Finding("runtime", "error", fault(name, count, wrong, f"1 to {MOST_SMS}"), line)
    cluster = layer.values.get("cga_size", default_values(layer.name, 2)["cga_size"])
    if layer.method != "ring_exchange" and count % cluster:
        wrong = f"is no multiple of cga_size {cluster}, so clusters are of 1"
        yield Finding("runtime", "warning", fault(name, count, wrong, "a multiple"), line)


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
    parts = layer.values.get("num_splits", default_values(layer.name, 2)["num_splits"])
    key = layer.operator if layer.phase == "fprop" else f"{layer.operator}_dgrad"
    outputs = setting.outputs.get(key)
    if outputs is not None and outputs % parts:
        wrong = f"the product's {outputs} outputs can't be split so"
        text = fault(f"{layer.name}.num_splits", parts, wrong, "a divisor")
        yield Finding("runtime", "error", text, layer.line("num_splits"))


def _aggregate(layer: Layer, setting: Setting) -> Iterator[Finding]:
    name, line = f"{layer.name}.aggregate", layer.line("aggregate")
    gathers = collective_of(layer.operator, layer.phase, layer.method) == ALL_GATHER
    if layer.method != "ring_exchange" or not gathers:
        text = fault(name, 1, "only a ring's all_gather heeds it", "0")
        yield Finding("runtime", "warning", text, line)
    elif setting.tp_size == 2:
        wrong = "two ranks overlap nothing so: the only chunk that comes is waited for first"
        yield Finding("runtime", "warning", fault(name, 1, wrong, "0"), line)
    elif setting.tp_size is not None and setting.tp_size % 2:
        text = fault(name, 1, "two chunks at a time need an even number of ranks", "0")
        yield Finding("runtime", "error", text, line)
