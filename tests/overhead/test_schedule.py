"""Closed forms of pipeline schedules against an event simulation of their orders."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead import REGISTRY
from overhead.labels import EVEN_SCHEDULES, FOLDED, LABELS
from tests.simulator.pipeline import (
    BACKWARD,
    FORWARD,
    ORDERS,
    Order,
    Outcome,
    Task,
    even,
    interleaved,
    run,
)
from tests.tables import keyed

Number = Fraction | int | float
SCHEDULES = LABELS["schedule"].values
TRAINING = tuple(name for name in SCHEDULES if name != "forward_only")


def value(name: str, known: Mapping[str, Number], **labels: str) -> float:
    if name in known:
        return float(known[name])
    formula = REGISTRY.returning(name, labels)
    assert formula is not None, (name, labels)
    inputs = (np.asarray(value(each, known, **labels)) for each in formula.inputs)
    return float(formula.kernel(*inputs))


@dataclass(frozen=True)
class Case:
    """A pipeline; its backward is that of the inputs and that of the weights."""

    schedule: str
    pp: int
    num_micro_batches: int
    forward: Fraction
    inputs: Fraction
    weights: Fraction
    transfer: Fraction = Fraction(0)
    virtual_pipeline_size: int = 1
    overlapped: Fraction | None = None

    @property
    def known(self) -> dict[str, Number]:
        settings: dict[str, Number] = {
            "pp": self.pp,
            "num_micro_batches": self.num_micro_batches,
            "virtual_pipeline_size": self.virtual_pipeline_size,
            "stage_forward_time": self.forward,
            "stage_backward_time": self.inputs + self.weights,
            "stage_weight_time": self.weights,
            "p2p_time": self.transfer,
        }
        if self.overlapped is not None:
            # Of a chunk, as it runs.
            settings["stage_overlapped_time"] = self.overlapped * self.virtual_pipeline_size
        return settings

    @property
    def orders(self) -> list[Order]:
        if self.schedule == "interleaved" and self.virtual_pipeline_size > 1:
            return interleaved(self.pp, self.num_micro_batches, self.virtual_pipeline_size)
        name = "one_f_one_b" if self.schedule == "interleaved" else self.schedule
        return ORDERS[name](self.pp, self.num_micro_batches)

    def simulate(self) -> Outcome:
        parts = (self.forward, self.inputs + self.weights, self.weights)
        forward, backward, weights = (part / self.virtual_pipeline_size for part in parts)
        return run(self.orders, even(forward, backward, weights, self.overlapped), self.transfer)

    def in_flight(self, stage: int) -> float:
        known = {**self.known, "stage": stage}
        return value("in_flight_micro_batches", known, schedule=self.schedule)

    def error(self, time: Fraction | None = None, **labels: str) -> float:
        """Return by which part of the simulated time the closed form is too long."""
        pipeline_time = value("pipeline_time", self.known, schedule=self.schedule, **labels)
        return pipeline_time / float(self.simulate().time if time is None else time) - 1.0


WORK = [tuple(map(Fraction, work)) for work in ((1, 1, 1), (2, 3, 1), (5, 6, 4), (3, 3, 2))]
TRANSFERS = (Fraction(0), Fraction(1, 7), Fraction(5, 4), Fraction(9))
EXACT = 1e-12


def cases(schedule: str, transfers: tuple[Fraction, ...], steps: tuple[int, ...]) -> Iterator[Case]:
    for pp, extra, work, transfer in product(range(1, 6), steps, WORK, transfers):
        if schedule == "dual_pipe":
            if pp <= 4:
                yield Case(schedule, 2 * pp, 4 * pp + 2 * extra, *work, transfer)
            continue
        least = {
            "zero_bubble_h1": pp,
            "zero_bubble_h2": 2 * pp - 1,
            "zero_bubble_v": 2 * pp - 1,
            "v_half": pp,
            "v_min": pp,
            "dual_pipe_v": 2 * pp,
        }.get(schedule, 1)
        if schedule in FOLDED:
            yield Case(schedule, pp, least + extra, *work, transfer, 2)
            continue
        if schedule != "interleaved":
            yield Case(schedule, pp, least + extra, *work, transfer)
            continue
        for chunks in (1, 2, 3):
            yield Case(schedule, pp, pp * (1 + extra), *work, transfer, chunks)


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b", "forward_only", "zero_bubble_h1"])
def test_time_is_exact_whatever_transfers_take(schedule: str) -> None:
    for case in cases(schedule, TRANSFERS, (0, 1, 2, 5, 9, 16)):
        assert abs(case.error()) < EXACT, case


@pytest.mark.thorough
def test_time_of_interleaved_is_exact_while_transfers_are_short() -> None:
    for case in cases("interleaved", (Fraction(0), Fraction(1, 7), Fraction(1, 3)), (0, 1, 3)):
        assert abs(case.error()) < EXACT, case


@pytest.mark.thorough
def test_time_of_interleaved_with_long_transfers() -> None:
    """Up to transfers of five chunks, which no pipeline should have."""
    errors = [
        case.error()
        for case in cases(
            "interleaved", (Fraction(2, 3), Fraction(1), Fraction(5, 3)), (0, 1, 3, 6)
        )
        if case.pp > 1 and case.transfer * case.virtual_pipeline_size <= 5 * case.forward
    ]
    assert max(map(abs, errors)) < 0.15
    assert np.mean(np.abs(errors)) < 0.03


@pytest.mark.thorough
def test_time_of_zero_bubble_h2_is_exact_while_transfers_are_short() -> None:
    for case in cases("zero_bubble_h2", (Fraction(0), Fraction(1, 7), Fraction(1)), (0, 1, 4, 11)):
        assert abs(case.error()) < EXACT, case
        staggered = case.error(case.simulate().staggered_time, optimizer="staggered")
        assert abs(staggered) < EXACT, case


def test_time_of_zero_bubble_h2_with_long_transfers() -> None:
    """Transfers as long as a stage, which no pipeline should have."""
    errors = [
        case.error()
        for case in cases("zero_bubble_h2", (Fraction(3), Fraction(6)), (0, 1, 4, 11))
        if case.pp > 1 and case.transfer <= 2 * case.forward
    ]
    assert max(map(abs, errors)) < 0.3
    assert np.mean(np.abs(errors)) < 0.05


@pytest.mark.thorough
def test_time_of_dual_pipe_is_an_upper_bound() -> None:
    """The published bubble is exact with even parts, else and with transfers a little long."""
    errors = []
    for case in cases("dual_pipe", (Fraction(0), Fraction(1, 7), Fraction(1, 3)), (0, 1, 5)):
        both = case.forward + case.inputs + case.weights
        for gain in (Fraction(0), Fraction(1, 5), Fraction(2, 5)):
            overlapped = both - gain * case.forward
            drawn = Case(*(vars(case) | {"overlapped": overlapped}).values())
            error = drawn.error()
            errors.append(error)
            assert error > -EXACT, drawn
            if gain == case.transfer == 0 and case.forward == case.inputs == case.weights:
                assert error < EXACT, drawn
    assert max(errors) < 0.06
    assert np.mean(errors) < 0.025


def folded_errors(schedule: str, transfers: tuple[Fraction, ...]) -> list[float]:
    """Of three stages and more: on two, V-min's form is up to a fifth above."""
    actual_cases = cases(schedule, transfers, (0, 1, 6))
    return [case.error() for case in actual_cases if case.pp > 2]


