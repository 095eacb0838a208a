"""Courses of pipelines against the event simulation, and against the forms of their time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.labels import FOLDED, LABELS
from overhead.overlap.pipeline import (
    BACKWARD,
    FORWARD,
    INPUTS,
    PIPELINES,
    WEIGHTS,
    pipeline_timeline,
    run_orders,
    stage_orders,
    tasks_of,
)
from overhead.overlap.timeline import Span
from sweeps.traces.write import chrome_trace
from tests.cli_runner import Runner
from tests.overlap.cases import evaluated
from tests.simulator import pipeline as simulated
from tests.tables import examples, keyed

KINDS = {
    FORWARD: simulated.FORWARD,
    BACKWARD: simulated.BACKWARD,
    INPUTS: simulated.INPUT,
    WEIGHTS: simulated.WEIGHT,
}
LINE = "overlap --kind pipeline --forward 1ms --backward 2ms --p2p 300us --pp 4 --micro-batches 8"


def check_rows(trace: Mapping[str, Any]) -> None:
    """Check that spans of a row don't overlap, have a duration, and start at nought or later."""
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            assert event["dur"] > 0.0
            assert event["ts"] >= 0.0
            span = event["ts"], event["ts"] + event["dur"]
            rows.setdefault((event["pid"], event["tid"]), []).append(span)
    assert rows
    last = max(end for spans in rows.values() for _, end in spans)
    for spans in rows.values():
        spans.sort()
        assert all(before[1] <= after[0] + 1e-9 * last for before, after in pairwise(spans))


def plans(schedule: str) -> Iterator[tuple[int, int, int]]:
    """Yield stages, micro-batches and chunks that a schedule has an order for."""
    for pp in range(1, 8):
        for count in range(1, 19):
            if schedule == "interleaved":
                yield from ((pp, count, v) for v in (1, 2, 3) if v == 1 or count % pp == 0)
            elif schedule in FOLDED:
                least = {"zero_bubble_v": 2 * pp - 1, "dual_pipe_v": 2 * pp}.get(schedule, 1)
                yield from [(pp, count, 2)] if count >= least else []
            elif schedule != "dual_pipe" or (pp % 2 == count % 2 == 0 and count >= 2 * pp):
                yield pp, count, 1


def simulated_orders(schedule: str, pp: int, count: int, chunks: int) -> list[simulated.Order]:
    if schedule == "interleaved" and chunks > 1:
        return simulated.interleaved(pp, count, chunks)
    name = "one_f_one_b" if schedule == "interleaved" else schedule
    return simulated.ORDERS[name](pp, count)


def ends(spans: Sequence[Span]) -> float:
    return max(span.end for span in spans)


# Orders.


@pytest.mark.parametrize("schedule", LABELS["schedule"].values)
def test_orders_are_those_of_the_simulation(schedule: str) -> None:
    for plan in plans(schedule):
        ours = stage_orders(schedule, *plan)
        expected = simulated_orders(schedule, *plan)
        named = [[tuple((KINDS[t.kind], *t[1:]) for t in slot) for slot in our] for our in ours]
        assert named == [
            [tuple(map(tuple, slot)) for slot in events_of_rank] for events_of_rank in expected
        ], plan
        tasks = sum(len(slot) for own in ours for slot in own)
        assert tasks <= tasks_of(schedule, *plan)
        assert len({task for own in ours for slot in own for task in slot}) == tasks


