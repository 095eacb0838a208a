"""Closed forms of overlap beside step simulations, with equal parts and with unequal ones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.evaluation import Evaluation
from overhead.special import power_sum
from sweeps.tuner.rates import TAKEN, read_rates
from tests.overlap.cases import (
    EXACT,
    bucketed_time,
    close,
    counts,
    evaluated,
    layered_time,
    overlapped,
    prefetched_time,
    sharded_backward_time,
    shares,
    some_times,
    times,
)
from tests.simulator import overlap as simulated
from tests.simulator import pipeline as pipelines
from tests.tables import examples, keyed

# Each form is what its simulation takes.


@given(times, times, shares)
def test_two_durations(compute: Fraction, communication: Fraction, share: Fraction) -> None:
    ours = overlapped("two_durations", compute, communication, overlap_efficiency=share)
    close(ours, simulated.two_durations(compute, communication, share))
    ours = overlapped(
        "two_durations",
        compute,
        communication,
        overlap_efficiency=share,
        efficiency_of="communication",
    )
    close(ours, simulated.of_communication(compute, communication, share))


@given(times, times, counts, shares)
def test_ddp_buckets(
    compute: Fraction, communication: Fraction, count: int, share: Fraction
) -> None:
    equal = [Fraction(1, count)] * count
    known: dict[str, Any] = {"gradient_buckets": count}
    for first in (None, share):
        parts = equal
        if first is not None:
            known["first_bucket_fraction"] = first
            others = [(1 - first) / (count - 1)] * (count - 1) if count > 1 else []
            parts = [first, *others] if count > 1 else equal
        work, sent = [compute * p for p in parts], [communication * p for p in parts]
        exact = simulated.buckets(work, sent, Fraction(0))
        close(overlapped("ddp_buckets", compute, communication, **known), exact)


@given(times, times, counts, counts, shares)
def test_gradient_accumulation(
    compute: Fraction, communication: Fraction, num_micro_batches: int, count: int, share: Fraction
) -> None:
    ours = overlapped(
        "gradient_accumulation",
        compute,
        communication,
        num_micro_batches=num_micro_batches,
        backward_fraction=share,
        gradient_buckets=count,
    )
    exact = simulated.gradient_accumulation(compute, communication, num_micro_batches, share, count)
    close(ours, exact)


@given(times, times, counts, st.integers(0, 4), shares)
def test_layers(
    compute: Fraction, communication: Fraction, layers: int, ahead: int, share: Fraction
) -> None:
    work, sent = [compute / layers] * layers, [communication / layers] * layers
    known = {"layers": layers}
    ours = overlapped("fsdp_prefetch", compute, communication, prefetched_layers=ahead, **known)
    close(ours, simulated.prefetch(sent, work, ahead))
    ours = overlapped(
        "layer_by_layer", compute, communication, independent_compute_fraction=share, **known
    )
    close(ours, simulated.layer_by_layer(work, sent, share))
    gather, reduce = [t * (1 - share) for t in sent], [t * share for t in sent]
    ours = overlapped(
        "fsdp_backward",
        compute,
        communication,
        reduction_fraction=share,
        prefetched_layers=ahead,
        **known,
    )
    close(ours, simulated.sharded_backward(gather, work, reduce, ahead))


@given(times, times, st.integers(1, 4), st.integers(1, 30), st.integers(0, 60))
def test_zero_3_gathers_what_its_window_reaches(
    compute: Fraction, communication: Fraction, layers: int, elements: int, window: int
) -> None:
    ours = overlapped(
        "zero3_prefetch",
        compute,
        communication,
        layers=layers,
        layer_elements=elements,
        prefetched_elements=window,
    )
    ahead = 0
    while ahead * elements < window:
        ahead += 1
    work, sent = [compute / layers] * layers, [communication / layers] * layers
    close(ours, simulated.prefetch(sent, work, ahead))


@given(some_times, some_times, st.integers(2, 10), times)
def test_rings(product: Fraction, step: Fraction, ranks: int, sums: Fraction) -> None:
    compute, communication = product * ranks, step * (ranks - 1)
    ours = overlapped("ring_exchange", compute, communication, ranks=ranks)
    close(ours, simulated.ring(product, step, ranks))
    ours = overlapped(
        "reduce_scatter_ring", compute, communication, ranks=ranks, partial_sum_time=sums
    )
    close(ours, simulated.scatter_ring(product, step, ranks, sums))
    even = ranks + ranks % 2
    ours = overlapped("ring_exchange_aggregate", product * even, step * (even - 1), ranks=even)
    close(ours, simulated.aggregate_ring(product, step, even))


@given(times, times, counts, times)
def test_reduce_scatter_pipeline(
    product: Fraction, step: Fraction, splits: int, last: Fraction
) -> None:
    compute, communication = product * splits, step * splits
    ours = overlapped("reduce_scatter_pipeline", compute, communication, splits=splits)
    close(ours, simulated.pipelined_scatter(product, step, splits, step))
    ours = overlapped(
        "reduce_scatter_pipeline", compute, communication, splits=splits, last_split_time=last
    )
    close(ours, simulated.pipelined_scatter(product, step, splits, last))


@given(times, times, st.integers(1, 40), st.data())
def test_bulk(compute: Fraction, communication: Fraction, sms: int, data: st.DataObject) -> None:
    taken = data.draw(st.integers(0, sms - 1))
    known = {"sms": sms, "num_sm": taken}
    ours = overlapped("bulk_margin", compute, communication, **known)
    close(ours, simulated.bulk_margin(compute, communication, sms, taken))
    ours = overlapped("bulk_shared", compute, communication, **known)
    close(ours, simulated.bulk_shared(compute, communication, sms, taken))
    ours = overlapped("bulk_queued", compute, communication)
    close(ours, simulated.bulk_queued(compute, communication))


@given(times, times, st.lists(times, min_size=1, max_size=9), times)
def test_fused_messages(
    compute: Fraction, latency: Fraction, transfers: list[Fraction], copies: Fraction
) -> None:
    known = {
        "compute_time": float(compute),
        "messages": float(len(transfers)),
        "message_latency": float(latency),
        "transfer_time": float(sum(transfers)),
        "copy_time": float(copies),
    }
    labels = {"mechanism": "fused_messages", "communication": "messages"}
    evaluation = Evaluation(known, labels)
    exact = simulated.fused(compute, latency, transfers, copies)
    close(float(evaluation["overlapped_time"]), exact)
    apart = simulated.separate(compute, latency, transfers)
    close(float(evaluation["sequential_time"]), apart)
    # What fusing saves isn't hidden, and no more is reached than the longer one allows.
    assert float(evaluation["hidden_time"]) == float(evaluation["overlap_of_shorter"]) == 0.0
    close(float(evaluation["fusing_saves"]), apart - exact)
    assert float(evaluation["overlap_speedup"]) <= float(evaluation["ideal_speedup"]) * (1 + 1e-12)


@given(st.integers(0, 60), some_times, st.integers(1, 20))
def test_waves(tiles: int, tile: Fraction, sms: int) -> None:
    from overhead.overlap import bulk

    assert bulk.WAVES
    known = {
        **keyed(
            "tile_rows=1.0 matmul_n=1.0 tile_columns=1.0 num_sm=0.0 activation_bytes=0.0 "
            "matmul_k=1.0 memory_bandwidth=1.0 launch_time=0.0"
        ),
        "matmul_m": float(tiles),
        "tile_time": float(tile),
        "sms": float(sms),
    }
    evaluation = Evaluation(known)
    exact = simulated.wave_product(tiles, tile, sms)
    close(float(evaluation["wave_matmul_time"]), exact)
    if tiles:
        busy = tiles * tile / (exact * sms)
        close(float(evaluation["wave_efficiency"]), busy)


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b", "interleaved"])
@given(
    forward=st.fractions(1, 9, max_denominator=9),
    transfer=st.fractions(0, 1, max_denominator=9),
    pp=st.integers(1, 5),
    groups=st.integers(1, 4),
    virtual=st.integers(2, 3),
)
def test_pipelines(
    schedule: str, forward: Fraction, transfer: Fraction, pp: int, groups: int, virtual: int
) -> None:
    virtual = virtual if schedule == "interleaved" and pp > 1 else 1
    count = groups * pp
    if schedule == "interleaved":
        orders = pipelines.interleaved(pp, count, virtual)
    else:
        orders = pipelines.ORDERS[schedule](pp, count)
    duration = {"forward": forward / virtual, "backward": 2 * forward / virtual}
    exact = pipelines.run(orders, lambda slot: duration[slot[0].kind], transfer / virtual).time
    time, compute, sequential = evaluated(
        "pipeline",
        "overlapped_time",
        "compute_time",
        "sequential_time",
        schedule=schedule,
        stage_forward_time=forward,
        stage_backward_time=2 * forward,
        p2p_time=transfer / virtual,
        pp=pp,
        num_micro_batches=count,
        virtual_pipeline_size=virtual,
    )
    close(time, exact)
    assert compute <= time * (1 + EXACT)
    assert time <= sequential * (1 + EXACT)


# Unequal parts: the general forms.

parts = st.lists(st.tuples(times, times, times), min_size=1, max_size=8)


def columns(rows: Sequence[Sequence[Fraction]]) -> list[list[Fraction]]:
    return [list(column) for column in zip(*rows, strict=True)]


@given(parts, st.integers(0, 9), shares)
def test_unequal_parts(rows: list[tuple[Fraction, ...]], ahead: int, share: Fraction) -> None:
    one, two, three = columns(rows)
    first, second, third = (np.array(column, dtype=np.float64) for column in (one, two, three))
    close(float(bucketed_time(first, second)), simulated.buckets(one, two, Fraction(0)))
    close(float(prefetched_time(first, second, ahead)), simulated.prefetch(one, two, ahead))
    close(float(prefetched_time(first, second)), simulated.prefetch(one, two, len(rows)))
    exact = simulated.sharded_backward(one, two, three, ahead)
    close(float(sharded_backward_time(first, second, third, ahead)), exact)
    exact = simulated.layer_by_layer(one, two, share)
    close(float(layered_time(first, second, float(share))), exact)


@given(times, times, counts, st.integers(0, 3), shares)
def test_equal_parts_are_the_formulas(
    compute: Fraction, communication: Fraction, count: int, ahead: int, share: Fraction
) -> None:
    work, sent = (
        np.full(count, float(compute) / count),
        np.full(count, float(communication) / count),
    )

    def same(mechanism: str, general: Any, **known: Any) -> None:
        ours = overlapped(mechanism, compute, communication, **known)
        assert float(general) == pytest.approx(ours, rel=EXACT, abs=1e-13)

    same("ddp_buckets", bucketed_time(work, sent), gradient_buckets=count)
    general = prefetched_time(sent, work, ahead)
    same("fsdp_prefetch", general, layers=count, prefetched_layers=ahead)
    general = sharded_backward_time(sent * (1 - float(share)), work, sent * float(share), ahead)
    same("fsdp_backward", general, layers=count, reduction_fraction=share, prefetched_layers=ahead)
    general = layered_time(work, sent, float(share))
    same("layer_by_layer", general, layers=count, independent_compute_fraction=share)


def test_general_forms_broadcast() -> None:
    rng = np.random.default_rng(1)
    work, sent, back = rng.random((6, 4, 1)), rng.random((6, 5)), rng.random((6, 4, 5))
    for form in (bucketed_time, prefetched_time, layered_time):
        whole = form(work, sent)
        assert whole.shape == (4, 5)
        for i, j in np.ndindex(4, 5):
            assert whole[i, j] == form(work[:, i, 0], sent[:, j])
    whole = prefetched_time(work, sent, 1)
    assert whole[2, 3] == prefetched_time(work[:, 2, 0], sent[:, 3], 1)
    whole = sharded_backward_time(work, sent, back)
    assert whole[2, 3] == sharded_backward_time(work[:, 2, 0], sent[:, 3], back[:, 2, 3])
    assert float(bucketed_time([], [])) == 0.0
    with pytest.raises(ValueError, match="first axis"):
        bucketed_time(1.0, 2.0)


# Rows, columns, depth, products at once, microseconds.
MEASURED = examples(__file__, "measured")


def test_a_smooth_maximum_is_sharp_at_last_and_a_minimum_below_nought() -> None:
    one, other = np.array([0.0, 3.0, 5.0, np.inf]), np.array([0.0, 4.0, 2.0, 1.0])
    assert power_sum(one, other, 2.0).tolist()[:2] == [0.0, 5.0]
    np.testing.assert_allclose(power_sum(one, other, 900.0), np.maximum(one, other))
    np.testing.assert_allclose(power_sum(one, other, -900.0), np.minimum(one, other))
    assert float(power_sum(np.array(4.0), np.array(4.0), -1.0)) == 2.0


def test_measured_products_are_as_the_tiles_say() -> None:
    """Rows of XLA's measured table (jax-cuda12-pjrt 0.9.2), in bf16."""
    for machine, rows in MEASURED.items():
        rates = read_rates(machine)
        known = {name: rates[name] for name in TAKEN}
        m, n, k, batch, time = np.array(rows).T
        sizes = {"matmul_m": m, "matmul_n": n, "matmul_k": k}
        values = Evaluation({**known, **sizes, "concurrent_matmuls": batch}, {"compute": "tiles"})
        burst = values["burst_matmul_time"] + rates["launch_time"]
        errors = np.sort(np.abs(burst / (1e-6 * time) - 1.0))
        assert np.median(errors) < 0.03
        assert errors[-2] < 0.1
