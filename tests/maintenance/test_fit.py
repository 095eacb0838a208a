"""The joint fit: known constants are found again, few rows don't pull far, files are written."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sweeps.errors import InputError
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.files import shipped
from sweeps.validate.predict import predict
from sweeps.validate.run_table import find_runs, read_runs
from sweeps.validate.training_rows import Case, cases_of_runs
from tests.cli_runner import Runner
from tests.maintenance.fit import (
    FitPlan,
    Term,
    fit,
    read_plan,
    rows_of,
    taken,
    write_constants,
)
from tests.maintenance.fit_constants import command

RATE = Term("hardware", ("dgx-h100",), "", "matmul_efficiency_bf16", 0.8, 0.1)
HOST = Term("framework", ("megatron-lm",), "hopper", "host_launch_time", 33e-6, 0.3)


def cases_on(machine: str, precision: str) -> list[Case]:
    runs = read_runs(find_runs("training")).runs
    plan = read_plan()
    cases = taken(cases_of_runs(runs, kinds=("step_time",)).cases, plan)
    wanted = {"hardware": machine, "precision": precision}
    return [case for case in cases if wanted.items() <= case.labels.items()]


def as_if(cases: list[Case], value: float, folder: Path) -> list[Case]:
    """Return cases measured as the engine has them where a machine sustains another share."""
    text = (shipped("hardware") / "dgx-h100.toml").read_text(encoding="utf-8")
    head, tail = text.split("[training.matmul_efficiency]")
    tail = re.sub(r"^bf16 = \{ value = [\d.]+", f"bf16 = {{ value = {value}", tail, flags=re.M)
    path = folder / "dgx-h100.toml"
    path.write_text(f"{head}[training.matmul_efficiency]{tail}", encoding="utf-8")
    assert load_hardware("dgx-h100", (folder,)).figures[RATE.figure].value == value
    found = predict(cases, (folder,))
    return [replace(c, measured=float(v)) for c, v in zip(cases, found.values, strict=True)]


@pytest.mark.thorough
def test_a_known_constant_is_found_again(tmp_path: Path) -> None:
    cases = as_if(cases_on("dgx-h100", "bf16")[:20], 0.7, tmp_path)
    found = fit(cases, FitPlan((RATE,), {}))
    assert found.values()[0] == pytest.approx(0.7, rel=0.01)
    assert np.max(np.abs(found.residuals)) < 0.01
    assert found.spread[0] < 0.1


@pytest.mark.thorough
def test_a_prior_holds_where_rows_are_few(tmp_path: Path) -> None:
    cases = as_if(cases_on("dgx-h100", "bf16")[:20], 0.6, tmp_path)
    many, one = fit(cases, FitPlan((RATE,), {})), fit(cases[:1], FitPlan((RATE,), {}))
    assert abs(one.logs[0]) < abs(many.logs[0])
    assert one.spread[0] > many.spread[0]
    narrow = replace(RATE, width=1e-4)
    assert fit(cases, FitPlan((narrow,), {})).values()[0] == pytest.approx(0.8, rel=1e-3)


@pytest.mark.thorough
def test_an_outlier_hardly_counts(tmp_path: Path) -> None:
    cases = as_if(cases_on("dgx-h100", "bf16")[:20], 0.7, tmp_path)
    cases[0] = replace(cases[0], measured=3.0 * cases[0].measured)
    assert fit(cases, FitPlan((RATE,), {})).values()[0] == pytest.approx(0.7, rel=0.02)


@pytest.mark.thorough
def test_what_is_left_out_is_worse() -> None:
    cases = cases_on("dgx-h100", "fp8")
    term = replace(RATE, figure="matmul_efficiency_fp8")
    found = fit(cases, FitPlan((term, HOST), {}))
    own = np.mean(np.abs(found.residuals))
    for what in ("row", "model", "source"):
        assert np.mean(np.abs(found.left_out[what])) >= own
    assert rows_of(found)[0] > 10


@pytest.mark.thorough
def test_files_are_written(tmp_path: Path) -> None:
    shutil.copytree(shipped("hardware"), tmp_path / "hardware")
    shutil.copytree(shipped("frameworks"), tmp_path / "frameworks")
    cases = as_if(cases_on("dgx-h100", "bf16")[:10], 0.75, tmp_path)
    plain = Term("framework", ("torchtitan",), "hopper", "step_overhead", 1e-3, 0.5)
    found = fit(cases, FitPlan((RATE, HOST, plain), {}), rounds=2)
    write_constants(found, tmp_path)
    figure = load_hardware(str(tmp_path / "hardware" / "dgx-h100.toml")).figures
    assert figure["matmul_efficiency_bf16"].value == pytest.approx(found.values()[0], rel=1e-2)
    assert figure["matmul_efficiency_bf16"].uncertainty == pytest.approx(found.spread[0], rel=0.1)
    new = load_framework(str(tmp_path / "frameworks" / "torchtitan.toml"))
    assert new.on("hopper")["step_overhead"].value == pytest.approx(1e-3)
    assert new.on("hopper")["step_overhead"].kind == "assumed"
    assert "step_overhead" not in new.on("ampere")


@pytest.mark.thorough
def test_what_hardly_moves_is_not_written(tmp_path: Path) -> None:
    shutil.copytree(shipped("hardware"), tmp_path / "hardware")
    shutil.copytree(shipped("frameworks"), tmp_path / "frameworks")
    before = (tmp_path / "hardware" / "dgx-h100.toml").read_text(encoding="utf-8")
    share = load_hardware("dgx-h100").figures["matmul_efficiency_bf16"].value
    found = fit(cases_on("dgx-h100", "bf16")[:5], FitPlan((RATE,), {}), rounds=0)
    assert found.values()[0] == pytest.approx(share)
    assert not write_constants(found, tmp_path)
    assert (tmp_path / "hardware" / "dgx-h100.toml").read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('[[terms]]\nfiles = ["dgx-h100"]\n', "term 1: figure is missing"),
        ('[[terms]]\nfile = "dgx-h100"\n', "no such key"),
    ],
)
def test_terms_that_can_t_be(tmp_path: Path, text: str, result: str) -> None:
    path = tmp_path / "terms.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=result):
        read_plan(path)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a table of a few runs."""
    monkeypatch.chdir(tmp_path)
    head, *rows = (shipped("measured") / "training.csv").read_text(encoding="utf-8").splitlines()
    few = [row for row in rows if "torchtitan" in row][:6]
    Path("own.csv").write_text("\n".join([head, *few]), encoding="utf-8")
    return "own.csv"


@pytest.mark.thorough
def test_the_command_tells_constants(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    command([own, "--no-fit", "--json"], standalone_mode=False)
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(read_plan().terms)
    assert all(row["value"] > 0.0 for row in rows)
    assert sum(row["rows"] for row in rows) >= 6
    command([own, "--no-fit"], standalone_mode=False)
    assert "constants fitted to 6 measured steps" in capsys.readouterr().out


def test_the_command_writes(own: str) -> None:
    for folder in ("hardware", "frameworks", "measured"):
        shutil.copytree(shipped(folder), Path("specs", folder))
    command([own, "--no-fit", "--write", "specs"], standalone_mode=False)
    table = Path("specs/measured/left-out.csv").read_text(encoding="utf-8").splitlines()
    assert len(table) == 3 + 6


def test_the_command_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no hardware"):
        command(["--no-fit", "--write", str(tmp_path)], standalone_mode=False)


def test_who_asks_for_the_command_is_told_where_it_is(cli: Runner) -> None:
    (line,) = cli.refused("fit-constants --no-fit").splitlines()
    assert "python -m tests.maintenance.fit_constants" in line
