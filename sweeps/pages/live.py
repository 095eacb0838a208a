"""The live page: a plan whose model, machine and settings its reader picks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from overhead.communication.operation import DIMENSIONS
from overhead.labels import CHUNKED, LABELS, OVERLAPS
from overhead.memory.stage import PEAK_PARTS
from overhead.quantity import VOCABULARY
from overhead.step.parts import PARTS as STEP_PARTS
from sweeps import display
from sweeps.bands import FIT, MAY_NOT_FIT
from sweeps.engine.validity import NOT_KNOWN, NOTES
from sweeps.errors import InputError, fault
from sweeps.job import Job, prepare
from sweeps.origin import words_of
from sweeps.pages.picks import KINDS
from sweeps.pages.program import (
    LABELLED,
    LEFT_OUT,
    OUTPUTS,
    RANGES,
    STEPS,
    UNKNOWN,
    WITH,
    Flags,
    Program,
    program_of,
)
from sweeps.pages.write import FILES, Page
from sweeps.plots.schema import colour_of
from sweeps.plots.style import as_read
from sweeps.search.request import DEFAULT_THRESHOLD, habits_of
from sweeps.spec.known import SETTINGS
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.sweep import read_sweep

UNITS = {"gpu_hour_price": "USD/h", "failure_rate": "1"}  # As they are said
# Shares that are all of a run's time.
RUN = ("goodput", *display.LOST)
# What a share that hides is of.
SHARES = {f"{name[:2]}_overlap": name for name in OVERLAPS}
# Labels that would follow from a number, were they not stated beside it.
FOLLOWED = {"schedule": "virtual_pipeline_size", "sharding": "hsdp_shard_size"}


def page_of(
    spec: Mapping[str, object],
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
        "inputs": [[name, _number(value)] for name, value in program.inputs.items()],
        "picks": _picks(program, flag_of),
        "others": list(_others(program)),
        "controls": list(_controls(program, resolved, flag_of)),
        "labels": list(_choices(program, resolved, given, flag_of)),
        "fit": (*FIT, MAY_NOT_FIT),
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
        "search": _search(resolved),
        "given": [[name, flag_of(name), text] for name, text in given.items()],
        "unknown": UNKNOWN,
        "lacks": NOT_KNOWN,
        "assumed": list(listed(job)),
    }
    return Page(
        kind="live",
        title=f"Step time and memory of {model} on {labels['hardware']}",
        fixed=f"{labels['framework']}, {labels['precision']}",
        summary=f"A calculator of a step of {model}: its formulas run in the browser.",
        data=data,
        code=script_of(program),
    )


ONE = "one value: on the page each can be set"


def _picks(program: Program, flag_of: Flags) -> dict[str, Any]:
    """Return the models and machines of a page, with the numbers that are each one's own."""
    picks = program.picks
    choices: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        columns = {n: [*map(_number, column)] for n, column in picks.columns(kind).items()}
        choices[kind] = {"names": picks.names[kind], "flag": flag_of(kind), "columns": columns}
    lacking = (
        {name: values for name, values in labels.items() if values} for labels in program.lacking
    )
    choices["hardware"] |= {"lacking": list(lacking), "domains": picks.domains}
    return choices


def _number(value: float) -> float | str | None:
    """Return a number as JSON has it: of infinity its name in JavaScript."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return None if math.isnan(value) else value


def _others(program: Program) -> Iterator[str]:
    """Yield which models and machines are on a page, and which aren't."""
    words = {"model": "models", "hardware": "machines"}
    for kind, title in words.items():
        names, others = program.picks.names[kind], program.picks.left_out[kind]
        if others:
            yield (
                f"{len(names)} of {len(names) + len(others)} {title} are on this page. The others "
                "need other formulas (another network, library or framework) or lack figures of a "
                f"GPU: {', '.join(others)}."
            )
        elif names:
            yield f"All {len(names)} {title} of the catalog are on this page."


def _search(resolved: Resolved) -> dict[str, object]:
    """Return among which plans a page looks for the best: what its machine's framework can do."""
    labels, constants = resolved.labels, resolved.constants
    habits = habits_of(labels["framework"], labels["attention_kernel"])
    # Without a number of layers a block is none.
    recompute = dict.fromkeys("none" if way == "block" else way for way in habits.recompute)
    return {
        "threshold": DEFAULT_THRESHOLD,
        "layers": constants.get("layers", math.inf),
        "heads": constants.get("heads", math.inf),
        "zero": habits.zero_stages,
        "recompute": list(recompute),
        "schedule": list(habits.schedules),
        "chunked": CHUNKED,
    }


def script_of(program: Program) -> str:
    """Return the script that declares a program: its formulas, and the loops that they take."""
    loops = (FILES / "math.js").read_text(encoding="utf-8")
    return f"const program = (() => {{\n{loops}\n{program.code}\n}})();\n"


def _controls(program: Program, resolved: Resolved, flag_of: Flags) -> Iterator[dict[str, object]]:
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
            "needs": WITH.get(name, ""),
            "only": name in program.only,
            "along": along,
            "mechanism": SHARES.get(name, ""),
            "origin": words_of(resolved.origins.get(name, ())),
        }


def _choices(
    program: Program, resolved: Resolved, given: Mapping[str, str], flag_of: Flags
) -> Iterator[dict[str, object]]:
    for name, values in program.labels.items():
        group, title = LABELLED[name]
        yield {
            "name": name,
            "group": group,
            "title": title,
            "meaning": LABELS[name].meaning,
            "flag": flag_of(name),
            "values": values,
            "needs": WITH.get(name, ""),
            "follows": FOLLOWED.get(name, ""),
            "settles": name in SETTINGS and name not in given,
            "origin": words_of(resolved.origins.get(name, ())),
        }


def _output(program: Program, name: str) -> dict[str, object]:
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
