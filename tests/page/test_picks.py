"""The calculator's pickers: each model on each machine has the numbers of the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweeps
from overhead.labels import LABELS
from overhead.step.parts import PARTS as STEP_PARTS
from sweeps.pages.program import OUTPUTS
from sweeps.pages.write import write_page
from sweeps.spec.catalog import model_names
from tests.page.test_browser import Opened
from tests.page.test_live import FAULTS, page_from, values_of

# What the command states; all else is as the picked model and machine have it.
PLAN = {"world_size": "64", "global_batch_size": "256", "sequence_length": "4096"}
FIRST = {"model": "llama3-70b", "hardware": "dgx-h100"}
# What pages begin with, and the seeds of what is drawn on them.
FIRSTS = (
    (FIRST, 41),
    ({"model": "llama3-70b", "hardware": "mi300x"}, 8),
    ({"model": "llama3-70b", "hardware": "dgx-b200", "framework": "torchtitan"}, 9),
    ({"model": "deepseek-v3", "hardware": "dgx-h100"}, 5),
    ({"model": "nemotron-3-nano-30b-a3b", "hardware": "dgx-h100"}, 7),
)
PAIRS, SETS, ROWS = 25, 2, 20
# Beside a label that isn't its usual one, or one from which it would follow.
CHOSEN = ("schedule", "recompute", "attention_kernel", "context_parallel", "loss", "dp_mechanism")
# Gives what follows from choices in the page, and how each pair of a model and a machine begins.
ASKED = """
globalThis.asked = (each, names) => {
  const data = JSON.parse(document.getElementById("data").textContent);
  return each.map((own) => {
    const found = computed(data, { ...startOf(data, own), ...own });
    return [String(found.status), ...names.map((name) => String(found.value(name)))];
  });
};
globalThis.begun = (each) => {
  const data = JSON.parse(document.getElementById("data").textContent);
  return each.map((own) => startOf(data, own));
};
"""


def numbers_of(rng: np.random.Generator, routed: bool) -> dict[str, list[float]]:
    """Return random rows of what a reader sets by numbers."""

    def draw(*values: float) -> list[float]:
        return rng.choice(np.array(values, dtype=float), ROWS).tolist()

    def between(low: float, high: float) -> list[float]:
        return rng.uniform(low, high, ROWS).tolist()

    numbers = {
        "world_size": draw(32, 64, 72, 128, 512, 1000),
        "tp": draw(1, 2, 4, 8),
        "cp": draw(1, 1, 1, 2),
        "pp": draw(1, 2, 4),
        "virtual_pipeline_size": draw(1, 1, 1, 2),
        "gpu_hour_price": between(1, 10),
        "training_tokens": draw(1e12, 15e12),
        "micro_batch_size": draw(1, 2),
        "zero_stage": draw(0, 1, 2, 3),
        "sequence_parallel": draw(0, 1, 1),
        "global_batch_size": draw(256, 512, 1024),
        "sequence_length": draw(2048, 4096, 8192),
        "memory_capacity": draw(4e10, 8e10, 1e13, 1e13),
        "tp_overlap": between(0, 1),
        "dp_overlap": between(0, 1),
        "inter_bandwidth": between(1e10, 1e11),
        "failure_rate": between(1e-3, 0.5),
        "spare_coverage": between(0.5, 0.999),
    }
    if routed:
        numbers |= {"ep": draw(1, 2, 8), "expert_load_imbalance": between(1, 2)}
    # A reader sets some of them, and the degrees and what no machine says always.
    some = list(numbers)[7:]
    unset = rng.choice(some, len(some) // 2, replace=False)
    return {name: values for name, values in numbers.items() if name not in unset}


@pytest.mark.thorough
@pytest.mark.parametrize(("first", "seed"), FIRSTS)
def test_a_thousand_states_of_all_picks_are_those_of_sweeps(
    browser: Any, tmp_path: Path, first: dict[str, str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    page = page_from(**first, **PLAN)
    write_page(replace(page, code=page.code + ASKED), tmp_path / "calculator.html")
    opened = Opened(browser, tmp_path / "calculator.html")
    picks = page.data["picks"]
    kinds = {kind: np.resize(rng.permutation(pick["names"]), PAIRS) for kind, pick in picks.items()}
    each_pair = zip(*kinds.values(), strict=True)
    pairs = [dict(zip(kinds, map(str, pair), strict=True)) for pair in each_pair]
    experts = dict(zip(picks["model"]["names"], picks["model"]["columns"]["experts"], strict=True))
    begun = opened.page.evaluate("(each) => begun(each)", pairs)
    possible, at_risk = 0, 0
    for pair, own in zip(pairs, begun, strict=True):
        numbers = numbers_of(rng, experts[pair["model"]] > 0)
        lacking = picks["hardware"]["lacking"][picks["hardware"]["names"].index(pair["hardware"])]
        labels: dict[str, list[str]] = {}
        for name in rng.choice(CHOSEN, 3, replace=False):
            known = [one for one in LABELS[name].values if one not in lacking.get(name, ())]
            known.remove(own[name])
            labels[str(name)] = [str(one) for one in rng.choice(known, SETS)]
        if "dp_mechanism" in labels:
            numbers.pop("dp_overlap", None)  # The mechanism says itself what hides
        # A label that would follow from a number is stated beside it, as the page's command does.
        labels.setdefault("schedule", [own["schedule"]] * SETS)
        each = [
            pair
            | {name: values[one] for name, values in labels.items()}
            | {name: values[row] for name, values in numbers.items()}
            for one in range(SETS)
            for row in range(ROWS)
        ]
        names = [name for name in OUTPUTS if name not in numbers]
        result = np.array(
            opened.page.evaluate("([each, names]) => asked(each, names)", [each, names]), object
        )
        given = {
            name: value for name, value in {**first, **PLAN, **pair}.items() if name not in numbers
        }
        dataset = sweeps.sweep(names, labels=labels, numbers=numbers, **given)
        data_array = xr.DataArray(np.zeros((SETS, ROWS)), dims=("labels", "numbers"))
        status = (
            dataset.status.broadcast_like(data_array).transpose(*data_array.dims).values.ravel()
        )
        np.testing.assert_array_equal(result[:, 0].astype(int), status, err_msg=str(pair))
        true = dict(values_of(dataset, names, status))
        step = sum(np.nan_to_num(np.abs(true[name])) for name in STEP_PARTS)
        for index, name in enumerate(names, 1):
            said, expected = result[:, index].astype(float), true[name]
            # Parts of a step are differences of its times, and have their rounding.
            within = 1e-9 * np.maximum(np.abs(expected), step if name in STEP_PARTS else 0.0)
            fine = (np.abs(said - expected) <= within) | (np.isnan(said) & np.isnan(expected))
            assert fine.all(), f"{pair} {labels} {name}: {said[~fine]}, not {expected[~fine]}"
        possible += int(np.sum(status & FAULTS.masking("step_time") == 0))
        at_risk += int(np.sum(true["memory_state"] == 1.0))
    assert len(pairs) * SETS * ROWS == 1000
    assert 200 < possible < 900
    assert at_risk
    opened.close()


@pytest.mark.thorough
def test_all_models_of_the_catalog_can_be_picked() -> None:
    data = page_from(**FIRST, **PLAN).data
    picks = data["picks"]
    assert set(picks["model"]["names"]) == set(model_names())
    assert picks["model"]["names"][0] == FIRST["model"]
    assert {"dgx-a100", "dgx-b200", "gb200-nvl72", "l40s"} < set(picks["hardware"]["names"])
    # Those of other networks and libraries are named.
    models, machines = data["others"]
    assert "All" in models
    assert all(name in machines for name in ("tpu-v5p", "mi300x", "hop-energy-notebook"))


@pytest.mark.thorough
def test_what_holds_of_one_pair_alone_has_no_pickers() -> None:
    """Of a step that was measured, of bare sizes: no other model, of the latter other machines."""
    measured = {**FIRST, **PLAN, "model": "llama3-8b", "measured_step_time": "1.2 s"}
    picks = page_from(**measured).data["picks"]
    assert [pick["names"] for pick in picks.values()] == [("llama3-8b",), ("dgx-h100",)]
    shapes = {"layers": 32, "hidden_size": 4096, "heads": 32, "vocabulary_size": 32000}
    sizes = {**shapes, "ffn_size": 11008, "gated_mlp": 1, "tied_embeddings": 0}
    bare = {name: str(value) for name, value in sizes.items()}
    picks = page_from(**bare, **PLAN).data["picks"]
    assert picks["model"]["names"] == ()
    assert len(picks["hardware"]["names"]) > 20
