"""The simulator itself: it catches every kind of faulty schedule, and costs links rightly."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest

from tests.simulator.core import Ledger, Outcome, run
from tests.simulator.model import Block, Case, Link, Message, Network, ScheduleFault, Steps
from tests.simulator.patterns import all_reduced, mirrored, pieces
from tests.simulator.ports import SWITCH, across, switch
from tests.simulator.ring import gather_one_way, ring

LATENCY, BANDWIDTH, BYTES = Fraction(3, 7), Fraction(11, 5), Fraction(13, 3)
WHOLE = pieces(())


def case(collective: str, ranks: int = 3, topology: str = "ring") -> Case:
    return Case(topology, collective, "", (ranks,), BYTES, (LATENCY,), (BANDWIDTH,))


def on_ring(collective: str, steps: Steps, ranks: int = 3) -> Outcome:
    one = case(collective, ranks)
    return run(one, ring(one), steps)


def on_switch(collective: str, steps: Steps, ranks: int = 3) -> Outcome:
    one = case(collective, ranks)
    return run(one, switch(one), steps)


def all_pairs(mode: Literal["copy", "reduce"]) -> list[Message]:
    return [
        Message((one, other), WHOLE, mode) for one in range(3) for other in range(3) if one != other
    ]


def test_the_simulator_stands_on_the_standard_library_alone() -> None:
    for file in Path(__file__).parent.glob("*.py"):
        if file.name.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names or name.startswith("tests.simulator"), file


# what a schedule must compute


def test_a_right_schedule_passes() -> None:
    outcome = on_ring("all_reduce", [all_pairs("reduce")])
    assert outcome == Outcome(LATENCY + BYTES / BANDWIDTH, 1, 2 * BYTES, (6 * BYTES,), 2 * BYTES)


def test_a_contribution_counted_twice_in_two_steps() -> None:
    with pytest.raises(ScheduleFault, match="counts a contribution twice"):
        on_ring("all_reduce", [all_pairs("reduce"), [Message((0, 1), WHOLE, "reduce")]])


def test_a_contribution_counted_twice_in_one_step() -> None:
    twice = [Message((0, 1), WHOLE, "reduce"), Message((0, 2, 1), WHOLE, "reduce")]
    with pytest.raises(ScheduleFault, match="counts a contribution twice"):
        on_ring("all_reduce", [twice])


def test_overlapping_partial_sums() -> None:
    steps = [
        [Message((0, 1), WHOLE, "reduce"), Message((0, 2), WHOLE, "reduce")],
        [Message((1, 2), WHOLE, "reduce")],
    ]
    with pytest.raises(ScheduleFault, match="counts a contribution twice"):
        on_ring("reduce", steps)


def test_a_copy_must_not_lose_contributions() -> None:
    steps = [[Message((1, 0), WHOLE, "reduce")], [Message((2, 0), WHOLE)]]
    with pytest.raises(ScheduleFault, match="loses contributions"):
        on_ring("reduce", steps)


def test_a_copy_where_a_sum_is_needed() -> None:
    with pytest.raises(ScheduleFault, match="loses contributions"):
        on_ring("all_reduce", [all_pairs("copy")])


def test_sending_what_is_not_held() -> None:
    with pytest.raises(ScheduleFault, match="does not hold"):
        on_ring("broadcast", [[Message((1, 2), WHOLE)]])


def test_data_arrive_only_at_the_end_of_a_step() -> None:
    with pytest.raises(ScheduleFault, match="does not hold"):
        on_ring("broadcast", [[Message((0, 1), WHOLE), Message((1, 2), WHOLE)]])


def test_a_switch_holds_nothing_at_first() -> None:
    with pytest.raises(ScheduleFault, match="does not hold"):
        on_switch("all_reduce", [[Message((SWITCH, 0), WHOLE)]])


@pytest.mark.parametrize("left_out", range(6))
def test_an_incomplete_all_reduce(left_out: int) -> None:
    step = all_pairs("reduce")
    del step[left_out]
    with pytest.raises(ScheduleFault, match="incomplete"):
        on_ring("all_reduce", [step])


def test_every_message_of_a_ring_counts() -> None:
    whole = all_reduced(4, gather_one_way(4))
    for number, step in enumerate(whole):
        for left_out in range(len(step)):
            fewer = [list(messages) for messages in whole]
            del fewer[number][left_out]
            with pytest.raises(ScheduleFault):
                on_ring("all_reduce", fewer, 4)


def test_a_part_never_sent_is_missed() -> None:
    half = pieces((), 2)[:1]
    with pytest.raises(ScheduleFault, match="incomplete"):
        on_ring("broadcast", [[Message((0, 1), half), Message((0, 2), half)]])


def test_a_home_cut_in_two_ways() -> None:
    step = [Message((0, 1), pieces((), 2)), Message((0, 2), WHOLE)]
    with pytest.raises(ScheduleFault, match="another number of parts"):
        on_ring("broadcast", [step])


def test_a_part_that_does_not_exist() -> None:
    with pytest.raises(ScheduleFault, match="no such part"):
        on_ring("broadcast", [[Message((0, 1), (Block((), 2, 2),))]])


@pytest.mark.parametrize(
    ("collective", "message"),
    [
        ("reduce", Message((0, 1), WHOLE, "reduce")),
        ("broadcast", Message((0, 1), WHOLE)),
        ("p2p", Message((0, 2), WHOLE)),
        ("all_gather", Message((0, 1), pieces((0,)))),
        ("reduce_scatter", Message((0, 1), pieces((1,)), "reduce")),
        ("all_to_all", Message((0, 1), pieces((0, 1)))),
    ],
)
def test_each_collective_can_be_incomplete(collective: str, message: Message) -> None:
    with pytest.raises(ScheduleFault, match="incomplete"):
        on_ring(collective, [[message]])


def test_the_wrong_mode_is_no_gather() -> None:
    with pytest.raises(ScheduleFault):
        on_ring("reduce_scatter", gather_one_way(3))
    with pytest.raises(ScheduleFault):
        on_ring("all_gather", mirrored(gather_one_way(3)))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message((0, 1), ())],
        [Message((0,), WHOLE)],
        [Message((0, 1), WHOLE * 2)],
        [Message((0, SWITCH), WHOLE)],
    ],
)
def test_malformed_steps(messages: list[Message]) -> None:
    with pytest.raises(ScheduleFault):
        on_ring("broadcast", [messages])


# what a schedule costs


def transfer_time(paths: list[tuple[int, ...]]) -> Fraction:
    """Return how long a step of equal blocks along these paths lasts, less the first's latency."""
    one = case("all_to_all", 5)
    network = ring(one)
    step = [Message(path, pieces((path[0], path[-1]))) for path in paths]
    ledger = Ledger(one, network, 1)
    time = ledger.duration(step)
    return time * ledger.time_unit - network.latency(paths[0], "hop")


