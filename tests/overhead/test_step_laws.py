"""Laws that a step's time obeys, with the communication that its plan has on a network."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.completion import following
from overhead.evaluation import Evaluation
from overhead.labels import LABELS, STEP_DEFAULTS
from overhead.labels import OVERLAPS as MECHANISMS
from overhead.quantity import Array
from overhead.step.parts import PARTS
from tests.overhead.step_cases import DEEPSEEK, GPT, LLAMA, MIXTRAL, NETWORK, evaluation

laws = settings(max_examples=10, deadline=None)
# So many at once: they take no longer than one.
PLANS = 6
SCHEDULES = ("gpipe", "one_f_one_b", "interleaved", "zero_bubble_h1", "dual_pipe", "forward_only")
SMALL = dict(
    gpt={**GPT, "layers": 16}, llama=LLAMA, mixtral=MIXTRAL, deepseek={**DEEPSEEK, "layers": 64}
)
OVERLAPS = ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap")
BANDWIDTHS = ("memory_bandwidth", "intra_bandwidth", "inter_bandwidth")


@st.composite
def plans(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str]]:
    """Draw a model with several plans, and the labels that hold."""
    model = SMALL[draw(st.sampled_from(sorted(SMALL)))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def among(*values: float) -> Array:
        return rng.choice(np.array(values, dtype=np.float64), PLANS)

    degrees = {name: among(1, 2, 4, 8) for name in ("tp", "cp", "pp", "dp")}
    schedule = draw(st.sampled_from(SCHEDULES))
    num_micro_batches = 2 * degrees["pp"] * among(1, 3)
    plan = {
        **model,
        **degrees,
        "micro_batch_size": among(1, 4),
        "virtual_pipeline_size": among(1, 2) if schedule == "interleaved" else 1,
        "zero_stage": among(0, 1, 2, 3),
        "sequence_parallel": 1.0 if model["experts"] else among(0, 1),
        "host_launch_time": among(0.0, 1e-5, 1e-4),
        **{name: among(0.0, 0.3, 1.0) for name in OVERLAPS},
    }
    plan["global_batch_size"] = plan["dp"] * plan["micro_batch_size"] * num_micro_batches
    if model["experts"]:
        plan["ep"] = np.where(rng.random(PLANS) < 0.5, 1.0, degrees["dp"])
    labels = {
        "schedule": schedule,
        "recompute": draw(st.sampled_from(["none", "selective", "full", "per_op"])),
        "attention_kernel": draw(st.sampled_from(["flash_2", "unfused"])),
        "context_parallel": draw(st.sampled_from(LABELS["context_parallel"].values)),
        **{name: draw(st.sampled_from(LABELS[name].values)) for name in MECHANISMS},
    }
    return plan, labels


def step(plan: Mapping[str, Any], labels: Mapping[str, str], **more: Any) -> Array:
    return evaluation({**plan, **more}, **labels)["step_time"]


@pytest.mark.thorough
@laws
@given(case=plans())
def test_parts_sum_and_none_is_longer_than_the_step(
    case: tuple[dict[str, Any], dict[str, str]],
) -> None:
    plan, labels = case
    result = evaluation(plan, **labels)
    time = result["step_time"]
    parts = {part: result[part] for part in PARTS}
    np.testing.assert_allclose(sum(parts.values()), time, rtol=1e-11)
    for part, value in parts.items():
        assert np.all(value <= time * (1 + 1e-12)), part
        # Of two stages both are ends, and may have less to do than the one between that is told.
        ends = (part == "stage_imbalance_time") & (np.asarray(plan["pp"]) <= 2)
        assert np.all(ends | (value >= -1e-12 * time)), part
    computed = sum(parts[f"{part}_part_time"] for part in ("matmul", "attention", "elementwise"))
    assert np.all(time >= computed)
    assert np.all(time >= result["pipeline_time"])
    # Nothing hides more than there is.
    exposed = sum(value for part, value in parts.items() if part.startswith("exposed_"))
    hidden = 1.08 * result["communication_upper_bound"]
    # A mechanism may take multiprocessors, and add up what it receives.
    plain = labels["tp_mechanism"] == "efficiency"
    if labels["schedule"] in ("gpipe", "forward_only") and plain:
        assert np.all((exposed <= hidden * (1 + 1e-9)) | (plan["pp"] > 1))


def several(times: Array, count: int) -> Array:
    """Return the times of all plans, one row for each of some values."""
    return np.broadcast_to(times, (count, PLANS))


def rows(values: Any) -> Array:
    return np.array(values, dtype=np.float64)[:, None]


@pytest.mark.thorough
@laws
@given(case=plans(), name=st.sampled_from([*BANDWIDTHS, "all"]))
def test_twice_the_bandwidth_never_slows_a_step(
    case: tuple[dict[str, Any], dict[str, str]], name: str
) -> None:
    plan, labels = case
    known = {"memory_bandwidth": 3e12, **NETWORK}
    factors = rows([1.0, 2.0, 4.0, 1e3])
    names = BANDWIDTHS if name == "all" else (name,)
    times = several(step(plan, labels, **{each: known[each] * factors for each in names}), 4)
    assert np.all(np.diff(times, axis=0) <= 1e-12 * times[:-1])


@pytest.mark.thorough
@laws
@given(case=plans(), name=st.sampled_from(OVERLAPS))
def test_more_overlap_is_never_slower(
    case: tuple[dict[str, Any], dict[str, str]], name: str
) -> None:
    plan, labels = case
    times = several(step(plan, labels, **{name: rows(np.linspace(0.0, 1.0, 11))}), 11)
    assert np.all(np.diff(times, axis=0) <= 1e-12 * times[:-1])


@pytest.mark.thorough
@laws
@given(
    case=plans(),
    name=st.sampled_from(
        (
            "host_launch_time matmul_min_time intra_latency inter_latency elementwise_factor "
            "loss_bytes step_overhead optimizer_traffic_bytes"
        ).split()
    ),
)
def test_what_costs_more_never_speeds_a_step_up(
    case: tuple[dict[str, Any], dict[str, str]], name: str
) -> None:
    plan, labels = case
    base = {"elementwise_factor": 1.0, "loss_bytes": 32.0, "optimizer_traffic_bytes": 40.0}
    values = base.get(name, 1e-6) * rows([0.0, 1.0, 3.0, 10.0])
    times = several(step(plan, labels, **{name: values}), 4)
    assert np.all(np.diff(times, axis=0) >= -1e-12 * times[:-1])


@pytest.mark.thorough
@laws
@given(case=plans())
def test_a_longer_batch_takes_longer_and_has_a_smaller_bubble(
    case: tuple[dict[str, Any], dict[str, str]],
) -> None:
    plan, labels = case
    result = evaluation(
        {**plan, "global_batch_size": plan["global_batch_size"] * rows([1, 2, 5])}, **labels
    )
    assert np.all(np.diff(several(result["step_time"], 3), axis=0) > 0)
    share = several(result["bubble_time"] / result["step_time"], 3)
    assert np.all(np.diff(share, axis=0) <= 1e-12)


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(case=plans())
def test_recomputation_costs_time(case: tuple[dict[str, Any], dict[str, str]]) -> None:
    plan, labels = case
    plan = {name: np.ravel(value)[0] for name, value in plan.items()}
    # What stops early saves in dense layers alone, which the slowest stage needn't have.
    early = () if plan["experts"] else ("full_early_stop",)
    modes = ("none", "selective", *early, "full")
    times = [step(plan, {**labels, "recompute": mode}) for mode in modes]
    for before, after in pairwise(times):
        if labels["schedule"] == "forward_only":
            np.testing.assert_array_equal(before, after)
        else:
            assert np.all(before <= after * (1 + 1e-12))


@pytest.mark.thorough
@laws
@given(case=plans(), efficiency=st.floats(0.1, 0.9))
def test_a_faster_gpu_is_faster(
    case: tuple[dict[str, Any], dict[str, str]], efficiency: float
) -> None:
    plan, labels = case
    for name in ("matmul_efficiency", "attention_efficiency", "memory_efficiency"):
        array = rows([efficiency, efficiency + 0.1])
        slow, fast = several(step(plan, labels, **{name: array}), 2)
        assert np.all(fast <= slow * (1 + 1e-12))


TIMES = st.floats(0.0, 10.0)


SHARES = st.floats(0.0, 1.0)


@given(sent=TIMES, computing=TIMES, share=SHARES, slowdown=SHARES)
@settings(max_examples=50, deadline=None)
def test_exchanges_of_both_directions_hide_behind_one_layer_s_computing(
    sent: float, computing: float, share: float, slowdown: float
) -> None:
    """A micro-batch's run beside another's computing, of which no more hides than there is.

    What hides slows that computing down, by a share of its own time.
    """
    known = {
        "ep_layer_forward_time": sent,
        "ep_overlap": share,
        "moe_layer_computing_time": computing,
        "unpaired_fraction": 0.0,
        "overlap_slowdown": slowdown,
    }
    both = 2.0 * sent
    exposed = Evaluation(known, following(STEP_DEFAULTS, known))["layer_exposed_ep_time"]
    hidden = min(share * both, computing)
    assert both - exposed == pytest.approx((1.0 - slowdown) * hidden, abs=1e-9)
