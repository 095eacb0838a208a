"""One time of a thing: what hides, what is exposed and what a step takes are of the same times.

Each count is by hand; each law holds of plans that are drawn, and didn't of formulas that took two
times of one thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead import REGISTRY
from overhead.labels import LABELS
from overhead.quantity import Array
from overhead.topology import default_library
from tests.overhead.communication_cases import total_energy
from tests.overhead.step_cases import BARE, DEEPSEEK, LLAMA, MIXTRAL, evaluation
from tests.tables import keyed

laws = settings(max_examples=12, deadline=None, derandomize=True)
PLANS = 8
MIXTURES = {"mixtral": MIXTRAL, "deepseek": {**DEEPSEEK, "layers": 64}}
SCHEDULES = ("gpipe", "one_f_one_b", "zero_bubble_h1", "dual_pipe", "dual_pipe_v", "zero_bubble_v")
RATES = ("burst_matmul_flops", "sm_load_bandwidth", "burst_memory_bandwidth")


def kernel(name: str, **values: float) -> float:
    """Return a formula's value, of inputs by name."""
    formula = REGISTRY[name]
    return float(formula.kernel(*(np.asarray(values[each]) for each in formula.inputs)))


def rows(values: Any) -> Array:
    return np.array(values, dtype=np.float64)[:, None]


def never_faster(plan: Mapping[str, Any], labels: Mapping[str, str], worse: dict[str, Any]) -> None:
    """Check that each row, which is worse than the one before, takes no less.

    A zero-bubble schedule waits less where its passes become alike; nothing hides behind waiting.
    """
    shape = len(next(iter(worse.values()))), PLANS
    step = evaluation({**plan, **worse}, **labels)
    times = np.broadcast_to(step["step_time"], shape)
    waits = np.diff(np.broadcast_to(step["bubble_time"], shape), axis=0)
    less = np.minimum(waits, 0.0) if labels.get("schedule", "").startswith("zero") else 0.0
    assert np.all(np.diff(times, axis=0) >= less - 1e-12 * times[:-1]), (plan, labels, times)