def test_messages_share_a_directed_link() -> None:
    share = BYTES / 5 / BANDWIDTH
    assert transfer_time([(0, 1, 2)]) == share
    assert transfer_time([(0, 1, 2), (1, 2)]) == 2 * share
    assert transfer_time([(0, 1, 2), (4, 0, 1)]) == 2 * share
    assert transfer_time([(0, 1, 2), (4, 0, 1), (0, 1)]) == 3 * share
    assert transfer_time([(0, 1, 2), (2, 3)]) == share
    assert transfer_time([(0, 1, 2), (2, 1)]) == share


def test_latency_adds_over_hops_or_counts_once() -> None:
    one = case("p2p", 5)
    assert ring(one).latency((0, 1, 2, 3), "hop") == 3 * LATENCY
    assert ring(one).latency((0, 1, 2, 3), "message") == LATENCY
    assert switch(one).latency(across(0, 1), "hop") == LATENCY
    assert switch(one).latency(across(0, 1), "message") == LATENCY


def test_the_slowest_link_counts_and_each_level_its_bytes() -> None:
    network = Network()
    network.cable(0, SWITCH, Link(Fraction(1), Fraction(10)))
    network.cable(SWITCH, 1, Link(Fraction(2), Fraction(5), level=1))
    one = Case("", "p2p", "", (2,), Fraction(20), (Fraction(1), Fraction(2)), (Fraction(10),) * 2)
    outcome = run(one, network, [[Message(across(0, 1), WHOLE)]])
    assert outcome == Outcome(Fraction(3 + 4), 1, Fraction(20), (Fraction(20),) * 2, Fraction(0))


def test_a_step_lasts_as_long_as_its_slowest_message() -> None:
    network = Network()
    network.cable(0, 1, Link(Fraction(100), Fraction(100)))
    network.cable(0, 2, Link(Fraction(1), Fraction(1)))
    one = replace(case("broadcast"), message=Fraction(100))
    outcome = run(one, network, [[Message((0, 1), WHOLE), Message((0, 2), WHOLE)]])
    assert outcome.time == 101


def test_a_switch_port_is_shared_and_its_directions_are_not() -> None:
    to_all = [Message(across(0, rank), WHOLE) for rank in (1, 2)]
    assert on_switch("broadcast", [to_all]).time == LATENCY + 2 * BYTES / BANDWIDTH
    swap = [Message(across(0, 1), WHOLE, "reduce"), Message(across(1, 0), WHOLE, "reduce")]
    outcome = on_switch("all_reduce", [swap], 2)
    assert outcome.time == LATENCY + BYTES / BANDWIDTH
    assert outcome.carried == (2 * BYTES,)


def test_streaming_pays_the_bandwidth_once_and_the_latency_whole() -> None:
    step = [Message((rank, SWITCH), WHOLE, "reduce") for rank in range(3)]
    down = [Message((SWITCH, rank), WHOLE, streamed=True) for rank in range(3)]
    outcome = on_switch("all_reduce", [step + down])
    assert outcome.time == LATENCY + BYTES / BANDWIDTH
    assert outcome.sent == BYTES
    assert outcome.reduced == 0
    stored = [replace(message, streamed=False) for message in down]
    assert on_switch("all_reduce", [step, stored]).time == LATENCY + 2 * BYTES / BANDWIDTH


def test_only_a_switch_streams_and_only_what_comes_in() -> None:
    with pytest.raises(ScheduleFault, match="nothing to pass on"):
        on_ring("broadcast", [[Message((0, 1), WHOLE), Message((1, 2), WHOLE, streamed=True)]])
    with pytest.raises(ScheduleFault, match="nothing to pass on"):
        on_switch("broadcast", [[Message((SWITCH, 1), WHOLE, streamed=True)]])