def test_time_of_zero_bubble_v() -> None:
    """Exact without transfers; with such as take a seventh of a chunk's forward, nearly."""
    assert max(map(abs, folded_errors("zero_bubble_v", (Fraction(0),)))) < EXACT
    errors = folded_errors("zero_bubble_v", (Fraction(1, 14),))
    assert -0.005 < min(errors) <= max(errors) < 0.01


@pytest.mark.parametrize(
    ("schedule", "most", "mean"), [("v_half", 0.04, 0.006), ("v_min", 0.04, 0.006)]
)
def test_times_of_less_memory_are_upper_bounds(schedule: str, most: float, mean: float) -> None:
    """Exact where forwards, inputs and weights take equally long."""
    equal = [
        case.error()
        for case in cases(schedule, (Fraction(0),), (0, 5))
        if case.forward == case.inputs == case.weights
    ]
    assert max(map(abs, equal)) < EXACT
    errors = folded_errors(schedule, (Fraction(0), Fraction(1, 14), Fraction(1, 7)))
    assert min(errors) > -0.002
    assert max(errors) < most
    assert np.mean(errors) < mean


@pytest.mark.thorough
def test_time_of_dual_pipe_v_is_an_upper_bound() -> None:
    errors = []
    for case in cases("dual_pipe_v", (Fraction(0), Fraction(1, 14)), (0, 1, 5)):
        ratio = (case.forward + case.inputs + case.weights) / 2
        for gain in (Fraction(0), Fraction(1, 5), Fraction(2, 5)):
            overlapped = ratio - gain * case.forward / 2
            drawn = Case(*(vars(case) | {"overlapped": overlapped}).values())
            errors.append(drawn.error())
    assert min(errors) > -EXACT
    assert max(errors) < 0.06
    assert np.mean(errors) < 0.025


