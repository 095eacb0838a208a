"""The sweep behind ``sweeps analysis``: what it asks for, and what it can't do without."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from overhead.analysis import Faulty, faults, is_needed
from overhead.collectives.algorithm import ALGORITHMS
from overhead.communication.operation import DIMENSIONS
from overhead.completion import needed_shapes
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.labels import (
    CHOICES,
    LABELS,
)
from overhead.memory.quantities import PARTS as MEMORY_PARTS
from overhead.memory.stage import PEAK_PARTS
from overhead.plan import NO_ALGORITHM, NOT_OF_GROUPS
from overhead.step.parts import PARTS as STEP_PARTS
from overhead.transformer import SHAPES
from sweeps import display
from sweeps.cli.typed import flag_of
from sweeps.display import noun
from sweeps.errors import InputError, fault, needs, refuse, tell_all
from sweeps.job import Job, evaluation_of, prepare
from sweeps.spec.catalog import load_hardware, usual_operation
from sweeps.spec.sweep import Sweep, read_sweep

# Why one training configuration can't be, a line a reason.

DEGREES = ("dp", "tp", "cp", "pp")
# Conditions whose fault another one has said already: of the attention heads and of K and V's.
SAID_BY = {
    "kv_heads_not_divisible": "heads_not_divisible",
    "kv_heads_not_divisible_by_cp": "heads_not_divisible_by_cp",
}


def plan_faults(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line for each condition that one plan doesn't fulfil."""
    every = list(faults(evaluation))
    known = {faulty.requirement.fault for faulty in every}
    for fallen in every:
        values = {name: f"{value.reshape(-1)[0]:g}" for name, value in fallen.values.items()}
        if SAID_BY.get(fallen.requirement.fault) in known:
            continue
        match fallen.requirement.fault:
            case "heads_not_divisible":
                wrong = f"does not divide the {values['heads']} attention heads"
                allowed = _divisors(float(values["heads"]))
                yield fault(flag_of("tp"), values["tp"], wrong, allowed)
            case "product_of_degrees":
                yield _product(values)
            case "batch_not_divisible":
                yield _batch(values)
            case NO_ALGORITHM.fault:
                yield _no_algorithm(evaluation.labels)
            case NOT_OF_GROUPS.fault:
                name, wrong = evaluation.labels["algorithm"], "isn't defined for a group's ranks"
                yield fault(flag_of("algorithm"), name, wrong, NOT_OF_GROUPS.text)
            case _:
                yield _fault_line(fallen, values)


def _fault_line(faulty: Faulty, values: Mapping[str, str]) -> str:
    # A degree of 1 isn't what is wrong.
    idle = {
        name for name, value in values.items() if name in ("ep", "etp", *DEGREES) and value == "1"
    }
    shown = {name: value for name, value in values.items() if name not in idle} or values
    wrong = faulty.requirement.fault.replace("_", " ")
    flags = [flag_of(name) for name in shown]
    return fault(flags, tuple(shown.values()), wrong, faulty.requirement.text)


def _no_algorithm(labels: Mapping[str, str]) -> str:
    network = labels["topology"]
    wrong = f"a {network} network has no such algorithm"
    allowed = f"one of {', '.join((*CHOICES, *ALGORITHMS.names(network)))}"
    return fault(flag_of("algorithm"), labels["algorithm"], wrong, allowed)


def _product(values: Mapping[str, str]) -> str:
    product = 1.0
    for name in DEGREES:
        product *= float(values[name])
    gpus = float(values["world_size"])
    uneven = [name for name in DEGREES if name != "dp" and gpus % float(values[name])]
    if uneven:
        wrong = f"does not divide {gpus:g} GPUs"
        return fault(flag_of(uneven[0]), values[uneven[0]], wrong, _divisors(gpus))
    wrong = f"multiply to {product:g}, not to {gpus:g} GPUs"
    flags = [flag_of(name) for name in DEGREES]
    return fault(flags, tuple(values[name] for name in DEGREES), wrong, _divisors(gpus))


