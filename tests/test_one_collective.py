"""One operation, one machine, one answer: whoever charges it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from overhead.evaluation import Evaluation
from overhead.formula import REGISTRY
from overhead.hops import LevelHops, Links, message_time, ring_all_reduce
from overhead.labels import ELSEWHERE, LABELS, usual_spelling
from overhead.topology import build_topology, collective
from sweeps.hop_study.study import Scenario, from_machine
from sweeps.job import prepare
from sweeps.spec.catalog import load_hardware, load_model
from sweeps.spec.files import shipped
from sweeps.spec.software import load_software
from sweeps.tuner.predict import predict
from sweeps.tuner.rates import TAKEN, read_rates
from sweeps.tuner.userbuffers import OPERATORS, PHASES, products_of
from sweeps.tuner.userbuffers import LayerOverlap as Overlap
from tests.tables import keyed

MODEL = "llama3-8b"
PRECISE = 17
# What a step without a library may take off a link's bandwidth: the input that may differ.
SHARE = "intra_efficiency"


def machine_of(draw: Random, folder: Path) -> tuple[str, dict[str, float]]:
    """Write a machine's file, a DGX H100 with links of its own; return its name and figures."""
    text = (shipped("hardware") / "dgx-h100.toml").read_text(encoding="utf-8")
    figures = {
        "intra_bandwidth": draw.uniform(50e9, 900e9),
        "intra_latency": draw.uniform(0.1e-6, 5e-6),
        "inter_bandwidth": draw.uniform(5e9, 100e9),
        "inter_latency": draw.uniform(1e-6, 20e-6),
    }
    name = f"drawn-{draw.randrange(10**9)}"
    text = text.replace('name = "dgx-h100"', f'name = "{name}"')
    text = re.sub(r"^(links|link_bandwidth) = .*\n", "", text, flags=re.M)
    for level, domain in (("intra", "scale_up"), ("inter", "scale_out")):
        head, tail = text.split(f"[{domain}]")
        for figure, unit in (("bandwidth", "B/s"), ("latency", "s")):
            spec = f'{figure} = {{ value = "{figures[f"{level}_{figure}"]:.{PRECISE}g} {unit}"'
            tail = re.sub(rf'^{figure} = {{ value = "[^"]*"', spec, tail, count=1, flags=re.M)
        text = f"{head}[{domain}]{tail}"
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return name, figures


def charged(name: str, kind: str, ranks: int, size: float, folder: Path, **further: Any) -> float:
    """Return the time that `sweeps collective` tells."""
    constants = {
        "collective": kind,
        "topology": "hierarchical",
        "algorithm": "nccl",
        "hardware": name,
        "ranks": ranks,
        "message_bytes": size,
        "software": "none",
        **further,
    }
    spec = {"quantities": ["time"], "constants": constants}
    plan = prepare(spec, folders=[folder]).program
    return float(plan.evaluate(("time",))["time"])


