"""``sweeps plan`` as users run it, and ``sweeps.plan``: tables, files, figures, exit codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps as package
from overhead.step.parts import PARTS
from sweeps.cli.files import draw_figures
from sweeps.search.answer import range_figures
from sweeps.search.repair import best_at
from sweeps.search.request import read_request
from tests.cli_runner import Runner
from tests.plans.cases import BASE
from tests.tables import keyed

SMALL = "plan --model llama3-8b --gpus 16 --batch-size 64"


@pytest.mark.thorough
def test_the_report(cli: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = cli(
        "plan --model llama3-70b --hardware dgx-h100 --gpus 64 --batch-size 512 "
        "--seq-len 4096 --show all"
    ).out
    for heading in (
        "can run",
        "rejected, by reason",
        "Best plan of each layout",
        "Pareto front",
        "recommended: tp",
        "single changes of the plan",
        "launch settings",
        "--tensor-model-parallel-size",
        '"train_batch_size": 512',
        "tensor_parallel_degree",
        "not given",
    ):
        assert heading in out, heading
    assert max(map(len, out.splitlines())) <= 80


def test_a_plan_whose_time_nothing_tells_is_ranked_by_memory(cli: Runner) -> None:
    line = "plan --model llama3-8b --hardware dgx-a100 --gpus 8 --precision fp8 --objective memory"
    out = cli(f"{line} --show all").out
    assert out.startswith("the step time is not known, ")
    assert not re.search(r"\bnan\b", out)


def test_tensor_parallelism_across_nodes_is_marked(cli: Runner) -> None:
    out = cli(f"{SMALL} --tp 16").out
    assert "16*" in out
    assert "* tensor parallelism crosses nodes of 8 GPUs" in out


def test_the_answer_has_what_plans_are_ranked_by(cli: Runner) -> None:
    line = "plan --model llama3-8b --gpus 8 --global-batch-size 64 --tp 1 --pp 1"
    (row,) = cli(f"{line} --top 1 --json").records[:1]
    second = cli(f"{line} --objective cost --price 3").out.splitlines()[1]
    tokens = row["tokens_per_second_per_gpu"]
    usd = 3.0 / 3600.0 * 1e12 / tokens
    found = re.fullmatch(
        r"  cost of a trillion tokens, uninterrupted: ([\d,]+) USD \((.+)\)", second
    )
    assert found
    assert float(found[1].replace(",", "")) == pytest.approx(usd, rel=5e-3)
    assert f"({found[2]})" in cli(line).out.splitlines()[0]
    assert "--price gives today's" in cli(f"{line} --objective cost").out
    assert cli(f"{line} --objective energy").out.splitlines()[1].startswith("  energy per step: ")
    assert "energy per step" not in cli(line).out


@pytest.mark.thorough
def test_records(cli: Runner) -> None:
    rows = cli(f"{SMALL} --csv").rows
    assert rows[0]["place"] == "recommended"
    times = [float(row["step_time_s"]) for row in rows if row["place"] != "on_the_front"]
    assert times == sorted(times)
    records = cli(f"{SMALL} --json").records
    assert [record["tp"] for record in records] == [float(row["tp"]) for row in rows]
    for record in records:
        world = record["tp"] * record["cp"] * record["pp"] * record["dp"]
        assert world == 16.0
        assert record["per_gpu_memory_bytes"] <= 0.9 * 79.11 * 2**30


@pytest.mark.thorough
def test_explain(cli: Runner) -> None:
    out = " ".join(cli("plan --model llama3-70b --gpus 64 --explain tp=8,pp=4,dp=2").out.split())
    assert "explained: tp 8, pp 4, dp 2;" in out
    for output in (
        "MFU (full attention FLOPs)",
        "memory of the fullest GPU (stage 1 of 4)",
        "communication of a step, nothing hidden",
        "what communication hides behind",
        "compared with the recommended plan",
        "it loses in",
    ):
        assert output in out
    record = cli(f"{SMALL} --json").records[0]
    names = ("tp", "cp", "pp", "dp", "micro_batch_size", "zero_stage", "virtual_pipeline_size")
    plan = ",".join(f"{name}={record[name]:g}" for name in names)
    assert "it is the recommended plan" in cli(f"{SMALL} --explain {plan}").out


@pytest.mark.thorough
def test_a_plan_that_doesnt_fit_is_explained_too(cli: Runner) -> None:
    ran = cli("plan --model llama3-70b --gpus 64 --explain tp=1,pp=1,zero=0", fine=False)
    assert ran.code == 1
    assert "too much" in " ".join(ran.out.split())
    assert "if the memory sufficed" in ran.out


@pytest.mark.thorough
def test_days_and_cost(cli: Runner) -> None:
    base = f"{SMALL} --price 2.5"
    out = " ".join(cli(f"{base} --tokens 100B").out.split())
    line = out[out.index("100 B tokens") :]
    goodput = float(re.search(r"goodput ([\d.]+) %", line)[1]) / 100  # type: ignore[index]
    assert 0.9 < goodput < 1.0
    record = cli(f"{base} --json").records[0]
    days = 100e9 / record["tokens_per_second"] / 86400
    assert f"{days:.4g} days without interruptions" in line
    whole = float(re.search(r"tokens: ([\d.]+) days", line)[1])  # type: ignore[index]
    assert whole == pytest.approx(days / goodput, rel=1e-3)
    # A spare server of eight GPUs is paid for, too.
    paid = float(re.search(r"([\d,]+) USD", out)[1].replace(",", ""))  # type: ignore[index]
    assert paid == pytest.approx((16 + 8) * 24 * whole * 2.5, rel=5e-3)
    output = re.search(r"([\d.]+) B tokens: 21 days", cli(f"{base} --days 21").out)
    assert output is not None
    # Tokens are those of the days in which it computes.
    tokens = record["tokens_per_second"] * 21 * 86400 * goodput
    assert float(output[1]) == pytest.approx(tokens / 1e9, rel=1e-3)


@pytest.mark.thorough
def test_tokens_in_days(cli: Runner) -> None:
    few = " ".join(cli(f"{SMALL} --tokens 100B --days 1").out.split())
    assert "days too late, of 1: sweeps buy" in few
    days = float(re.search(r"tokens: ([\d.]+) days", few)[1])  # type: ignore[index]
    assert f"{days - 1.0:.2g} days too late" in few
    assert f"in time: {60.0 - days:.2g} of 60 days" in cli(f"{SMALL} --tokens 100B --days 60").out


@pytest.mark.thorough
def test_nothing_fits(cli: Runner) -> None:
    ran = cli("plan --model llama3-405b --gpus 16", fine=False)
    assert ran.code == 1
    assert "no plan can run" in ran.out
    assert "nearest: tp" in ran.out
    assert "-8/+10 %: " in ran.out
    assert "band not known" not in ran.out
    assert "128 GPUs: tp" in ran.out
    assert ran.err == ""


@pytest.mark.thorough
def test_a_node_lost(cli: Runner) -> None:
    out = cli(f"{SMALL} --lost-nodes 1").out
    told = r"^ *a node lost: a spare takes over, or else -\S+ % of tokens"
    assert re.search(told, out.split("recommended:")[0], re.MULTILINE)
    assert "8 GPUs, the same batch" in out
    assert "0 %: a spare takes over" in out
    ways = out[out.index("a node lost: options") :].split("\n\n")[0]
    assert not re.search(r"\+\d|-0 %", ways)


# Many points.


@pytest.mark.thorough
def test_a_range_of_gpus(cli: Runner) -> None:
    rows = cli("plan --model llama3-8b,llama3-70b --gpus 8:64:x2 --csv").rows
    assert len(rows) == 8
    small = [row for row in rows if row["model"] == "llama3-8b"]
    times = [float(row["step_time_s"]) for row in small]
    assert times == sorted(times, reverse=True)
    large = next(row for row in rows if row["model"] == "llama3-70b" and row["world_size"] == "8.0")
    assert large["best_split"] == "none"
    assert large["step_time_s"] == ""
    assert large["feasible_plans"] == "0.0"
    out = cli("plan --model llama3-8b,llama3-70b --gpus 8:64:x2").out
    assert "none can run" in out


def _links(position: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in position.items() if name != "world_size"}


@pytest.mark.thorough
def test_each_point_is_its_own_search() -> None:
    request = read_request({**BASE, "gpus": "8,16", "inter_bandwidth": "25GB/s,50GB/s"})
    best = best_at(request)
    assert request.shape == (2, 2)
    for point, plan in zip(request.points(), best.plans, strict=True):
        alone = package.plan(**{**BASE, "gpus": point.world_size, **_links(point.coordinates)})
        assert plan is not None
        assert alone.recommended is not None
        assert plan.key == alone.recommended.key


def test_a_point_that_cant_be_is_refused_alone(cli: Runner) -> None:
    out = cli("plan --model llama3-8b --gpus 8,16 --tp 16").out
    assert "refused at some points: tp = '16'" in out


@pytest.mark.thorough
def test_a_file_and_its_figures(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "best.nc"
    line = "plan --model llama3-8b,llama3-70b --gpus 16:64:x2 --inter-bandwidth 25GB/s,50GB/s"
    cli(f"{line} --output {path}")
    dataset = package.open(path)
    assert dict(dataset.sizes) == {"model": 2, "world_size": 3, "inter_bandwidth": 2}
    assert dataset.step_time.attrs["units"] == "s"
    assert "tp" in dataset.data_vars
    asked = BASE | keyed("model=llama3-8b,llama3-70b gpus=16:64:x2 inter_bandwidth=25GB/s,50GB/s")
    figures = range_figures(read_request(asked))
    assert [figure["name"] for figure in figures] == ["time-over-gpus", "best-split"]
    draw_figures(path, figures, ["best-split"])
    assert (tmp_path / "best-best-split.png").stat().st_size > 10_000
    # The same question to the same code isn't written again.
    assert "complete already" in cli(f"{line} --output {path}").out
    cli.refused(f"{line} --objective memory --output {path}")


@pytest.mark.thorough
def test_a_file_of_one_point(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "plans.nc"
    cli(f"{SMALL} --output {path} --plot")
    dataset = package.open(path)
    assert set(dataset.step_time.dims) == {"plan"}
    assert str(dataset.recompute.values[0]) in ("none", "full")
    parts = sum(dataset[name] for name in PARTS)
    np.testing.assert_allclose(parts, dataset.step_time, rtol=1e-9)
    drawn = {one.stem for one in tmp_path.glob("*.png")}
    assert {"plans-best-plans", "plans-memory", "plans-step-parts"} <= drawn


# Python.


@pytest.mark.thorough
def test_a_price_that_is_given_is_in_the_file_once(cli: Runner, tmp_path: Path) -> None:
    line = f"{SMALL} --tp 2 --pp 1 --price 2.5 --days 21"
    cli(f"{line} --output {tmp_path}/run.nc")
    dataset = package.open(tmp_path / "run.nc")
    assert dataset.attrs["gpu_hour_price"] == 2.5
    paid = dataset["run_cost"].values[0]
    (first, *_) = cli(f"{line} --json").records
    assert (first["gpu_hour_price"], first["run_cost_usd"]) == (2.5, paid)


@pytest.mark.thorough
def test_the_interface() -> None:
    plan = package.plan(**BASE)
    assert plan.recommended is not None
    assert plan.recommended["world_size"] == 16.0
    assert plan.reasons
    assert plan.fallen["does_not_fit"] > 0
    table = plan.dataset
    first = table.isel(plan=0)
    assert float(first.tp) == plan.recommended["tp"]
    several = package.plan(**{**BASE, "gpus": [8, 16]})
    assert several.recommended is None
    assert several.dataset.step_time.dims == ("world_size",)
    # The package of that name is the function, too.
    import sweeps.search.search

    assert sweeps.search.search.search is not None
    assert package.plan(**BASE).recommended is not None


@pytest.mark.thorough
def test_plans_of_a_mechanism_are_those_that_it_suits(cli: Runner) -> None:
    """Weights are fetched ahead where ZeRO shards them: the search finds its stage 3 by itself."""
    records = cli(f"{SMALL} --tp 1 --cp 1 --pp 1 --dp-mechanism fsdp_prefetch --json").records
    assert records
    assert {record["zero_stage"] for record in records} == {3.0}


@pytest.mark.thorough
def test_a_gpu_without_memory_holds_nothing(cli: Runner) -> None:
    step = "plan --model llama3-8b --gpus 16 --seq-len 2048 --batch-size 32 --memory-capacity 0"
    out = cli(step, fine=False).out
    assert "no plan can run" in out
    assert "of 0.0 GB, " in out


def test_of_long_sequences_the_mfu_is_told_by_causal_flops_too(
    cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = "plan --model llama3-8b --hardware dgx-h100 --gpus 64 --batch-size 64"
    assert "causal" not in cli(f"{line} --seq-len 8k").out
    out = cli(f"{line} --seq-len 1M --show reasons").out
    told = re.search(r"Note: MFU counts attention as if .* it is (\d+) %", out, re.DOTALL)
    whole = re.search(r"MFU (\d+) %", out)
    assert told is not None
    assert whole is not None
    # Attention is nearly all of the step, and a mask leaves half of it.
    assert float(told[1]) == pytest.approx(float(whole[1]) / 2.0, rel=0.1)
    assert "64 sequences of 1,048,576 tokens per step" in out
    sections = out.partition("More: --show ")[2].partition(";")[0]
    assert all(re.fullmatch(r"[a-z]+", name) for name in re.split(r",\s*", sections))


def test_gpus_that_nothing_splits_are_named_as_typed(cli: Runner) -> None:
    out = cli("plan --model llama3-8b --num-gpus 7919 --batch-size 64", fine=False).out
    assert "--num-gpus 7,919: no TP, CP, PP and DP that the model and a batch of 64 allow" in out