def _divisors(gpus: float) -> str:
    """Return which degrees a number of GPUs allows."""
    each = [f"{divisor}" for divisor in range(1, int(gpus) + 1) if gpus % divisor == 0.0]
    return f"use {', '.join(each[:4])}" + ", .." * (len(each) > 4)


def _batch(values: Mapping[str, str]) -> str:
    at_once = float(values["dp"]) * float(values["micro_batch_size"])
    batch = values["global_batch_size"]
    if not float(batch).is_integer():
        wrong = f"makes {batch} sequences of a step, and only whole ones can be"
        return fault(
            flag_of("tokens_per_step"), "..", wrong, f"a multiple of {flag_of('sequence_length')}"
        )
    few = "is fewer than" if float(batch) < at_once else "isn't a multiple of"
    wrong = f"{few} the {at_once:g} sequences that dp*micro_batch_size compute at once"
    return fault(flag_of("global_batch_size"), batch, wrong, f"a multiple of {at_once:g}")


STATES = (*tuple(MEMORY_PARTS)[:3], "first_stage_model_state_memory")
PLAN = ("world_size", "dp", "num_micro_batches", "global_batch_size")
TIMES = {f"{name}_communication_time": name for name in DIMENSIONS}
# What files and records say of each dimension's communication beside its time.
SENT = tuple(f"{name}_communication_{part}" for name in DIMENSIONS for part in ("volume", "energy"))
BOUND = "communication_upper_bound"
WHOLE_STEP = display.rows("communication")
COSTS = display.rows("cost")
FAILURES = display.rows("failures")
# Beside what has a default, what a run's failures follow from.
FAILING = ("staging_bandwidth", "checkpoint_interval", "spare_nodes")
ASKED = tuple(
    dict.fromkeys(
        (
            *(*PLAN, "peak_memory", "memory_headroom", *PEAK_PARTS, *STATES),
            *(*TIMES, *SENT, *WHOLE_STEP),
            *(*display.rows("step"), *STEP_PARTS),
            *display.rows("memory", "rates", "training"),
        )
    )
)
# What a reader looks for and may not find, in words.
LACKING = {
    "peak_memory": "activations, and total memory",
    "step_time": "step time",
    BOUND: "communication of a whole step",
    "cost": "cost of the training",
}


def analysis_job(
    spec: Mapping[str, object],
    *,
    command: Sequence[str] = ("sweeps", "analysis"),
    folders: Sequence[Path] = (),
    options: Mapping[str, object] | None = None,
) -> Job:
    """Make a sweep of training steps ready to run."""
    sweep = read_sweep(spec, bare_is_si=True, folders=folders)
    _check_model(sweep.given)
    job = prepare(
        replace(sweep, quantities=(*ASKED, *_of_a_run(sweep, folders)), optional=True),
        text=" ",
        command=command,
        folders=folders,
        options=options,
    )
    _check_sides(job)
    _check_needed(job)
    wanted = [name for name in job.program.wanted if not _of_one_layer(job, name)]
    sweep = replace(job.sweep, quantities=tuple(wanted))
    return replace(job, sweep=sweep, stated=copy.deepcopy({**spec, "quantities": wanted}))


