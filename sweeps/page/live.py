"""The live page: formulas of a training step as a program, and what its reader can set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from overhead.collectives.algorithm import Requirement
from overhead.communication.operation import DIMENSIONS
from overhead.graph import Missing, Node
from overhead.labels import CHUNKED, LABELS, OVERLAPS, SHARED
from overhead.memory.stage import PEAK_PARTS
from overhead.quantity import VOCABULARY
from overhead.recording import RecordingError
from overhead.step.parts import PARTS as STEP_PARTS
from sweeps import display
from sweeps.display import noun
from sweeps.engine.validity import NOT_KNOWN, NOTES, Faults, training_faults
from sweeps.errors import InputError, fault, needs
from sweeps.job import Job, prepare
from sweeps.origin import words_of
from sweeps.page.trace import Merged, Point, Traceable, computed, merged, status, traced
from sweeps.page.write import FILES, Page
from sweeps.plots.schema import colour_of
from sweeps.plots.style import as_read
from sweeps.search.request import DEFAULT_THRESHOLD, habits_of
from sweeps.search.space import FULL, REFUSED, UNSUPPORTED
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import load_hardware
from sweeps.spec.known import SETTINGS
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.resolve_training import WORLD, per_node
from sweeps.spec.sweep import Sweep, read_sweep

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
    f"{name}_communication_{part}"
    for name in DIMENSIONS
    for part in ("time", "count", "volume", "energy")
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
UNITS = {"gpu_hour_price": "USD/h", "failure_rate": "1"}  # As they are said
NEEDED = ("step_time", "peak_memory")
# Shares that are all of a run's time.
RUN = ("goodput", *display.LOST)
UNKNOWN = "unknown_settings"
LEFT_OUT = "left_out"
# What a share that hides is of.
SHARES = {f"{name[:2]}_overlap": name for name in OVERLAPS}

Flags = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Program:
    """Formulas as one function of a reader's choices."""

    code: str  # A JavaScript function of the inputs, into the outputs
    inputs: Mapping[str, float]  # Numbers and labels' codes, with their values at the start
    outputs: tuple[str, ...]  # Quantities, the status, and what a search leaves out
    labels: Mapping[str, tuple[str, ...]]  # The values of labels that may be chosen
    lacking: Mapping[str, tuple[str, ...]]  # Those with which something needed isn't given
    # For what a reader sets what else it gives: a number, or the same (None)
    setting: Mapping[str, Mapping[str, float | None]]
    only: Mapping[str, tuple[int, ...]]  # Steps that the machine's network is the same for
    faults: Faults
    domain: Mapping[str, Any] | None  # Hosts that share a network, of which a job takes a part


def program_of(
    sweep: Sweep, resolved: Resolved, flag_of: Flags, folders: Sequence[Path] = ()
) -> Program:
    """Return the program of a sweep of one plan.

    Raises
    ------
    InputError
        If something is missing without which a step has no time or no memory.
    """
    labels = {name: LABELS[name].values for name in LABELLED if _has(resolved, WITH.get(name))}
    chosen = {name: resolved.labels[name] for name in labels} | dict.fromkeys(OVERLAPS, SHARED)
    free = replace(sweep, labels={**sweep.labels, **chosen})
    base = resolve(free, folders)
    domain = _domain(sweep, resolved, folders)
    aside = tuple(domain["shares"]) if domain else ()
    setting: dict[str, Mapping[str, float | None]] = {}
    only: dict[str, tuple[int, ...]] = {}
    for name in (*STEPS, *RANGES):
        if (name in resolved.constants or name in OFFERED) and _has(resolved, WITH.get(name)):
            values: Sequence[float] = (STEPS.get(name) or RANGES[name])[2]
            along = _along(free, base, name, values, folders, aside)
            if along is None and name in STEPS:
                values = [one for one in STEPS[name][2] if _alike(free, base, name, one, folders)]
                along = _along(free, base, name, values, folders, aside)
                only |= {name: tuple(map(int, values))} if along is not None else {}
            setting |= {name: along} if along is not None else {}
    others = {*aside, *(other for along in setting.values() for other in along)}
    live = dict.fromkeys((*setting, *sorted(others - set(setting)), UNKNOWN))
    start = {name: resolved.constants.get(name, math.nan) for name in live}
    codes = {name: float(label.index(resolved.labels[name])) for name, label in labels.items()}
    constants, builder = _builder(sweep, resolved, labels, start, folders)
    nodes = _nodes(builder, flag_of)
    needed = [nodes[name] for name in NEEDED]
    faults = training_faults()
    unknown = [name for name in resolved.constants if math.isnan(resolved.constants[name])]
    nodes = {name: builder.defined(node) for name, node in nodes.items()}
    nodes["status"] = status(builder, list(nodes.values()), faults.bits, unknown)
    nodes[LEFT_OUT] = _left_out(builder, resolved.labels["framework"])
    known = {name: value for name, value in constants.items() if name not in live}
    try:
        code = traced({**dict.fromkeys((*live, *labels)), **known}, list(nodes.values()), labels)
    except RecordingError:
        wrong = "has algorithms whose kernels can't be traced, so that no page can compute them"
        line = fault(flag_of("topology"), resolved.labels["topology"], wrong, "another network")
        raise InputError(line) from None
    missing = [builder.nothing(), *(builder.given[name] for name in unknown if name not in live)]
    lacking = {name: tuple(_lacking(builder, needed, name, codes, missing)) for name in labels}
    inputs = {**start, **codes}
    return Program(code, inputs, tuple(nodes), labels, lacking, setting, only, faults, domain)


