"""One question has one answer: asked of analysis, of a sweep, of plans explained, of Python.

Where a road takes a default that another has no place for, the input is named here: Python knows
no catalogue, so that it is given the machine's and the software's figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sweeps
from overhead import Config, analyze_config
from overhead.config import RENAMED
from overhead.labels import LABELS
from overhead.memory.quantities import RECIPES
from sweeps.cli.analysis_job import analysis_job
from sweeps.job import Job, evaluation_of
from sweeps.search.answer import WHOLE
from sweeps.search.details import details
from sweeps.search.request import Execution, read_request
from sweeps.search.space import executions_at, space_of
from sweeps.spec.catalog import load_framework
from sweeps.spec.framework import ENTRIES
from sweeps.validate.predict import predict
from sweeps.validate.run_table import TABLES, find_runs, read_runs, shipped_rules
from sweeps.validate.training_rows import Case, cases_of_runs
from tests.tables import examples, keyed

Numbers = Mapping[str, NDArray[np.float64]]

ROWS = 20
MODELS = ("llama3-8b", "gpt3-175b", "llama3-70b", "mixtral-8x7b")
EXPERTS = "mixtral-8x7b"
# Machines, with numbers of GPUs that fill their nodes.
MACHINES = {"dgx-h100": (32, 64, 128), "dgx-a100": (32, 64, 128), "gb200-nvl72": (72, 144)}
NETWORKS = ("hierarchical", "switch", "torus", "ring")
SCHEDULES = ("one_f_one_b", "interleaved", "gpipe", "zero_bubble_h1", "dual_pipe", "v_half")
# What a plan is, by number.
OF_A_PLAN = tuple(
    (
        "tp cp pp dp ep etp virtual_pipeline_size micro_batch_size zero_stage sequence_parallel "
        "embedding_layer_weight head_layer_weight"
    ).split()
)
# The labels that Python's configuration has fields for.
FIELDS = tuple(
    (
        "algorithm library context_parallel recompute attention_kernel loss schedule "
        "mask dispatcher"
    ).split()
)
# What is told of plans that can't run, or that isn't a plan's fault.
NOTES = {"does_not_fit", "not_of_network", "not_known"}


def question(seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what plans have in common, and what they may choose."""
    draw = np.random.default_rng(seed)
    model = MODELS[seed % len(MODELS)]
    schedule = SCHEDULES[seed % len(SCHEDULES)]
    machine, sizes = list(MACHINES.items())[draw.integers(len(MACHINES))]
    common: dict[str, Any] = {
        "model": model,
        "hardware": machine,
        "topology": NETWORKS[seed % 2 * seed % len(NETWORKS)],
        "recompute": str(draw.choice(["none", "full", "selective"])),
        "context_parallel": str(draw.choice(LABELS["context_parallel"].values)),
        "schedule": schedule,
        "world_size": int(draw.choice(sizes)),
        "global_batch_size": int(draw.choice([288, 576])),
        "sequence_length": int(draw.choice([2048, 4096, 8192])),
    }
    if seed % 2:
        common["framework"] = str(draw.choice(["megatron-lm", "torchtitan"]))
    free = {
        "tp": "1,2,4,8",
        "cp": "1,2",
        "pp": "2,4,8" if schedule in ("interleaved", "dual_pipe", "v_half") else "1,2,4,8",
        "micro_batch_size": "1,2",
        "zero_stage": "0,1,2,3",
        "sequence_parallel": "0,1",
        "virtual_pipeline_size": {"interleaved": "2,4", "v_half": "2"}.get(schedule, "1"),
    }
    return common, free | ({"ep": "1,2,4,8"} if model == EXPERTS else {})


def plans_of(common: Mapping[str, Any], free: Mapping[str, str], seed: int) -> list[Execution]:
    """Return plans of a question, some of which can't be."""
    draw = np.random.default_rng(seed)
    space = space_of(read_request({**common, **free}).first)
    assert space.plan is not None
    cells = int(np.prod(space.plan.grid.shape))
    places = np.sort(draw.choice(cells, size=ROWS, replace=cells < ROWS))
    plans = list(executions_at(space, places))
    for index, (name, factor) in enumerate((("dp", 2.0), ("micro_batch_size", 7.0), ("tp", 3.0))):
        plans[index] = plans[index].changed({name: plans[index].given[name] * factor})
    return plans


@pytest.fixture(scope="module", params=range(10))
def asked(request: pytest.FixtureRequest) -> tuple[dict[str, Any], list[Execution], Job, Numbers]:
    """Return what all plans have in common, the plans, and what analysis says of them."""
    common, free = question(request.param)
    plans = plans_of(common, free, request.param)
    columns = {
        name: [plan.given[name] for plan in plans] for name in OF_A_PLAN if name in plans[0].given
    }
    spec = {"title": "Plans", "axes": {"row": columns}, "constants": common}
    job = analysis_job(spec)
    values_by_name = job.program.evaluate(job.stored)
    rows = {name: np.broadcast_to(values, ROWS) for name, values in values_by_name.items()}
    return {**common, "row": columns}, plans, job, rows


