"""Times of cases from recorded profiler traces: a folder for each, named as the case.

Forward and backward are told apart by the host's thread that launched the work, for PyTorch runs
backwards on a thread of its own, and what the first thread launches after that belongs to neither.
A row is never cut: it belongs to one pass, wherever it runs.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, refuse
from sweeps.traces.columns import Trace, nanoseconds
from sweeps.traces.overlap import steps_of, sweep
from sweeps.traces.patterns import CLASSES, EXCLUDED, Patterns, load_patterns
from sweeps.traces.ranks import split_devices
from sweeps.tuner.settings import TPOverlapTunerConfig
from sweeps.tuner.times import CaseTimes, PassTimes
from sweeps.tuner.userbuffers import PHASES, LayerOverlap, parse_case, products_of

_SECOND = 1e9
_USERBUFFERS = re.compile(r"userbuffers")
_ENGINES = re.compile(r"userbuffers|PtoP|Peer")
_GEMM, _COMM = CLASSES.index("gemm"), CLASSES.index("communication")
NEITHER, FORWARD, BACKWARD = -1, 0, 1

Passes = tuple[PassTimes, PassTimes]


def trace_files(folder: Path) -> list[Path]:
    """Return the traces in a case's folder, one of each rank."""
    paths = (p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return sorted(p for p in paths if p.name.endswith((".json", ".json.gz")))


def read_folder(
    folder: Path, cases: Sequence[LayerOverlap], config: TPOverlapTunerConfig | None = None
) -> tuple[list[CaseTimes], list[str]]:
    """Analyse the traces of cases, and refuse those that can't be what their names say."""
    if not folder.is_dir():
        refuse("--from-traces", str(folder), "is not a folder", "a folder with case folders")
    inside = folder / "traces"
    root = inside if inside.is_dir() else folder
    names = sorted(p.name for p in root.iterdir() if p.is_dir())
    cases_of = {name: parse_case(name) for name in names}
    if not any(cases_of.values()):
        allowed = f"such as {cases[0].config_id}/*.pt.trace.json"
        wrong = "has no folder with the name of a case"
        refuse("--from-traces", str(folder), wrong, allowed)
    by_case: dict[LayerOverlap, str] = {}
    for name in names:
        for case in cases_of[name]:
            # A name with a phase is about that phase, and comes before one without.
            if case not in by_case or case.config_id == name:
                by_case[case] = name
    more = [case for case in by_case if case not in cases and case.legality.level == "legal"]
    patterns = load_patterns()
    read: dict[str, CaseTimes] = {}
    results = []
    for case in (*cases, *more):
        recorded = by_case.get(case) or by_case.get(_twin(case))
        if recorded is None:
            results.append(CaseTimes(case, "missing", f"there is not a folder {case.config_id}"))
            continue
        if recorded not in read:
            read[recorded] = read_case(root / recorded, case, config, patterns)
        results.append(replace(read[recorded], case=case))
    results = _plausible(results)
    odd = [name for name in names if not cases_of[name]]
    notes = [f"{name}: isn't the name of a case; left out" for name in odd]
    return results, notes


def _twin(case: LayerOverlap) -> LayerOverlap:
    """Return the case that a ring's reduce_scatter is the same as, aggregate or not."""
    if case.same_as != case:
        return case.same_as
    other = LayerOverlap(case.tp_size, case.operator, case.phase, case.method, 1, case.num_sm)
    return other if other.same_as == case else case


def _plausible(results: Sequence[CaseTimes]) -> list[CaseTimes]:
    """Refuse cases that take less than the products of their layer without overlap."""
    bases = {
        (result.case.tp_size, result.case.operator): result.passes
        for result in results
        if result.done and result.case.is_baseline
    }
    return [
        CaseTimes(times.case, "failed", wrong) if (wrong := _shorter(times, bases)) else times
        for times in results
    ]


def _shorter(result: CaseTimes, bases: Mapping[tuple[int, str], Passes]) -> str:
    """Say where a case takes less than its products by themselves; nothing where it doesn't."""
    base = bases.get((result.case.tp_size, result.case.operator))
    if not result.done or base is None:
        return ""
    for name, timed, other in zip(("forward", "backward"), result.passes, base, strict=True):
        if timed.e2e < other.gemm * (1.0 - _TIMING):
            return (
                f"its {name} takes {1e6 * timed.e2e:,.1f} µs, and the products alone take "
                f"{1e6 * other.gemm:,.1f} µs without overlap: another product's trace"
            )
    return ""


def read_case(
    folder: Path,
    case: LayerOverlap,
    config: TPOverlapTunerConfig | None = None,
    patterns: Patterns | None = None,
) -> CaseTimes:
    """Analyse the traces of one case, and refuse those that can't be what its name says."""
    from sweeps.traces.reader import read_trace

    files, patterns = trace_files(folder), patterns or load_patterns()
    if not files:
        return CaseTimes(case, "missing", f"no trace (*.json, *.json.gz) in {folder.name}")
    ranks: list[Passes] = []
    notes: list[str] = []
    for path in files:
        try:
            for trace in split_devices(read_trace(path), patterns):
                passes, text = _of_trace(trace, case, patterns)
                ranks.append(passes)
                notes += text
        except InputError as error:
            return CaseTimes(case, "failed", error.faults[0])
    if case.is_baseline and any("userbuffers ran" in note for note in notes):
        wrong = "userbuffers ran in it: this is no case without overlap"
        return CaseTimes(case, "failed", wrong)
    wrong = next((note for note in notes if note in _REFUSED), "")
    slowest = max(ranks, key=lambda pair: float(pair[0].e2e + pair[1].e2e))
    if config is not None and not wrong:
        wrong = _of_other_shape(files, case, config) or _of_other_product(slowest, case, config)
    if wrong:
        return CaseTimes(case, "failed", wrong)
    return CaseTimes(case, "done", "; ".join(dict.fromkeys(notes)), *slowest, "traces")


def _of_trace(trace: Trace, case: LayerOverlap, patterns: Patterns) -> tuple[Passes, list[str]]:
    codes = patterns.classify(trace)
    kept = codes != EXCLUDED
    if not kept.any():
        message = f"{trace.file}: has no GPU work"
        raise InputError(message)
    which, notes = _pass_of(trace, kept)
    starts, ends = trace.rows.bounds()
    steps = steps_of(trace).places
    numbers = np.unique(steps[kept & (steps >= 0)]).tolist()
    each: list[Passes] = []
    for chosen in [kept & (steps == number) for number in numbers] or [kept]:
        masks = [chosen & (which == part) for part in (FORWARD, BACKWARD)]
        forward, backward = (_measured(starts[o], ends[o], codes[o]) for o in masks)
        each.append((forward, backward))
    notes += _doubts(trace, case, codes)
    ordered = sorted(each, key=lambda passes: float(passes[0].e2e + passes[1].e2e))
    return ordered[(len(ordered) - 1) // 2], notes


def _pass_of(trace: Trace, kept: NDArray[np.bool_]) -> tuple[NDArray[np.int8], list[str]]:
    """Return which pass each row belongs to, by who launched it."""
    launches = trace.launches.of(trace.rows.correlation)
    which = np.full(len(launches), FORWARD, dtype=np.int8)
    known = kept & (launches >= 0)
    if not known.any():
        return which, ["the trace says no launches: all of it counts as forward"]
    launched = nanoseconds(trace.launches.start)[launches]
    threads = trace.launches.thread[launches]
    indices = np.flatnonzero(known)
    first = threads[indices[np.argmin(launched[indices])]]
    other = known & (threads != first)
    if not other.any():
        return which, ["one thread of the host launched everything: it counts as forward"]
    which[other] = BACKWARD
    steps = steps_of(trace).places
    for number in np.unique(steps[other]).tolist():
        mask = known & (steps == number)
        start = launched[mask & other].min()
        # Such as the optimizer: the first thread's, after the backward has begun.
        which[mask & ~other & (launched > start)] = NEITHER
    return _filled(which, known, trace), []


def _filled(which: NDArray[np.int8], known: NDArray[np.bool_], trace: Trace) -> NDArray[np.int8]:
    """Give rows without a launch the pass of the row that starts before them."""
    order = np.argsort(trace.rows.start, kind="stable")
    indices = np.where(known[order], np.arange(len(order)), 0)
    latest = np.maximum.accumulate(indices)
    filled = which.copy()
    filled[order] = which[order][latest]
    return filled


def _measured(
    starts: NDArray[np.int64], ends: NDArray[np.int64], codes: NDArray[np.int8]
) -> PassTimes:
    """Measure the rows of one pass."""
    if not len(starts):
        return PassTimes(0.0, 0.0, 0.0)
    cut = sweep(starts, ends, codes, len(CLASSES))
    gemm, comm = cut.active[_GEMM], cut.active[_COMM]
    return PassTimes(
        gemm=cut.length(gemm) / _SECOND,
        comm=cut.length(comm) / _SECOND,
        overlap=cut.length(gemm & comm) / _SECOND,
        other=(cut.span - cut.length(gemm | comm)) / _SECOND,
        gemm_events=int(np.count_nonzero(codes == _GEMM)),
        comm_events=int(np.count_nonzero(codes == _COMM)),
    )


def _doubts(trace: Trace, case: LayerOverlap, codes: NDArray[np.int8]) -> list[str]:
    """Return whether what ran is what the case's name says."""
    used = {trace.names[k] for k in np.unique(trace.rows.name[codes == _COMM]).tolist()}
    every = {trace.names[k] for k in np.unique(trace.rows.name[codes != EXCLUDED]).tolist()}
    if case.is_baseline and any(_USERBUFFERS.search(name) for name in every):
        return ["userbuffers ran"]
    if not used and case.tp_size > 1:
        return [_SILENT]
    if case.is_baseline:
        return []
    return [] if any(_ENGINES.search(name) for name in used) else [_UNREACHED]


# What a case's products are by its model: their work, and the sizes that a trace may tell.

_SILENT = "no communication was found"
_UNREACHED = "no userbuffers ran: the configuration didn't reach Transformer Engine"
_REFUSED = (_SILENT, _UNREACHED)
_TIMING = 0.05  # Clocks of a GPU that is warm and of one that isn't
_SLOWEST = 30.0  # Times that products may take of what the prediction says
_DIMS = re.compile(rb'"Input Dims"\s*:\s*(\[[^"{}]*\])')


def _of_other_product(passes: Passes, case: LayerOverlap, config: TPOverlapTunerConfig) -> str:
    """Say why measured products can't be the layer's; nothing where they can."""
    products = products_of(
        config.model.shapes, float(case.tp_size), config.attention, config.max_token_len
    )
    most = config.machine["burst_matmul_flops"]
    for name, times, phases in (
        ("forward", passes[0], PHASES[:1]),
        ("backward", passes[1], PHASES[1:]),
    ):
        sizes = [products[case.operator, phase].values() for phase in phases]
        work = sum(2.0 * float(np.prod([float(extent) for extent in size])) for size in sizes)
        rate = work / times.gemm if times.gemm > 0.0 else most
        shown = f"its {name}'s products would run at {rate / 1e12:,.4g} TFLOP/s"
        if rate > most * (1.0 + _TIMING):
            return f"{shown}, and the GPU reaches {most / 1e12:,.4g}: another product's trace"
        if rate * _SLOWEST < most and work / most > 1e-5:
            return f"{shown} of {most / 1e12:,.4g}: another product's trace, or another GPU's"
    return ""


def _of_other_shape(files: Sequence[Path], case: LayerOverlap, config: TPOverlapTunerConfig) -> str:
    """Say which sizes a trace's operations lack, where they were recorded (record_shapes)."""
    products: set[tuple[int, ...]] = set()
    for path in files:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        for text in _DIMS.findall(content):
            try:
                shapes = json.loads(text)
            except ValueError:
                continue
            products |= {
                tuple(shape) for shape in shapes if shape and all(isinstance(n, int) for n in shape)
            }
    if not products:
        return ""
    sizes = products_of(config.model.shapes, float(case.tp_size), config.attention)
    columns, depth = (int(sizes[case.operator, "fprop"][name]) for name in ("matmul_n", "matmul_k"))
    if not {(columns, depth), (depth, columns)} & products:
        wrong = f"no operation has a weight of {columns} x {depth}"
        return f"{wrong}, which {case.operator} has on {case.tp_size} ranks: another shape's trace"
    tokens = config.max_token_len
    rows = {
        int(np.prod(shape[:-1]))
        for shape in products
        if len(shape) > 1 and shape[-1] in (depth, columns)
    }
    if not {tokens, tokens // case.tp_size} & rows:
        return f"no operation has {tokens} tokens, which are tuned for: another shape's trace"
    return ""