def _of_a_run(sweep: Sweep, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return what to ask for of a whole run: costs and failures, where anything is said of them."""
    failing = {"training_tokens", *FAILING, *usual_operation()} & sweep.given
    return (*(FAILURES if failing else ()), *_costs(sweep, folders))


def _costs(sweep: Sweep, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the costs to ask for: none where no price is known."""
    if {"gpu_hour_price", "capital_cost"} & sweep.given:
        return COSTS
    axes = [axis.columns["hardware"] for axis in sweep.axes if "hardware" in axis.columns]
    names = axes[0] if axes else [sweep.labels.get("hardware", LABELS["hardware"].default)]
    priced = ("gpu_hour_price" in load_hardware(str(name), folders).figures for name in names)
    return COSTS if any(priced) else ()


def _check_sides(job: Job) -> None:
    """Refuse sides of a mesh or torus that aren't all there, or no plan's GPUs."""
    given = {"mesh_nx", "mesh_ny"} & job.sweep.given
    if not given:
        return
    for name in sorted({"mesh_nx", "mesh_ny"} - given):
        other = flag_of(given.pop())
        raise InputError(needs(other, "the other side", f"{flag_of(name)}, too"))
    values = evaluation_of(job, whole=True)
    each = [values[name] for name in ("mesh_nx", "mesh_ny", "mesh_nz")]
    sides, world = each[0] * each[1] * each[2], values["world_size"]
    if not np.any(sides == world):
        texts = tuple(f"{side.flat[0]:g}" for side in each)
        wrong = f"multiply to {sides.flat[0]:g}, not to {world.flat[0]:g} GPUs"
        flags = [flag_of(name) for name in ("mesh_nx", "mesh_ny", "mesh_nz")]
        refuse(flags, texts, wrong, "sides of all GPUs")


def _check_model(given: Collection[str]) -> None:
    """Refuse a number of parameters beside the shapes from which it follows."""
    if "parameters" in given and all(name in given for name in needed_shapes(given)):
        wrong = "can't be given with shapes, from which it follows"
        refuse(flag_of("parameters"), "..", wrong, "leave it out, or some of the shapes")


def _of_one_layer(job: Job, name: str) -> bool:
    """Return whether a total of a step would be one of a step of one layer a stage."""
    split = (job.program.grid.columns.get(degree) for degree in ("tp", "cp", "ep"))
    deep = job.program.implied.get("depth") != "unknown"
    return name in WHOLE_STEP and not deep and any(np.any(n > 1.0) for n in split if n is not None)


def roots(job: Job, name: str) -> tuple[str, ...]:
    """Return what would have to be given for a quantity, in order of need; empty if nothing.

    The communication of a step needs nothing for what the plan doesn't split.
    """
    if name == BOUND:
        return ("layers",) if _of_one_layer(job, name) else ()
    try:
        evaluation_of(job)[name]
    except MissingQuantities as error:
        return error.missing
    return ()


def _check_needed(job: Job) -> None:
    """Refuse one plan that can't be, or whose dimensions or model can't be told."""
    why: dict[str, list[str]] = {}
    if {"peak_memory", "weight_memory"} <= set(job.program.missing):
        # A model's own shapes give the parameters; then it's activations that lack something.
        shaped = all(
            name in job.program.grid.columns for name in needed_shapes(job.program.grid.columns)
        )
        for name in roots(job, "peak_memory" if shaped else "weight_memory"):
            why.setdefault(name, []).append("memory")
    with np.errstate(all="ignore"):
        every = evaluation_of(job, whole=True)
        for total, dimension in TIMES.items():
            if total in job.program.missing and is_needed(every, dimension):
                for name in roots(job, total):
                    why.setdefault(name, []).append(_split(job, dimension))
        lines = list(plan_faults(evaluation_of(job))) if job.program.grid.cells == 1 else []
    lines += [_lacking(name, list(dict.fromkeys(needing))) for name, needing in why.items()]
    tell_all(lines)


def _split(job: Job, dimension: str) -> str:
    """Return a dimension in words, with its degree."""
    degree = "tp" if dimension == "vocabulary" else dimension
    values = job.program.grid.columns.get(degree, np.empty(0))
    shown = f" ({degree} {values.flat[0]:g})" if values.size == 1 else ""
    return f"{DIMENSIONS[degree]}{shown}"


def _lacking(name: str, needing: Sequence[str]) -> str:
    known = name in (*SHAPES, "parameters")
    allowed = flag_of(name) + ", or --model with a model that has it" * known
    return needs(needing, noun(name), allowed)
