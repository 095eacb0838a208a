"""The live page: its formulas, in JavaScript, against sweeps at the same values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import sweeps
from overhead.interleaved import interleaved_time
from overhead.labels import LABELS
from overhead.model.order import numbers_of
from overhead.recording import RecordingError
from overhead.special import (
    heaviest_stage,
    layers_of_kind,
    negative_binomial_quantile,
    negative_binomial_tail,
)
from overhead.step.parts import PARTS as STEP_PARTS
from sweeps.cli.flags import flag_of
from sweeps.cli.options import default_lines
from sweeps.engine.validity import training_faults
from sweeps.errors import InputError
from sweeps.pages import program
from sweeps.pages.live import page_of
from sweeps.pages.program import OUTPUTS
from sweeps.pages.write import FILES, Page, compose
from tests.cli_runner import Runner
from tests.page.script import needs_node, run_script
from tests.page.test_page import kept_of, parts_of

DENSE, EXPERTS, HYBRID = "llama3-70b", "deepseek-v3", "nemotron-3-nano-30b-a3b"
GALLERY = Path(__file__).parents[2] / "outputs" / "gallery"
# Sets of labels, and rows of numbers: every cell is one plan.
SETS, ROWS = {DENSE: 7, EXPERTS: 3}, {DENSE: 96, EXPERTS: 112}
# A torus, the fastest of whose algorithms are taken, and its sets and rows.
TORUS = {"hardware": "tpu-v5p", "framework": "maxtext", "algorithm": "auto"}
ON_TORUS = (3, 48)
FAULTS = training_faults()
MECHANISMS = ("tp_mechanism", "cp_mechanism", "dp_mechanism")
# Writes what the page says of each choice: the status, and quantities.
TOLD = """
const text = (value) => (Number.isFinite(value) ? value : String(value));
process.stdout.write(JSON.stringify(asked.each.map((own) => {
  const found = computed(data, { ...startOf(data), ...own });
  return [found.status, ...asked.names.map((name) => text(found.value(name)))];
})));
"""


@cache
def page_from(**given: str) -> Page:
    return page_of({"title": "A plan", "constants": given}, given, flag_of, default_lines)


def choices(model: str, sets: int, rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return labels of some sets, and numbers of some rows."""
    rng = np.random.default_rng(16)
    names = ("schedule", "recompute", "attention_kernel", "context_parallel", *MECHANISMS)
    labels = {}
    for name in (*names, "dispatcher", "ep_mechanism") if model == EXPERTS else names:
        # So many layers as "uniform" computes again aren't given.
        values = [value for value in LABELS[name].values if value != "uniform"]
        labels[name] = [str(one) for one in rng.permutation((values * 8)[:sets])]

    losses = np.random.default_rng(47).permutation(LABELS["loss"].values)
    labels["loss"] = [str(loss) for loss in np.resize(losses, sets)]

    def draw(*values: float) -> list[float]:
        return rng.choice(np.array(values, dtype=float), rows).tolist()

    def between(low: float, high: float) -> list[float]:
        return rng.uniform(low, high, rows).tolist()

    numbers = {
        "world_size": draw(128, 256, 512, 1000),
        "tp": draw(1, 2, 4, 8),
        "cp": draw(1, 1, 2, 4),
        "pp": draw(1, 2, 4, 8),
        "virtual_pipeline_size": draw(1, 1, 1, 2),
        "micro_batch_size": draw(1, 2),
        "zero_stage": draw(0, 1, 2, 3),
        "sequence_parallel": draw(0, 1, 1),
        "global_batch_size": draw(512, 1024, 2048),
        "sequence_length": draw(4096, 8192, 32768),
        "memory_capacity": draw(8e10, 1e13, 1e13),
        "gpu_hour_price": draw(2.0, 3.5),
        "training_tokens": draw(1e12, 15e12),
        "tp_overlap": between(0, 1),
        "cp_overlap": between(0, 1),
        "dp_overlap": between(0, 1),
        "intra_bandwidth": between(1e11, 9e11),
        "inter_bandwidth": between(1e10, 1e11),
        "failure_rate": between(1e-3, 0.5),
        "storage_bandwidth": between(1e8, 1e10),
        "spare_coverage": between(0.5, 0.999),
        "mean_time_to_repair": draw(3600, 475200),
        "intra_latency": between(1e-7, 1e-5),
        "inter_latency": between(1e-6, 1e-5),
    }
    # A library's steps move with latencies when a plan is resolved: pages don't offer them.
    del numbers["intra_latency"], numbers["inter_latency"]
    if model == EXPERTS:
        numbers |= {"ep": draw(1, 2, 8), "expert_load_imbalance": between(1, 2)}
        numbers |= {"ep_overlap": between(0, 1)}
    return labels, numbers


