"""Overlap: bounds, limits, monotony, the overlap guide's numbers, buckets, timelines."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead import REGISTRY
from overhead.evaluation import Evaluation
from overhead.formula import Formula
from overhead.overlap.mechanisms import MECHANISMS
from overhead.overlap.pipeline import PIPELINES
from overhead.overlap.timeline import COUNTS, DERIVED, TIMELINES, timeline
from tests.overlap.cases import EXACT, evaluated, overlapped, some_times
from tests.tables import keyed

# Bounds and limits.

BOUNDED = [
    mechanism.name
    for mechanism in MECHANISMS.values()
    if mechanism.bounded and mechanism.name != "pipeline"
]
NEEDED = {"zero3_prefetch": {"layer_elements": 1e8}}


@st.composite
def cases(draw: st.DrawFn, mechanism: str) -> dict[str, float]:
    """Return what a mechanism takes."""
    taken = {**MECHANISMS[mechanism].defaults, **NEEDED.get(mechanism, {})}
    found: dict[str, float] = {}
    for name, value in taken.items():
        if name in (*COUNTS, "prefetched_layers"):
            found[name] = float(draw(st.integers(1, 9)))
        elif value <= 1.0 and name != "partial_sum_time":
            found[name] = draw(st.floats(0, 1))
        else:
            found[name] = value
    if mechanism == "bulk_shared":
        found["num_sm"] = float(draw(st.integers(0, 132)))
    if mechanism == "ring_exchange_aggregate":
        found["ranks"] *= 2.0
    return found


lengths = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))


@pytest.mark.parametrize("mechanism", BOUNDED)
@given(data=st.data(), compute=lengths, communication=lengths)
def test_never_below_the_longer_nor_above_both(
    mechanism: str, data: st.DataObject, compute: float, communication: float
) -> None:
    known = data.draw(cases(mechanism))
    time, ratio, speedup, ideal, hidden = evaluated(
        mechanism,
        "overlapped_time",
        "overlap_of_shorter",
        "overlap_speedup",
        "ideal_speedup",
        "hidden_time",
        compute_time=compute,
        communication_time=communication,
        **known,
    )
    slack = EXACT * (compute + communication)
    assert max(compute, communication) - slack <= time <= compute + communication + slack
    assert -1e-9 <= ratio <= 1.0
    assert hidden >= -slack
    assert 1 - 1e-9 <= speedup <= ideal * (1 + 1e-9)
    if not compute or not communication:
        assert time == pytest.approx(compute + communication, rel=EXACT)
        assert ratio == 0.0
    longer = overlapped(mechanism, compute * 1.5, communication, **known)
    assert longer >= time - slack
    longer = overlapped(mechanism, compute, communication * 1.5, **known)
    assert longer >= time - slack


# Of these one has a bound of its own, some cost more than they hide, one has stages' times.
UNBOUNDED = [name for name in MECHANISMS if name not in BOUNDED]


@pytest.mark.parametrize("mechanism", UNBOUNDED)
@given(data=st.data(), compute=lengths, communication=lengths, schedule=st.sampled_from(PIPELINES))
def test_nothing_hides_more_than_the_shorter_nor_beats_its_ideal(
    mechanism: str, data: st.DataObject, compute: float, communication: float, schedule: str
) -> None:
    known = {**data.draw(cases(mechanism)), "compute_time": compute}
    labels = {"mechanism": mechanism}
    if mechanism == "pipeline":
        known.pop("compute_time")
        known |= dict(
            stage_forward_time=compute, stage_backward_time=2 * compute, p2p_time=communication
        )
        labels["schedule"] = schedule
        chunks = 2.0 if schedule == "interleaved" else 1.0
        known |= {
            "virtual_pipeline_size": chunks,
            "num_micro_batches": 8.0 * known["num_micro_batches"],
        }
    elif mechanism == "fused_messages":
        known |= {"messages": 5.0, "message_latency": communication, "transfer_time": compute / 3}
        known["copy_time"] = communication / 7
        labels["communication"] = "messages"
    elif mechanism.startswith("bulk"):
        known |= {"communication_time": communication, "sms": 132.0, "num_sm": 24.0}
    else:
        known |= {"communication_time": communication}
    result = Evaluation({**MECHANISMS[mechanism].defaults, **known}, labels)
    names = tuple(
        (
            "compute_time communication_time hidden_time overlapped_time ideal_overlapped_time "
            "overlap_speedup ideal_speedup"
        ).split()
    )
    work, sent, hidden, time, ideal, speedup, best = (float(result[name]) for name in names)
    assert hidden <= min(work, sent) + EXACT * (work + sent)
    assert time >= ideal * (1 - 1e-9)
    assert speedup <= best * (1 + 1e-9)
    assert float(result["overlap_of_shorter"]) <= 1.0


@given(some_times, some_times, st.integers(1, 64))
def test_a_layer_waits_for_what_it_needs_unless_it_is_said_not_to(
    compute: Fraction, communication: Fraction, layers: int
) -> None:
    """By default a layer needs the one before it whole: nothing hides."""
    time = overlapped("layer_by_layer", compute, communication, layers=layers)
    assert time == pytest.approx(float(compute + communication), rel=EXACT)


PRODUCTS = tuple(
    (
        "two_durations ring_exchange ring_exchange_aggregate reduce_scatter_ring "
        "reduce_scatter_pipeline bulk_margin bulk_shared bulk_queued"
    ).split()
)
TILES = keyed(
    "burst_matmul_flops=858e12 sm_load_bandwidth=146e9 tile_depth_overhead=182.0 "
    "last_wave_fraction=1.0 tile_sharpness=5.0 burst_memory_bandwidth=4e12 burst_ratio=1.4 "
    "matmul_chunk_gap=2e-6 matmul_input_bytes=2.0"
)
WAVES = keyed(
    "tile_rows=128.0 tile_columns=256.0 peak_measured_matmul_flops=8e14 memory_bandwidth=3e12"
)


@pytest.mark.parametrize("form", ["waves", "tiles"])
@pytest.mark.parametrize("mechanism", PRODUCTS)
@given(
    sizes=st.tuples(*[st.integers(1, 16384)] * 3),
    communication=st.floats(0, 0.01),
    ranks=st.sampled_from([2.0, 4.0, 8.0]),
    num_sm=st.integers(1, 64),
)
@settings(max_examples=10, deadline=None)
def test_products_hide_no_more_than_there_is(
    form: str,
    mechanism: str,
    sizes: tuple[int, int, int],
    communication: float,
    ranks: float,
    num_sm: int,
) -> None:
    """Whole products and their pieces go by one form, so that cutting one gains nothing."""
    rows, columns, depth = map(float, sizes)
    known = {
        **(TILES if form == "tiles" else WAVES),
        "matmul_m": rows,
        "matmul_n": columns,
        "matmul_k": depth,
        "communication_time": communication,
        "ranks": ranks,
        "sms": 132.0,
        "num_sm": float(num_sm),
        "splits": 4.0,
        "partial_sum_time": 1e-5,
        "launch_time": 5e-6,
        "activation_bytes": 2.0,
        "overlap_efficiency": 1.0,
    }
    result = Evaluation(known, {"mechanism": mechanism, "compute": form})
    compute, hidden = float(result["compute_time"]), float(result["hidden_time"])
    assert hidden <= min(compute, communication) * (1.0 + 1e-9) + 1e-15
    assert float(result["overlap_speedup"]) <= float(result["ideal_speedup"]) * (1.0 + 1e-9) or (
        mechanism == "reduce_scatter_ring"  # whose sums are in neither duration
    )
    assert float(result["overlapped_time"]) >= max(compute, communication) * (1.0 - 1e-9)


@given(some_times, some_times)
def test_two_ranks_that_aggregate_overlap_nothing(one: Fraction, other: Fraction) -> None:
    ours = overlapped("ring_exchange_aggregate", one, other, ranks=2)
    assert ours == float(one) + float(other)
    plain = overlapped("ring_exchange", one, other, ranks=2)
    assert plain <= ours
    assert plain < ours or not other


@given(some_times, some_times)
def test_more_parts_hide_more(compute: Fraction, communication: Fraction) -> None:
    ideal = float(max(compute, communication))
    for mechanism, count in (
        ("ddp_buckets", "gradient_buckets"),
        ("fsdp_prefetch", "layers"),
        ("fsdp_backward", "layers"),
        ("layer_by_layer", "layers"),
        ("ring_exchange", "ranks"),
        ("reduce_scatter_pipeline", "splits"),
        ("reduce_scatter_ring", "ranks"),
    ):
        more = {"independent_compute_fraction": 1.0} if mechanism == "layer_by_layer" else {}
        found = [
            overlapped(mechanism, compute, communication, **{count: n}, **more)
            for n in (1, 2, 7, 1e9)
        ]
        assert all(a >= b * (1 - EXACT) for a, b in pairwise(found))
        assert found[0] == pytest.approx(float(compute + communication), rel=EXACT)
        assert found[-1] == pytest.approx(ideal, rel=1e-6)


@given(some_times, st.integers(2, 132), st.floats(0.1, 50), st.floats(0, 1))
def test_a_carve_out_falls_then_rises(
    compute: Fraction, sms: int, per_sm: float, latency: float
) -> None:
    """Monotone on each side of the crossing of product and communication."""
    taken = np.arange(1.0, sms)
    known: dict[str, Any] = {
        "compute_time": float(compute),
        "sms": float(sms),
        "num_sm": taken,
        "bandwidth": 20 * per_sm,
        "sm_bandwidth": per_sm,
        "message_bytes": 1e3,
        "ranks": 8.0,
        "latency": latency,
    }
    labels = {"mechanism": "bulk_margin", "communication": "sms", "sm_law": "linear"}
    evaluation = Evaluation(known, labels)
    product, sent = evaluation["sm_limited_compute_time"], evaluation["communication_time"]
    time = np.asarray(evaluation["overlapped_time"])
    assert np.all(np.diff(product) > 0)
    assert np.all(np.diff(sent) <= 0)
    crossed = product >= sent
    assert np.all(np.diff(time[~crossed]) <= 0)
    assert np.all(np.diff(time[crossed]) >= 0)


def test_a_carve_out_can_cost_more_than_it_hides() -> None:
    time, both, hidden, speedup, ratio = evaluated(
        "bulk_margin",
        "overlapped_time",
        "sequential_time",
        "hidden_time",
        "overlap_speedup",
        "overlap_of_shorter",
        compute_time=1.0,
        communication_time=0.01,
        sms=100,
        num_sm=50,
    )
    assert time == 2.0
    assert hidden == pytest.approx(both - 2.0)
    assert hidden < 0.0
    assert speedup < 1.0
    assert ratio < 0.0


# The overlap guide's own numbers.


def test_the_worked_example() -> None:
    known = {"compute_time": 0.050, "communication_time": 0.010, "overlap_efficiency": 0.8}
    for of in ("shorter", "communication"):
        time, speedup, ideal = evaluated(
            "two_durations",
            "overlapped_time",
            "overlap_speedup",
            "ideal_speedup",
            efficiency_of=of,
            **known,
        )
        assert time == pytest.approx(0.052, rel=EXACT)
        assert speedup == pytest.approx(60 / 52, rel=EXACT)
        assert ideal == pytest.approx(1.2, rel=EXACT)


def test_the_case_that_can_not_be_is_bounded() -> None:
    """50 ms of computation can't make 80 ms of communication take 50 ms."""
    time = overlapped("two_durations", 50, 80, overlap_efficiency=1, efficiency_of="communication")
    assert time == 80.0
    assert 50 + 80 * (1 - 1) < 80


