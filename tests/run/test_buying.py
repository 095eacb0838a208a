"""Shipped sweeps that compare networks and domains: equal work, own plans, money beside time."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import sweeps as public
from sweeps.cli.files import lines_of
from sweeps.job import prepare
from sweeps.plots.tables import effects
from sweeps.spec.catalog import find_sweep
from sweeps.spec.sweep import load_sweep
from sweeps.store.netcdf import write
from tests.tables import examples


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored("scale-up-domain", tmp_path_factory.mktemp("domain"), "expert_load_imbalance=1,2")


def stored(name: str, folder: Path, *settings: str) -> Path:
    sweep, text = load_sweep(find_sweep(name), settings)
    job = prepare(sweep, text=text)
    write(folder / "x.nc", *job.result())
    return folder / "x.nc"


@pytest.mark.thorough
def test_each_machine_has_the_plan_that_a_search_finds(domains: Path) -> None:
    """Within 1 %, for a search tries more of what doesn't matter much."""
    with public.open(domains) as dataset:
        times = dataset.best_step_time.sel(expert_load_imbalance=1).values
        nodes = dataset.gpus_per_node.values
        machines = [str(value) for value in dataset.hardware.values]
    for number in (0, 2, 3):
        best = public.plan(
            model="deepseek-v3",
            hardware=machines[number],
            gpus=1024,
            global_batch_size=4096,
            gpus_per_node=nodes[number],
            nics_per_node=nodes[number],
            etp=1,
        )
        assert best.search.answer is not None
        # The recommended plan may be a simpler one that ties.
        assert times[number] == pytest.approx(min(best.search.answer.search.values), rel=0.01)
    # The chip alone, and the domain alone, which is less.
    assert machines[2] == machines[3] == "gb200-nvl72"
    chip, domain = times[2] / times[0], times[3] / times[2]
    assert 0.40 < chip < 0.55
    assert 0.65 < domain < 0.85


@pytest.mark.thorough
def test_the_answer_says_what_is_the_domain_and_has_dollars(domains: Path) -> None:
    text = "\n".join(lines_of(public.open(domains)))
    change = "gb200-nvl72 · 64 GPUs per node rather than gb200-nvl72 · 8 GPUs per node"
    # As much less as in the test above.
    assert re.search(rf"domain {re.escape(change)}: -(1[5-9]|2\d|3[0-5]) %", text)
    assert "USD" in text
    assert text.count("dgx-h100 · 8 GPUs per node") > 3


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([10.0, 10.39, 9.62], ["a tie", "a tie"]),
        ([10.0, 10.5, 9.5], ["+5 %", "-5 %"]),
        ([10.0, 10.0, 10.2], ["0 %", "a tie"]),
    ],
)
def test_what_published_runs_do_not_tell_apart_ties(times: list[float], said: list[str]) -> None:
    grid = {"oversubscription": ("oversubscription", [1.0, 2.0, 4.0])}
    dataset = xr.Dataset({"step_time": ("oversubscription", times, {"units": "s"})}, coords=grid)
    declared = dict(
        kind="curves", x="oversubscription", y="step_time", relative_to={"oversubscription": 1}
    )
    told = [line.partition(": ")[2] for line in effects(dataset, declared) if "rather than" in line]
    assert told == said


NETWORKS = examples(__file__, "networks")


@pytest.mark.parametrize(
    ("gpus", "ratios", "reason"),
    [
        (512, "[1, 2, 4]", "a ring or a tree leaves a leaf switch once"),
        (128, "[1, 2, 4]", "all 128 GPUs are under one leaf switch, of 32 nodes"),
        (512, "[1, 64]", ""),
    ],
)
def test_an_oversubscription_that_costs_nothing_says_why(
    gpus: int, ratios: str, reason: str, tmp_path: Path
) -> None:
    spec = tmp_path / "own.toml"
    spec.write_text(NETWORKS.format(gpus=gpus, ratios=ratios), encoding="utf-8")
    found = public.run(spec)
    with_figure(found, reason)
    times = found.best_step_time.values
    # Beyond as many as a leaf's nodes a ring pays.
    assert np.all(times[1:] == times[0]) == bool(reason)


def with_figure(dataset: xr.Dataset, reason: str) -> None:
    declared = dict(
        kind="curves", x="oversubscription", y="best_step_time", relative_to={"oversubscription": 1}
    )
    lines = [*effects(dataset, declared)]
    assert any(line.startswith("0 %: ") for line in lines) == bool(reason)
    assert reason in "\n".join(lines)