@pytest.mark.thorough
@needs_node
@pytest.mark.parametrize("model", [DENSE, EXPERTS])
def test_what_the_page_computes_is_the_sweep(tmp_path: Path, model: str) -> None:
    labels, numbers = choices(model, SETS[model], ROWS[model])
    compare(tmp_path, {"model": model, "hardware": "dgx-h100"}, labels, numbers)


@pytest.mark.thorough
@needs_node
def test_a_page_of_a_hybrid_is_the_sweep(tmp_path: Path) -> None:
    """Its stages have the layers of their own; more chunks than one are in the schedules."""
    labels, numbers = choices(HYBRID, 6, 32)
    labels["schedule"] = [
        "one_f_one_b",
        "interleaved",
        "dual_pipe",
        "zero_bubble_v",
        "gpipe",
        "dual_pipe_v",
    ]
    compare(tmp_path, {"model": HYBRID, "hardware": "dgx-h100"}, labels, numbers)


@pytest.mark.thorough
@needs_node
def test_a_page_of_a_torus_is_the_sweep(tmp_path: Path) -> None:
    labels, numbers = choices(DENSE, *ON_TORUS)
    numbers["world_size"] = [512.0 if one == 1000.0 else one for one in numbers["world_size"]]
    page = compare(tmp_path, {"model": DENSE, **TORUS}, labels, numbers)
    controls = {control["name"]: control for control in page.data["controls"]}
    gpus, tensor = controls["world_size"], controls["tp"]
    # Below 64 chips a slice has no wrapped links, above 8,192 it is several pods.
    assert (gpus["only"], list(gpus["values"])) == (True, [1, *(2**n for n in range(6, 14))])
    assert not tensor["only"]


@pytest.mark.thorough
@needs_node
@pytest.mark.parametrize("given", ["world_size", "dp"])
def test_a_page_of_racks_is_the_sweep(tmp_path: Path, given: str) -> None:
    labels, numbers = choices(EXPERTS, 2, 48)
    gpus = numbers.pop("world_size")
    # Of a rack of 72 GPUs a job takes the most that divide its own.
    own = [gpus, [1.0, 2.0, 9.0, 25.0] * 12][given == "dp"]
    numbers[given] = [float(72 if n % 5 == 0 else one) for n, one in enumerate(own)]
    page = compare(tmp_path, {"model": EXPERTS, "hardware": "gb200-nvl72"}, labels, numbers)
    assert page.data["picks"]["hardware"]["domains"][0]["most"] == 72


@pytest.mark.thorough
@needs_node
def test_what_a_machine_lacks_a_figure_for_is_not_offered(tmp_path: Path) -> None:
    page = page_from(**{**FITTING, **TORUS, "model": EXPERTS, "ep_mechanism": "chunked"})
    assert page.data["picks"]["hardware"]["lacking"][0]["ep_mechanism"] == ("chunked",)
    code = """
    const found = computed(data, startOf(data));
    const lacks = data.faults.find((one) => one.name === data.lacks);
    const told = [String(found.would("step_time")), found.status & lacks.bit];
    process.stdout.write(JSON.stringify(told));
    """
    time, lacks = run_script(tmp_path, page, page.code + code)
    assert time == "NaN"
    assert lacks


