"""Chakra traces of predicted steps: read by a decoder of their own, and run as a simulator does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overhead.communication.totals import OPERATIONS
from overhead.evaluation import Evaluation
from overhead.step.timeline import StepTimeline, step_timeline
from sweeps.job import evaluation_of
from sweeps.traces import write
from sweeps.traces.write import chakra_traces
from tests.analysis_cases import job_of
from tests.cli_runner import Runner
from tests.tables import examples

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
TYPES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}
LLAMA = "--model llama3-8b --num-layers 16 --seq-length 8192 --num-gpus 16 --sp --micro-batches 4"
PLANS = examples(__file__, "plans", LLAMA=LLAMA)

# The format, as its schema has it: varints and what has a length.


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 in (0, 2)
        value, at = varint(data, at)
        if key & 7 == 2:
            assert at + value <= len(data)
            data_of, at = data[at : at + value], at + value
            yield key >> 3, data_of
        else:
            yield key >> 3, value


def messages(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, at = varint(data, at)
        found.append(data[at : at + size])
        at += size
    return found


def node(data: bytes) -> dict[str, Any]:
    settings: dict[str, Any] = {"data_deps": [], "start": 0, "duration": 0}
    names = {1: "id", 2: "name", 3: "type", 6: "start", 7: "duration"}
    for number, value in fields(data):
        if number == 5:
            at = 0
            while at < len(value):
                one, at = varint(value, at)
                settings["data_deps"].append(one)
        elif number == 10:
            # Name, then the one value that is set: 7 int32, 9 int64, 27 bool, 29 string.
            (_, name), (kind, own) = fields(value)
            kinds = {"is_cpu_op": 27, "pg_name": 29, "comm_size": 9, "comm_type": 9}
            assert kind == kinds.get(name.decode(), 7)
            settings[name.decode()] = own
        else:
            settings[names[number]] = value.decode() if number == 2 else value
    return settings


@cache
def made(line: str) -> tuple[StepTimeline, Evaluation, list[list[dict[str, Any]]], Any]:
    evaluation = evaluation_of(job_of(line))
    with np.errstate(all="ignore"):
        course = step_timeline(evaluation)
        traces, groups = chakra_traces(course, evaluation)
        read = [list(map(node, messages(b"".join(trace))[1:])) for trace in traces]
    return course, evaluation, read, groups


def ends(node_of: dict[str, Any]) -> tuple[int, int, int]:
    return node_of["comm_src"], node_of["comm_dst"], node_of["comm_tag"]


def run(traces: Sequence[Sequence[dict[str, Any]]]) -> float:
    """Return when all is done [s], each node as soon as what it needs is."""
    result: dict[tuple[int, int], float] = {}
    sent: dict[tuple[int, int, int], float] = {}
    places = [0] * len(traces)
    going = True
    while going:
        going = False
        for rank, trace in enumerate(traces):
            while places[rank] < len(trace):
                one = trace[places[rank]]
                end = max((result[rank, data_dep] for data_dep in one["data_deps"]), default=0.0)
                if one["type"] == RECEIVE and "received" in one["name"]:
                    if ends(one) not in sent:
                        break
                    end = max(end, sent[ends(one)])
                else:
                    end += one["duration"]
                if one["type"] == SEND:
                    sent[ends(one)] = end
                result[rank, one["id"]] = end
                places[rank] += 1
                going = True
    assert places == [len(own) for own in traces]
    return max(result.values()) / 1e6


def test_a_node_is_the_bytes_of_the_schema() -> None:
    graph = write.Graph()
    graph.add("x", COMPUTE, (0.0, 300e-6), [])
    graph.add("y", COMPUTE, (300e-6, 301e-6), [1])
    (first, _), (second, _) = graph.bodies
    # Tags are a field's number times 8, and 2 where a length follows; 300 is ac 02.
    off = b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
    assert first == b"\x08\x01\x12\x01x\x18\x04\x38\xac\x02" + off
    assert second == b"\x08\x02\x12\x01y\x18\x04\x2a\x01\x01\x30\xac\x02\x38\x01" + off


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize("line", PLANS)
def test_a_simulation_ends_when_the_step_does(line: str) -> None:
    course, known, traces, _ = made(line)
    block = len(traces) // int(known["pp"])
    # A message that hides in part is beside computing whole, or not.
    assert run(traces) == pytest.approx(course.end, rel=0.02)
    # Ranks of a stage are alike but for who they talk to.
    for rank, trace in enumerate(traces):
        like = traces[rank // block * block]
        assert [(n["name"], n["duration"]) for n in trace] == [
            (n["name"], n["duration"]) for n in like
        ]
        assert all(max(n["data_deps"], default=0) < n["id"] for n in trace)


@pytest.mark.parametrize("line", PLANS)
def test_messages_are_the_step_s(line: str) -> None:
    _, known, traces, _ = made(line)
    most: Counter[str] = Counter()
    sizes: dict[str, set[int]] = {}
    for trace in traces:
        counts = Counter(n["name"].split()[-1] for n in trace if n["type"] in (SEND, COLLECTIVE))
        most |= counts
        for one in trace:
            if one["type"] in (SEND, COLLECTIVE):
                sizes.setdefault(one["name"].split()[-1], set()).add(one["comm_size"])
    pp_count = OPERATIONS["pp_transfer"].counts[0]
    end_pair_fraction = 2 if "dual_pipe" in line else 1  # Each end has half of the micro-batches
    for name, operation in OPERATIONS.items():
        if any(
            known.labels.get(label) not in of.split("|") for label, of in operation.when.items()
        ):
            assert name not in most
            continue
        with np.errstate(all="ignore"):
            count = sum(float(often.of(known)) for often in operation.counts)
        actual = most["sent" if name == "pp_transfer" else name]
        if operation.dimension == "vocabulary":
            assert actual in (count, count / end_pair_fraction)
        elif name != "pp_transfer":
            assert actual == count, name
        if actual and name != "pp_transfer":
            message = float(known[operation.message])
            labels = {**known.labels, "group": operation.group}
            ranks = float(Evaluation(known.given, labels)["group_size"])
            # Of a gather a rank puts in its own part.
            part = ranks if operation.collective == "all_gather" else 1.0
            assert sizes[name] == {round(message / part)}
    assert most["sent"] <= 2.0 * float(pp_count.of(known)) * end_pair_fraction


@pytest.mark.parametrize("line", PLANS)
def test_groups_and_pairs_belong_together(line: str) -> None:
    _, _, traces, groups = made(line)
    calls: dict[str, dict[int, list[Any]]] = {}
    sends: Counter[Any] = Counter()
    receives: Counter[Any] = Counter()
    for rank, trace in enumerate(traces):
        for one in trace:
            if one["type"] == COLLECTIVE:
                group = one["pg_name"].decode()
                kind = (one["comm_type"], one["comm_size"])
                calls.setdefault(group, {}).setdefault(rank, []).append(kind)
                assert one["comm_type"] in TYPES.values()
            elif one["type"] == SEND:
                assert one["comm_src"] == rank != one["comm_dst"]
                sends[*ends(one), one["comm_size"]] += 1
            elif one["type"] == RECEIVE:
                assert one["comm_dst"] == rank
                receives[*ends(one), one["comm_size"]] += 1
    assert sends == receives
    assert max(sends.values()) == 1
    assert {int(group) for group in calls} == set(groups)
    for group, by_rank in calls.items():
        assert set(by_rank) == set(groups[int(group)])
        first, *other_counts = (Counter(own) for own in by_rank.values())
        assert all(other_count == first for other_count in other_counts)


@pytest.mark.thorough
def test_the_command_writes_a_file_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = Runner(capsys)
    line = f"analysis {PLANS[0]} --timeline step.et"
    assert "wrote step.0.et to step.15.et, step.groups.json: Chakra traces" in cli(line).out
    assert len(list(tmp_path.iterdir())) == 17
    groups = json.loads((tmp_path / "step.groups.json").read_text())
    assert [0, 1] in groups.values()
    about, *nodes = messages((tmp_path / "step.15.et").read_bytes())
    assert dict(fields(about))[1] == b"1.0.0"
    assert [node(one) for one in nodes] == made(PLANS[0])[2][15]
    refused = cli(line, fine=False)
    assert refused.code == 2
    assert "step.0.et" in refused.err
    assert cli(f"{line} --overwrite").code == 0
    monkeypatch.setattr(write, "MOST_NODES", 1000)
    refused = cli(f"{line} --overwrite", fine=False)
    assert refused.code == 2
    assert "nodes in the traces of 16 ranks; at most 1,000" in refused.err
    refused = cli(
        "overlap --kind ddp_buckets --compute 4ms --comm 3ms --buckets 4 --timeline o.et",
        fine=False,
    )
    assert refused.code == 2
    assert "Chakra traces are of a step" in refused.err
