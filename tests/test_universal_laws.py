"""What holds of every answer whatever it is: signs, sums, slices, and stored datasets.

Hypothesis draws questions as users ask them (`tests.answers`): all models, adapters, offload,
chunks and power limits; and asks for times, memory, communication, energy, failures and money.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings

import sweeps
from overhead.arrays import NAMESPACES
from overhead.step.parts import PARTS
from sweeps.engine.evaluate import limits_of
from sweeps.errors import InputError
from sweeps.job import Job
from tests.answers import Case, cases

FEW = max(settings.default.max_examples // 8, 1)
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=FEW)
SHARES = tuple(
    "goodput checkpoint_overhead rework_fraction restart_fraction replacement_wait_fraction".split()
)
TOTALS = tuple(
    (
        "step_time peak_memory communication_volume communication_energy communication_upper_bound "
        "step_energy run_time run_cost spare_nodes mfu"
    ).split()
)
ASKED = tuple(dict.fromkeys((*TOTALS, *PARTS, *SHARES)))
ROUNDING = 1e-12
# What is 0 where there is one rank, stage or copy.
ALONE = {
    ("tp",): ("exposed_tp_time",),
    ("cp",): ("exposed_cp_time",),
    ("ep", "tp"): ("exposed_ep_time",),  # Experts' tensor parallelism gathers tokens as well
    ("pp",): ("exposed_pp_time", "bubble_time", "tied_all_reduce_backward_time"),
    ("dp", "cp"): ("exposed_dp_time",),
}


def job_of(case: Case, quantities: tuple[str, ...] = ASKED) -> Job:
    try:
        return case.job(quantities)
    except InputError:
        reject()  # no such question


def found(job: Job) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        values = {name: np.asarray(value) for name, value in job.program.evaluate().items()}
    # What is given, or assumed, isn't computed.
    known = {**job.program.grid.constants, **job.program.assumed}
    return {name: np.asarray(known[name]) for name in ASKED if name in known} | values


def row_of(case: Case, row: int) -> Case:
    return Case(case.fixed, case.plans[row : row + 1])


@QUIET
@given(case=cases())
def test_nothing_is_negative_and_parts_are_the_whole(case: Case) -> None:
    values = found(job_of(case))
    status = values["status"]
    for name in ASKED:
        value = np.broadcast_to(values[name], status.shape)
        assert not (value < 0.0).any(), name
        # What isn't a number has its reason.
        assert (status[np.isnan(value)] != 0).all(), name
    known = status == 0
    assume(known.any())
    values = {name: np.broadcast_to(one, status.shape) for name, one in values.items()}
    parts = sum(values[name] for name in PARTS)
    np.testing.assert_allclose(parts[known], values["step_time"][known], rtol=ROUNDING)
    shares = sum(values[name] for name in SHARES)
    np.testing.assert_allclose(shares[known], 1.0, rtol=ROUNDING)
    assert (values["mfu"][known] <= 1.0).all()
    for degrees, names in ALONE.items():
        size = np.prod([[dict(plan)[degree] for plan in case.plans] for degree in degrees], axis=0)
        for name in names:
            assert not values[name][known & (size == 1.0)].any(), name


@QUIET
@given(case=cases())
def test_a_plan_alone_is_the_same_as_among_others(case: Case) -> None:
    whole = found(job_of(case))
    for row in range(len(case.plans)):
        alone = found(job_of(row_of(case, row)))
        for name, values in alone.items():
            among = np.broadcast_to(whole[name], len(case.plans))[row]
            np.testing.assert_array_equal(np.ravel(values)[0], among, name)


@settings(QUIET, max_examples=max(FEW // 2, 1))
@given(case=cases())
def test_a_stored_answer_is_computed_again(case: Case) -> None:
    dataset = job_of(case).dataset()
    repeated_dataset = sweeps.recompute(dataset)
    assert set(TOTALS) <= set(dataset.data_vars)
    for name in dataset.data_vars:
        np.testing.assert_array_equal(
            repeated_dataset[name].to_numpy(), dataset[name].to_numpy(), name
        )


@pytest.mark.thorough
@settings(QUIET, max_examples=max(FEW // 2, 1))
@given(case=cases())
def test_arrays_of_the_standard_have_the_same_numbers(case: Case) -> None:
    """Whatever library's arrays: here of the array API's strictest."""
    plain, strict = job_of(case), job_of(case)
    with mock.patch.dict(NAMESPACES, strict="array_api_strict"):
        strict.program.limits = limits_of("strict")
        values = found(strict)
    for name, value in found(plain).items():
        np.testing.assert_allclose(values[name], value, rtol=ROUNDING, err_msg=name)
