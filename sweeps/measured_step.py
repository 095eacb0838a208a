"""A measured step of the user's own: the clock ratio that it tells of a machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from overhead.evaluation import Evaluation, MissingQuantities
from sweeps.engine.program import Program
from sweeps.errors import InputError, fault, needs, refuse
from sweeps.origin import MEASURED, Origin
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.sweep import Sweep, read_sweep
from sweeps.spec.units import format_quantity, parse_quantity

MEASURED_STEP, CLOCK = "measured_step_time", "clock_ratio"


def is_to_be_fitted(sweep: Sweep) -> bool:
    """Return whether a step was measured, and the clock that it tells isn't given beside it."""
    asked = MEASURED_STEP in sweep.given and CLOCK not in sweep.given
    return asked and sweep.constants.get(MEASURED_STEP, 1.0) > 0.0


def with_clock(sweep: Sweep, resolved: Resolved) -> Resolved:
    """Return a configuration with the clock ratio with which its step is as long as was measured.

    Raises
    ------
    InputError
        If several configurations are asked for, or no clock explains the step.
    """
    if not sweep.training or not is_to_be_fitted(sweep):
        return resolved
    # Late: an operation by itself has no formulas of steps.
    from overhead.analysis import faults
    from overhead.step.clock import ImpossibleStep, fitted_clock

    program = Program.of_sweep(resolved, ("step_time",), optional=True)
    if program.grid.cells > 1:
        times = program.grid.columns[MEASURED_STEP].reshape(-1)
        time = ", ".join(format_quantity(float(each), "s") for each in times[:2])
        time += ", .." if times.size > 2 else ""
        wrong = f"is the time of one configuration, and {program.grid.cells} are asked for"
        refuse(MEASURED_STEP, time, wrong, f"one of them, or {CLOCK} beside it")
    given = {name: np.asarray(column).reshape(()) for name, column in program.grid.columns.items()}
    labels = program.cases[0].labels
    if faults(Evaluation(given, labels)):
        return resolved  # a plan that can't be: why is told elsewhere
    try:
        ratio = float(fitted_clock(given, labels))
    except MissingQuantities as error:
        lacking = ", ".join(error.missing)
        raise InputError(
            needs(MEASURED_STEP, "a configuration with a step time", lacking)
        ) from None
    except ImpossibleStep as error:
        time = format_quantity(error.measured, "s")
        raise InputError(fault(MEASURED_STEP, time, error.wrong, error.allowed)) from None
    if not np.isfinite(ratio):
        return resolved  # a step that has no time, likewise
    time = format_quantity(float(given[MEASURED_STEP]), "s")
    origin = Origin(ratio, MEASURED, f"fitted to the measured step of {time}")
    return replace(
        resolved,
        constants={**resolved.constants, CLOCK: ratio},
        origins={**resolved.origins, CLOCK: (origin,)},
    )


def add_clock(
    given: dict[str, Any],
    plan: Mapping[str, object],
    choices: Collection[str],
    folders: Sequence[Path] = (),
) -> list[str]:
    """Add to what is asked of plans the clock ratio that a measured step of one of them tells.

    Parameters
    ----------
    given : dict
        What is asked, by quantity or label; `measured_step_time` among it, or nothing is done.
    plan : mapping
        The plan that was measured: degrees, micro-batch, recomputation, ..
    choices : collection of str
        What plans may vary: of these the measured plan has its own.
    folders : sequence of path
        Folders of own machines.

    Returns
    -------
    list of str
        What was fitted, in words.
    """
    if MEASURED_STEP not in given:
        if plan:
            raise InputError(needs("measured_plan", "the time of its step", MEASURED_STEP))
        return []
    field = MEASURED_STEP
    if not parse_quantity(str(given[MEASURED_STEP]), "s", field=field, bare_is_si=True):
        return []  # a time of 0 is none
    if CLOCK in given:
        if plan:
            wrong = f"{CLOCK} {given[CLOCK]} is given, which it tells"
            refuse("measured_plan", words_of(plan), wrong, "one of the two")
        return []
    if not plan:
        lacking = f"measured_plan, such as tp=8,pp=4,dp=2, or {CLOCK}"
        raise InputError(needs(MEASURED_STEP, "the plan that was measured", lacking))
    asked = {name: value for name, value in given.items() if name not in choices}
    spec = {"title": "Measured step", "constants": {**asked, **plan}, "quantities": ["step_time"]}
    sweep = read_sweep(spec, bare_is_si=True, folders=folders)
    resolved = with_clock(sweep, resolve(sweep, folders))
    ratio = resolved.constants.get(CLOCK)
    if ratio is None:
        refuse("measured_plan", words_of(plan), "can't run", "the plan that was measured")
    given[CLOCK] = repr(float(ratio))
    return [
        f"clock ratio {ratio:.3g}: fitted to the step of {given[MEASURED_STEP]} of {words_of(plan)}"
    ]


def words_of(plan: Mapping[str, object]) -> str:
    """Return a plan as an option has it."""
    return ",".join(f"{name}={value}" for name, value in plan.items())