@pytest.mark.parametrize("schedule", ["zero_bubble_h1", "zero_bubble_h2"])
@given(
    parts=st.tuples(*[st.fractions(Fraction(1, 4), 9, max_denominator=4)] * 3), pp=st.integers(1, 5)
)
def test_zero_bubbles_whatever_the_parts(
    schedule: str, parts: tuple[Fraction, Fraction, Fraction], pp: int
) -> None:
    """Also where weights take longer than a forward: there the published forms are too short."""
    for extra in (0, 3):
        case = Case(schedule, pp, 2 * pp - 1 + extra, *parts)
        assert abs(case.error()) < EXACT
        if schedule == "zero_bubble_h2":
            staggered = case.error(case.simulate().staggered_time, optimizer="staggered")
            assert abs(staggered) < EXACT


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize("schedule", TRAINING)
def test_in_flight_is_what_stages_hold(schedule: str) -> None:
    for case in cases(schedule, (Fraction(0),), (0, 1, 2, 5)):
        values = case.simulate().in_flight
        actual = [case.in_flight(stage) for stage in range(case.pp)]
        chunks = [count / case.virtual_pipeline_size for count in values]
        if schedule in ("v_half", "v_min"):
            # Not every rank holds as many at once.
            assert all(left >= chunk for left, chunk in zip(actual, chunks, strict=True)), case
            actual, chunks = [max(actual)], [max(chunks)]
        assert actual == pytest.approx(chunks, rel=1e-12), case
        assert case.in_flight(case.pp) == 0.0


def test_in_flight_of_prefill_is_one() -> None:
    assert Case("forward_only", 4, 8, *WORK[0]).in_flight(2) == 1.0


def test_published_bubbles() -> None:
    """The tables of Qi et al. and of DeepSeek-V3, with F = 2, B = 5 of which W = 2."""
    known = keyed(
        "pp=8 num_micro_batches=32 virtual_pipeline_size=4 stage_forward_time=2 "
        "stage_backward_time=5 stage_weight_time=2 stage_overlapped_time=6"
    )
    expected = {
        **keyed(
            "gpipe=49.0 one_f_one_b=49.0 zero_bubble_h1=21.0 zero_bubble_h2=14.0 dual_pipe=15.0 "
            "dual_pipe_v=17.5 forward_only=14.0"
        ),
        "interleaved": 49.0 / 4,
    }
    for schedule, bubble in expected.items():
        assert value("bubble_time", known, schedule=schedule) == bubble
    staggered = value("bubble_time", known, schedule="zero_bubble_h2", optimizer="staggered")
    assert staggered == 7.0
    assert value("bubble_over_ideal", known, schedule="one_f_one_b") == 7 / 32
    assert value("bubble_over_ideal", known, schedule="interleaved") == 7 / 32 / 4
    fraction = value("bubble_fraction", {**known, "p2p_time": 0}, schedule="one_f_one_b")
    assert fraction == pytest.approx(7 / 39)


# Uneven stages.


def uneven_error(case: Case, first: Fraction, last: Fraction) -> float:
    """Return by which part the closed form is too long if the ends have extra work."""
    whole = case.forward + case.inputs + case.weights
    share = {FORWARD: case.forward / whole, BACKWARD: 1 - case.forward / whole}
    end = case.pp * case.virtual_pipeline_size - 1

    def duration(slot: tuple[Task, ...]) -> Fraction:
        (task,) = slot
        extra = first * (task.stage == 0) + last * (task.stage == end)
        return share[task.kind] * (whole / case.virtual_pipeline_size + extra)

    counted = share[FORWARD] if case.schedule == "forward_only" else 1
    known = dict(
        case.known, first_stage_extra_time=first * counted, last_stage_extra_time=last * counted
    )
    pipeline_time = value("pipeline_time", known, schedule=case.schedule, stages="uneven")
    return pipeline_time / float(run(case.orders, duration, case.transfer).time) - 1.0