@pytest.mark.thorough
@needs_node
def test_a_page_of_offloaded_states_is_the_sweep(tmp_path: Path) -> None:
    """Also where the host doesn't hold them, and where the framework has no such plan."""
    plan = {
        "model": DENSE,
        "hardware": "dgx-a100",
        "framework": "deepspeed",
        "optimizer_offload": "1",
        "parameter_offload": "1",
        "training_tokens": "1e12",
    }
    labels = {"schedule": ["one_f_one_b", "gpipe"]}
    numbers = {
        "world_size": [8.0, 8.0, 32.0, 32.0, 64.0],
        "tp": [1.0, 1.0, 1.0, 2.0, 1.0],
        "zero_stage": [3.0, 3.0, 3.0, 2.0, 3.0],
        "global_batch_size": [64.0] * 5,
        "sequence_length": [2048.0, 4096.0, 2048.0, 2048.0, 4096.0],
    }
    compare(tmp_path, plan | {"host_memory_capacity": "120 GB"}, labels, numbers)


def compare(
    folder: Path, plan: dict[str, str], labels: dict[str, Any], numbers: dict[str, Any]
) -> Page:
    """Check that a page says of each choice what a sweep has, and return it."""
    start = {name: str(values[0]) for name, values in {**labels, **numbers}.items()}
    named = [name for name in labels if name.endswith("_mechanism")]
    page = page_from(**{**plan, **start, **dict.fromkeys(named, "efficiency")})
    each = [
        {name: label[i] for name, label in labels.items()}
        | {name: number[j] for name, number in numbers.items()}
        for i in range(len(labels["schedule"]))
        for j in range(len(numbers["tp"]))
    ]
    names = [name for name in OUTPUTS if name not in numbers]
    asked = {"each": each, "names": names}
    result = np.array(run_script(folder, page, page.code + TOLD, asked), dtype=object)
    dataset = sweeps.sweep(names, labels=labels, numbers=numbers, **plan)
    status = dataset.status.transpose("labels", "numbers").values.ravel()
    np.testing.assert_array_equal(result[:, 0].astype(int), status)
    assert 0.1 < np.mean(status & FAULTS.masking("step_time") == 0) < 0.9
    true = dict(values_of(dataset, names, status))
    step = sum(np.nan_to_num(np.abs(true[name])) for name in STEP_PARTS)
    for index, name in enumerate(names, 1):
        said, expected = result[:, index].astype(float), true[name]
        # Parts of a step are differences of its times, and have their rounding.
        within = 1e-12 * np.maximum(np.abs(expected), step if name in STEP_PARTS else 0.0)
        fine = (np.abs(said - expected) <= within) | (np.isnan(said) & np.isnan(expected))
        assert fine.all(), f"{name}: {said[~fine][:3]}, not {expected[~fine][:3]}"
    return page


