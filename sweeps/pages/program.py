"""The program of a page: formulas of a training step as one function of what a reader sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from overhead.collectives.algorithm import Requirement
from overhead.communication.operation import DIMENSIONS
from overhead.graph import Missing, Node
from overhead.labels import LABELS, OVERLAPS, SHARED
from overhead.memory.stage import PEAK_PARTS
from overhead.recording import RecordingError
from overhead.step.parts import PARTS as STEP_PARTS
from sweeps import display
from sweeps.display import noun
from sweeps.engine.validity import Faults, training_faults
from sweeps.errors import InputError, fault, needs
from sweeps.pages.merge import Merged, Point, merged, status
from sweeps.pages.picks import FORMULAS, KINDS, Picks, picks_of, same
from sweeps.pages.trace import Traceable, computed, traced
from sweeps.search.request import DEFAULT_THRESHOLD
from sweeps.search.space import FULL, REFUSED, UNSUPPORTED
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.sweep import Sweep

# What a reader sets: the group, its name there, and the values that are stepped through.
POWERS = tuple(2**power for power in range(17))
STEPS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "world_size": ("plan", "GPUs", POWERS),
    "dp": ("plan", "data parallel", POWERS),
    "tp": ("plan", "tensor parallel", POWERS[:8]),
    "pp": ("plan", "pipeline stages", (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)),
    "cp": ("plan", "context parallel", POWERS[:7]),
    "ep": ("plan", "expert parallel", POWERS[:9]),
    "etp": ("plan", "expert tensor parallel", POWERS[:8]),
    "ulysses_ranks": ("plan", "Ulysses ranks", POWERS[:7]),
    "virtual_pipeline_size": ("plan", "virtual stages", (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20)),
    "micro_batch_size": ("plan", "micro-batch", POWERS[:7]),
    "num_micro_batches": ("plan", "micro-batches", POWERS[:12]),
    "zero_stage": ("plan", "ZeRO stage", (0, 1, 2, 3)),
    "hsdp_shard_size": ("plan", "hybrid shard size", POWERS),
    "sequence_parallel": ("plan", "sequence parallelism", (0, 1)),
}
# The same of what varies without steps, with the ends of its slider.
RANGES: dict[str, tuple[str, str, tuple[float, float]]] = {
    "global_batch_size": ("work", "global batch size (sequences)", (1, 2**15)),
    "tokens_per_step": ("work", "tokens per step", (2**16, 2**28)),
    "sequence_length": ("work", "sequence length (tokens)", (512, 2**20)),
    "expert_load_imbalance": ("work", "expert load imbalance", (1, 8)),
    "tp_overlap": ("overlap", "TP overlap", (0, 1)),
    "cp_overlap": ("overlap", "CP overlap", (0, 1)),
    "ep_overlap": ("overlap", "EP overlap", (0, 1)),
    "dp_overlap": ("overlap", "DP overlap", (0, 1)),
    "intra_bandwidth": ("machine", "intra-node bandwidth", (1e10, 4e12)),
    "inter_bandwidth": ("machine", "inter-node bandwidth", (1e9, 1e12)),
    "intra_latency": ("machine", "intra-node latency", (1e-7, 1e-4)),
    "inter_latency": ("machine", "inter-node latency", (1e-7, 1e-4)),
    "memory_capacity": ("machine", "GPU memory", (1.6e10, 1.6e12)),
    "gpu_hour_price": ("money", "GPU-hour price", (0.1, 100)),
    "training_tokens": ("money", "training tokens", (1e9, 1e14)),
    "failure_rate": ("failures", "failures per node-day", (1e-5, 1)),
    "detection_time": ("failures", "failure detection time", (1, 1e4)),
    "job_restart_time": ("failures", "job restart time", (1, 1e4)),
    "storage_bandwidth": ("failures", "storage bandwidth per node", (1e7, 1e11)),
    "mean_time_to_repair": ("failures", "mean time to repair", (600, 6e6)),
    "spare_coverage": ("failures", "spare coverage", (0.5, 0.9999)),
}
LABELLED = {
    "schedule": ("plan", "schedule"),
    "recompute": ("plan", "recompute"),
    "attention_kernel": ("plan", "attention kernel"),
    "loss": ("plan", "loss"),
    "context_parallel": ("plan", "context parallelism by"),
    "dispatcher": ("plan", "MoE dispatcher"),
    "sharding": ("plan", "sharding"),
    "tp_mechanism": ("overlap", "TP overlap mechanism"),
    "cp_mechanism": ("overlap", "CP overlap mechanism"),
    "ep_mechanism": ("overlap", "EP overlap mechanism"),
    "dp_mechanism": ("overlap", "DP overlap mechanism"),
}
# What isn't known may be given: quantities that nothing here follows from otherwise.
OFFERED = ("gpu_hour_price", "training_tokens")
# Of which there is something only with others.
WITH = {
    "ep": "experts",
    "etp": "experts",
    "ep_overlap": "experts",
    "expert_load_imbalance": "experts",
    "dispatcher": "experts",
    "ep_mechanism": "experts",
    "sharding": "hsdp_shard_size",
}
PLAN = ("world_size", "dp", "num_micro_batches", "global_batch_size")
SENT = tuple(
    f"{name}_communication_{part}" for name in DIMENSIONS for part in ("time", "volume", "energy")
)
OUTPUTS = (
    *PLAN,
    "peak_memory",
    *display.BANDS["peak_memory"],
    "memory_state",
    "memory_headroom",
    *PEAK_PARTS,
    *SENT,
    *display.rows("communication"),
    *display.rows("step"),
    *STEP_PARTS,
    *display.rows("rates"),
    *display.rows("failures"),
    *display.rows("training", "cost"),
)
NEEDED = ("step_time", "peak_memory")
UNKNOWN = "unknown_settings"
LEFT_OUT = "left_out"

Flags = Callable[[str], str]
Labels = Mapping[str, tuple[str, ...]]
Along = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Program:
    """Formulas as one function of a reader's choices."""

    code: str  # A JavaScript function of the inputs, into the outputs
    inputs: Mapping[str, float]  # Numbers and labels' codes, with their values at the start
    outputs: tuple[str, ...]  # Quantities, the status, and what a search leaves out
    labels: Labels  # The values of labels that may be chosen
    lacking: tuple[Labels, ...]  # Of each machine those with which something needed isn't given
    # For what a reader sets what else it gives: a number, or the same (None)
    setting: Mapping[str, Along]
    only: Mapping[str, tuple[int, ...]]  # Steps that the machine's network is the same for
    faults: Faults
    picks: Picks