@pytest.mark.parametrize(("share", "most"), [(0.1, 0.111), (0.3, 0.429)])
def test_what_overlap_can_gain(share: float, most: float) -> None:
    ideal, actual = evaluated(
        "two_durations",
        "ideal_speedup",
        "communication_fraction",
        compute_time=1 - share,
        communication_time=share,
    )
    assert ideal - 1 == pytest.approx(most, abs=5e-4)
    assert actual == pytest.approx(share)


# How gradients are cut.


def test_buckets_by_size() -> None:
    mib = 2.0**20
    known: dict[str, Any] = {
        "message_bytes": np.array([0.5, 1, 26, 26.5, 51]) * mib,
        "first_bucket_capacity": mib,
        "bucket_capacity": 25 * mib,
    }
    evaluation = Evaluation(known, {"buckets": "sized"})
    np.testing.assert_array_equal(evaluation["gradient_buckets"], [1, 1, 2, 3, 3])
    np.testing.assert_allclose(
        evaluation["first_bucket_fraction"], [1, 1, 1 / 26, 1 / 26.5, 1 / 51]
    )
    known = {"reduced_elements": np.array([1e7, 4e7, 1e9]), "dp": 64.0}
    evaluation = Evaluation(known, {"buckets": "megatron"})
    np.testing.assert_array_equal(evaluation["gradient_buckets"], [1, 1, 16])