def values_of(
    dataset: xr.Dataset, names: list[str], status: Any
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield quantities cell by cell, with the holes that each cell by itself has."""
    dims = ("labels", "numbers")
    sizes = [dataset.sizes[dim] for dim in dims]
    for name in names:
        # What is one number for all cells is no variable.
        alone = xr.Variable((), dataset.attrs.get(name))
        own = dataset.variables.get(name, alone)
        values = own.values if own.dims in ((), dims, dims[:1], dims[1:]) else own.values.T
        shape = [size if dim in own.dims else 1 for dim, size in zip(dims, sizes, strict=True)]
        whole = np.broadcast_to(values.reshape(shape), sizes).ravel()
        yield name, np.where(status & FAULTS.masking(name), math.nan, whole)


# The gallery's calculator.
STARTS = {"each": [{}, {"tp": 4}], "names": ["step_time", "peak_memory", "goodput"]}
FITTING = {
    "world_size": "512",
    "tp": "8",
    "pp": "4",
    "global_batch_size": "1024",
    "zero_stage": "1",
    "sequence_parallel": "1",
    "recompute": "selective",
    "model": DENSE,
    "sequence_length": "8192",
    "hardware": "dgx-h100",
}
OPTIONS = (
    f"--model {DENSE} --gpus 512 --tp 8 --pp 4 --seq-len 8192 --global-batch 1024 --output x.html"
)


@pytest.mark.thorough
@needs_node
def test_the_command_on_the_page_gives_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_from(**FITTING)
    # Of a share, of a latency and of a setting more follows than themselves.
    changes = [
        {},
        {"zero_stage": 2, "sequence_parallel": 0, "tp_overlap": 0.5},
        {"recompute": "full", "intra_latency": 2e-6, "tp_mechanism": "userbuffers"},
    ]
    code = """
    process.stdout.write(JSON.stringify(asked.map((own) => {
      const chosen = { ...startOf(data), ...own };
      const found = computed(data, chosen);
      return [commandOf(data, chosen), found.value("step_time"), found.value("error_band_high")];
    })));
    """
    result = run_script(tmp_path, page, page.code + code, changes)
    for command, step, band in result:
        (row,) = Runner(capsys)(command.removeprefix("sweeps "), "--json").records
        actual = (row["step_time_s"], row["error_band_high"])
        assert actual == pytest.approx((step, band), rel=1e-12)
    assert len({step for _, step, _ in result}) == len(changes)


@pytest.mark.thorough
@needs_node
def test_the_gallerys_calculator_is_of_the_present_formulas(tmp_path: Path) -> None:
    page = page_from(**FITTING)
    text, data, _ = parts_of((GALLERY / f"{DENSE}-on-dgx-h100.html").read_bytes())
    options = f"{OPTIONS.rpartition(' --output')[0]} --zero-stage 1 --sp --recompute selective"
    file = f"outputs/gallery/{DENSE}-on-dgx-h100.html"
    repeated_text = f"sweeps page {options} --hardware dgx-h100 --output {file} --overwrite"
    assert kept_of(text) == kept_of(compose(page, "x").decode()), repeated_text
    present = parts_of(compose(page, "x"))[1]
    for part in ("controls", "labels", "outputs"):
        assert [o["name"] for o in data[part]] == [o["name"] for o in present[part]], repeated_text
    (code,) = re.findall(r"const program = .*?^}\)\(\);$", text, re.S | re.M)
    old = run_script(tmp_path, replace(page, data=data), code + TOLD, STARTS)
    now = run_script(tmp_path, page, page.code + TOLD, STARTS)
    assert np.array(old, float) == pytest.approx(np.array(now, float), rel=0.02), repeated_text


@pytest.mark.thorough
@needs_node
def test_a_law_of_counts_is_the_one_of_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    means = np.concatenate((10 ** rng.uniform(-4, 4, 60), [0.0, 3e4, 2e5, 3e6, 5e5, 1e6]))
    spreads = np.where(np.arange(len(means)) % 5 == 0, 0.0, 10 ** rng.uniform(-3, 0, len(means)))
    shares = rng.uniform(0.5, 0.9999, len(means))
    counts = np.floor(means * rng.uniform(0, 3, len(means)))
    code = """
    process.stdout.write(JSON.stringify(asked.map(([share, count, mean, spread]) => [
      loops.negative_binomial_quantile(share, mean, spread),
      loops.negative_binomial_tail(count, mean, spread),
    ])));
    """
    loops = (FILES / "math.js").read_text(encoding="utf-8")
    known = "return { negative_binomial_tail, negative_binomial_quantile };"
    asked = np.stack([shares, counts, means, spreads], axis=1).tolist()
    code = f"const loops = (() => {{\n{loops}\n{known}\n}})();\n{code}"
    result = np.array(run_script(tmp_path, page_from(**FITTING), code, asked))
    wanted = negative_binomial_quantile(shares, means, spreads)
    np.testing.assert_array_equal(result[:, 0], wanted)
    tails = negative_binomial_tail(counts, means, spreads)
    np.testing.assert_allclose(result[:, 1], tails, rtol=1e-9, atol=1e-290)


@pytest.mark.thorough
@needs_node
def test_a_page_counts_the_layers_of_stages_as_formulas_do(tmp_path: Path) -> None:
    rng, asked = np.random.default_rng(47), []
    for _ in range(60):
        pattern = "".join(rng.choice(list("L*E"), size=int(rng.integers(8, 60))))
        pp, chunks, ahead = (int(rng.integers(*ends)) for ends in ((1, 9), (1, 4), (0, 2)))
        size = -(-(len(pattern) + ahead) // (pp * chunks))
        turned, mirrored = (int(rng.integers(2)) for _ in range(2))
        cut = [pp, turned, mirrored, size, ahead, *numbers_of(pattern).values()]
        asked.append([float(rng.integers(4)), float(rng.integers(pp)), *rng.normal(size=2), *cut])
    code = """
    process.stdout.write(JSON.stringify(asked.map(([kind, index, one, other, ...cut]) => [
      loops.heaviest_stage(one, other, ...cut),
      loops.layers_of_kind(kind, index, cut[2], cut[0], ...cut.slice(3)),
    ])));
    """
    loops = (FILES / "math.js").read_text(encoding="utf-8")
    known = "return { heaviest_stage, layers_of_kind };"
    code = f"const loops = (() => {{\n{loops}\n{known}\n}})();\n{code}"
    result = run_script(tmp_path, page_from(**FITTING), code, asked)
    wanted = [
        [
            float(heaviest_stage(*weights, *cut)),
            float(layers_of_kind(kind, index, cut[2], cut[0], *cut[3:])),
        ]
        for kind, index, *weights, cut in ([*one[:4], one[4:]] for one in asked)
    ]
    assert result == wanted


@pytest.mark.thorough
@needs_node
def test_a_page_runs_interleaved_chunks_as_formulas_do(tmp_path: Path) -> None:
    rng, asked = np.random.default_rng(48), []
    for _ in range(30):
        pattern = "".join(rng.choice(list("L*E"), size=int(rng.integers(8, 60))))
        pp, chunks, ahead = (int(rng.integers(*ends)) for ends in ((1, 6), (1, 4), (0, 2)))
        count = pp * int(rng.integers(1, 9))
        times = [*rng.uniform(5.0, 9.0, 2), *rng.uniform(0.0, 2.0, 3), *rng.uniform(-0.5, 0.5, 4)]
        size = -(-(len(pattern) + ahead) // (pp * chunks))
        asked.append([count, pp, chunks, *times, size, ahead, *numbers_of(pattern).values()])
    code = """
    process.stdout.write(JSON.stringify(asked.map((one) => loops.interleaved_time(...one))));
    """
    loops = (FILES / "math.js").read_text(encoding="utf-8")
    code = f"const loops = (() => {{\n{loops}\nreturn {{ interleaved_time }};\n}})();\n{code}"
    result = run_script(tmp_path, page_from(**FITTING), code, asked)
    np.testing.assert_allclose(result, [float(interleaved_time(*one)) for one in asked], rtol=1e-12)


@pytest.mark.thorough
@needs_node
def test_the_best_plans_on_a_page_are_those_of_a_sweep(tmp_path: Path) -> None:
    settings = {
        "world_size": 16,
        "global_batch_size": 16,
        "sequence_length": 4096,
        "memory_capacity": 141e9,
    }
    plan = {**FITTING, **{name: str(value) for name, value in settings.items()}}
    code = """
    const chosen = { ...startOf(data), ...asked };
    const each = [...candidates(data, chosen)];
    search(data, chosen, (found) => {
      if (found.done) process.stdout.write(JSON.stringify({ each, ...found }));
      return true;
    }, Infinity);
    """
    page = page_from(**FITTING)
    result = run_script(tmp_path, page, page.code + code, settings)
    given = {name: own for name, own in plan.items() if name not in result["each"][0]}
    columns = {
        name: [one[name] for one in result["each"]]
        for name in result["each"][0]
        if name not in ("schedule", "recompute", "ep", "dp")
    }
    least: dict[str, float] = {}
    fine = 0
    for recompute in ("none", "full"):
        for schedule in ("one_f_one_b", "interleaved"):
            kept = [
                one["recompute"] == recompute and one["schedule"] == schedule
                for one in result["each"]
            ]
            numbers = {name: np.array(column, float)[kept] for name, column in columns.items()}
            labels = {"recompute": recompute, "schedule": schedule}
            dataset = sweeps.sweep(["step_time", "peak_memory"], numbers=numbers, **given, **labels)
            # Megatron-LM doesn't interleave what it shards fully.
            runs = (numbers["zero_stage"] < 2) | (numbers["virtual_pipeline_size"] == 1)
            runs &= dataset.peak_memory.values <= 0.9 * 141e9
            times = np.where(runs, dataset.step_time.values, np.nan)
            fine += int(np.sum(~np.isnan(times)))
            for position in np.flatnonzero(~np.isnan(times)):
                split = ",".join(f"{numbers[name][position]:g}" for name in ("tp", "cp", "pp"))
                least[split] = min(times[position], least.get(split, math.inf))
    assert (result["tried"], result["fine"]) == (len(result["each"]), fine)
    assert fine > 30
    best = {
        ",".join(str(one["plan"][n]) for n in ("tp", "cp", "pp")): one["time"]
        for one in result["plans"]
    }
    assert best == pytest.approx(least, rel=1e-12)
    assert list(best.values()) == sorted(best.values())


@pytest.mark.thorough
@needs_node
def test_long_times_are_set_in_days(tmp_path: Path) -> None:
    code = """
    const control = { units: "s" };
    process.stdout.write(JSON.stringify(asked.map((value) => {
      const text = textOf(control, value);
      return [text, readNumber(text, "s")];
    }).concat([["12 h", readNumber("12 h", "s")], ["3 h", readNumber("3 h", "byte")]])));
    """
    asked = [475200.0, 86400.0, 600.0, 90000.0]
    result = run_script(tmp_path, page_from(**FITTING), code, asked)
    assert result == [
        ["5.5 days", 475200.0],
        ["1 days", 86400.0],
        ["600 s", 600.0],
        ["1.04167 days", pytest.approx(90000.0, rel=1e-5)],
        ["12 h", 43200.0],
        ["3 h", None],
    ]


@pytest.mark.thorough
def test_texts_of_a_page_stay_texts() -> None:
    page = page_from(**FITTING)
    evil = "</script><script>alert(1)</script>"
    whole = compose(
        replace(page, title=evil, data={**page.data, "assumed": [evil]}), "x.html"
    ).decode()
    assert evil not in whole
    assert len(whole) < 480_000  # With all models and most machines


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "a page needs what it is of; give FILE.nc, or --model NAME"),
        (f"{OPTIONS} --cp 1,2", "--cp 1,2: is several; one value"),
        ("x.nc --tp 8", "--tp 8: a page of x.nc has its own values"),
        ("--params 7e9 --gpus 8", "a page needs the sequence length in tokens; give --seq-len"),
        (f"{OPTIONS}.txt", "FILE.html"),
    ],
)
def test_what_a_page_cannot_be_of_is_said(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = Runner(capsys)(f"page {options}", fine=False)
    assert result.code == 2
    assert words in result.err
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_what_cannot_be_traced_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def untraced(*_: Any) -> str:
        raise RecordingError

    monkeypatch.setattr(program, "traced", untraced)
    for name in ("STEPS", "RANGES", "LABELLED"):  # A page that sets nothing is made sooner
        monkeypatch.setattr(program, name, {})
    with pytest.raises(InputError, match=r"^--topology = 'hierarchical': has .* another network$"):
        page_of({"title": "A plan", "constants": FITTING}, FITTING, flag_of, default_lines)


@pytest.mark.thorough
def test_what_no_plan_of_a_page_takes_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = f"page --model {DENSE} --gpus 64 --seq-len 4096"
    idle = Runner(capsys)(f"{page} --expert-load-imbalance 1.3", fine=False)
    assert idle.code == 2
    assert "changes nothing" in idle.err
    assert not list(tmp_path.iterdir())
    # A reader may split what isn't split here.
    assert Runner(capsys)(f"{page} --tp-overlap 0.5 --output x.html").code == 0