def program_of(
    sweep: Sweep, resolved: Resolved, flag_of: Flags, folders: Sequence[Path] = ()
) -> Program:
    """Return the program of a sweep of one plan, and of others of its models and machines.

    Raises
    ------
    InputError
        If something is missing without which a step has no time or no memory.
    """
    labels = {name: LABELS[name].values for name in LABELLED}
    picks = picks_of(sweep, resolved, labels, folders)
    some = {name: max(each[name] for each in picks.each["model"]) for name in picks.first}
    labels = {name: values for name, values in labels.items() if _has(some, name)}
    setting, only = _settings(sweep, resolved, picks, labels, folders)
    others = {other for along in setting.values() for other in along}
    aside = {name for domain in picks.domains if domain for name in domain["shares"]}
    moving = {name for kind in KINDS for name in picks.columns(kind)} - set(labels)
    live = dict.fromkeys((*setting, *sorted({*others, *aside, *moving} - set(setting)), UNKNOWN))
    start = {name: picks.first.get(name, math.nan) for name in live}
    codes = {name: picks.first[name] for name in (*labels, *[FORMULAS] * (FORMULAS in live))}
    faults = training_faults()
    machines = [picks.lacking(index) for index in range(len(picks.each["hardware"]))]
    unknown = sorted({name.partition("@")[0] for names in machines for name in names})
    builder, *further = _builders(picks, labels, live)
    framework = resolved.labels["framework"]
    sets = [
        _told(each_builder, flag_of, faults, unknown, framework)
        for each_builder in (builder, *further)
    ]
    needed = [builder.node(name) for name in NEEDED]
    nodes = {name: _of_any(builder, name, sets) for nodes_of in sets for name in nodes_of}
    known = {name: value for name, value in picks.first.items() if name not in (*live, *labels)}
    try:
        code = traced({**dict.fromkeys((*live, *labels)), **known}, list(nodes.values()), codes)
    except RecordingError:
        wrong = "has algorithms whose kernels can't be traced, so that no page can compute them"
        line = fault(flag_of("topology"), resolved.labels["topology"], wrong, "another network")
        raise InputError(line) from None

    @cache
    def lacking(names: frozenset[str]) -> Labels:
        missing = [builder.nothing(), *(builder.given[name] for name in sorted(names))]
        return {name: tuple(_lacking(builder, needed, name, codes, missing)) for name in labels}

    each = tuple(lacking(names - set(setting)) for names in machines)
    inputs = {**start, **codes}
    return Program(code, inputs, tuple(nodes), labels, each, setting, only, faults, picks)