def _builder(
    sweep: Sweep,
    resolved: Resolved,
    labels: Mapping[str, tuple[str, ...]],
    start: Mapping[str, float],
    folders: Sequence[Path],
) -> tuple[dict[str, float], Merged]:
    """Return constants, and the builder of all values of some labels."""
    axes = tuple(Axis(name, {name: np.array(values)}) for name, values in labels.items())
    plain = {name: value for name, value in sweep.labels.items() if name not in labels}
    several = resolve(replace(sweep, labels=plain, axes=axes), folders)
    constants = {**several.constants, **resolved.constants, **start}
    given = {name: Node(name, ("given", name), (), None, frozenset()) for name in constants}
    builder = merged({**resolved.labels, **resolved.implied}, labels, given, Traceable())
    for axis in several.axes:
        for name in axis.columns.keys() - {axis.name}:
            each = zip(axis.columns[axis.name], axis.columns[name], strict=True)
            tabled: dict[Point, Node] = {
                (str(label),): builder.number(float(value)) for label, value in each
            }
            given[name] = builder.choice(name, (axis.name,), tabled)
    return constants, builder


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
    lacks = [builder.taken(node, one) for node in needed for one in missing]
    nodes = [node for node in lacks if node is not None]
    for code, value in enumerate(builder.graph.labels[label]):
        if any(np.any(one != 0) for one in computed(nodes, {**codes, label: float(code)})):
            yield value


def _has(resolved: Resolved, name: str | None) -> bool:
    return name is None or resolved.constants.get(name, 0.0) > 0.0


def _domain(sweep: Sweep, resolved: Resolved, folders: Sequence[Path]) -> dict[str, Any] | None:
    """Return the domain of a machine's hosts, where a job's size says how much of it is taken."""
    machine = load_hardware(resolved.labels["hardware"], folders)
    if "gpus_per_host" not in machine.figures or "gpus_per_node" in sweep.given:
        return None
    most = per_node(machine, "gpus")
    shares = {"gpus_per_node": 1.0, "nics_per_node": per_node(machine, "nics") / most}
    degrees = ("world_size",) if "world_size" in sweep.given else WORLD
    return {
        "most": most,
        "shares": {
            name: share
            for name, share in shares.items()
            if name in resolved.constants and name not in sweep.given
        },
        "degrees": {name: resolved.constants.get(name, 1.0) for name in degrees},
    }


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
    alike = [one for one in each if one is not None]
    if len(tried) < 2 or len(alike) < len(each):
        return None
    found: dict[str, float | None] = {}
    for other in sorted(alike[0].constants.keys() - {name, *aside}):
        now, *ends = [own.constants.get(other, math.nan) for own in (base, *alike)]
        if all(_same(value, now) for value in ends):
            continue
        if ends == tried:
            found[other] = None
        elif all(_same(value, ends[0]) for value in ends):
            found[other] = ends[0]
        else:
            return None
    return found


def _alike(
    sweep: Sweep, base: Resolved, name: str, value: float, folders: Sequence[Path]
) -> Resolved | None:
    """Return what is given with a value of a number; None where other labels hold with it."""
    changed = replace(sweep, constants={**sweep.constants, name: float(value)})
    try:
        found = resolve(changed, folders)
    except InputError:
        return None
    same = (found.labels, found.implied, found.fields) == (base.labels, base.implied, {})
    return found if same else None


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


# The page.


