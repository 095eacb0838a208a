"""Times of cases from recorded profiler traces: a folder for each, named as the case.

Forward and backward are told apart by the host's thread that launched the work, for PyTorch runs
backwards on a thread of its own, and what the first thread launches after that belongs to neither.
A row is never cut: it belongs to one pass, wherever it runs.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import signal
import string
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault, refuse, tell_all
from sweeps.spec.files import shipped
from sweeps.spec.units import format_quantity
from sweeps.traces.columns import Trace, nanoseconds
from sweeps.traces.overlap import steps_of, sweep
from sweeps.traces.patterns import CLASSES, EXCLUDED, Patterns, load_patterns
from sweeps.traces.ranks import split_devices
from sweeps.tuner.rates import CHANGEABLE
from sweeps.tuner.settings import TPOverlapTunerConfig, case_companion, layer_values, to_yaml
from sweeps.tuner.times import CaseTimes, PassTimes
from sweeps.tuner.userbuffers import (
    COLUMN,
    FACTS,
    OPERATORS,
    PHASES,
    LayerOverlap,
    missing_operators,
    parse_case,
    products_of,
)

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


# Cases run by a command of the user's: configuration in, traces out.

YAML_NAME = "tp_comm_overlap_cfg.yaml"
FLAGS_NAME = "tp_comm_overlap_flags.sh"
LOG_NAME = "log.txt"


def write_case(folder: Path, case: LayerOverlap, config: TPOverlapTunerConfig) -> None:
    """Write a case's configuration and flags into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    layer_entry = {} if case.is_baseline else layer_values(case, sm_margin=config.sm_margin)
    values = {case.layer: layer_entry} if layer_entry else {}
    heading = [case.run_id] if not case.is_baseline else [f"{case.run_id}: nothing overlaps"]
    text = to_yaml(values, heading, config.version)
    (folder / YAML_NAME).write_text(text, encoding="utf-8")
    text = case_companion(case).text(YAML_NAME, config.machine.generation)
    (folder / FLAGS_NAME).write_text(text, encoding="utf-8")


WORKLOAD = "workload.py"


def _options(config: TPOverlapTunerConfig) -> Iterator[str]:
    """Yield the options of a tuning that aren't as they are by default."""
    size = "max_tp_size" if config.tp_size is None else "tp_size"
    always = ("model_name", "max_token_len", "hardware", "precision", size)
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in always or (field.name in _SETTINGS and value != field.default):
            yield f"--{field.name.replace('_', '-')} {shlex.quote(str(value))}"
    lacking = missing_operators(config.model)
    if set(config.operators) != {name for name in OPERATORS if name not in lacking}:
        yield f"--operators {' '.join(config.operators)}"
    yield from (["--sm-margin"] if config.sm_margin else [])
    if config.pipeline is not None:
        yield "--pipeline" if config.pipeline else "--no-pipeline"
    for name, value in config.rates.items():
        # As it is typed, not as it is read.
        typed = format_quantity(value, CHANGEABLE[name]).replace("µ", "u")
        yield f"--{name.replace('_', '-')} '{typed}'"


_SETTINGS = ("min_num_sm", "max_num_sm", "grid", "search", "objective", "tolerance", "te_version")