def wrong(job: Job, rows: Numbers, name: str) -> NDArray[np.bool_]:
    """Return where a quantity doesn't exist."""
    return (rows["status"] & job.program.faults.masking(name)) != 0


@pytest.mark.thorough
def test_a_sweep_says_what_analysis_says(
    asked: tuple[dict[str, Any], list[Execution], Job, Numbers],
) -> None:
    given, _, job, rows = asked
    names = [name for name in rows if name != "status"]
    dataset = sweeps.sweep(names, **given)
    for name in names:
        exists = ~wrong(job, rows, name)
        swept = np.broadcast_to(dataset[name].values, ROWS)
        np.testing.assert_array_equal(swept[exists], rows[name][exists], err_msg=name)
        if dataset[name].dims:
            assert np.isnan(swept[~exists]).all(), name


@pytest.mark.thorough_cases(every=4)
def test_plans_explained_say_what_analysis_says(
    asked: tuple[dict[str, Any], list[Execution], Job, Numbers],
) -> None:
    _, plans, job, rows = asked
    fitting = 0
    for index, detail in enumerate(details(plans, WHOLE, check=True)):
        status = job.program.faults.named(int(rows["status"][index]))
        assert set(detail.faults) == set(status) - NOTES
        if detail.faults:
            continue
        assert detail.fits == ("does_not_fit" not in status)
        fitting += detail.fits
        for name in detail.values.keys() & rows.keys():
            # What only a run has is told of a plan that doesn't fit, too: if memory sufficed.
            if detail.fits or not wrong(job, rows, name)[index]:
                np.testing.assert_array_equal(detail[name], rows[name][index], err_msg=name)
    assert len(plans) - fitting >= 3


@pytest.mark.thorough_cases(every=4)
def test_python_says_what_analysis_says(
    asked: tuple[dict[str, Any], list[Execution], Job, Numbers],
) -> None:
    given, _, job, rows = asked
    labels = job.program.cases[0].labels
    figures = job.resolved.constants
    numbers = {
        **{name: value for name, value in figures.items() if not np.isnan(value)},
        **{name: given[name] for name in ("world_size", "global_batch_size", "sequence_length")},
        **{name: np.array(column) for name, column in given["row"].items()},
    }
    fields = {quantity: field for field, quantity in RENAMED.items()}
    numbers_by_field = {fields[name]: value for name, value in numbers.items() if name in fields}
    more = {name: value for name, value in numbers.items() if name not in fields}
    config = analyze_config(
        Config(
            topology_kind=labels["topology"],
            **{name: labels[name] for name in FIELDS},
            **numbers_by_field,  # type: ignore[arg-type]
            more=more,
        )
    )
    faults = np.array(
        [bool(set(job.program.faults.named(int(bits))) - NOTES) for bits in rows["status"]]
    )
    np.testing.assert_array_equal(np.broadcast_to(~config.valid, ROWS), faults)
    result = {
        "peak_memory": config.per_gpu_memory_bytes,
        "communication_upper_bound": config.total_comm_time_per_step_upper_bound_s,
        **{f"{name}_communication_time": time for name, time in config.dimension_times.items()},
    }
    for name, values in result.items():
        if name in rows:
            own_rows = np.broadcast_to(np.asarray(values), ROWS)[~faults]
            np.testing.assert_array_equal(own_rows, rows[name][~faults], err_msg=name)


# Nothing but a few flags: the defaults of the command line and of Python are the same.