# Of a stage's time.
ENDS = tuple(
    (Fraction(left, 40), Fraction(right, 40))
    for left, right in ((0, 0), (1, 0), (0, 4), (2, 9), (6, 2), (-3, 1), (-2, -2), (3, -2))
)


@pytest.mark.thorough
@pytest.mark.parametrize("schedule", ["gpipe", "forward_only"])
def test_uneven_ends_are_exact(schedule: str) -> None:
    for case, ends in product(cases(schedule, TRANSFERS[1:2], (0, 1, 4, 9)), ENDS):
        whole = case.forward + case.inputs + case.weights
        assert abs(uneven_error(case, *(end * whole for end in ends))) < EXACT, (case, ends)


@pytest.mark.thorough
def test_uneven_ends_of_one_f_one_b() -> None:
    for case, ends in product(cases("one_f_one_b", TRANSFERS[:3], (0, 2, 4, 9)), ENDS):
        whole = case.forward + case.inputs + case.weights
        error = uneven_error(case, *(end * whole for end in ends))
        if case.transfer == 0:
            assert abs(error) < EXACT, (case, ends)
        assert -0.011 < error < EXACT, (case, ends)


part = st.fractions(Fraction(-4, 5), Fraction(3, 2), max_denominator=20)


@given(
    ends=st.tuples(part, part),
    pp=st.integers(1, 6),
    num_micro_batches=st.integers(1, 12),
    backward=st.fractions(Fraction(4, 5), 3, max_denominator=20),
)
def test_any_uneven_ends_of_one_f_one_b_are_exact_without_transfers(
    ends: tuple[Fraction, Fraction], pp: int, num_micro_batches: int, backward: Fraction
) -> None:
    """One heavier and one lighter end among them."""
    case = Case("one_f_one_b", pp, num_micro_batches, Fraction(1), backward, Fraction(0))
    assert abs(uneven_error(case, *(end * (1 + backward) for end in ends))) < EXACT


@pytest.mark.thorough
def test_uneven_ends_of_interleaved() -> None:
    for case, ends in product(cases("interleaved", (Fraction(0),), (0, 2)), ENDS):
        whole = (case.forward + case.inputs + case.weights) / case.virtual_pipeline_size
        error = uneven_error(case, *(end * whole for end in ends))
        assert -EXACT < error < 0.08, (case, ends)
        if case.virtual_pipeline_size == 1 or ends[1] >= ends[0] >= 0:
            assert error < EXACT, (case, ends)
        if case.pp == 2 and max(ends) < 0:
            assert error < 0.03, (case, ends)


def test_extra_work_of_the_last_chunk_is_paid_for_each_micro_batch() -> None:
    known = keyed(
        "pp=4 num_micro_batches=8 virtual_pipeline_size=2 stage_forward_time=2 "
        "stage_backward_time=4 p2p_time=0 first_stage_extra_time=0 last_stage_extra_time=0.5"
    )
    time = value("pipeline_time", known, schedule="interleaved", stages="uneven")
    assert time == 8 * (6 + 0.5) + 3 * 6 / 2


@pytest.mark.parametrize("schedule", EVEN_SCHEDULES)
def test_no_form_for_uneven_stages(schedule: str) -> None:
    """Each stage counts as the slowest, so that nothing is added."""
    assert value("uneven_time", {}, schedule=schedule, stages="uneven") == 0.0


# Properties.

seconds = st.floats(0.01, 100.0)


@given(forward=seconds, inputs=seconds, weights=seconds, chunks=st.integers(1, 4))
@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name != "dual_pipe"])
def test_one_stage_has_no_bubble(
    schedule: str, forward: float, inputs: float, weights: float, chunks: int
) -> None:
    known = {
        "pp": 1,
        "num_micro_batches": 5,
        "virtual_pipeline_size": chunks,
        "stage_forward_time": forward,
        "stage_backward_time": inputs + weights,
        "stage_weight_time": weights,
        "p2p_time": 3.0,
    }
    assert value("bubble_time", known, schedule=schedule) == 0.0
    assert value("exposed_pp_time", known, schedule=schedule) == 0.0
    busy = forward if schedule == "forward_only" else forward + inputs + weights
    assert value("pipeline_time", known, schedule=schedule) == pytest.approx(5 * busy)