def test_small_buckets_pay_their_latency() -> None:
    """Few buckets hide little, many pay for each: there is a best number."""
    known: dict[str, Any] = {
        "compute_time": 0.05,
        "transfer_time": 0.03,
        "message_latency": 1e-4,
        "gradient_buckets": np.arange(1.0, 1000.0),
    }
    labels = {"mechanism": "ddp_buckets", "communication": "messages"}
    time = np.asarray(Evaluation(known, labels)["overlapped_time"])
    best = int(np.argmin(time))
    assert 5 < best < 400
    assert np.all(np.diff(time[best:]) >= -1e-15)


# Timelines.


@pytest.mark.parametrize("mechanism", [name for name in MECHANISMS if name in TIMELINES])
@given(data=st.data(), compute=lengths, communication=lengths)
def test_a_timeline_ends_when_the_formula_says(
    mechanism: str, data: st.DataObject, compute: float, communication: float
) -> None:
    known = data.draw(cases(mechanism))
    labels = {"mechanism": mechanism}
    if mechanism == "fused_messages":
        known = {
            "messages": 5.0,
            "message_latency": communication,
            "transfer_time": compute / 3,
            "copy_time": communication / 7,
            "compute_time": compute,
        }
        labels["communication"] = "messages"
    else:
        known |= {"compute_time": compute, "communication_time": communication}
    if mechanism.startswith("bulk_m"):
        known["num_sm"] = float(data.draw(st.integers(0, 131)))
    evaluation = Evaluation(known, labels)
    values: dict[str, float] = {}
    for name in (*MECHANISMS[mechanism].takes, *DERIVED):
        found = evaluation.value(name, {})
        if found is not None:
            values[name] = float(found)
    spans = timeline(mechanism, values)
    time = values["overlapped_time"]
    slack = 1e-9 * (compute + communication)
    assert max((span.end for span in spans), default=0.0) == pytest.approx(
        time, rel=1e-9, abs=slack
    )
    for row in {span.row for span in spans}:
        own = [span for span in spans if span.row == row]
        assert all(a.end <= b.start + slack for a, b in pairwise(own))
    sent = sum(span.duration for span in spans if span.row == "communication")
    if mechanism != "fused_messages":
        assert sent == pytest.approx(communication, rel=1e-9)


def test_a_timeline_of_too_many_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        timeline("fsdp_prefetch", {"layers": 1e7, "prefetched_layers": 1.0})


def test_every_mechanism_has_its_form() -> None:
    for name in MECHANISMS:
        labels = {"mechanism": name, "schedule": "gpipe"}
        found = REGISTRY.returning("overlapped_time", labels)
        assert isinstance(found, Formula)
        assert name in found.when["mechanism"].split("|")
    assert set(TIMELINES) <= set(MECHANISMS)
