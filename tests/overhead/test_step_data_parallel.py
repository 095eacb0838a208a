"""What of data parallelism's communication nothing hides: windows, and chains of layers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.evaluation import Evaluation
from tests.overhead.step_cases import LLAMA, MIXTRAL, SILENT, evaluation, value
from tests.overhead.usual import STEP
from tests.overlap.cases import overlapped
from tests.simulator import overlap as simulated
from tests.tables import keyed

PLAN = {**LLAMA, **SILENT, "dp": 64, "global_batch_size": 512, "overlap_slowdown": 0}


def chain(layers: int, forward: float, backward: float, gather: float, reduce: float) -> float:
    """Return the time of a forward and a backward through fully sharded layers, step by step.

    One stream computes, one communicates in the order of issue; the next layer's weights are
    fetched when a layer begins, its gradients reduced when it ends.
    """
    computed = link = 0.0
    ready = [0.0] * layers
    link = ready[0] = gather
    for layer in range(layers):
        start = max(computed, ready[layer])
        computed = start + forward
        if layer + 1 < layers:
            link = max(link, start) + gather
            ready[layer + 1] = link
    ready[layers - 1] = computed
    for layer in reversed(range(layers)):
        start = max(computed, ready[layer])
        computed = start + backward
        if layer:
            link = max(link, start) + gather
            ready[layer - 1] = link
        link = max(link, computed) + reduce
    return max(link, computed)


seconds = st.floats(0.05, 2.0)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(forward=seconds, backward=seconds, gather=seconds, reduce=seconds, layers=st.integers(1, 40))
def test_a_chain_of_layers_is_that_of_a_simulation(
    forward: float, backward: float, gather: float, reduce: float, layers: int
) -> None:
    plan = {
        **PLAN,
        "layers": layers,
        "zero_stage": 3,
        "dp_overlap": 1,
        "global_batch_size": 64,
        "stage_forward_time": layers * forward,
        "stage_backward_time": layers * backward,
        "dp_layer_gather_time": gather,
        "dp_layer_reduce_time": reduce,
    }
    exposed = value(plan, "exposed_dp_time")
    whole = layers * (forward + backward) + exposed
    assert whole == pytest.approx(chain(layers, forward, backward, gather, reduce), rel=1e-9)
    everything = (2 * layers - 1) * gather + layers * reduce
    assert gather + reduce <= exposed * (1 + 1e-12)
    assert exposed <= everything * (1 + 1e-12)
    serial = value({**plan, "dp_overlap": 0}, "exposed_dp_time")
    assert serial == pytest.approx(everything)


def test_each_micro_batch_gathers_and_reduces() -> None:
    plan = PLAN | keyed(
        "zero_stage=3 dp_overlap=0 dp_layer_gather_time=1e-3 dp_layer_reduce_time=2e-3"
    )
    # 8 micro-batches of 32 layers; the first layer of a backward is kept.
    assert value(plan, "exposed_dp_time") == pytest.approx(8 * (32 + 31) * 1e-3 + 8 * 32 * 2e-3)
    once = {**plan, "unsharded_gradient_fraction": 1}
    assert value(once, "exposed_dp_time") == pytest.approx(8 * (32 + 31) * 1e-3 + 32 * 2e-3)
    kept = {**once, "keep_gathered": 1}
    assert value(kept, "exposed_dp_time") == pytest.approx(8 * 32 * 1e-3 + 32 * 2e-3)
    alone = value(plan, "exposed_dp_time", schedule="forward_only")
    assert alone == pytest.approx(8 * 32 * 1e-3)


def test_the_embedding_is_gathered_first_and_reduced_last() -> None:
    """What is outside of layers is the ends'; half of it is the embedding's."""
    plan = PLAN | keyed(
        "zero_stage=3 dp_overlap=1 global_batch_size=64 dp_layer_gather_time=1e-9 "
        "dp_non_layer_gather_time=1e-3 dp_non_layer_reduce_time=3e-3"
    )
    assert value(plan, "exposed_dp_time") == pytest.approx((1e-3 + 3e-3) / 2, rel=1e-5)
    tied = {**plan, "tied_embeddings": 1}
    assert value(tied, "exposed_dp_time") == pytest.approx(1e-3 + 3e-3, rel=1e-5)
    serial = value({**plan, "dp_overlap": 0}, "exposed_dp_time")
    assert serial == pytest.approx(2e-3 + 3e-3, rel=1e-3)


def test_experts_are_gathered_with_their_layers() -> None:
    plan = {
        **MIXTRAL,
        **SILENT,
        "dp": 8,
        "global_batch_size": 8,
        "zero_stage": 3,
        "overlap_slowdown": 0,
        "dp_layer_gather_time": 1e-3,
        "edp_layer_gather_time": 5e-3,
    }
    assert value(plan, "layer_gather_time") == pytest.approx(6e-3)
    assert value({**plan, "moe_layer_frequency": 2}, "layer_gather_time") == pytest.approx(3.5e-3)
    assert value({**plan, **LLAMA}, "layer_gather_time") == pytest.approx(1e-3)


def test_hidden_communication_costs_its_share() -> None:
    plan = PLAN | keyed(
        "zero_stage=3 dp_overlap=1 global_batch_size=64 dp_layer_gather_time=1e-5 "
        "dp_layer_reduce_time=1e-5"
    )
    free = value(plan, "exposed_dp_time")
    assert free == pytest.approx(2e-5)
    hidden = (63 + 32) * 1e-5 - free
    assert value({**plan, "overlap_slowdown": 0.08}, "exposed_dp_time") == pytest.approx(
        free + 0.08 * hidden
    )


# Windows.


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
def test_without_overlap_all_is_exposed(zero_stage: int) -> None:
    plan = dict(PLAN, zero_stage=zero_stage, dp_reduce_time=3e-3, dp_gather_time=2e-3, dp_overlap=0)
    assert value(plan, "exposed_dp_time") == 5e-3


def test_gradients_hide_behind_the_last_backward() -> None:
    plan = PLAN | keyed(
        "zero_stage=1 dp_overlap=0.9 stage_forward_time=10e-3 stage_backward_time=20e-3 "
        "dp_reduce_time=100e-3"
    )
    assert value(plan, "exposed_dp_reduce_time") == pytest.approx(100e-3 - 0.9 * 20e-3)
    short = {**plan, "dp_reduce_time": 10e-3}
    assert value(short, "exposed_dp_reduce_time") == pytest.approx(1e-3)
    whole = {**short, "dp_overlap": 1}
    # The last of 32 layers has nothing left to hide behind.
    assert value(whole, "exposed_dp_reduce_time") == pytest.approx(10e-3 / 32)
    gathered = {**plan, "dp_gather_time": 50e-3}
    assert value(gathered, "exposed_dp_gather_time") == pytest.approx(50e-3 - 0.9 * 10e-3)


def late_chunks(chunks: int, passes: int, chunk_time: float, message_time: float) -> float:
    """Return how long a link still reduces when all is computed, chunk after chunk."""
    link = 0.0
    for chunk in range(1, chunks + 1):
        link = max(link, chunk * passes * chunk_time) + message_time
    return link - chunks * passes * chunk_time


@pytest.mark.parametrize("reduced", [1e-3, 30e-3, 50e-3, 100e-3, 1.0])
@pytest.mark.parametrize("chunks", [2, 4])
def test_chunks_hide_behind_those_that_are_computed_after_them(chunks: int, reduced: float) -> None:
    """As many passes each as stages, of the last micro-batches; weights come the other way."""
    plan = PLAN | keyed("pp=4 zero_stage=1 dp_overlap=1 dp=16 uneven_time=0")
    plan |= {"stage_forward_time": 10e-3, "stage_backward_time": 20e-3}
    plan |= {"dp_reduce_time": reduced, "dp_gather_time": reduced, "virtual_pipeline_size": chunks}
    for num_micro_batches, passes in ((32, 4), (4, 4)):
        more = {**plan, "global_batch_size": 16 * num_micro_batches}
        for name, time in (("reduce", 20e-3), ("gather", 10e-3)):
            actual = value(more, f"exposed_dp_{name}_time", schedule="interleaved")
            late = late_chunks(chunks, passes, time / chunks, reduced / chunks)
            assert actual == pytest.approx(late)


def test_one_chunk_a_stage_has_the_window_of_plain_1f1b() -> None:
    plan = PLAN | keyed(
        "pp=4 virtual_pipeline_size=1 zero_stage=1 dp_overlap=1 dp=16 uneven_time=0"
    )
    plan |= keyed("stage_forward_time=10e-3 stage_backward_time=20e-3 dp_reduce_time=1.0")
    for labels in ({"schedule": "interleaved"}, {}):
        assert value(plan, "exposed_dp_reduce_time", **labels) == pytest.approx(1.0 - 20e-3)


def test_gradients_that_are_reduced_each_time_hide_each_time() -> None:
    plan = PLAN | keyed(
        "zero_stage=2 dp_overlap=1 stage_forward_time=10e-3 stage_backward_time=20e-3 "
        "dp_reduce_time=1.0"
    )
    assert value(plan, "exposed_dp_reduce_time") == pytest.approx(1.0 - 8 * 20e-3)
    waiting = {**plan, "unsharded_gradient_fraction": 1}
    assert value(waiting, "exposed_dp_reduce_time") == pytest.approx(1.0 - 20e-3)


def test_stages_of_zero_are_told_apart() -> None:
    plan = {
        **PLAN,
        "zero_stage": np.array([0.0, 1.0, 2.0, 3.0]),
        "dp_overlap": 0,
        "dp_reduce_time": 3e-3,
        "dp_layer_gather_time": 1e-3,
    }
    exposed_dp_time = evaluation(plan)["exposed_dp_time"]
    assert list(exposed_dp_time[:3]) == [3e-3] * 3
    assert exposed_dp_time[3] == pytest.approx(8 * 63e-3, rel=0.02)


# Weights fetched so many layers ahead.


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    forward=seconds,
    backward=seconds,
    gather=seconds,
    reduce=seconds,
    layers=st.integers(1, 9),
    ahead=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_layers_fetched_ahead_are_those_of_a_simulation(
    forward: float,
    backward: float,
    gather: float,
    reduce: float,
    layers: int,
    ahead: tuple[int, int],
) -> None:
    plan = {
        **PLAN,
        "layers": layers,
        "zero_stage": 3,
        "global_batch_size": 64,
        "forward_prefetch": ahead[0],
        "backward_prefetch": ahead[1],
        "stage_forward_time": layers * forward,
        "stage_backward_time": layers * backward,
        "dp_layer_gather_time": gather,
        "dp_layer_reduce_time": reduce,
    }
    actual = value(plan, "exposed_dp_time", dp_mechanism="fsdp_prefetch")
    one, work, sent, back = (Fraction(t) for t in (forward, backward, gather, reduce))
    # A backward's first layer has its weights from the forward.
    gathers = [Fraction(0)] + [sent] * (layers - 1)
    chain = simulated.sharded_backward(gathers, [work] * layers, [back] * layers, ahead[1])
    first = simulated.prefetch([sent] * layers, [one] * layers, ahead[0])
    wanted = float(first + chain) - layers * (forward + backward)
    assert actual == pytest.approx(wanted, rel=1e-9)
    sends = (2 * layers - 1) * gather + layers * reduce
    assert sends - layers * (forward + backward) <= actual * (1 + 1e-12) + 1e-12
    assert actual <= sends * (1 + 1e-12)


def test_one_layer_ahead_is_the_share_of_all() -> None:
    plan = {**PLAN, "zero_stage": 3, "global_batch_size": 512, "overlap_slowdown": 0.08}
    whole = value({**plan, "dp_overlap": 1}, "exposed_dp_time")
    assert value(plan, "exposed_dp_time", dp_mechanism="fsdp_prefetch") == pytest.approx(whole)
    # DeepSpeed's window of 50 million elements is one layer's of 218 million.
    assert value(plan, "backward_layers_ahead", dp_mechanism="zero3_prefetch") == 1
    window = {**plan, "prefetched_elements": 1e9}
    assert value(window, "forward_layers_ahead", dp_mechanism="zero3_prefetch") == 5


def test_layers_that_are_fetched_ahead_are_held() -> None:
    plan = {**PLAN, "zero_stage": 3}
    one, three = (
        value({**plan, "backward_prefetch": n}, "fetched_layers", dp_mechanism="fsdp_prefetch")
        for n in (1, 3)
    )
    assert (one, three) == (2, 4)


def test_gradients_that_accumulate_are_reduced_once() -> None:
    each = {**PLAN, "zero_stage": 2}
    assert value(each, "gradient_reductions") == 8
    assert value(each, "gradient_reductions", dp_mechanism="gradient_accumulation") == 1
    # As with gradients that wait by another road.
    waits = {**each, "zero_stage": 3, "unsharded_gradient_fraction": 1, "dp_overlap": 1}
    assert value(waits, "exposed_dp_time") == pytest.approx(
        value({**each, "zero_stage": 3}, "exposed_dp_time", dp_mechanism="gradient_accumulation")
    )


# What hides slows down what it hides behind.


def contention(**taken: float) -> float:
    values = {"sms": 132.0, "communicator_channels": 16.0, **taken}
    return float(Evaluation(values)["overlap_slowdown"])


@given(sms=st.floats(0, 300), streams=st.integers(1, 3), channels=st.integers(1, 32))
@settings(max_examples=30, deadline=None)
def test_contention_follows_from_the_multiprocessors_taken(
    sms: float, streams: int, channels: int
) -> None:
    assert contention(comm_sms=sms) == pytest.approx(min(sms / 132, 1))
    assert contention(comm_sms=0) == 0
    both = contention(communication_streams=streams, communication_channels=channels)
    assert both == contention(comm_sms=streams * channels)
    # The same as a collective beside a product that gets its multiprocessors when it is done.
    shared = overlapped("bulk_shared", 2.0, 1.0, num_sm=channels, sms=132)
    assert shared - 2.0 == pytest.approx(contention(communication_channels=channels))


@given(priority=st.floats(0, 1), channels=st.integers(1, 32), times=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_contention_follows_from_who_comes_first(
    priority: float, channels: int, times: int
) -> None:
    """Of each collective beside a longer product the one or the other comes first."""
    first = overlapped("bulk_shared", 1.0 * times, 1.0, num_sm=channels, sms=132) - times
    queued = overlapped("bulk_queued", 1.0 * times, 1.0) - times
    taken = contention(communication_channels=channels, communication_priority=priority)
    assert taken == pytest.approx(priority * first + (1.0 - priority) * queued)
    assert contention(comm_sms=0.0, communication_priority=0.0) == 1.0


def test_contention_of_fits_is_that_of_nccls_channels() -> None:
    """On DGX H100 its search ends at 8 channels across nodes and at 12 in one."""
    least, most = (contention(communication_channels=n) for n in (8, 12))
    assert least < STEP["overlap_slowdown"] < most