@st.composite
def plans(draw: st.DrawFn, mixtures: bool = True) -> dict[str, Any]:
    """Draw a model with several plans, beside one another."""
    models = MIXTURES if mixtures else {"llama": LLAMA}
    model = models[draw(st.sampled_from(sorted(models)))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def among(*values: float) -> Array:
        return rng.choice(np.array(values, dtype=np.float64), PLANS)

    plan = {
        **model,
        **{name: among(2, 4, 8) for name in ("pp", "dp")},
        "tp": among(1, 2, 8),
        "ep": among(1, 2) if mixtures else 1.0,
        "micro_batch_size": among(1, 2),
        "sequence_parallel": 1.0,
        "zero_stage": among(0, 1, 2, 3),
        "host_launch_time": among(0.0, 1e-5, 1e-4),
        "dp_overlap": among(0.5, 1.0),
        "intra_bandwidth": among(1e9, 1e10, 1e11, 4e11),
        "inter_bandwidth": among(1e9, 1e10, 5e10),
    }
    plan["global_batch_size"] = plan["dp"] * plan["micro_batch_size"] * 2 * plan["pp"] * among(1, 3)
    return plan


# Pairs of DualPipe: exchanges hide that the pair's time holds.

PAIR = keyed(
    "stage_forward_time=5.0 stage_backward_time=10.0 middle_moe_layers=1.0 "
    "exposed_launch_fraction=0.0 pair_overlapped_fraction=0.96 "
    "overlap_slowdown=0.0 moe_layer_forward_gpu_time=5.0 exposed_ep_forward_time=1.0 "
    "moe_layer_backward_gpu_time=10.0 exposed_ep_backward_time=2.0 moe_layer_forward_host_time=0.0 "
    "moe_layer_backward_host_time=0.0"
)


def test_a_pair_hides_what_its_gpu_waits_for() -> None:
    """5 s forward and 10 s backward, 3 of these exchanges: 15 - 0.96 x 3 s."""
    computing = kernel("paired_computing_time", **PAIR)
    assert computing == pytest.approx(15 - 3)
    pair = kernel("dual_pipe_pair_time", **PAIR, paired_computing_time=computing)
    assert pair == pytest.approx(15 - 0.96 * 3)


def test_a_pair_that_the_host_launches_hides_nothing() -> None:
    """A hundred seconds of launches each way: the GPU's 15 s are less, whatever hides of them."""
    host = {
        "moe_layer_forward_host_time": 100.0,
        "moe_layer_backward_host_time": 100.0,
        "stage_forward_time": 100.0,
        "stage_backward_time": 100.0,
    }
    computing = kernel("paired_computing_time", **PAIR | host)
    pair = kernel("dual_pipe_pair_time", **PAIR | host, paired_computing_time=computing)
    # The norm of order 4 of GPU and host is beyond the host's by (10/100)^4/4 at most.
    assert pair == pytest.approx(200, rel=1e-4)
    assert pair <= 200


@laws
@given(plan=plans(), schedule=st.sampled_from(["dual_pipe", "dual_pipe_v"]))
def test_more_bytes_never_speed_pairs_up(plan: dict[str, Any], schedule: str) -> None:
    never_faster(plan, {"schedule": schedule}, {"communication_bytes": rows([1, 2, 5, 10, 40])})


# Userbuffers: a product and what it exposes have one rate.


@pytest.mark.parametrize("burst", [5e14, 8.58e14, 2e15])
def test_what_userbuffers_expose_is_beyond_the_step_s_own_product(burst: float) -> None:
    """Weights' gradients of 4,096 tokens, 4,096 x 2 x 14,336 / 8 at 1e15 FLOP/s: 120.3 us.

    A reduce_scatter of 1 ms beside them shows all but that.
    """
    plan = {
        **LLAMA,
        **BARE,
        "tp": 8,
        "sequence_parallel": 1,
        "tp_reduce_scatter_time": 1e-3,
        "burst_matmul_flops": burst,
        "intra_bandwidth": 1e13,
        "gather_sm_bandwidth": 1e13,
        "scatter_sm_bandwidth": 1e13,
    }
    values = evaluation(plan, tp_mechanism="userbuffers")
    product = 2 * 4096 * 4096 * (2 * 14336 / 8) / 1e15
    assert product == pytest.approx(120.3e-6, rel=1e-3)
    exposed = float(values["mlp_up_weight_gradient_exposed_time"])
    assert exposed == pytest.approx(1e-3 - product, rel=1e-9)


@pytest.mark.thorough
@laws
@given(plan=plans(mixtures=False), slower=st.sampled_from([RATES, ("peak_measured_matmul_flops",)]))
def test_a_slower_gpu_is_never_faster_under_userbuffers(
    plan: dict[str, Any], slower: tuple[str, ...]
) -> None:
    known = evaluation(plan).given
    factors = rows([1.0, 1.1, 1.5, 3.0])
    worse = {name: known[name] / factors for name in slower}
    never_faster(plan, {"tp_mechanism": "userbuffers"}, worse)


# Gradients of stages that are held twice: each family by its own share.


def test_copied_gradients_are_shared_out_each_by_its_family() -> None:
    """300 dense ones of which a stage has half on average, 100 of experts, nine in ten."""
    given_ = keyed(
        "trained_balance=0.5 stage_moe_balance=0.9 max_rank_trained_parameters=300 zero_stage=0 "
        "shards=4 max_rank_trained_expert_parameters=100 expert_shards=2"
    )
    assert kernel("copied_balance", **given_) == pytest.approx((150 + 90) / 400)
    # Sharded, 75 and 50 are left of them.
    sharded = {**given_, "zero_stage": 1}
    assert kernel("copied_balance", **sharded) == pytest.approx((37.5 + 45) / 125)


def test_adapters_are_alike_in_all_stages() -> None:
    """Four stages of 8 layers each: what is trained is even, though tables make frozen ones not."""
    plan = {**LLAMA, "pp": 4, "dp": 2, "global_batch_size": 16}
    lora = {"lora_rank": 16, "lora_attention": 1, "lora_mlp": 1}
    assert float(evaluation(plan)["trained_balance"]) < 0.9
    actual_evaluation = evaluation({**plan, **lora}, tuning="lora")
    assert float(actual_evaluation["stage_parameter_balance"]) < 0.9
    assert float(actual_evaluation["trained_balance"]) == pytest.approx(1.0)


@laws
@given(plan=plans())
def test_a_larger_vocabulary_never_saves_energy(plan: dict[str, Any]) -> None:
    sizes = {"vocabulary_size": rows([32000, 64000, 128000, 512000])}
    step = evaluation({**plan, **sizes}, schedule="dual_pipe")
    found = total_energy(step, "copy_all_reduce")
    energy = np.broadcast_to(found, (4, PLANS))
    assert np.all(np.diff(energy, axis=0) >= -1e-12 * energy[:-1])


# What is outside of layers: a message of its own bytes.


def test_what_is_outside_of_layers_is_its_own_message() -> None:
    """Two tables of 128,000 x 4,096 and a norm, of 2 bytes; gradients have 4."""
    plan = {**LLAMA, "dp": 8, "global_batch_size": 8, "zero_stage": 3}
    values = evaluation(plan)
    parameters = 2 * 128000 * 4096 + 4096
    assert float(values["dp_non_layer_gather_bytes"]) == pytest.approx(2 * parameters)
    assert float(values["dp_non_layer_scatter_bytes"]) == pytest.approx(4 * parameters)
    # Eight ranks on a ring of their node: 7 latencies, and 7/8 of the message.
    time = 7 * 1e-6 + 7 / 8 * 2 * parameters / 4e11
    assert float(values["dp_non_layer_gather_time"]) == pytest.approx(time)
    assert float(values["non_layer_gather_time"]) == pytest.approx(time)
    # A layer more than the stage that is told has is one gathered as others are.
    experts = keyed(
        "dp_non_layer_gather_bytes=0.0 dp_non_layer_gather_time=7.0 edp_messages=5.0 "
        "middle_moe_layers=3.0 edp_layer_gather_time=0.5"
    )
    assert kernel("non_layer_gather_time", **experts) == 1.0


@laws
@given(
    plan=plans(),
    name=st.sampled_from(["ll_rate_ratio", "inter_ll_rate_ratio", "channel_efficiency"]),
)
def test_a_faster_protocol_never_slows_a_step(plan: dict[str, Any], name: str) -> None:
    plan = {**plan, **default_library(), "zero_stage": 3.0}
    labels = {"library": "nccl", "floor": "none", "environment": "step"}
    never_faster(plan, labels, {name: rows([1.0, 0.7, 0.4, 0.2, 0.05])})


# Windows: a backward takes what the pipeline does.


def test_a_backward_beside_forwards_is_shorter() -> None:
    """Six of eight backwards of 2 s beside a forward of 1 s gain 0.5 s each: 1.625 s on average."""
    busy = 8 * (1 + 2) - 6 * 0.5
    backward = {"stage_backward_time": 2, "stage_forward_time": 1, "num_micro_batches": 8}
    even = {"pp": 4, "uneven_time": 0}
    assert kernel("paired_dp_backward_time", **backward, **even, busy_time=busy) == 13 / 8


def test_a_backward_waits_for_longer_ends() -> None:
    """Of 4 s that ends add to 8 micro-batches each backward has half a second; one stage waits
    for none."""
    backward = {"stage_backward_time": 2, "num_micro_batches": 8, "uneven_time": 4}
    assert kernel("dp_backward_time", **backward, pp=4) == 2.5
    assert kernel("dp_backward_time", **backward, pp=1) == 2.0
    shorter = {**backward, "uneven_time": -4}
    assert kernel("dp_backward_time", **shorter, pp=4) == 1.5


@laws
@given(
    plan=plans(),
    name=st.sampled_from(
        [
            "dense_layer_elementwise_backward_time",
            "moe_layer_elementwise_backward_time",
            "elementwise_factor",
            "memory_bandwidth",
        ]
    ),
    schedule=st.sampled_from(SCHEDULES),
    mechanism=st.sampled_from(LABELS["dp_mechanism"].values),
)
def test_more_work_is_never_faster(
    plan: dict[str, Any], name: str, schedule: str, mechanism: str
) -> None:
    factors = rows([1.0, 1.5, 3.0, 10.0, 100.0])
    worse = 3e12 / factors if name == "memory_bandwidth" else factors
    if name.endswith("_time"):
        worse = 1e-4 * factors
    never_faster(plan, {"schedule": schedule, "dp_mechanism": mechanism}, {name: worse})