SHAPE = keyed(
    "sequence_length=4096 hidden_size=4096 layers=32 heads=32 kv_heads=8 gated_mlp=1 "
    "ffn_size=14336 vocabulary_size=128256 tied_embeddings=0"
)
EXPERT_SHAPE = {**SHAPE, "experts": 8, "experts_per_token": 2, "expert_ffn_size": 14336}


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize(
    "flags",
    [
        {"world_size": 8, "topology": "ring", "dp": 8, "parameters": 70e9},
        {"world_size": 64, "tp": 8, "pp": 2, **SHAPE},
        {"tp": 4, "cp": 2, "pp": 4, "virtual_pipeline_size": 2, "num_micro_batches": 8,
         "zero_stage": 3, "world_size": 128, **SHAPE},
        {"world_size": 64, "topology": "torus", "tp": 4, "recompute": "selective", **SHAPE},
        {"world_size": 64, "tp": 2, "ep": 8, "gpus_per_node": 4, "sequence_parallel": 1,
         **EXPERT_SHAPE},
    ],
)  # fmt: skip
def test_the_defaults_of_the_command_line_are_those_of_python(flags: dict[str, Any]) -> None:
    job = analysis_job({"title": "Defaults", "constants": flags})
    fields = {quantity: field for field, quantity in RENAMED.items()}
    renamed = {**fields, "topology": "topology_kind"}
    known = {field.name for field in dataclasses.fields(Config)}
    named = {renamed.get(name, name): value for name, value in flags.items()}
    own = {name: value for name, value in named.items() if name in known}
    config = Config(**own, more={name: v for name, v in named.items() if name not in known})
    (case,) = job.program.cases
    labels = {name: case.labels[name] for name in config.labels()}
    assert config.labels() == labels
    assert set(case.labels) - set(labels) <= {"framework", "precision", "hardware", "software"}
    given = {name: float(value) for name, value in config.given().items()}
    ours = job.program.grid.constants
    # Cards are told as a number by one, as a share by the other.
    for name in given.keys() - {"ranks_sharing_nic"}:
        assert given[name] == ours[name], name
    values = {
        name: float(value.flat[0]) for name, value in job.program.evaluate(job.stored).items()
    }
    actual_config = analyze_config(config)
    if "peak_memory" in values:
        assert float(actual_config.per_gpu_memory_bytes) == values["peak_memory"]
    result = {
        "communication_upper_bound": actual_config.total_comm_time_per_step_upper_bound_s,
        **{
            f"{name}_communication_time": time
            for name, time in actual_config.dimension_times.items()
        },
    }
    evaluation, compared = evaluation_of(job), 0
    for name, time in result.items():
        value = evaluation.value(name, {})
        if time is not None and value is not None:
            assert float(time) == float(value), name
            compared += value > 0.0
    assert compared


# Measured rows: what validate predicts of one is what analysis says of its plan, with the software
# named and its habits left for it to know.

# What no column tells of a shape is none; nothing is left out because it doesn't fit.
SILENT = {"gated_mlp": 0.0, "tied_embeddings": 0.0, "memory_capacity": 1e18}
# Rows that analysis has no place for.
ELSEWHERE = {"M0205": "a third of a node and more: analysis has whole ones, or an even part"}


def rows_asked() -> list[Case]:
    """Return a measured row of each source and software, with its recomputation."""
    chosen: dict[tuple[str, ...], Case] = {}
    for table in TABLES:
        for case in cases_of_runs(read_runs(find_runs(table)).runs).cases:
            labels = case.labels
            known = case.is_measured and "hardware" in labels and "shapes" not in labels
            if known and labels["precision"] != "int8" and case.name not in ELSEWHERE:
                chosen.setdefault((case.source, labels["framework"], labels["recompute"]), case)
    return list(chosen.values())


ROWS_ASKED = rows_asked()


@pytest.mark.thorough_cases(every=12)
@pytest.mark.parametrize(
    "case", ROWS_ASKED, ids=[f"{name.source}-{name.name}" for name in ROWS_ASKED]
)
def test_a_measured_row_is_predicted_as_analysis_answers(case: Case) -> None:
    software = load_framework(case.labels["framework"])
    habits: dict[str, Any] = {name: value.value for name, value in software.plan.items()}
    habits |= software.labels
    settings: dict[str, Any] = {**SILENT, **case.numbers, **case.labels}
    settings.pop("preset", None)  # What it set is among the others, but for what the row has not
    # As few layers as the memory leaves
    if case.labels["recompute"] == "block" and "recompute_layers" not in case.numbers:
        del settings["memory_capacity"]
    told = {name: value for name, value in settings.items() if habits.get(name) != value}
    assert len(told) < len(settings)
    job = analysis_job({"title": "A row", "constants": told})
    values_by_name = job.program.evaluate(job.stored)
    for kind, quantity, ours in (
        ("step_time", "step_time", "step_time"),
        ("memory", "memory", "peak_memory"),
    ):
        asked = dataclasses.replace(case, kind=kind, quantity=quantity)
        (predicted,) = predict([asked]).values
        assert predicted > 0.0
        assert float(values_by_name[ours].item()) == predicted, ours


# What a rule may say of a source that a framework's file could have as its habit, and why it isn't.
PUBLISHED = examples(__file__, "published")


# What columns of their own tell of these.
COLUMNS = set(
    "recompute zero_stage sequence_parallel schedule reduction_bytes optimizer_bytes".split()
)


def test_a_habit_stands_in_the_softwares_file() -> None:
    """A rule that sets what a framework's file can hold reads a column, or has its reason here."""
    bytes_of = next(iter(RECIPES.values())).given()
    holdable = {*ENTRIES["figures"], *ENTRIES["plan"], *bytes_of, "recipe", "reduction_bytes"}
    holdable |= set("recompute attention_kernel loss context_parallel schedule algorithm".split())
    actual = set()
    for rule in shipped_rules():
        groups = {name for column in rule.where.values() for name in column.groupindex}
        names = (rule.words.keys() | rule.numbers.keys() | groups) & holdable
        if {"source_id", "model", "notes"} & rule.where.keys():
            actual |= names
            assert rule.because or not names, f"{sorted(names)}: nothing says why"
        else:
            assert names <= COLUMNS
    assert actual == PUBLISHED.keys()