@given(
    forward=seconds,
    inputs=seconds,
    weights=seconds,
    transfer=st.floats(0.0, 10.0),
    pp=st.sampled_from((2, 4, 6, 8)),
)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_micro_batches_and_bubbles(
    schedule: str, forward: float, inputs: float, weights: float, transfer: float, pp: int
) -> None:
    """More micro-batches never raise the bubble's share, unless each waits for its own (V-half,
    V-min); nothing beats what has to be computed.
    """
    before = np.inf
    for num_micro_batches in range(2 * pp, 7 * pp, pp):
        known = {
            "pp": pp,
            "num_micro_batches": num_micro_batches,
            "virtual_pipeline_size": 2,
            "stage_forward_time": forward,
            "stage_backward_time": inputs + weights,
            "stage_weight_time": weights,
            "p2p_time": transfer,
        }
        share = value("bubble_fraction", known, schedule=schedule)
        assert share <= before * (1 + 1e-12) or schedule in ("v_half", "v_min")
        before = share
        busy = forward if schedule == "forward_only" else forward + inputs + weights
        time = value("pipeline_time", known, schedule=schedule)
        assert time >= num_micro_batches * busy * (1 - 1e-12)
        free = value("pipeline_time", {**known, "p2p_time": 0.0}, schedule=schedule)
        assert time >= free


@given(forward=seconds, backward=seconds, pp=st.integers(1, 8), groups=st.integers(1, 5))
def test_interleaving_is_never_slower_without_transfers(
    forward: float, backward: float, pp: int, groups: int
) -> None:
    def time(schedule: str, chunks: int) -> float:
        known = {
            "pp": pp,
            "num_micro_batches": pp * groups,
            "virtual_pipeline_size": chunks,
            "stage_forward_time": forward,
            "stage_backward_time": backward,
            "p2p_time": 0.0,
        }
        return value("pipeline_time", known, schedule=schedule)

    times = [time("one_f_one_b", 1), *(time("interleaved", chunks) for chunks in (1, 2, 4))]
    assert times[0] == pytest.approx(times[1])
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(times))


# Measured schedules.

ROWS = Path(__file__).parents[1] / "data" / "schedules.csv"
MEASURED = {
    row["schedule"]: row
    for row in csv.DictReader(line for line in ROWS.open() if not line.startswith("#"))
}
# FLOPs of a Llama-2-7B layer at 4096 tokens, whole squares counted, by those of its products: a
# forward has the attention once, a backward of inputs 2.5 times.
SQUARE = 4 * 4096 * 4096 / (2 * (4 * 4096**2 + 3 * 4096 * 11008))
PARTS = dict(
    stage_forward_time=1.0 + SQUARE, stage_backward_time=2.0 + 2.5 * SQUARE, stage_weight_time=1.0
)


def measured(schedule: str) -> dict[str, float]:
    row = MEASURED[schedule]
    sizes = {
        name: float(row[name]) for name in ("pp", "num_micro_batches", "virtual_pipeline_size")
    }
    return {**PARTS, **sizes, "p2p_time": 0.0, "stage": 0.0}


@pytest.mark.parametrize("schedule", MEASURED)
def test_speeds_of_schedules_are_as_measured(schedule: str) -> None:
    """Nothing is fitted: the parts are FLOPs."""
    plain = value("pipeline_time", measured("one_f_one_b"), schedule="one_f_one_b")
    ratio = plain / value("pipeline_time", measured(schedule), schedule=schedule)
    assert ratio == pytest.approx(float(MEASURED[schedule]["speed"]), rel=0.05)


@pytest.mark.parametrize("schedule", MEASURED)
def test_memory_of_schedules_is_as_measured(schedule: str) -> None:
    """What a rank holds, and one stage's worth of activations, follow from three of the rows."""
    values = {
        name: value("in_flight_micro_batches", measured(name), schedule=name) for name in MEASURED
    }
    of = {name: float(row["memory"]) for name, row in MEASURED.items()}
    ratio = (of["interleaved"] - 1.0) / (values["interleaved"] - values["one_f_one_b"])
    # A folded pipeline's first rank has the output layer, too.
    output = of["zero_bubble_v"] - 1.0
    actual = 1.0 + ratio * (values[schedule] - values["one_f_one_b"])
    actual += output if schedule in FOLDED else 0.0
    assert actual == pytest.approx(of[schedule], rel=0.05)
