"""Giving back what was taken changes no number: one value at a time, and all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import sweeps
from overhead.labels import LABELS
from overhead.overlap.mechanisms import MECHANISMS
from overhead.quantity import VOCABULARY
from sweeps.cli.analysis_job import analysis_job
from sweeps.cli.option_table import flags_in
from sweeps.cli.overlap_case import QUANTITIES
from sweeps.cli.overlap_case import job_of as overlap_of
from sweeps.errors import InputError
from sweeps.idle import check_taken
from sweeps.job import Job, prepare
from sweeps.origin import GIVEN, UNKNOWN, read
from sweeps.search.answer import answer
from sweeps.search.buy import Wish, offer
from sweeps.search.request import read_request
from sweeps.spec.catalog import load_hardware, load_model
from sweeps.store.constants import with_constants
from sweeps.tuner.rates import read_rates
from tests.cli_runner import Runner
from tests.tables import examples, keyed

Question = dict[str, Any]
# How sure an answer is depends on what is known of a run, so on what is given.
SURENESS = {"unknown_settings", "expected_error", "error_band_samples"}
MACHINES = tuple(
    "dgx-h100 dgx-a100 gb200-nvl72 mi300x tpu-v5p tpu-v5e gcp-a3-mega trainium2".split()
)
EXAMPLES = settings(deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def collectives(draw: st.DrawFn) -> Question:
    """A question of one operation: on a machine, on a flat network of one, or on a bare network."""
    found: Question = {
        "collective": draw(st.sampled_from(["all_reduce", "all_gather", "all_to_all", "p2p"])),
        "ranks": draw(st.sampled_from([2, 8, 16, 64, 128])),
        "message_bytes": draw(st.sampled_from([1e4, 2.0**26, 2.0**30])),
    }
    kind = draw(st.sampled_from(["machine", "default", "flat", "bare"]))
    if kind in ("machine", "flat") and draw(st.booleans()):
        found["hardware"] = draw(st.sampled_from(MACHINES))
    if kind in ("flat", "bare"):
        found["topology"] = draw(st.sampled_from(["ring", "switch", "torus", "mesh"]))
        found["algorithm"] = draw(st.sampled_from(["auto", "standard"]))
    if kind == "bare":
        link = draw(st.sampled_from([{"bandwidth": 5e10}, {"latency": 2e-6}]))
        found |= link | draw(st.sampled_from([{}, {"energy_per_bit": 5e-12}]))
    elif draw(st.booleans()):
        more: list[Question] = [
            {"software": "none"},
            {"inter_bandwidth": 40e9},
            {"intra_latency": 2e-6},
            {"environment": "pytorch"},
            {"oversubscription": 2.0},
        ]
        found |= draw(st.sampled_from(more))
    return found


@st.composite
def steps(draw: st.DrawFn) -> Question:
    """A question of a training step: of a model or of bare sizes, on a machine."""
    shape: list[Question] = [
        {"model": "llama3-8b"},
        {"model": "qwen3-30b-a3b", "ep": 4, "etp": 1},
        {"parameters": 7e9, "hidden_size": 4096, "layers": 32},
        keyed(
            "hidden_size=4096 layers=32 heads=32 vocabulary_size=32000 ffn_size=11008 gated_mlp=1 "
            "tied_embeddings=0"
        ),
    ]
    plan: list[Question] = [{"tp": 2, "pp": 2, "dp": 4}, {"dp": 16}, {"tp": 8, "dp": 2, "cp": 1}]
    found = draw(st.sampled_from(shape)) | draw(st.sampled_from(plan))
    found |= {"global_batch_size": 32, "micro_batch_size": 1, "sequence_length": 4096}
    more: list[Question] = [
        {},
        {"hardware": "dgx-a100"},
        {"hardware": "tpu-v5p"},
        {"inter_bandwidth": 25e9},
        {"topology": "ring"},
        {"software": "none"},
        {"framework": "torchtitan"},
    ]
    return found | draw(st.sampled_from(more))


def job_of(question: Question) -> Job:
    table = {"title": "Restated", "constants": question}
    if "message_bytes" in question:
        return prepare(table, command=["test"], folders=())
    return analysis_job(table)


def taken(job: Job) -> Question:
    """Return what a report names as taken: every value that isn't given and that results take."""
    used = {"hardware", *job.program.labels, *job.program.used()} - SURENESS
    known = {**job.program.grid.constants, **job.program.assumed, **job.program.labels}
    return {
        name: known[name]
        for name, origins in job.resolved.origins.items()
        if name in used
        and name in known
        and origins[0].kind != UNKNOWN
        and known[name] == known[name]  # what isn't known is no value
    }