@pytest.mark.parametrize(("plan", "words"), examples(__file__, "what_has_no_order_is_refused"))
def test_what_has_no_order_is_refused(plan: tuple[str, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stage_orders(*plan)


def test_stages_that_wait_for_one_another_are_told() -> None:
    orders = stage_orders("one_f_one_b", 2, 2)
    orders[1].reverse()
    with pytest.raises(ValueError, match="wait for one another"):
        run_orders(orders, lambda _: 1.0, 0.0)


# Courses.

lengths = st.fractions(Fraction(1, 20), 9, max_denominator=20)


@pytest.mark.thorough_cases(every=4)
@pytest.mark.parametrize("schedule", LABELS["schedule"].values)
@given(
    parts=st.tuples(lengths, lengths, lengths),
    transfer=lengths | st.just(Fraction(0)),
    data=st.data(),
)
def test_a_course_is_as_early_as_can_be(
    schedule: str, parts: tuple[Fraction, Fraction, Fraction], transfer: Fraction, data: Any
) -> None:
    plan = data.draw(st.sampled_from(list(plans(schedule))))
    of = dict(zip((FORWARD, INPUTS, WEIGHTS), map(float, parts), strict=True))
    of[BACKWARD] = of[INPUTS] + of[WEIGHTS]
    orders = stage_orders(schedule, *plan)
    ran, sent = run_orders(
        orders, lambda slot: sum(of[task.kind] for task in slot), float(transfer)
    )
    duration = simulated.even(parts[0], parts[1] + parts[2], parts[2])
    expected = simulated.run(simulated_orders(schedule, *plan), duration, transfer)
    for events_of_rank, (start, end) in zip(ran, expected.spans, strict=True):
        assert events_of_rank[0].start == pytest.approx(float(start), rel=1e-12, abs=1e-12)
        assert events_of_rank[-1].end == pytest.approx(float(end), rel=1e-12)
    for events_of_rank, slots in zip(ran, orders, strict=True):
        assert [one.slot for one in events_of_rank] == slots
    # All that crosses a boundary is sent, and arrives before what needs it starts.
    starts = {task: one.start for own in ran for one in own for task in one.slot}
    for at, own_sent in enumerate(sent):
        for one in own_sent:
            step = 1 if one.task.kind == FORWARD else -1
            taking = [
                starts[task]
                for kind in (FORWARD, BACKWARD, INPUTS)
                if (task := one.task._replace(kind=kind, chunk=one.task.chunk + step)) in starts
                and (kind == FORWARD) == (step == 1)
            ]
            assert one.target != at
            assert len(taking) == 1
            assert one.end <= taking[0]
    crossing = sum(len(own) for own in sent)
    ways = 1 if schedule == "forward_only" else 2
    pp, count, chunks = plan
    # At the turn of a folded pipeline a rank has both chunks.
    boundaries = chunks * (pp - 1) if schedule in FOLDED else pp * chunks - 1
    assert crossing == (ways * count * boundaries if pp > 1 else 0)


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize("schedule", PIPELINES)
@given(
    forward=lengths,
    backward=lengths,
    share=st.fractions(0, 1, max_denominator=30),
    pp=st.integers(1, 8),
    groups=st.integers(1, 5),
    chunks=st.integers(1, 4),
)
def test_a_course_ends_when_the_form_says(
    schedule: str,
    forward: Fraction,
    backward: Fraction,
    share: Fraction,
    pp: int,
    groups: int,
    chunks: int,
) -> None:
    """Interleaved, where a transfer takes no longer than a chunk's forward or backward."""
    chunks = chunks if schedule == "interleaved" else 1
    count = groups * pp if chunks > 1 else groups
    known: dict[str, float] = {
        "stage_forward_time": float(forward),
        "stage_backward_time": float(backward),
        "p2p_time": float(min(forward, backward) / chunks * share),
        "pp": pp,
        "num_micro_batches": count,
        "virtual_pipeline_size": chunks,
    }
    spans = pipeline_timeline(schedule, known)
    (time,) = evaluated("pipeline", "overlapped_time", schedule=schedule, **known)
    assert ends(spans) == pytest.approx(time, rel=1e-12)
    check_rows(chrome_trace({"course": spans}))
    for stage in range(pp):
        own = [span for span in spans if span.row == f"stage {stage + 1}"]
        assert len(own) == 2 * count * chunks
        busy = count * (forward + backward)
        assert sum(span.duration for span in own) == pytest.approx(float(busy), rel=1e-9)


def test_names_tell_micro_batch_and_chunk() -> None:
    known = keyed(
        "stage_forward_time=2.0 stage_backward_time=4.0 p2p_time=3.0 pp=2.0 num_micro_batches=2.0 "
        "virtual_pipeline_size=2.0"
    )
    spans = pipeline_timeline("interleaved", known)
    names = [span.name for span in spans if span.row == "stage 1"]
    assert names == ["F1.1", "F2.1", "F1.2", "F2.2", "B1.2", "B2.2", "B1.1", "B2.1"]
    sends = [span for span in spans if "sends" in span.row]
    assert "F1.1 to stage 2" in {span.name for span in sends}
    # The second is under way before the first has arrived.
    assert {"stage 1 sends", "stage 1 sends (2)"} <= {span.row for span in sends}
    plain = pipeline_timeline("one_f_one_b", {**known, "virtual_pipeline_size": 1.0})
    assert [span.name for span in plain if span.row == "stage 2"] == ["F1", "B1", "F2", "B2"]


# The command.


def test_the_command_writes_courses(cli: Runner, tmp_path: Path) -> None:
    out = cli(f"{LINE} --timeline t.json").out
    assert "the course ends" not in out
    trace = json.loads((tmp_path / "t.json").read_text())
    check_rows(trace)
    (record,) = cli(f"{LINE} --json").records
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    end = max(event["ts"] + event["dur"] for event in events)
    assert end == pytest.approx(record["overlapped_time_s"] * 1e6)
    assert {event["cat"] for event in events} == {"forward", "backward", "transfer"}
    rows = [
        event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"
    ]
    assert rows == [f"stage {i}{s}" for i in range(1, 5) for s in ("", " sends")]


def test_the_command_tells_where_the_form_is_not_exact(cli: Runner) -> None:
    line = LINE.replace("300us", "700us").replace("pipeline", "pipeline --schedule interleaved")
    out = cli(f"{line} --virtual-stages 2 --timeline t.json").out
    assert "(pipeline: the course ends at 39.1 ms; its form gives 39.9 ms, 2 % more" in out


@pytest.mark.thorough
def test_the_command_draws_courses(cli: Runner, tmp_path: Path) -> None:
    cli(f"{LINE} --schedule gpipe,one_f_one_b --plot")
    drawn = (tmp_path / "outputs" / "overlap-pipeline-timeline.svg").read_text()
    for words in ("Forward", "Backward", "Transfer between stages", "stage 4", "gpipe"):
        assert words in drawn
    cli("overlap --kind ring_exchange,ddp_buckets --compute 1ms --comm 1ms --plot")
    made = {path.name for path in (tmp_path / "outputs").glob("overlap-timeline*.png")}
    assert made == {"overlap-timeline.png"}
