"""A sweep over labels is its slices: each alone gives the same values and the same reasons."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import sweeps
from sweeps.spec.axis import label_values
from tests.tables import examples, keyed

STEP = examples(__file__, "step")
STEP_LABELS = tuple(
    (
        "schedule mask context_parallel recompute sharding dispatcher tp_mechanism cp_mechanism "
        "ep_mechanism dp_mechanism"
    ).split()
)
OPERATION = {"ranks": [1, 6, 8, 12], "message_bytes": [1e3, 1e9], "gpus_per_node": 4}
# Each draw runs many sweeps.
FEW = max(settings.default.max_examples // 3, 1)
OPERATION_LABELS = ("collective", "topology", "latency_per", "link")


def reasons(dataset: xr.Dataset) -> Any:
    """Return the reasons of each cell, by their names."""
    status = dataset.variables["status"]
    masks = np.atleast_1d(status.attrs.get("flag_masks", []))
    words = status.attrs.get("flag_meanings", "").split()
    result = [
        frozenset(word for word, mask in zip(words, masks, strict=True) if int(value) & int(mask))
        for value in status.values.reshape(-1)
    ]
    found = np.empty(len(result), dtype=object)
    found[:] = result
    return xr.Variable(status.dims, found.reshape(status.shape))


def together(alone: xr.Variable, whole: xr.Variable) -> tuple[Any, Any]:
    """Return both arrays' values over the dimensions of both."""
    sizes = {**alone.sizes, **whole.sizes}
    return alone.set_dims(sizes).values, whole.set_dims(sizes).values


def compare(quantities: list[str], fixed: dict[str, Any], axes: dict[str, list[str]]) -> None:
    whole = sweeps.sweep(quantities, **fixed, **axes)
    names = reasons(whole)
    for point in product(*axes.values()):
        at = dict(zip(axes, point, strict=True))
        alone = sweeps.sweep(quantities, **fixed, **at)
        for name in quantities:
            every = whole.variables[name]
            places = {k: whole.indexes[k].get_loc(v) for k, v in at.items() if k in every.dims}
            ours, theirs = together(every.isel(places), alone.variables[name])
            if not set(at) <= set(every.dims):
                # Stored without the label it is there wherever some value of the label has it;
                # which have it, the status says.
                ours = np.where(np.isnan(theirs), np.nan, ours)
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{name} at {at}")
        places = {k: whole.indexes[k].get_loc(v) for k, v in at.items() if k in names.dims}
        ours, theirs = together(names.isel(places), reasons(alone))
        assert (ours == theirs).all(), at


@st.composite
def label_axes(draw: st.DrawFn, names: tuple[str, ...]) -> dict[str, list[str]]:
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return {
        name: draw(
            st.lists(st.sampled_from(label_values(name)), min_size=2, max_size=4, unique=True)
        )
        for name in chosen
    }


@pytest.mark.thorough
@settings(max_examples=FEW)
@given(label_axes(STEP_LABELS), st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]))
def test_a_sweep_of_steps_over_labels_is_its_slices(
    axes: dict[str, list[str]], degrees: tuple[int, int]
) -> None:
    fixed = {**STEP, "tp": degrees[0], "cp": degrees[1]}
    compare(["step_time", "peak_memory", "communication_upper_bound"], fixed, axes)


@pytest.mark.thorough
@settings(max_examples=FEW)
@given(label_axes(OPERATION_LABELS))
def test_a_sweep_of_operations_over_labels_is_its_slices(axes: dict[str, list[str]]) -> None:
    fixed = {"collective": "all_reduce", "topology": "torus"}
    fixed = {name: value for name, value in fixed.items() if name not in axes}
    compare(["time", "lower_bound", "busbw"], {**OPERATION, **fixed}, axes)


@pytest.mark.thorough
def test_requirements_by_schedule_and_mask_hold_where_they_belong() -> None:
    """Of twelve cells three were shown as valid: a schedule took another one's condition."""
    schedules = ["zero_bubble_h1", "zero_bubble_h2", "dual_pipe"]
    compare(["step_time"], STEP, {"schedule": schedules})
    sequence = {**STEP, "cp": 2, "pp": 1, "sequence_length": [4096, 4098, 4099]}
    compare(["step_time"], sequence, {"mask": ["causal", "full"]})


def test_a_step_has_no_time_by_an_algorithm_that_its_network_lacks() -> None:
    """Collectives of a step that lack an algorithm take the standard one; not all of them may."""
    given = {**STEP, "global_batch_size": 64, "virtual_pipeline_size": 1}
    axes = {"topology": ["torus", "switch"], "algorithm": ["ring", "dbt", "nccl"]}
    dataset = sweeps.sweep("dp_communication_time", **given, **axes)
    lacking = {frozenset(): False, frozenset({"algorithm_not_defined_on_topology"}): True}
    missing = np.vectorize(lacking.get)(reasons(dataset).values)
    expected = np.array([[False, True, False], [False, False, False]])
    np.testing.assert_array_equal(missing, expected)
    np.testing.assert_array_equal(np.isnan(dataset["dp_communication_time"]), expected)


def test_a_step_has_no_time_by_an_algorithm_that_a_group_is_not_of() -> None:
    """Halving is of powers of two: of 24 GPUs in groups of 8 there are three replicas."""
    given = STEP | keyed("global_batch_size=24 virtual_pipeline_size=1 pp=1 tp=8 topology=switch")
    axes = {"algorithm": ["halving", "ring"], "world_size": [16, 24, 32]}
    dataset = sweeps.sweep("step_time", **{**given, **axes})
    expected = np.array([[False, True, False], [False, False, False]])
    np.testing.assert_array_equal(np.isnan(dataset["step_time"]), expected)
    reason = {frozenset(), frozenset({"algorithm_not_defined_for_a_group"})}
    assert {one - {"batch_not_divisible"} for one in reasons(dataset).values.flat} == reason