def write_workload(folder: Path, config: TPOverlapTunerConfig) -> str:
    """Write a program that records cases, with the model's sizes; return the command to run it."""
    # Sizes of whole layers: the program splits them over its ranks.
    whole = products_of(config.model.shapes, 1.0, config.attention)
    sizes: dict[str, object] = {
        "model": config.model_name,
        "tokens": config.max_token_len,
        "precision": config.precision,
        "hidden_size": config.hidden_size,
    }
    for operator in config.operators:
        side = "matmul_n" if operator in COLUMN else "matmul_k"
        sizes[operator] = int(whole[operator, "fprop"][side])
    program = folder / WORKLOAD
    command = (
        f"sweeps tune {' '.join(_options(config))} --command 'torchrun --nproc-per-node "
        f"{{tp_size}} {program} {{folder}} {{config_id}}'"
    )
    first = {"size": max(config.sizes), "operator": config.operators[0]}
    texts = {
        WORKLOAD: (shipped("tuner") / WORKLOAD).read_text(encoding="utf-8"),
        "model.json": json.dumps(sizes, indent=1) + "\n",
        "README.md": FACTS["recording"].format(program=program, command=command, **first, **sizes),
    }
    present = [name for name in texts if (folder / name).exists()]
    if present:
        wrong = f"{', '.join(present)} is there already"
        refuse("--write-workload", str(folder), wrong, "another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        wrong = f"can't be written: {error.strerror or error}"
        raise InputError(fault("--write-workload", str(folder), wrong, "another folder")) from None
    return command


class Runner:
    """Runs cases one after another, each once."""

    def __init__(
        self,
        command: str,
        folder: Path,
        about: Mapping[str, str],
        config: TPOverlapTunerConfig,
        *,
        timeout: float | None = None,
        resume: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.words = _words(command)
        self.folder, self.about, self.config = folder, about, config
        self.timeout, self.resume, self.tell = timeout, resume, tell
        self.known: dict[str, CaseTimes] = {}

    def __call__(self, case: LayerOverlap) -> CaseTimes:
        """Return a case's result: it is run if none before was the same."""
        name = case.run_id
        if name not in self.known:
            self.known[name] = self._run(case.same_as)
        return replace(self.known[name], case=case)

    def _run(self, case: LayerOverlap) -> CaseTimes:
        folder = self.folder / case.run_id
        write_case(folder, case, self.config)
        if self.resume and trace_files(folder):
            return read_case(folder, case, self.config)
        if self.tell is not None:
            self.tell(case.run_id)
        reason = self._execute(folder, case)
        if reason:
            return CaseTimes(case, "failed", reason)
        result = read_case(folder, case, self.config)
        if result.status == "missing":
            return CaseTimes(case, "failed", "the command left no trace in {folder}")
        return result

    def _execute(self, folder: Path, case: LayerOverlap) -> str:
        """Run the command; return what went wrong, or nothing."""
        with (folder / LOG_NAME).open("wb") as log:
            try:
                process = subprocess.Popen(
                    self.arguments(folder, case),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                return f"can't be started: {error.strerror or error}"
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                _end(process)
                return f"took longer than {self.timeout:g} s"
            except BaseException:
                _end(process)
                raise
        return f"exit code {code}: {_last_line(folder / LOG_NAME)}" if code else ""

    def arguments(self, folder: Path, case: LayerOverlap) -> list[str]:
        """Return the command's words for a case."""
        values = {
            **self.about,
            **{
                name: str(getattr(case, name))
                for name in ("tp_size", "operator", "phase", "method", "num_sm", "aggregate")
            },
            "config_id": case.run_id,
            "folder": str(folder),
            "yaml": str(folder / YAML_NAME),
        }
        flags: list[str] = []
        for flag in case_companion(case).flags:
            flags += [flag, values["yaml"]] if flag == "--tp-comm-overlap-cfg" else [flag]
        values["flags"] = " ".join(flags)
        words: list[str] = []
        for word in self.words:
            words += flags if word == "{flags}" else [word.format_map(values)]
        return words


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
        parsed = [part for word in words for part in string.Formatter().parse(word)]
    except ValueError as error:
        wrong = f"can't be read ({error})"
        raise InputError(fault("--command", command, wrong, "braces only around names")) from None
    names = [name for _, name, _, _ in parsed if name is not None]
    faults = [
        fault("--command", f"{{{name}}}", "no such place", f"known: {', '.join(FACTS['places'])}")
        for name in names
        if name not in FACTS["places"]
    ]
    if not words:
        faults.append(fault("--command", command, "is empty", "such as 'bash run.sh {folder}'"))
    elif not {"folder", "yaml", "flags", "config_id"} & set(names):
        wrong = "doesn't say which case it runs"
        faults.append(fault("--command", command, wrong, "{folder}, and {yaml} or {flags}"))
    tell_all(faults)
    return words


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command with everything that it started."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(5.0)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_bytes()[-2000:].decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1][-200:] if lines else "it said nothing"
