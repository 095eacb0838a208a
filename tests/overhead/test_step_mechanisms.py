"""What named mechanisms expose in a step, against simulations and at their limits."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from overhead.evaluation import Evaluation
from overhead.labels import FOLDED, LABELS, OVERLAPS
from tests.overhead.step_cases import DEEPSEEK, LLAMA, MIXTRAL, evaluation
from tests.simulator import overlap as simulator
from tests.tables import keyed

TP_MECHANISMS, DP_MECHANISMS = (
    LABELS[name].values[1:] for name in ("tp_mechanism", "dp_mechanism")
)
PLAN = LLAMA | keyed(
    "tp=8 cp=1 pp=2 dp=4 micro_batch_size=1 virtual_pipeline_size=1 global_batch_size=32 "
    "zero_stage=1 sequence_parallel=1"
)
# A whole layer runs each pair: the product, whose time it is compared with, what is sent.
GATHER, SCATTER, AGAIN = "tp_all_gather_time", "tp_reduce_scatter_time", "tp_weight_gather_time"
FIRST, LAST = ("qkv", "mlp_up"), ("attention_output", "mlp_down")
Pair = Callable[[Fraction, Fraction, int, Fraction], Fraction]


def ring(product: Fraction, sent: Fraction, ranks: int, _: Fraction) -> Fraction:
    return simulator.ring(product / ranks, sent / (ranks - 1), ranks)


def scatter_ring(product: Fraction, sent: Fraction, ranks: int, sums: Fraction) -> Fraction:
    return simulator.scatter_ring(product / ranks, sent / (ranks - 1), ranks, sums)


# By mechanism and direction: which products, what is sent beside them, how the pair runs.
PAIRS: dict[tuple[str, str], list[tuple[tuple[str, ...], str, str, Pair]]] = {
    ("decomposed", "forward"): [
        (FIRST, "forward", GATHER, ring),
        (LAST, "forward", SCATTER, scatter_ring),
    ],
    ("decomposed", "backward"): [
        (LAST, "input_gradient", GATHER, ring),
        (FIRST, "input_gradient", SCATTER, scatter_ring),
        (FIRST, "weight_gradient", AGAIN, ring),
    ],
}


def exposed(mechanism: str, way: str, values: Evaluation, ranks: int) -> float:
    """Add up what each pair takes beyond its product, one simulation each."""
    whole = Fraction(0)
    bytes_in_memory = Fraction(float(values["tp_message_bytes"])) * (ranks + 1) / ranks
    sums = bytes_in_memory / Fraction(float(values["memory_bandwidth"]))
    for products, kind, sent, run in PAIRS[mechanism, way]:
        for name in products:
            product = Fraction(float(values[f"{name}_{kind}_time"]))
            together = run(product, Fraction(float(values[sent])), ranks, sums)
            whole += max(together - product, Fraction(0))
    return float(whole)


@given(
    tp=st.sampled_from([2, 4, 8]),
    bandwidth=st.floats(1e9, 1e13),
    latency=st.sampled_from([0.0, 1e-6, 1e-4]),
    tokens=st.sampled_from([512, 4096, 32768]),
    mechanism=st.just("decomposed"),
)
def test_pairs_of_products_and_collectives_as_simulated(
    tp: int, bandwidth: float, latency: float, tokens: int, mechanism: str
) -> None:
    links = {"intra_bandwidth": bandwidth, "intra_latency": latency, "sequence_length": tokens}
    values = evaluation({**PLAN, **links, "tp": tp}, tp_mechanism=mechanism)
    for way in ("forward", "backward"):
        actual = float(values[f"dense_exposed_tp_{way}_time"])
        assert actual == pytest.approx(exposed(mechanism, way, values, tp), rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("mechanism", TP_MECHANISMS)
def test_limits_of_tensor_parallel_mechanisms(mechanism: str) -> None:
    def of(**more: Any) -> float:
        values = evaluation({**PLAN, **more}, tp_mechanism=mechanism)
        return float(values["exposed_tp_time"])

    assert of(tp=1) == 0.0
    # Nothing sent, nothing taken: nothing exposed.
    free = {
        "intra_bandwidth": np.inf,
        "intra_latency": 0.0,
        "num_sm": 0,
        "memory_bandwidth": 1e300,
        "sum_bandwidth": 1e300,
        "gather_sm_bandwidth": np.inf,
        "scatter_sm_bandwidth": np.inf,
        "matmul_chunk_gap": 0.0,
    }
    assert of(**free) == pytest.approx(0.0, abs=1e-12)
    # An all_reduce hides behind nothing.
    whole = evaluation({**PLAN, "sequence_parallel": 0}, tp_mechanism=mechanism)
    sent = float(whole["tp_communication_time"])
    assert float(whole["exposed_tp_time"]) == pytest.approx(sent, rel=1e-12)
    # What is far longer than its product shows but for what fits beside it.
    slow = evaluation({**PLAN, "intra_bandwidth": 1e7}, tp_mechanism=mechanism)
    sent = float(slow["tp_communication_time"])
    assert sent * 0.97 < float(slow["exposed_tp_time"]) < sent


@pytest.mark.parametrize("recompute", ["full", "per_op"])
@pytest.mark.parametrize("mechanism", TP_MECHANISMS)
def test_what_is_repeated_is_exposed_again(mechanism: str, recompute: str) -> None:
    values = {
        mode: evaluation(PLAN, tp_mechanism=mechanism, recompute=mode)
        for mode in ("none", recompute)
    }
    once, again = (float(value["dense_exposed_tp_backward_time"]) for value in values.values())
    gathers, reductions, *exposed_times = (
        float(values[recompute][name])
        for name in (
            "recomputed_gathers",
            "recomputed_reductions",
            *(f"{name}_forward_exposed_time" for name in ("qkv", "mlp_up")),
            *(f"{name}_forward_exposed_time" for name in ("attention_output", "mlp_down")),
        )
    )
    repeated = gathers * sum(exposed_times[:2]) + reductions * sum(exposed_times[2:])
    assert again == pytest.approx(once + repeated, rel=1e-12)
    assert repeated > 0.0


def test_a_mixture_pairs_its_attention_alone() -> None:
    for model in (MIXTRAL, DEEPSEEK):
        plan = {**PLAN, **model, "ep": 1}
        values = evaluation(plan, tp_mechanism="userbuffers")
        pairs = ("qkv", "attention_output")
        of_attention = sum(float(values[f"{name}_forward_exposed_time"]) for name in pairs)
        rest = (
            (float(values["moe_layer_blocks"]) - 1.0) / 2.0 * float(values["tp_layer_forward_time"])
        )
        assert float(values["moe_exposed_tp_forward_time"]) == pytest.approx(of_attention + rest)


@pytest.mark.parametrize("recompute", ["none", "selective", "full", "full_early_stop", "per_op"])
@pytest.mark.parametrize("kind", ["dense", "experts", "shared", "mixers"])
def test_where_nothing_hides_layers_wait_for_all_that_is_sent(kind: str, recompute: str) -> None:
    """Userbuffers beyond a node: all counts and times; of mixers alone, too, which have no MLP."""
    model = dict(dense=LLAMA, experts=MIXTRAL, shared=DEEPSEEK, mixers={**DEEPSEEK, "ffn_size": 0})[
        kind
    ]
    plan = {
        **PLAN,
        **model,
        **keyed("tp=16 pp=1 dp=2 ep=2 num_micro_batches=3 recompute_moe=1.0"),
        "recompute_mlp": float(kind == "dense"),
    }
    values = evaluation(plan, tp_mechanism="userbuffers", recompute=recompute)
    waited = [
        float(values[f"middle_{layers}_layers"] * values[f"{of}_exposed_tp_{way}_time"])
        for layers, of in (("mlp", "dense"), ("moe", "moe"))
        for way in ("forward", "backward")
    ]
    passes = float(values["num_micro_batches"])
    assert passes * sum(waited) == pytest.approx(float(values["tp_communication_time"]), rel=1e-12)


def test_a_cut_that_loses_time_exposes_more() -> None:
    lost = np.array([0.0, 0.05, 0.2])
    values = evaluation({**PLAN, "chunking_slowdown": lost}, tp_mechanism="decomposed")
    assert np.all(np.diff(values["exposed_tp_time"]) > 0.0)
    # At most what all products that are cut lose.
    most = lost * values["matmul_part_time"]
    assert np.all(values["exposed_tp_time"] - values["exposed_tp_time"][0] <= most)


@pytest.mark.thorough
@given(
    tp=st.sampled_from([2, 4, 8, 16]),
    bandwidth=st.floats(1e9, 1e13),
    tokens=st.sampled_from([512, 4096, 32768]),
    num_sm=st.integers(1, 64),
)
@settings(max_examples=15, deadline=None)
def test_userbuffers_hide_at_most_what_is_sent_and_what_is_computed(
    tp: int, bandwidth: float, tokens: int, num_sm: int
) -> None:
    links = {"intra_bandwidth": bandwidth, "sequence_length": tokens, "num_sm": num_sm}
    values = evaluation({**PLAN, **links, "tp": tp}, tp_mechanism="userbuffers")
    for products, kind, sent in (
        (FIRST, "forward", GATHER),
        (LAST, "forward", SCATTER),
        (LAST, "input_gradient", GATHER),
        (FIRST, "input_gradient", AGAIN),
        (FIRST, "weight_gradient", SCATTER),
    ):
        for name in products:
            whole, exposed = float(values[sent]), float(values[f"{name}_{kind}_exposed_time"])
            assert 0.0 <= exposed <= whole
            computed = float(values[f"{name}_{kind}_time"])
            assert whole - exposed <= computed * (1.0 + 1e-9)
            # What isn't in one node runs in turn.
            assert tp <= 8 or exposed == whole


# Reductions of gradients beside products of weights' gradients.


def linear_backward(values: Evaluation, split: bool) -> Fraction:
    """Run a dense layer's backward on two streams; return the time in which nothing computes."""
    compute, network, busy = Fraction(0), Fraction(0), Fraction(0)
    sent = Fraction(float(values[SCATTER if split else "tp_all_reduce_time"]))
    gather = Fraction(float(values[GATHER])) if split else Fraction(0)
    saved = Fraction(float(values[AGAIN])) if split else Fraction(0)
    for first, last in (("mlp_up", "mlp_down"), ("qkv", "attention_output")):
        products = [
            Fraction(float(values[f"{name}_{kind}_time"]))
            for name in (last, first)
            for kind in ("input_gradient", "weight_gradient")
        ]
        busy += sum(products)
        compute = max(compute, network) + gather  # the gradient of the block's output
        compute += products[0] + products[1]
        network = compute + saved  # the saved input, beside its gradient
        compute = max(compute + products[2], network)
        network = compute + sent  # the gradient's sum, beside the weights' gradient
        compute = max(compute + products[3], network)
    return compute - busy