def numbers(job: Job) -> Mapping[str, Any]:
    with np.errstate(all="ignore"):
        values_by_name = job.program.evaluate()
    return {
        name: np.asarray(values)
        for name, values in values_by_name.items()
        if name not in SURENESS and "error_band" not in name
    }


def unlike(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """Return the numbers that both have and that aren't equal bit for bit."""
    return [
        name
        for name in left.keys() & right.keys()
        if not np.array_equal(left[name], right[name], equal_nan=left[name].dtype.kind == "f")
    ]


def check(question: Question, draw: Callable[[Any], Any], *, some: int) -> None:
    try:
        base = job_of(question)
    except InputError:
        reject()  # no such plan or network
    known, restated = numbers(base), taken(base)
    assert restated, question
    pick = draw(st.lists(st.sampled_from(sorted(restated)), min_size=1, max_size=some, unique=True))
    for name in pick:
        job = job_of({**question, name: restated[name]})
        assert not unlike(known, numbers(job)), (question, name, restated[name])
        if "message_bytes" in question and name not in LABELS:
            check_taken(job, {name: "as taken"}, [])
    together = job_of({**question, **restated})
    assert not unlike(known, numbers(together)), (question, restated)


@pytest.mark.thorough
@given(question=collectives(), data=st.data())
@settings(EXAMPLES, max_examples=15)
def test_an_operations_values_given_back(question: Question, data: st.DataObject) -> None:
    check(question, data.draw, some=5)


@pytest.mark.thorough
@given(question=steps(), data=st.data())
@settings(EXAMPLES, max_examples=3)
def test_a_steps_values_given_back(question: Question, data: st.DataObject) -> None:
    check(question, data.draw, some=3)


@pytest.mark.slow
@given(question=steps(), data=st.data())
@settings(EXAMPLES, max_examples=40)
def test_many_steps_values_given_back(question: Question, data: st.DataObject) -> None:
    check(question, data.draw, some=20)


PLAN: Question = {
    "model": "llama3-8b",
    "tp": 2,
    "pp": 2,
    "dp": 4,
    "global_batch_size": 32,
    "micro_batch_size": 1,
    "sequence_length": 4096,
}
# Adapters, host memory, parts of a step computed again, limits, runs, mechanisms and hybrids.
FURTHER: dict[str, Question] = {
    "adapters": {"lora_rank": 16},
    "optimizer": {"optimizer_offload": 0.5},
    "activations": {"offloaded_layers": 2},
    "blocks": {"recompute": "block", "recompute_layers": 1},
    "power": {"power_limit": 350.0},
    "mtp": {"mtp_layers": 1},
    "run": {"training_tokens": 1e12, "gpu_hour_price": 2.0, "staging_bandwidth": 20e9},
    "prefetch": {"zero_stage": 3, "pp": 1, "dp_mechanism": "fsdp_prefetch"},
    "chunks": {
        "schedule": "interleaved",
        "virtual_pipeline_size": 2,
        "tp_mechanism": "userbuffers",
        "tp": 8,
        "dp": 2,
    },
    "pairs": {
        "model": "deepseek-v3",
        "ep": 4,
        "hardware": "gb200-nvl72",
        "schedule": "dual_pipe",
    },
    "linear": {"model": "qwen3-next-80b-a3b", "ep": 4, "hardware": "mi300x"},
    "ordered": {
        "model": "nemotron-3-nano-30b-a3b",
        "ep": 4,
        "cp": 2,
        "context_parallel": "all_gather",
    },
}


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize("further", FURTHER)
def test_all_values_of_a_step_given_back(further: str) -> None:
    question = {**PLAN, **FURTHER[further]}
    base = job_of(question)
    restated = taken(base)
    assert len(restated) > 190
    assert not unlike(numbers(base), numbers(job_of({**question, **restated}))), restated


# Values of which each has changed an answer, and hypothesis might not draw today.
LINKS = keyed(
    "link=auto mesh_nz=1 intra_latency=8e-7 intra_bandwidth=450e9 inter_latency=2.7e-6 "
    "inter_bandwidth=50e9 hardware=dgx-h100"
)
TORUS = {"topology": "torus", "mesh_nx": 4, "mesh_ny": 4, "mesh_nz": 4, "link": "auto"}


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        ({"ranks": 16}, LINKS),
        ({"ranks": 8}, LINKS),
        ({"ranks": 16, "hardware": "dgx-h100"}, LINKS),
        ({"ranks": 64, "hardware": "tpu-v5p"}, TORUS),
        ({"ranks": 64, "hardware": "tpu-v5p"}, {"local_copy_bandwidth": np.inf}),
        ({"ranks": 64, "topology": "torus"}, {"mesh_nx": 8, "mesh_ny": 8, "mesh_nz": 1}),
        ({"ranks": 1024, "hardware": "tpu-v5e"}, {"topology": "hierarchical"}),
        ({"ranks": 512, "nodes_per_pod": 4, "topology": "hierarchical"}, {"pod_latency": 2.7e-6}),
        ({"ranks": 16, "hardware": "trainium2"}, {"topology": "torus"}),
    ],
)
def test_values_that_once_changed_an_answer(asked: Question, values: Question) -> None:
    question = {"message_bytes": 2.0**26, **asked}
    base = sweeps.sweep(["time", "energy"], **question)
    for name, value in values.items():
        dataset = sweeps.sweep(["time", "energy"], **{**question, name: value})
        np.testing.assert_array_equal(dataset["time"].item(), base["time"].item(), name)
        np.testing.assert_array_equal(dataset["energy"].item(), base["energy"].item(), name)