def step(name: str, given: dict[str, Any], folder: Path) -> dict[str, float]:
    """Return times that a training step charges, and their messages."""
    wanted = (
        "tp_message_bytes tp_all_gather_time tp_reduce_scatter_time tp_all_reduce_time "
        "effective_intra_bandwidth effective_inter_bandwidth"
    ).split()
    spec = {"quantities": wanted, "constants": {"model": MODEL, "hardware": name, **given}}
    arrays = prepare(spec, folders=[folder]).program.evaluate()
    return {quantity: float(arrays[quantity]) for quantity in wanted}


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize("seed", range(12))
def test_collective_is_what_everyone_charges(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    name, drawn = machine_of(draw, tmp_path)
    figures = load_hardware(name, (tmp_path,)).figures
    assert figures["intra_bandwidth"].value == drawn["intra_bandwidth"]
    size, group = draw.uniform(1e3, 1e9), draw.choice([2, 4, 8, 16, 24, 64])

    # Python's function, and hops: no input differs.
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        time = charged(name, kind, group, size, tmp_path)
        network = build_topology(
            "hierarchical",
            group,
            gpus_per_node=8,
            nics_per_node=8,
            intra_nvls=1.0,
            in_network_latency_factor=12.5e-6 / figures["intra_latency"].value,
            **{
                f"{level}_{figure}": figures[f"{level}_{figure}"].value
                for level in ("intra", "inter")
                for figure in ("bandwidth", "latency", "energy_per_bit")
            },
        )
        assert float(collective(kind, size, network, algorithm="nccl").latency_s) == time
    machine = load_hardware(name, (tmp_path,))
    case = Scenario(name, *from_machine(machine), name, algorithm="nccl", folders=(tmp_path,))
    traffic = case.all_reduce(np.array([size, 2 * size]), group)
    for got, asked in zip(traffic.time, (size, 2 * size), strict=True):
        assert got == charged(name, "all_reduce", group, asked, tmp_path, software="nccl")

    # A step charges the same, also where its links give a share of their bandwidth.
    tp = draw.choice([2, 4, 8])
    given = {
        "tp": tp,
        "world_size": 16,
        "sequence_parallel": 1,
        "sequence_length": 4096,
        "micro_batch_size": 1,
        "global_batch_size": 16,
        "software": "none",
    }
    share = draw.uniform(0.5, 1.0)
    actual = step(name, {**given, SHARE: share}, tmp_path)
    bandwidth = actual["effective_intra_bandwidth"]
    assert bandwidth == share * drawn["intra_bandwidth"]
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        message = actual["tp_message_bytes"]
        time = charged(name, kind, tp, message, tmp_path, intra_bandwidth=bandwidth)
        assert actual[f"tp_{kind}_time"] == time, kind
    whole = step(name, given, tmp_path)
    assert whole["tp_all_gather_time"] == charged(name, "all_gather", tp, message, tmp_path)

    # The tuner: what its library's rings leave of a link, and the same operations in turn.
    left = load_software("nccl").constants(machine)["channel_efficiency"].value
    assert read_rates(name, folders=(tmp_path,))["bandwidth"] == left * drawn["intra_bandwidth"]
    rates = read_rates(name, given={"bandwidth": bandwidth}, folders=(tmp_path,))
    rates = replace(rates, library={})
    cases = [Overlap(tp, "fc1", "fprop"), Overlap(tp, "fc2", "fprop")]
    turn = predict(load_model(MODEL).shapes, 4096, cases, rates).forward.comm[0]
    assert turn[0] == actual["tp_all_gather_time"]
    assert turn[1] == actual["tp_reduce_scatter_time"]


@pytest.mark.parametrize("seed", range(12))
def test_hops_rings_and_messages_are_the_collective_s(seed: int) -> None:
    draw = Random(seed)
    ranks, size = draw.randrange(1, 40), draw.uniform(1e3, 1e9)
    latency, bandwidth = draw.uniform(1e-7, 1e-5), draw.uniform(1e9, 1e12)
    energy = draw.uniform(1e-12, 1e-10)
    links = Links(("one",), (latency,), (bandwidth,), (energy,))
    ring = ring_all_reduce(size, ranks, LevelHops((), ((1,),)), links)
    network = build_topology(
        "ring", ranks, latency=latency, bandwidth=bandwidth, energy_per_bit=energy
    )
    theirs = collective("all_reduce", size, network, algorithm="ring")
    if ranks > 1:
        assert float(ring.energy) == float(theirs.energy_j)
        assert float(ring.rank_bytes) == float(theirs.volume_bytes)
    assert float(ring.time) == (0.0 if ranks == 1 else float(theirs.latency_s))
    # A message over links of several hops: what stands still at each differs by name.
    hops = draw.randrange(1, 6)
    pair = build_topology("ring", 12, latency=latency, bandwidth=bandwidth, energy_per_bit=energy)
    sent = collective("p2p", size, pair, hops=float(hops))
    through = message_time(size, (hops,), (latency,), (bandwidth,), "cut_through")
    assert float(through) == float(sent.latency_s)
    stored = message_time(size, (hops,), (latency,), (bandwidth,), "store_and_forward")
    assert (float(stored) == float(sent.latency_s)) == (hops == 1)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("phase", PHASES)
def test_the_tuner_s_products_are_the_overlap_s_and_the_step_s(operator: str, phase: str) -> None:
    tp, tokens = 4, 4096.0
    rates, model = read_rates("dgx-h100"), load_model(MODEL)
    time = predict(model.shapes, tokens, [Overlap(tp, operator, "fprop")], rates)
    three = {"fprop": ("fprop",), "dgrad": ("dgrad", "wgrad"), "wgrad": ("dgrad", "wgrad")}[phase]
    total = (time.forward if phase == "fprop" else time.backward).gemm[0, 0]
    taken = {name: rates[name] for name in TAKEN}
    sizes = {
        one: {name: float(value) for name, value in of.items()}
        for (layer, one), of in products_of(model.shapes, tp, tokens=tokens).items()
        if layer == operator
    }
    # `sweeps overlap` and its sweeps: the same product by the best of its tiles.
    tiled = [
        float(
            prepare(
                {
                    "quantities": ["unsplit_matmul_time"],
                    "constants": {"mechanism": "two_durations", **taken, **sizes[one]},
                }
            ).program.evaluate()["unsplit_matmul_time"]
        )
        for one in three
    ]
    assert total == sum(tiled)
    # A step has the same rows, columns and depth at a smooth rate: the input that differs.
    kind = {"fprop": "forward", "dgrad": "input_gradient", "wgrad": "weight_gradient"}[phase]
    name = {"qkv": "qkv", "proj": "attention_output", "fc1": "mlp_up", "fc2": "mlp_down"}[operator]
    constants = {
        "model": MODEL,
        "hardware": "dgx-h100",
        "world_size": 8,
        "tp": tp,
        "sequence_length": tokens,
        "micro_batch_size": 1,
        "global_batch_size": 8,
    }
    asked = f"{name}_{kind}_time"
    program = prepare({"quantities": [asked], "constants": constants}).program
    cell = Evaluation.of_cell(program.builder(program.cases[0]), {})
    inputs = [formula for formula in REGISTRY["matmul_time"].inputs if formula not in sizes[phase]]
    smooth = {one: cell[one] for one in inputs} | sizes[phase]
    smooth["matmul_efficiency"] = cell["sized_matmul_efficiency"]
    # And it adds a weight's gradient to those of earlier micro-batches, as no single product does.
    if kind == "weight_gradient":
        smooth["activation_bytes"] = cell["weight_gradient_bytes"]
    time_of_step = float(program.evaluate()[asked])
    assert time_of_step == float(Evaluation(smooth)["matmul_time"])
    assert time_of_step != tiled[three.index(phase)]


@pytest.mark.parametrize("seed", range(6))
def test_a_step_charges_a_profile_as_collective_does(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    name, _ = machine_of(draw, tmp_path)
    tp = draw.choice([2, 4, 8])
    given = {
        "tp": tp,
        "world_size": 32,
        "sequence_parallel": 1,
        "sequence_length": 4096,
        "micro_batch_size": 1,
        "global_batch_size": 32,
        "software": "nccl",
    }
    actual = step(name, given, tmp_path)
    further = {"software": "nccl", "environment": "step"}
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        message = actual["tp_message_bytes"]
        time = charged(name, kind, tp, message, tmp_path, **further)
        assert actual[f"tp_{kind}_time"] == time, kind
    bare = step(name, {**given, "software": "none"}, tmp_path)
    assert bare["tp_all_gather_time"] != actual["tp_all_gather_time"]


def test_a_step_between_nodes_charges_a_profile_as_collective_does() -> None:
    wanted = ["dp_all_reduce_time", "dp_reduce_bytes", "pp_transfer_time", "pp_message_bytes"]
    given = {
        **keyed(
            "hardware=dgx-h100 world_size=64 tp=1 pp=2 sequence_length=4096 micro_batch_size=1 "
            "global_batch_size=64 zero_stage=0 software=nccl"
        ),
        "model": MODEL,
    }
    arrays = prepare({"quantities": wanted, "constants": given}).program.evaluate()
    actual_arrays = {quantity: float(arrays[quantity]) for quantity in wanted}
    further = {"software": "nccl", "environment": "step"}
    folder = Path()
    reduced = charged(
        "dgx-h100", "all_reduce", 32, actual_arrays["dp_reduce_bytes"], folder, **further
    )
    assert actual_arrays["dp_all_reduce_time"] == reduced
    pair = {**further, "members_in_node": 1.0, "ranks_sharing_nic": 1.0, "gpus_per_node": 1}
    sent = charged("dgx-h100", "p2p", 2, actual_arrays["pp_message_bytes"], folder, **pair)
    assert actual_arrays["pp_transfer_time"] == sent


@pytest.mark.parametrize("written", ["allreduce", "AllReduce", "all-reduce", "ALL_REDUCE"])
def test_names_are_understood_however_they_are_written(written: str) -> None:
    def time(**given: Any) -> float:
        constants = {"ranks": 8, "message_bytes": 2.0**20, **given}
        program = prepare({"quantities": ["time"], "constants": constants}).program
        assert program.labels["collective"] == "all_reduce"
        return float(program.evaluate(("time",))["time"])

    usual = time(collective="all_reduce", topology="ring", hardware="dgx-h100")
    assert time(collective=written, topology="RING", hardware="DGX_H100") == usual
    network = build_topology("Ring", 8)
    result = float(collective(written, 2.0**20, network).latency_s)
    assert result == float(collective("all_reduce", 2.0**20, build_topology("ring", 8)).latency_s)
    assert load_model("Llama3-70B") == load_model("llama3-70b")


def test_a_name_that_may_mean_two_isn_t_guessed() -> None:
    assert usual_spelling("All2All", ["all_to_all", "all_gather"]) == "all_to_all"
    assert usual_spelling("a-b", ["a_b", "ab"]) == "a-b"
    assert usual_spelling("reduc", ["reduce"]) == "reduc"


def test_labels_are_known_by_what_frameworks_call_them() -> None:
    assert usual_spelling("DeepEP", LABELS["dispatcher"].values) == "deduplicated"
    assert usual_spelling("alltoall", LABELS["dispatcher"].values) == "all_to_all"
    assert usual_spelling("Ulysses", LABELS["context_parallel"].values) == "all_to_all"
    assert usual_spelling("a2a+p2p", LABELS["context_parallel"].values) == "mixed"
    known = LABELS["schedule"].values
    assert usual_spelling("1F1B", known) == LABELS["schedule"].default
    assert usual_spelling("Interleaved1F1B", known) == "interleaved"
    assert (
        usual_spelling("ZBVZeroBubble", known) == usual_spelling("ZB-V", known) == "zero_bubble_v"
    )
    every = {value for label in LABELS.values() for value in label.values}
    assert {usual_spelling(name, every) for name in ELSEWHERE} < every