def _has(numbers: Mapping[str, float], name: str) -> bool:
    """Whether a model of the page has what a control is of."""
    return name not in WITH or numbers.get(WITH[name], 0.0) > 0.0


def _settings(
    sweep: Sweep, resolved: Resolved, picks: Picks, labels: Labels, folders: Sequence[Path]
) -> tuple[dict[str, Along], dict[str, tuple[int, ...]]]:
    """Return what else each number gives that a reader sets, and the steps of those that few fit.

    What only models with experts have is seen from the first of them.
    """
    chosen = {name: resolved.labels[name] for name in labels} | dict.fromkeys(OVERLAPS, SHARED)
    plain = replace(sweep, labels={**sweep.labels, **chosen})
    aside = [name for domain in picks.domains if domain for name in domain["shares"]]
    setting: dict[str, Along] = {}
    only: dict[str, tuple[int, ...]] = {}
    for name in (*STEPS, *RANGES):
        first = next(
            (index for index, table in enumerate(picks.each["model"]) if _has(table, name)), 0
        )
        numbers = picks.each["model"][first]
        if not (name in numbers or name in OFFERED) or not _has(numbers, name):
            continue
        model = {"model": picks.names["model"][first]} if first else {}
        free = replace(plain, labels={**plain.labels, **model})
        base = resolve(free, folders)
        values: Sequence[float] = (STEPS.get(name) or RANGES[name])[2]
        along = _along(free, base, name, values, folders, aside)
        if along is None and name in STEPS:
            values = [value for value in STEPS[name][2] if _alike(free, base, name, value, folders)]
            along = _along(free, base, name, values, folders, aside)
            only |= {name: tuple(map(int, values))} if along is not None else {}
        setting |= {name: along} if along is not None else {}
    return setting, only


def _builders(picks: Picks, labels: Labels, live: Mapping[str, None]) -> list[Merged]:
    """Return the builders of all values of some labels, one of each set of formulas."""
    names = {*picks.first, *live} - set(LABELLED)
    given = {name: Node(name, ("given", name), (), None, frozenset()) for name in names}
    first = merged(picks.labels[0], labels, given, Traceable())
    for name, (label, values) in picks.moving.items():
        tabled: dict[Point, Node] = {(value,): given[f"{name}@{value}"] for value in values}
        given[name] = first.choice(name, (label,), tabled)
    further = [merged(told, labels, given, Traceable(), first.graph) for told in picks.labels[1:]]
    first.graph.labels[FORMULAS] = tuple(map(str, range(len(picks.labels))))
    first.graph.codes[FORMULAS] = given[FORMULAS]
    return [first, *further]


