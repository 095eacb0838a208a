"""``sweeps analysis``: how a report comes about, and the same from Python."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overhead import Config, analyze_config, special
from overhead.communication.totals import OPERATIONS
from overhead.statements import statement
from sweeps.cli.run_command import analyses
from sweeps.job import evaluation_of
from sweeps.plots.style import parse
from sweeps.result import record_name
from sweeps.store.netcdf import open_dataset
from tests.analysis_cases import LLAMA, SIZES, job_of
from tests.cli_runner import Runner
from tests.tables import examples

PLAIN = ("minimum", "maximum", "ceil", "floor", "where", "sqrt", "log2", "exp", "expm1")


# How it comes about.


UNITS = re.compile(
    r"\d[\d.]*(?:e[+-]?\d+)? (?:days|h|min|[pnµmkKMGTP]?i?(?:B/s|B|s|J|W))(?![A-Za-z])"
)


def _in_si(match: re.Match[str]) -> str:
    value = parse(match.group())
    assert value is not None, match.group()
    return repr(value)


def _stated(shown: str) -> float | None:
    """Return a result as it is shown, in SI; None where it is of another unit."""
    if re.fullmatch(r"-?[\d.e+-]+", shown):
        return float(shown)
    return parse(shown) if UNITS.fullmatch(shown) else None


@pytest.mark.thorough_cases("line2", "line3", "mixtral")
@pytest.mark.parametrize("line", examples(__file__, "verbose", LLAMA=LLAMA, SIZES=SIZES))
def test_verbose_puts_the_numbers_in(cli: Runner, line: str) -> None:
    out = cli(f"analysis {line} --verbose").out
    evaluation = evaluation_of(job_of(line))
    blocks = re.findall(r"\n  (\w+) = (.*)\n    = (.*)\n    = (.*?)  \[\d+\]", out)
    answer = {name for name, *_ in blocks}
    # Each formula with the numbers in the place of its names gives what stands below it.
    functions: dict[str, Any] = {
        "number": np.float64,
        "unlimited": np.inf,
        "negative_binomial_quantile": special.negative_binomial_quantile,
        "negative_binomial_tail": special.negative_binomial_tail,
        **{name: getattr(np, name) for name in PLAIN},
        "square_divisor": lambda n: max(k for k in range(1, int(n**0.5) + 1) if n % k == 0),
        "gcd": lambda a, b: math.gcd(int(a), int(b)),
    }
    checked = 0
    for name, _, told_numbers, shown in blocks:
        numbers = UNITS.sub(_in_si, told_numbers)
        assert not set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", numbers)) - set(functions), numbers
        known = evaluation.value(name, {})
        floats = re.sub(r"(?<![\w.])\d[\d.]*(e[+-]?\d+)?", r"number(\g<0>)", numbers)
        with np.errstate(all="ignore"):
            value = eval(floats, {"__builtins__": {}}, functions)
        if known is not None and name in ("dp_all_reduce_time", "weight_memory", "step_time"):
            assert value == pytest.approx(float(known), rel=1e-4), name
            checked += 1
        stated = _stated(shown)
        if stated is not None:
            assert value == pytest.approx(stated, rel=2e-3, abs=1e-15, nan_ok=True), name
            checked += 1
    assert checked > len(blocks) // 2
    # Every operation that the report tells has its message, its counts and its time explained.
    report = out.split("memory, with the numbers put in")[0]
    for operation in OPERATIONS.values():
        if f"  {operation.title}, on " in report:
            assert operation.message in answer or operation.message in out
            assert operation.quantity("time") in answer
            assert {*operation.counts} & answer
    assert re.findall(r"\n  \[1\] \S", out)


@pytest.mark.thorough
def test_what_is_assumed_is_said(cli: Runner) -> None:
    line = "--topology ring --num-gpus 8 --dp 8 --params 70e9 --latency 1us"
    out = cli(f"analysis {line} --show defaults").out
    after = out.split("Defaults, by source")[1]
    assert "hardware = dgx-h100" in after
    assert "weight_bytes, gradient_bytes" in after
    assert "micro_batch_size" in after
    assert not re.search(r"\b(?:dp|topology|latency) = ", after)
    idle = "analysis --num-gpus 8 --dp 8 --params 70e9 --bandwidth 1e9"
    assert "--bandwidth 1e9: changes nothing" in cli(idle, fine=False).err


def test_help_names_the_flags(cli: Runner) -> None:
    answer = cli("analysis --help-all").out
    flags = "--topology --num-gpus --gpus --dp --tp --cp --pp --ep --params --seq-length --seq-len"
    flags += " --hidden-size --batch-size --num-layers --gpus-per-node --mesh-nx --mesh-ny"
    flags += " --tree-algo --verbose --model --hardware --zero-stage --sp --cp-kind --recompute"
    flags += " --micro-batch --global-batch --virtual-stages --schedule --etp --imbalance"
    flags += " --hsdp-shard --rank-order --nics-per-node --attention-kernel --framework --precision"
    for flag in flags.split():
        assert re.search(rf"{flag}\b", answer), flag


# The same by one call in Python.


@pytest.mark.parametrize(
    "line", [analysis for analysis in analyses() if "70e9" in analysis and "," not in analysis]
)
def test_the_command_tells_what_the_call_gives(line: str) -> None:
    job = job_of(f"{line} --software none")
    values = {name: float(value) for name, value in evaluation_of(job).given.items()}
    kept = (
        *("dp", "tp", "cp", "pp", "parameters", "sequence_length", "hidden_size", "layers"),
        *("world_size", "gpus_per_node", "nics_per_node", "mesh_nx", "mesh_ny"),
        *("intra_bandwidth", "intra_latency", "intra_efficiency", "intra_energy_per_bit"),
        *("inter_bandwidth", "inter_latency", "inter_efficiency", "inter_energy_per_bit"),
        *("intra_nvls", "in_network_latency_factor"),
    )
    given = {name: values[name] for name in kept if name in values}
    if "ranks_sharing_nic" in values:
        given["ranks_sharing_nic"] = values["ranks_sharing_nic"]
        del given["nics_per_node"]
    if "mesh_ny" in given and "mesh_nx" not in job.sweep.given:
        del given["mesh_nx"], given["mesh_ny"]
    result = analyze_config(
        Config(topology_kind=job.program.labels["topology"], dp_degree=given.pop("dp"), more=given)
    )
    arrays = job.program.evaluate(job.stored)
    assert result.per_gpu_memory_bytes == pytest.approx(
        float(arrays["first_stage_model_state_memory"]), rel=1e-12
    )
    for name, time in result.dimension_times.items():
        if f"{name}_communication_time" in arrays:
            answer = float(arrays[f"{name}_communication_time"])
            assert float(time) == pytest.approx(answer, rel=1e-12), name
    bound = result.total_comm_time_per_step_upper_bound_s
    if "communication_upper_bound" in arrays:
        answer = float(arrays["communication_upper_bound"])
        assert float(bound) == pytest.approx(answer, rel=1e-12)  # type: ignore[arg-type]


# Of several configurations.


@pytest.mark.thorough
def test_every_formula_of_several_configurations_has_its_statement_and_source(
    cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    line = "--topology switch --model llama3-8b --num-gpus 8,16 --seq-length 4096"
    brief, long = (cli(f"analysis {line} {more}").out for more in ("", "--verbose"))
    assert "source  " not in brief
    declared = {
        (statement(declaration), declaration.reference)
        for declaration in job_of(line).program.declarations()
    }
    assert long.count("\n  source  ") == len(declared) > 100
    words = " ".join(long.split())
    for stated, source in declared:
        assert " ".join(f"{stated} source {source}".split()) in words


# Times that are upper bounds.


FEW_CHUNKS = "--topology switch --algorithm dbt --software none --params 1e6"


def test_an_operation_says_that_its_time_is_an_upper_bound(cli: Runner) -> None:
    for ranks, is_bound in ((1000, True), (1024, False)):
        shown = cli(f"analysis {FEW_CHUNKS} --num-gpus {ranks} --dp {ranks} --show all").out
        assert ("(its time is an upper bound)" in shown) == is_bound


@pytest.mark.thorough
def test_a_file_of_steps_says_which_times_are_upper_bounds(cli: Runner, tmp_path: Path) -> None:
    for algorithm in ("dbt", "ring"):
        plan = "--model llama3-8b --seq-length 4096 --num-gpus 12 --tp 1 --dp 12 --global-batch 12"
        network = f"--topology switch --algorithm {algorithm} --software none"
        cli(f"analysis {plan} {network} --output {algorithm}.nc")
        with open_dataset(tmp_path / f"{algorithm}.nc") as dataset:
            upper_bounds_by_name = {
                str(n): v.attrs.get("upper_bound", "") for n, v in dataset.variables.items()
            }
        for name in ("step_time", "dp_communication_time", "exposed_dp_time"):
            assert upper_bounds_by_name[name].startswith("dbt: exact where ") == (
                algorithm == "dbt"
            )
        assert not upper_bounds_by_name["peak_memory"]
        assert not upper_bounds_by_name["matmul_part_time"]


@pytest.mark.thorough
def test_records_of_steps_say_which_times_are_upper_bounds(cli: Runner) -> None:
    """They name the times of which a file says it; where none is, there is no such column."""
    plan = "--model llama3-8b --seq-length 4096 --num-gpus 12 --tp 1 --dp 12 --global-batch 12"
    network = f"analysis {plan} --topology switch --software none --algorithm"
    cli(f"{network} dbt --output dbt.nc")
    with open_dataset("dbt.nc") as dataset:
        said = [
            str(name)
            for name, variable in dataset.variables.items()
            if "upper_bound" in variable.attrs
        ]
    (record,) = cli(f"{network} dbt --json").records
    names = [record_name(name, "s") for name in said]
    assert record["upper_bounds"].split() == names
    assert set(names) < set(record)
    (row,) = cli(f"{network} dbt --csv").rows
    assert row["upper_bounds"] == record["upper_bounds"]
    assert "upper_bounds" not in cli(f"{network} ring --csv").out