def test_a_dataset_names_values_that_are_taken_back() -> None:
    """Every coordinate that wasn't given, of a sweep over ranks and messages."""
    axes: Question = {"ranks": [8, 16], "message_bytes": [1e6, 1e9]}
    base = sweeps.sweep("time", **axes)
    restated = {
        str(name): coord.item()
        for name, coord in with_constants(base).coords.items()
        if not coord.dims
        and (name in LABELS or name in VOCABULARY)
        and read(coord.attrs)[0].kind not in (GIVEN, UNKNOWN)
        and not (name in LABELS and LABELS[str(name)].follows)
    }
    assert {"hardware", "inter_bandwidth", "channel_efficiency"} <= restated.keys()
    dataset = sweeps.sweep("time", **axes, **restated)
    np.testing.assert_array_equal(dataset["time"].to_numpy(), base["time"].to_numpy())


@pytest.mark.thorough
def test_a_plans_values_given_back() -> None:
    asked: Question = keyed(
        "model=llama3-8b gpus=16 global_batch_size=32 sequence_length=4096 recompute=none cp=1"
    )
    base = sweeps.plan(**asked)
    assert base.search.answer is not None
    space = base.search.answer.search.space
    shapes = load_model("llama3-8b").shapes
    assert space.plan is not None
    used = space.plan.used() - SURENESS
    constants_by_name = {
        name: space.resolved.constants[name]
        for name, origins in space.resolved.origins.items()
        if name in used
        and name in space.resolved.constants
        and origins[0].kind != UNKNOWN
        and np.isfinite(space.resolved.constants[name])
        and name not in shapes  # A model says these itself
    }
    assert {"inter_bandwidth", "channel_efficiency", "tp_overlap"} <= constants_by_name.keys()
    plans = sweeps.plan(
        **{**asked, **constants_by_name, "hardware": "dgx-h100", "software": "nccl"}
    )
    assert plans.search.answer is not None
    assert plans.search.answer.search.values[0] == base.search.answer.search.values[0]
    assert plans.recommended is not None
    assert base.recommended is not None
    assert plans.recommended.split == base.recommended.split


def test_a_tuners_rates_given_back() -> None:
    rates = read_rates("dgx-h100")
    for name in ("bandwidth", "latency", "sms", "copy_engine_bandwidth", "launch_time"):
        repeated_rates = read_rates("dgx-h100", given={name: rates[name]})
        assert repeated_rates.library == rates.library
        assert {key: figure.value for key, figure in repeated_rates.figures.items()} == {
            key: figure.value for key, figure in rates.figures.items()
        }
    slow = read_rates("dgx-h100", given={"bandwidth": rates["bandwidth"] / 2.0})
    assert slow.library["intra_bandwidth"] == rates.library["intra_bandwidth"] / 2.0
    late = read_rates("dgx-h100", given={"latency": rates["latency"] + 1e-6})
    assert late.library["step_latency"] == pytest.approx(rates.library["step_latency"] + 1e-6)