def page_of(
    spec: Mapping[str, Any],
    options: Mapping[str, str | None],
    flag_of: Flags,
    listed: Callable[[Job], Iterable[str]],
    *,
    command: Sequence[str] = ("sweeps", "page"),
    folders: Sequence[Path] = (),
) -> Page:
    """Return the page of one plan's formulas.

    Parameters
    ----------
    spec : mapping
        A plan, as a spec file would state it: one value of each.
    options : mapping of str to str or None
        What the user gave, by quantity or label, as it was written.
    flag_of : callable
        Gives the option by which a quantity or label is given.
    listed : callable
        Gives the lines that tell what the user didn't give.
    command : sequence of str
        The command line.
    folders : sequence of Path
        Folders of own machines.

    Raises
    ------
    InputError
        If several values of something are given, or what a step needs isn't.
    """
    given = {name: text for name, text in options.items() if text is not None}
    sweep = read_sweep(spec, bare_is_si=True, folders=folders)
    if sweep.axes:
        names = [name for axis in sweep.axes for name in axis.columns]
        raise InputError([fault(flag_of(n), given.get(n, ".."), "is several", ONE) for n in names])
    sweep = replace(sweep, quantities=OUTPUTS, optional=True)
    job = prepare(sweep, text=" ", command=command, folders=folders)
    resolved, labels = job.resolved, job.resolved.labels
    program = program_of(sweep, resolved, flag_of, folders)
    model = labels.get("model", "the model")
    data = {
        "inputs": [[name, value] for name, value in program.inputs.items()],
        "controls": list(_controls(program, resolved, flag_of)),
        "labels": list(_choices(program, resolved, given, flag_of)),
        "outputs": [_output(program, name) for name in program.outputs],
        "faults": [
            {"name": name, "text": text, "bit": program.faults.bits[name], "note": name in NOTES}
            for name, text in program.faults.texts.items()
        ],
        "parts": {
            "step": [[name, display.words(name), colour_of(name)] for name in STEP_PARTS],
            "run": [[name, display.row(name).title or "goodput"] for name in RUN],
            "memory": [
                [n, display.words(n.removeprefix("peak_")), colour_of(n)] for n in PEAK_PARTS
            ],
            "dimensions": [
                [name, words, colour_of(f"{name}_communication_time")]
                for name, words in DIMENSIONS.items()
            ],
        },
        "search": _search(program, resolved),
        "given": [[name, flag_of(name), text] for name, text in given.items()],
        "unknown": UNKNOWN,
        "lacks": NOT_KNOWN,
        "domain": program.domain,
        "assumed": list(listed(job)),
    }
    return Page(
        kind="live",
        title=f"Step time and memory of {model} on {labels['hardware']}",
        fixed=f"{labels['framework']}, {labels['precision']}; set anything: the numbers follow",
        summary=f"A calculator of a step of {model}: its formulas run in the browser.",
        data=data,
        code=script_of(program),
    )


ONE = "one value: on the page each can be set"


def _search(program: Program, resolved: Resolved) -> dict[str, Any]:
    """Return among which plans a page looks for the best: what its machine's framework can do."""
    labels = resolved.labels
    habits = habits_of(labels["framework"], labels["attention_kernel"])
    layers, heads = (resolved.constants.get(name, math.inf) for name in ("layers", "heads"))

    def known(label: str, values: Iterable[str]) -> list[str]:
        # Without a number of layers a block is none.
        named = dict.fromkeys("none" if value == "block" else value for value in values)
        return [one for one in named if one not in program.lacking[label]]

    return {
        "threshold": DEFAULT_THRESHOLD,
        # With more chunks there are too few layers, and with more ranks too few heads.
        "chunks": layers + 2.0,
        "tp": heads,
        "zero": habits.zero_stages,
        "recompute": known("recompute", habits.recompute),
        "schedule": known("schedule", habits.schedules),
        "chunked": CHUNKED,
    }


def script_of(program: Program) -> str:
    """Return the script that declares a program: its formulas, and the loops that they take."""
    loops = (FILES / "math.js").read_text(encoding="utf-8")
    return f"const program = (() => {{\n{loops}\n{program.code}\n}})();\n"


def _controls(program: Program, resolved: Resolved, flag_of: Flags) -> Iterator[dict[str, Any]]:
    for name, along in program.setting.items():
        group, title, values = STEPS.get(name) or RANGES[name]
        values = program.only.get(name, values)
        quantity = VOCABULARY[name]
        yield {
            "name": name,
            "group": group,
            "title": title,
            "meaning": quantity.meaning,
            "units": as_read(name, UNITS.get(name, quantity.units)),
            "flag": flag_of(name),
            "whole": quantity.integer,
            "values": values,
            "steps": name in STEPS,
            "log": name not in STEPS and values[0] > 0,
            "only": name in program.only,
            "along": along,
            "mechanism": SHARES.get(name, ""),
            "origin": words_of(resolved.origins.get(name, ())),
        }


def _choices(
    program: Program, resolved: Resolved, given: Mapping[str, str], flag_of: Flags
) -> Iterator[dict[str, Any]]:
    for name, values in program.labels.items():
        group, title = LABELLED[name]
        yield {
            "name": name,
            "group": group,
            "title": title,
            "meaning": LABELS[name].meaning,
            "flag": flag_of(name),
            "values": values,
            "lacking": program.lacking[name],
            "settles": name in SETTINGS and name not in given,
            "origin": words_of(resolved.origins.get(name, ())),
        }


def _output(program: Program, name: str) -> dict[str, Any]:
    if name in ("status", LEFT_OUT):
        return {"name": name, "title": name, "units": "1", "percent": False, "mask": 0}
    row, quantity = display.row(name), VOCABULARY[name]
    # Words that go on from the row before don't stand alone.
    title = row.title if row.words.startswith(" ") or not row.words else row.words
    units = "FLOP s-1" if quantity.units == "1 s-1" else as_read(name, quantity.units)
    return {
        "name": name,
        "title": title or quantity.meaning,
        "units": units,
        "percent": display.percent(name),
        "mask": program.faults.masking(name),
    }