@given(
    tp=st.sampled_from([2, 4, 8]),
    bandwidth=st.floats(2e10, 1e13),
    tokens=st.sampled_from([512, 4096, 32768]),
    split=st.booleans(),
)
def test_reductions_run_beside_weights_gradients_as_simulated(
    tp: int, bandwidth: float, tokens: int, split: bool
) -> None:
    links = {"intra_bandwidth": bandwidth, "intra_latency": 1e-6, "sequence_length": tokens}
    plan = {
        **PLAN,
        **links,
        "tp": tp,
        "sequence_parallel": int(split),
        "tp_gradient_overlap": 1,
        "overlap_slowdown": 0,
    }
    values = evaluation(plan)
    # A layer's saved inputs are held against all products of inputs' gradients together.
    inputs = [float(values[f"{name}_input_gradient_time"]) for name in FIRST]
    assume(not split or float(values[AGAIN]) <= min(inputs))
    dense_exposed_tp_backward_time = float(values["dense_exposed_tp_backward_time"])
    wanted = float(linear_backward(values, split))
    assert dense_exposed_tp_backward_time == pytest.approx(wanted, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("mechanism", LABELS["tp_mechanism"].values)
def test_what_runs_beside_weights_gradients_hides_in_every_mechanism(mechanism: str) -> None:
    for model in (LLAMA, MIXTRAL, DEEPSEEK):
        plan = {
            **PLAN,
            **model,
            "ep": 1,
            "sequence_parallel": 0,
            "intra_bandwidth": 1e14,
            "intra_latency": 0,
        }
        plain, other, shared = (
            evaluation({**plan, **more}, tp_mechanism=mechanism)
            for more in (
                {},
                {"tp_gradient_overlap": 1, "overlap_slowdown": 0},
                {"tp_gradient_overlap": 1, "overlap_slowdown": 0.1},
            )
        )
        tp_all_reduce_time = float(plain["tp_all_reduce_time"])
        assert tp_all_reduce_time < float(plain["qkv_weight_gradient_time"])
        # So one all_reduce hides of attention, and one of a dense layer's MLP.
        for of, count in (("dense", 2.0), ("moe", 1.0)):
            if of == "dense" and not model.get("ffn_size"):
                continue
            name = f"{of}_exposed_tp_backward_time"
            hidden = float(plain[name]) - float(other[name])
            assert hidden == pytest.approx(count * tp_all_reduce_time, rel=1e-9)
            assert float(shared[name]) == pytest.approx(float(other[name]) + 0.1 * hidden)
        forward = "dense_exposed_tp_forward_time"
        assert float(other[forward]) == float(plain[forward])


# Context parallelism.


def test_a_ring_is_a_share_of_one_and_nothing_else_hides() -> None:
    plan = {**PLAN, "cp": 4, "dp": 1, "inter_bandwidth": 5e9}
    for recompute in ("none", "selective"):
        labels = {"context_parallel": "ring", "recompute": recompute}
        named = evaluation(plan, cp_mechanism="ring_exchange", **labels)
        shared = evaluation({**plan, "cp_overlap": 1.0}, **labels)
        assert float(named["exposed_cp_time"]) > 0.0
        assert float(named["exposed_cp_time"]) == pytest.approx(float(shared["exposed_cp_time"]))
    for kind in ("all_to_all", "all_gather"):
        for recompute in LABELS["recompute"].values:
            for mechanism in LABELS["cp_mechanism"].values:
                labels = {"cp_mechanism": mechanism, "context_parallel": kind}
                given = {**plan, "recompute_layers": 1, "cp_overlap": 1.0}
                values = evaluation(given, recompute=recompute, **labels)
                sent = float(values["cp_communication_time"])
                assert float(values["exposed_cp_time"]) == pytest.approx(sent, rel=1e-12)


def test_mixed_context_parallelism_waits_for_heads_and_hides_rings() -> None:
    plan = {**PLAN, "cp": 4, "dp": 1, "inter_bandwidth": 5e9, "ulysses_ranks": 2}
    kind = {"context_parallel": "mixed"}
    values = evaluation(plan, cp_mechanism="ring_exchange", **kind)
    for way in ("forward", "backward"):
        exchange, around = (
            float(values[name]) for name in (f"cp_exchange_{way}_time", f"cp_round_{way}_time")
        )
        ratio = float(values[f"attention_{way}_time"]) / 2.0  # One of two blocks comes round
        # In a ring of two the last block is computed when all has come
        waited = max(around - ratio, 0.0)
        assert float(values[f"exposed_cp_{way}_time"]) == pytest.approx(exchange + waited)
    # A given share hides of the ring's alone, but no more than the other blocks take.
    for fast in (5e9, 5e8):
        shared = evaluation({**plan, "inter_bandwidth": fast, "cp_overlap": 1.0}, **kind)
        around = float(shared["cp_round_forward_time"])
        waited = max(around - float(shared["attention_forward_time"]) / 2.0, 0.0)
        exchange = float(shared["cp_exchange_forward_time"])
        assert float(shared["exposed_cp_forward_time"]) == pytest.approx(exchange + waited)


# Expert parallelism.

ROUTED = MIXTRAL | keyed(
    "tp=1 pp=1 dp=8 ep=8 micro_batch_size=1 global_batch_size=8 ep_comm_sms=0 intra_bandwidth=5e10"
)


@settings(max_examples=30, deadline=None)
@given(
    chunks=st.integers(1, 9),
    dispatch=st.floats(1e-5, 1e-2),
    combine=st.floats(1e-5, 1e-2),
    products=st.floats(1e-5, 1e-2),
    way=st.sampled_from(["forward", "backward"]),
)
def test_chunks_of_tokens_as_simulated(
    chunks: int, dispatch: float, combine: float, products: float, way: str
) -> None:
    given_times = {
        f"experts_{way}_time": products,
        f"chunk_experts_{way}_time": products / chunks,
        "chunk_dispatch_time": dispatch / chunks,
        "chunk_combine_time": combine / chunks,
        "ep_layer_forward_time": dispatch + combine,
        "expert_chunks": chunks,
    }
    values = evaluation({**ROUTED, **given_times}, ep_mechanism="chunked")
    first, last = (dispatch, combine) if way == "forward" else (combine, dispatch)
    one, two, work = (Fraction(t) / chunks for t in (first, last, products))
    exact = simulator.sharded_backward([one] * chunks, [work] * chunks, [two] * chunks)
    actual = float(values[f"exposed_ep_{way}_time"])
    assert actual == pytest.approx(float(exact) - products, rel=1e-9, abs=1e-15)
    assert dispatch + combine - actual <= min(products, dispatch + combine) * (1 + 1e-9)


def test_chunks_pay_for_what_they_are() -> None:
    """Messages have latencies, small products a lower rate, kernels multiprocessors."""
    whole = evaluation(ROUTED)
    one = evaluation({**ROUTED, "expert_chunks": 1}, ep_mechanism="chunked")
    assert float(one["exposed_ep_time"]) == pytest.approx(float(whole["exposed_ep_time"]))
    two, many = (
        evaluation({**ROUTED, "expert_chunks": n}, ep_mechanism="chunked") for n in (2, 64)
    )
    assert float(two["exposed_ep_time"]) < float(whole["exposed_ep_time"])
    # What would take longer in chunks goes as a whole.
    assert float(many["exposed_ep_time"]) <= float(whole["exposed_ep_time"]) * (1 + 1e-12)
    assert float(many["chunk_dispatch_time"]) > float(whole["ep_dispatch_time"]) / 64
    slower = evaluation({**ROUTED, "ep_comm_sms": 20}, ep_mechanism="chunked")
    hidden = float(whole["exposed_ep_time"]) - float(two["exposed_ep_time"])
    lost = float(slower["exposed_ep_time"]) - float(two["exposed_ep_time"])
    assert 0.0 < lost <= hidden
    none = evaluation(PLAN, ep_mechanism="chunked")
    assert float(none["exposed_ep_time"]) == 0.0


# Data parallelism.


@pytest.mark.parametrize("mechanism", DP_MECHANISMS)
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_buckets_as_simulated(mechanism: str, stage: int) -> None:
    for bandwidth in (1e8, 1e10, 5e10, 1e13):
        plan = {**PLAN, "zero_stage": stage, "inter_bandwidth": bandwidth}
        values = evaluation(plan, dp_mechanism=mechanism)
        count = int(values["dp_buckets"])
        assert count > 1
        window, sent = (Fraction(float(values[f"dp_{n}_time"])) for n in ("window", "reduce"))
        parts = [window / count] * count, [sent / count] * count
        actual = float(values["exposed_dp_reduce_time"])
        wanted = float(simulator.buckets(*parts, Fraction(0)) - window)
        assert actual == pytest.approx(wanted, rel=1e-9, abs=1e-15)
        window, sent = (
            Fraction(float(values[f"dp_{n}_time"])) for n in ("forward_window", "gather")
        )
        parts = [sent / count] * count, [window / count] * count
        wanted = float(simulator.prefetch(*parts, count) - window)
        actual = float(values["exposed_dp_gather_time"])
        assert actual == pytest.approx(wanted, rel=1e-9, abs=1e-15)


def test_buckets_have_the_sizes_of_their_software() -> None:
    plan = {**PLAN, "zero_stage": 0, "tp": 1, "pp": 1, "dp": 128, "global_batch_size": 128}
    values = {name: evaluation(plan, dp_mechanism=name) for name in DP_MECHANISMS}
    gradients = {
        name: float(value["reduction_bytes"] * value["max_rank_dense_parameters"])
        for name, value in values.items()
    }
    buckets = {name: float(value["dp_buckets"]) for name, value in values.items()}
    assert buckets["ddp_buckets"] == np.ceil(gradients["ddp_buckets"] / (25 * 2**20))
    element = float(values["megatron_buckets"]["reduction_bytes"])
    size = element * max(40e6, 1e6 * 128)
    assert buckets["megatron_buckets"] == np.ceil(gradients["megatron_buckets"] / size)
    # A given size holds instead.
    own = evaluation({**plan, "bucket_bytes": 1e9}, dp_mechanism="ddp_buckets")
    assert float(own["dp_buckets"]) == np.ceil(gradients["ddp_buckets"] / 1e9)
    # One bucket of all hides nothing of its reduction.
    one = evaluation({**plan, "bucket_bytes": 1e13}, dp_mechanism="ddp_buckets")
    assert float(one["exposed_dp_reduce_time"]) == pytest.approx(float(one["dp_reduce_time"]))


def test_stage_3_hides_all_that_can() -> None:
    plan = {**PLAN, "zero_stage": 3, "tp": 1, "dp": 32, "pp": 1}
    named = evaluation(plan, dp_mechanism="ddp_buckets")
    shared = evaluation({**plan, "dp_overlap": 1.0})
    assert float(named["exposed_dp_time"]) == pytest.approx(float(shared["exposed_dp_time"]))
    assert float(named["exposed_dp_time"]) > 0.0


# Shares.


def test_a_framework_s_share_needs_sequence_parallelism() -> None:
    split, whole = (
        evaluation({**PLAN, "tp_overlap": 0.7, "sequence_parallel": sp}) for sp in (1, 0)
    )
    assert float(split["exposed_tp_time"]) < 0.5 * float(split["tp_communication_time"])
    sent = float(whole["tp_communication_time"])
    assert float(whole["exposed_tp_time"]) == pytest.approx(sent, rel=1e-12)
    given = evaluation(
        {**PLAN, "tp_overlap": 0.7, "tp_all_reduce_overlap": 0.7, "sequence_parallel": 0}
    )
    assert float(given["exposed_tp_time"]) == pytest.approx(0.3 * sent, rel=1e-9)


# Whatever the mechanism.

LINKS = ("intra_bandwidth", "inter_bandwidth")
WINDOWS = ("matmul_part_time", "attention_part_time", "elementwise_part_time")


@pytest.mark.parametrize(
    ("label", "mechanism"), [(name, value) for name in OVERLAPS for value in LABELS[name].values]
)
def test_no_mechanism_hides_more_than_there_is(label: str, mechanism: str) -> None:
    """Of any dimension at most what it sends hides, and at most behind what is computed."""
    dimension = label[:2]
    rates = 10.0 ** np.linspace(8.0, 13.0, 11)
    plan = {
        **MIXTRAL,
        "tp": 2,
        "cp": 2,
        "pp": 1,
        "dp": 4,
        "ep": 4,
        "micro_batch_size": 1,
        "global_batch_size": 16,
        "zero_stage": 3,
        "sequence_parallel": 1,
        f"{dimension}_overlap": 1.0,
        "tp_gradient_overlap": 1.0,
        **dict.fromkeys(LINKS, rates),
    }
    values = evaluation(plan, context_parallel="ring", **{label: mechanism})
    sent, shown = values[f"{dimension}_communication_time"], values[f"exposed_{dimension}_time"]
    computed = np.sum([values[name] for name in WINDOWS], axis=0)
    if dimension == "dp":
        # Backwards keep the weights of the layer that they begin with, and wait for other ranks.
        sent = sent - values["backward_gathers"] * values["layer_gather_time"]
        computed = values["busy_time"]
    hidden = sent - shown
    assert np.all(shown >= 0.0)
    assert np.all(hidden <= np.minimum(sent, computed) * (1 + 1e-9))
    # Something does, where links are fast enough; but what costs more than it hides runs in turn.
    assert np.any(hidden > 0.0) or mechanism in ("userbuffers", "chunked")
    assert np.all(values["step_time"] >= np.maximum(computed, shown))
    given = {**plan, f"{dimension}_overlap": 0.0}
    given["tp_gradient_overlap"] = 0.0 if dimension == "tp" else 1.0
    given["unsharded_gradient_fraction"] = 1.0 if mechanism == "gradient_accumulation" else 0.0
    alone = evaluation(given, context_parallel="ring")["step_time"]
    ideal = (computed + sent) / np.maximum(computed, sent)
    assert np.all(alone / values["step_time"] <= ideal * (1 + 1e-9))


@pytest.mark.parametrize("mechanism", LABELS["cp_mechanism"].values)
@pytest.mark.parametrize("kind", LABELS["context_parallel"].values)
def test_no_context_parallelism_hides_more_than_attention_computes(
    kind: str, mechanism: str
) -> None:
    """Whatever of attention a backward repeats, which then is there to hide behind."""
    plan = {
        **PLAN,
        "cp": 4,
        "dp": 1,
        "micro_batch_size": 1,
        "cp_overlap": 1.0,
        "ulysses_ranks": 2,
        **dict.fromkeys(LINKS, 10.0 ** np.linspace(8.0, 13.0, 11)),
    }
    for recompute in LABELS["recompute"].values:
        labels = {"context_parallel": kind, "cp_mechanism": mechanism, "recompute": recompute}
        values = evaluation({**plan, "recompute_layers": 1}, **labels)
        kept = recompute in ("none", "per_op")
        again = 0.0 if kept else float(values["recomputed_attentions"])
        assert kept == (again == 0.0), recompute
        once, back = (
            values[f"cp_exchange_{way}_time"] + values[f"cp_round_{way}_time"]
            for way in ("forward", "backward")
        )
        for way, sent, repeated in (
            ("forward", once, 0.0),
            ("backward", back + again * once, again),
        ):
            hidden = sent - values[f"exposed_cp_{way}_time"]
            other = values[f"attention_{way}_time"] + repeated * values["attention_forward_time"]
            assert np.all(hidden >= -1e-12 * sent), recompute
            assert np.all(hidden <= np.minimum(sent, other) * (1 + 1e-9)), recompute
            # What isn't exposed is all there is to gain, and no more than an ideal gains.
            gain = (other + sent) / (other + sent - hidden)
            assert np.all(gain <= (other + sent) / np.maximum(other, sent) * (1 + 1e-9))


@pytest.mark.parametrize("schedule", LABELS["schedule"].values)
def test_no_schedule_hides_more_than_there_is(schedule: str) -> None:
    """Exchanges of experts beside another direction, and transfers between stages."""
    chunks = {"interleaved": 2}.get(schedule, 2 if schedule in FOLDED else 1)
    plan = {
        **MIXTRAL,
        "tp": 1,
        "cp": 1,
        "pp": 4,
        "dp": 4,
        "ep": 4,
        "micro_batch_size": 1,
        "zero_stage": 1,
        "global_batch_size": 64,
        "virtual_pipeline_size": chunks,
        "sequence_parallel": 1,
        **dict.fromkeys(LINKS, 10.0 ** np.linspace(8.0, 13.0, 11)),
    }
    values = evaluation({**plan, "pair_overlapped_fraction": 1.0}, schedule=schedule)
    computed = np.sum([values[name] for name in WINDOWS], axis=0)
    sent, shown = values["ep_communication_time"], values["exposed_ep_time"]
    assert np.all(shown >= 0.0)
    assert np.all(sent - shown <= np.minimum(sent, computed) * (1 + 1e-9))
    assert np.all(values["step_time"] >= np.maximum(computed, shown))
    alone = evaluation({**plan, "pair_overlapped_fraction": 0.0}, schedule=schedule)
    moved = sent + values["pp_communication_time"]
    # Bubbles are neither: a step's time without them is what overlap can shorten.
    ideal = (computed + moved) / np.maximum(computed, moved)
    assert np.all(alone["step_time"] / values["step_time"] <= ideal * (1 + 1e-9))