def _told(
    builder: Merged, flag_of: Flags, faults: Faults, unknown: Sequence[str], framework: str
) -> dict[str, Node]:
    """Return the nodes of all that a page says of a plan, by one set of formulas."""
    nodes = {name: builder.defined(node) for name, node in _nodes(builder, flag_of).items()}
    nodes["status"] = status(builder, list(nodes.values()), faults.bits, unknown)
    nodes[LEFT_OUT] = _left_out(builder, framework)
    return nodes


def _of_any(builder: Merged, name: str, sets: Sequence[Mapping[str, Node]]) -> Node:
    """Return the node of what is by the formulas that a model has."""
    each: dict[Point, Node] = {
        (str(index),): nodes_of.get(name, builder.nothing()) for index, nodes_of in enumerate(sets)
    }
    return builder.choice(name, (FORMULAS,), each)


def _nodes(builder: Merged, flag_of: Flags) -> dict[str, Node]:
    """Return the nodes of what a page shows, as far as what is given suffices."""
    nodes: dict[str, Node] = {}
    for name in OUTPUTS:
        try:
            nodes[name] = builder.node(name)
        except Missing as missing:
            if name in NEEDED:
                lines = [needs("a page", noun(root), flag_of(root)) for root in missing.roots]
                raise InputError(lines) from None
    return nodes


def _left_out(builder: Merged, framework: str) -> Node:
    """Return the node of whether a search leaves a plan out that could run."""
    name, *options = framework.split("+")
    rules = [
        rule
        for of in (name, *(f"{name}+{option}" for option in options))
        for rule in REFUSED.get(of, ())
        if set(rule.inputs) <= {*STEPS, "experts"}
    ]
    full = Requirement(
        FULL,
        "fuller than a search's plans are",
        lambda peak_memory, memory_capacity: peak_memory <= DEFAULT_THRESHOLD * memory_capacity,
    )
    return builder.faults((full, *rules), {FULL: 1, UNSUPPORTED: 2})


def _lacking(
    builder: Merged,
    needed: Sequence[Node],
    label: str,
    codes: Mapping[str, float],
    missing: Sequence[Node],
) -> Iterator[str]:
    """Yield the values of a label with which something needed isn't given, or not known."""
    lacks = [builder.taken(node, given_node) for node in needed for given_node in missing]
    nodes = [node for node in lacks if node is not None]
    for code, value in enumerate(builder.graph.labels[label]):
        if any(np.any(array != 0) for array in computed(nodes, {**codes, label: float(code)})):
            yield value


def _along(
    sweep: Sweep,
    base: Resolved,
    name: str,
    values: Sequence[float],
    folders: Sequence[Path],
    aside: Sequence[str] = (),
) -> dict[str, float | None] | None:
    """Return what else a number gives, but for some; None where it decides what holds, too.

    It is seen from two of its values, and from the last one.
    """
    tried = list(dict.fromkeys([*values[:2], *values[-1:]]))
    each = [_alike(sweep, base, name, value, folders) for value in tried]
    alike = [resolved for resolved in each if resolved is not None]
    if len(tried) < 2 or len(alike) < len(each):
        return None
    numbers: dict[str, float | None] = {}
    for other in sorted(alike[0].constants.keys() - {name, *aside}):
        now, *ends = [resolved.constants.get(other, math.nan) for resolved in (base, *alike)]
        if all(same(value, now) for value in ends):
            continue
        if ends == tried:
            numbers[other] = None
        elif all(same(value, ends[0]) for value in ends):
            numbers[other] = ends[0]
        else:
            return None
    return numbers


def _alike(
    sweep: Sweep, base: Resolved, name: str, value: float, folders: Sequence[Path]
) -> Resolved | None:
    """Return what is given with a value of a number; None where other labels hold with it."""
    changed = replace(sweep, constants={**sweep.constants, name: float(value)})
    try:
        resolved = resolve(changed, folders)
    except InputError:
        return None
    same = (resolved.labels, resolved.implied, resolved.fields) == (base.labels, base.implied, {})
    return resolved if same else None
