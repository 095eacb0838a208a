"""Experts' plans: recipes beside the best of our search, and what --strict says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sweeps.errors import InputError
from sweeps.search.search import search
from sweeps.search.space import space_of
from sweeps.store.netcdf import open_dataset
from sweeps.validate.run_table import find_runs, read_runs
from sweeps.validate.training_rows import PLAN, Case, Skipped, cases_of_runs
from tests.cli_runner import Runner
from tests.maintenance.experts import (
    Expert,
    choice_lines,
    choice_of,
    comparisons,
    explained,
    falls_short,
    plan_alone,
    question,
)
from tests.maintenance.experts_plans import command

# A plan as good as any, one that cuts layers for nothing, one that can't hold its weights.
OWN = (
    "row_id,source_id,kind,model,gpu_type,framework,gpus,tp,pp,dp,vpp,zero_or_sharding,sp,recompute,"
    "precision,seq_len,global_batch_size,micro_batch_size,step_time_s\n"
    "good,a,plan,llama3-8b,dgx-h100,megatron-lm,8,1,1,8,1,ZeRO-1,no,none,bf16,4096,32,1,\n"
    "cut,a,plan,llama3-8b,dgx-h100,megatron-lm,8,4,2,1,1,ZeRO-1,yes,none,bf16,4096,32,1,9.5\n"
    "big,b,plan,llama3-70b,dgx-h100,megatron-lm,8,1,1,8,1,ZeRO-1,no,none,bf16,4096,32,1,\n"
    "odd,b,plan,llama3-8b,dgx-h100,megatron-lm,8,4,2,1,2,ZeRO-1,yes,none,bf16,4096,32,32,\n"
    "new,b,plan,llama9-8b,dgx-h100,megatron-lm,8,1,1,8,1,ZeRO-1,no,none,bf16,4096,32,1,\n"
)


def cases(path: Path | None = None, *names: str) -> list[Case]:
    runs = read_runs(path or find_runs("plans")).runs
    found = cases_of_runs(runs, kinds=(PLAN,)).cases
    return [case for case in found if not names or case.name in names]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Expert]:
    path = tmp_path_factory.mktemp("plans") / "own.csv"
    path.write_text(OWN)
    found = [
        comparison for comparison in comparisons(cases(path)) if not isinstance(comparison, Skipped)
    ]
    return {one.case.name: one for one in found}


def test_shipped_recipes_are_read_whole() -> None:
    """Counted in the table: rows of models and machines of the catalogue, without fine-tuning."""
    runs = read_runs(find_runs("plans")).runs
    found = cases_of_runs(runs, kinds=(PLAN,))
    assert len(runs) == 292
    assert len(found.cases) + len(found.skipped) == 292
    assert len(found.cases) >= 190
    result = {one.reason.split(":")[0] for one in found.skipped}
    assert result <= {
        "shapes not stated",
        "gpu_type 'VR200-NVL'",
        "gpu_type 'R100'",
        "fine-tuning",
        "modules' activations are moved to the host; layers' alone are modelled",
    }
    # What recipes set stands in columns of its own.
    (one,) = (case for case in found.cases if case.name == "E0004")
    assert one.labels["recompute"] == "selective"
    modules = {n: v for n, v in one.numbers.items() if n.startswith("recompute_")}
    assert modules == {"recompute_core_attn": 0.0, "recompute_mla_up_proj": 1.0}
    assert one.numbers["optimizer_bytes"] == 8.0
    assert one.assumed == ()


@pytest.mark.thorough
def test_a_recipe_s_own_question_has_its_plan_alone() -> None:
    for case in cases(None, "E0004", "E0251"):
        rows = space_of(plan_alone(case)).rows
        assert len(rows) == 1
        for name in ("tp", "pp", "dp", "ep", "virtual_pipeline_size", "micro_batch_size"):
            assert rows.columns[name] == case.numbers[name]
        asked = question(case)
        assert asked.world_size == math.prod(case.numbers[n] for n in ("tp", "cp", "pp", "dp"))
        assert set(asked.choices) <= {"context_parallel", "zero_stage"}
        assert asked.choices["zero_stage"].tolist() == [0.0, 1.0]
        # The search leaves the room that it always leaves; theirs may fill the memory.
        assert (asked.threshold, plan_alone(case).threshold) == (0.9, 1.0)


@pytest.mark.thorough
def test_what_megatron_refuses_is_not_tried() -> None:
    """Overlap of experts: stages only interleaved, no whole layers again (@d98e8a64dd)."""
    (case,) = cases(None, "E0251")
    assert "ep_overlap" in case.labels["framework"]
    space = space_of(question(case))
    assert space.choices["recompute"].tolist() == ["none"]
    found = search(space, keep=10**6)
    plans = [one.name for one in found.best]
    assert len(plans) > 100
    assert not any("1F1B" in plan for plan in plans)
    assert any("interleaved" in one for one in plans)
    plain = {**question(case).labels, "framework": "megatron-lm"}
    plain.pop("preset", None)
    free = space_of(replace(question(case), labels=plain))
    assert {"block", "full"} <= set(free.choices["recompute"].tolist())


@pytest.mark.thorough
def test_no_plan_that_is_tried_beats_the_best(own: dict[str, Expert]) -> None:
    assert set(own) == {"good", "cut", "big", "odd"}
    good, cut = own["good"], own["cut"]
    assert good.ours is not None
    assert good.ours.known["step_time"] == cut.best_time
    assert 0.0 <= good.loss < 0.1 < cut.loss
    assert good.rank < cut.rank <= cut.splits
    assert good.fits
    assert cut.fits
    assert cut.case.measured == 9.5
    # Tensor parallelism over four ranks is what it pays for.
    assert any(one.startswith("TP communication +") for one in cut.lost)
    assert any("theirs loses in" in line for line in choice_lines([cut], 0.03, every=True))


@pytest.mark.thorough
def test_each_loss_has_its_strongest_reason(own: dict[str, Expert]) -> None:
    lost = ("TP communication +1 s",)
    good, cut = own["good"], replace(own["cut"], band=0.0, lost=lost)
    alone = explained([good, cut])
    assert alone[0].why == ""
    assert alone[1].why.startswith("a term that we lack, or their choice: TP comm")
    # What is lost can't be told apart from an error of its size.
    (near,) = explained([replace(cut, band=cut.loss + 0.01)])
    assert near.why == f"the loss is within our error for such a step (within {near.band:.0%})"
    # Ours would run out of memory if one GPU's experts got more tokens.
    sizes = (0.9 * cut.capacity, 1.1 * cut.capacity)
    room = replace(cut, band=1.0, uneven=sizes, roomy_time=cut.step_time)
    assert explained([room])[0].why.startswith("theirs has room for uneven experts: with 1.7 times")
    # That is no reason where another plan of ours has that room, and is as fast.
    roomy = replace(room, roomy_time=cut.best_time)
    assert explained([roomy])[0].why.startswith("the loss is within our error")
    # Theirs for another precision, too, where it is among the best.
    labels = {**cut.case.labels, "precision": "fp8"}
    twin = replace(cut, case=replace(cut.case, name="twin", labels=labels), step_time=cut.best_time)
    kept = explained([roomy, twin])[0].why
    assert kept == "theirs is kept from where it is best: twin, on dgx-h100 in fp8 it loses 0.0%"
    # Theirs for another batch, where it can't be told apart; another micro-batch is no reason.
    numbers = {**cut.case.numbers, "global_batch_size": 2.0 * cut.case.numbers["global_batch_size"]}
    case = replace(cut.case, name="large", numbers=numbers, measured=math.nan)
    large = replace(cut, case=case, band=cut.loss)
    (sized, _) = explained([cut, large])
    assert sized.why.startswith("theirs is kept from another number of GPUs or batch: large, ")
    finer = replace(
        large.case, numbers={**numbers, "micro_batch_size": 0.5 * numbers["micro_batch_size"]}
    )
    assert explained([cut, replace(large, case=finer)])[0].why == alone[1].why
    both = replace(room, uneven=(1.05 * cut.capacity, 1.1 * cut.capacity))
    assert explained([both])[0].why.startswith("the loss is within our error")
    assert math.isnan(cut.uneven[0])  # It has none.
    # Another plan of the same question, half as long by our model and as measured.
    other = replace(cut.case, name="other", measured=cut.case.measured / 2.0)
    faster = replace(cut, case=other, step_time=cut.step_time / 2.0)
    first, second = explained([cut, faster])
    result = "another of theirs is faster: other, +100% by our model and +100% measured"
    assert first.why == f"{result}, tokens a second"
    assert "another" not in second.why
    # One with other options of the software counts where it is another plan.
    options = {**other.labels, "framework": "megatron-lm+ep_overlap"}
    recent = replace(faster, case=replace(other, labels=options))
    assert "another" not in explained([cut, recent])[0].why
    numbers = {**other.numbers, "micro_batch_size": 2.0 * other.numbers["micro_batch_size"]}
    changed = replace(recent, case=replace(recent.case, numbers=numbers))
    why = explained([cut, changed])[0].why
    assert why == f"{result.replace(':', ', with other options:')}, tokens a second"
    # No reason if our model has it slower than it was.
    slower = explained([cut, replace(faster, step_time=2.0 * cut.step_time)])[0]
    assert "another" not in slower.why
    assert any(line == f"  why: {first.why}" for line in choice_lines([first], 0.03, every=True))


@pytest.mark.thorough
def test_uneven_experts_take_more_memory() -> None:
    (case,) = cases(None, "E0291")
    (one,) = (comparison for comparison in comparisons([case]) if isinstance(comparison, Expert))
    assert one.memory < one.uneven[0] < one.capacity < one.uneven[1]
    assert one.ours is not None
    # Our best with room for them is slower than our best, and still faster than theirs.
    assert one.best_time < one.roomy_time < one.step_time
    text = "100% of those with experts have room for 1.7 times the mean on a GPU; 0% are within 3%"
    assert any(line.startswith(text) for line in choice_lines([one], 0.03, every=False))


def test_a_plan_that_can_t_be_says_why(own: dict[str, Expert]) -> None:
    # 70e9 parameters in 16 bits are 141 GB, without their states.
    big = own["big"]
    assert not big.fits
    assert big.reason == "does not fit"
    assert big.memory > 141e9 > big.capacity
    assert big.theirs is not None
    # Interleaved stages need micro-batches by them: one of 32 sequences isn't two.
    odd = own["odd"]
    assert odd.reason == "micro batches not divisible"
    assert odd.theirs is None
    assert (odd.rank, math.isnan(odd.loss)) == (0, True)


def test_summaries_count_what_can_t_be(own: dict[str, Expert]) -> None:
    experts = list(own.values())
    found = choice_of(experts)
    assert found.recipes == 4
    losses = np.array([expert.loss for expert in experts])
    assert found.near == np.count_nonzero(losses <= 0.03) / 4
    assert found.fit == sum(one.fits for one in experts) / 4 < 1.0
    assert falls_short(experts)
    assert not falls_short([own["good"]], bound=1.0)
    result = list(choice_lines(experts, 0.03, every=True))
    part = own["cut"].lost[0].rsplit(" +", maxsplit=1)[0]
    (reason,) = (line for line in result if line.startswith(f"  {part} "))
    # One recipe, measured 9.5 s.
    predicted = 100.0 * (own["cut"].step_time / 9.5 - 1.0)
    assert reason.split()[-3:] == ["1", f"{predicted:+.1f}", "%"]
    assert result[2].split()[:2] == ["all", "4"]
    assert any("big llama3-70b on 8 dgx-h100" in line and "does not fit" in line for line in result)


@pytest.mark.thorough
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_text(OWN)
    lined = ["own.csv", "--source", "a"]
    assert command([*lined, "--output", "own.nc", "--strict"], standalone_mode=False) == 1
    told = capsys.readouterr().out
    assert "experts' plans beside the best of our search, both predicted, by class:" in told
    assert open_dataset(tmp_path / "own.nc")["loss"].sizes == {"row": 2}
    assert command([*lined, "--strict", "--bound", "100%"], standalone_mode=False) == 0
    with pytest.raises(InputError, match="--bound 5: no share"):
        command([*lined, "--bound", "5"], standalone_mode=False)
    cli = Runner(capsys)
    for line in ("validate own.csv", "validate own.csv training", "validate plans"):
        assert "python -m tests.maintenance.experts_plans" in cli.refused(line)


def test_strict_of_measured_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row twice as fast as is predicted is a class that is off."""
    monkeypatch.chdir(tmp_path)
    line = "good,a,,llama3-8b,dgx-h100,megatron-lm,8,1,1,8,1,ZeRO-1,no,none,bf16,4096,32,1"
    heading = OWN.splitlines()[0]
    (tmp_path / "one.csv").write_text(f"{heading}\n{line},1.0\n")
    cli = Runner(capsys)
    (row,) = cli("validate one.csv --json").records
    error = abs(float(row["error"]))
    assert cli("validate one.csv").code == 0
    for bound, code in ((0.99 * error, 1), (1.01 * error, 0)):
        assert cli(f"validate one.csv --strict --bound {bound}", fine=False).code == code