DURATIONS = {"compute_time": "50ms", "communication_time": "10ms"}
PRODUCT = dict(
    communication_time="1ms", matmul_m="8192", matmul_n="8192", matmul_k="4096", tile_time="5us"
)
OVERLAPS = [
    *(
        (name, DURATIONS)
        for name in MECHANISMS
        if name not in ("pipeline", "fused_messages", "zero3_prefetch")
    ),
    *((name, PRODUCT) for name in ("two_durations", "bulk_shared", "ring_exchange")),
    ("zero3_prefetch", {**DURATIONS, "prefetched_layers": "2"}),
    (
        "fused_messages",
        dict(compute_time="5ms", messages="32", message_latency="20us", transfer_time="2ms"),
    ),
    ("pipeline", {"stage_forward_time": "10ms", "stage_backward_time": "20ms", "p2p_time": "1ms"}),
]


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize("hardware", [None, "dgx-h100"])
@pytest.mark.parametrize(("mechanism", "asked"), OVERLAPS)
def test_an_overlaps_values_given_back(
    mechanism: str, asked: dict[str, str], hardware: str | None
) -> None:
    question = {**asked, "mechanism": mechanism}
    base = overlap_of(question, hardware)
    flags = {*flags_in(QUANTITIES)}
    restated = {
        name: value if isinstance(value, str) else repr(float(value))
        for name, value in taken(base).items()
        if name in flags
    }
    known = numbers(base)
    for name, value in restated.items():
        overlap = overlap_of({**question, name: value}, hardware)
        assert not unlike(known, numbers(overlap)), (name, value)
    assert not unlike(known, numbers(overlap_of({**question, **restated}, hardware))), restated
    assert restated or mechanism == "bulk_queued"


# What `hops` takes where it isn't given, and the machine's links as its table has them.
HOPS = keyed(
    "spec=llama3-8b-hops layers=one switching=cut_through algorithm=nccl tensor=ring wiring=rails"
)


@pytest.mark.thorough
@pytest.mark.parametrize("machine", ["dgx-h100", "tpu-v5p"])
@pytest.mark.parametrize("record", ["", "--messages"])
def test_hops_values_given_back(
    capsys: pytest.CaptureFixture[str], machine: str, record: str
) -> None:
    cli = Runner(capsys)
    asked = f"hops --hardware {machine} --json {record}"
    base = cli(asked).records
    links = load_hardware(machine).figures
    names = [name for name in flags_in("hop links") if name in links]
    restated = {name: repr(links[name].value) for name in names}
    if machine == "dgx-h100":
        restated |= HOPS
    given = [f"--{name.replace('_', '-')} {value}" for name, value in restated.items()]
    for flag in given:
        assert cli(f"{asked} {flag}").records == base, flag
    assert cli(f"{asked} {' '.join(given)}").records == base
    assert len(given) >= 4


TRAINED = examples(__file__, "trained")


@pytest.mark.thorough
def test_a_purchases_values_given_back() -> None:
    def bought(given: Mapping[str, str]) -> Mapping[str, float]:
        point = read_request({**TRAINED, **given}, objective="time").first
        least = offer(point, Wish(tokens=10e9, days=0.2), "dgx-h100").least
        assert least is not None
        assert least.detail is not None
        return {"gpus": least.gpus, **least.detail.values}

    base = bought({})
    space = answer(read_request(TRAINED, objective="time").first).search.space
    assert space.plan is not None
    constants = space.resolved.constants
    restated = {
        name: repr(float(constants[name]))
        for name, origins in space.resolved.origins.items()
        if name in space.plan.used() - SURENESS
        and name in constants
        and name not in TRAINED
        and origins[0].kind != UNKNOWN
        and np.isfinite(constants[name])
    }
    few = tuple(
        "inter_bandwidth channel_efficiency matmul_efficiency memory_capacity dp_overlap".split()
    )
    assert {*few} <= restated.keys()
    restated["gpu_hour_price"] = repr(load_hardware("dgx-h100").figures["gpu_hour_price"].value)
    for again in (
        bought(values)
        for values in (*({name: restated[name]} for name in (*few, "gpu_hour_price")), restated)
    ):
        known = {name for name in base.keys() & again.keys() - SURENESS if "error_band" not in name}
        assert {"gpus", "run_cost", "run_days"} <= known
        unequal = {
            name for name in known if not np.array_equal(again[name], base[name], equal_nan=True)
        }
        assert not unequal
