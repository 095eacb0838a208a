"""``sweeps validate``: reports, records, files, figures, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from overhead.shipped import error_bands
from sweeps.spec.catalog import find_spec
from sweeps.store.netcdf import open_dataset, verify
from sweeps.validate.predict import running_lines
from sweeps.validate.run_table import find_csv, find_runs, read_runs
from sweeps.validate.scores import left_out_errors
from tests.cli_runner import Runner
from tests.tables import examples

OWN = (
    "row_id,source_id,model,gpu_type,framework,gpus,tp,pp,dp,vpp,zero_or_sharding,sp,recompute,"
    "precision,seq_len,global_batch_size,micro_batch_size,step_time_s,peak_mem_gib\n"
    "a,mine,llama3-70b,dgx-h100,megatron-lm,64,4,4,4,5,ZeRO-1,yes,none,bf16,8192,128,1,14.6,60\n"
    "b,mine,llama3-8b,dgx-a100,torchtitan,8,1,1,8,1,FSDP,no,full,bf16,8192,16,2,6.5,\n"
    "c,mine,llama3-8b,abacus,torchtitan,8,1,1,8,1,FSDP,no,full,bf16,8192,16,2,6.5,\n"
)


@pytest.fixture
def cli(cli: Runner, tmp_path: Path) -> Runner:
    (tmp_path / "own.csv").write_text(OWN)
    return cli


def test_report_of_shipped_memory(cli: Runner) -> None:
    line = "validate memory --source simumax_b200 --source prime_rl"
    assert cli(line).out.startswith("Memory: 22 runs, 95 % in the band (target 80")
    runner = cli(f"{line} --show rows,rejected,sources,defaults")
    assert "Memory by class" in runner.out
    assert "Memory by source" in runner.out
    assert "Step time" not in runner.out
    assert "all measured" in runner.out
    assert "fine-tuning" in runner.out
    assert "Unknown settings (rows)" in runner.out
    assert "More: --show" not in runner.out
    output = next(line for line in runner.out.splitlines() if line.startswith("  simumax_b200"))
    assert int(output.split()[1]) == 15


def test_report_of_an_own_table(cli: Runner) -> None:
    runner = cli("validate own.csv --show rejected")
    assert "Step time: 2 runs" in runner.out
    assert "Memory: 1 run" in runner.out
    assert "Excluded: 1 row, by reason in --show rejected" in runner.out
    assert "gpu_type 'abacus': not understood (mine)" in runner.out
    assert "Memory" not in cli("validate own.csv --kind step-time").out


def test_the_bound_is_of_every_class(cli: Runner) -> None:
    for bound, code in (("1%", 1), ("90%", 0)):
        runner = cli(f"validate own.csv --strict --bound {bound}", fine=False)
        assert runner.code == code
        start = "FAILED the 1 % bound: " if code else "Within the 90 % bound: "
        assert any(line.startswith(start) for line in runner.out.splitlines())


def test_records(cli: Runner) -> None:
    rows = cli("validate own.csv --csv").rows
    assert [row["row"] for row in rows] == ["a", "a", "b"]
    assert [row["kind"] for row in rows] == ["step_time", "memory", "step_time"]
    for row in rows:
        measured, predicted = float(row["measured"]), float(row["predicted"])
        assert float(row["error"]) == pytest.approx(predicted / measured - 1)
    steps, memory = error_bands()["step_time"], error_bands()["memory"]["megatron"]
    bands = (steps["megatron_nodes_told"], memory, steps["other_node"])
    for end in ("low", "high"):
        assert [float(row[f"error_band_{end}"]) for row in rows] == [band[end] for band in bands]
    assert {row["error_without_source"] for row in rows} == {""}
    same = cli("validate own.csv --json").records
    assert [row["predicted"] for row in same] == [float(row["predicted"]) for row in rows]
    assert same[1]["error_without_model"] is None
    assert [row["units"] for row in same] == ["s", "byte", "s"]


def test_classes_and_sources(cli: Runner) -> None:
    assert [r["row"] for r in cli("validate own.csv --class dgx-a100 --csv").rows] == ["b"]
    assert len(cli("validate own.csv --source mine --csv").rows) == 3
    refused = cli("validate own.csv --class dgx-a10 --source min", fine=False)
    assert refused.code == 2
    assert "--class dgx-a10: no row has it; did you mean 'dgx-a100'" in refused.err
    assert "--source min: no row has it" in refused.err


def test_own_rules(cli: Runner) -> None:
    Path("own.toml").write_text(
        "[[rules]]\nwhere = { row_id = '^a$' }\nset = { recompute = 'full', class = 'deep' }\n"
    )
    plain, changed = (
        cli(f"validate own.csv --csv{more}").rows for more in ("", " --rules own.toml")
    )
    assert changed[0]["class"] == "deep"
    assert float(changed[0]["predicted"]) > 1.2 * float(plain[0]["predicted"])
    assert changed[2] == plain[2]


def test_files(cli: Runner) -> None:
    output = cli("validate own.csv --output rows.csv --csv", fine=False)
    assert output.code == 0
    assert output.err.startswith("wrote rows.csv (")
    assert Path("rows.csv").read_text() == output.out
    assert "exists" in cli("validate own.csv --output rows.csv", fine=False).err
    assert cli("validate own.csv --output rows.csv --overwrite").code == 0
    cli("validate own.csv --output rows.nc")
    assert not verify(Path("rows.nc"))
    with open_dataset(Path("rows.nc")) as dataset:
        assert dict(dataset.sizes) == {"row": 3}
        assert dataset["measured_step_time"].attrs["units"] == "s"
        assert dataset["predicted_memory"].attrs["units"] == "byte"
        np.testing.assert_array_equal(np.isnan(dataset["measured_memory"]), [True, False, True])
        error = dataset["predicted_step_time"] / dataset["measured_step_time"] - 1
        np.testing.assert_allclose(dataset["relative_error"][[0, 2]], error[[0, 2]])
        assert list(dataset["source"].values) == ["mine"] * 3
    refused = cli("validate own.csv --output rows.txt", fine=False)
    assert refused.code == 2
    assert "FILE.csv or FILE.nc" in refused.err


@pytest.mark.thorough
def test_figures(cli: Runner) -> None:
    cli("validate own.csv --plot --output rows.csv")
    for name in ("rows-step-time", "rows-memory"):
        text = Path(f"{name}.svg").read_text()
        assert "predicted and measured" in text
        assert "dgx-h100 (1):" in text
        assert Path(f"{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize(("line", "output"), examples(__file__, "refusals"))
def test_refusals(cli: Runner, line: str, output: str) -> None:
    runner = cli(line, fine=False)
    assert runner.code == 2
    assert output in runner.err
    assert "Traceback" not in runner.err


def test_nothing_to_predict(cli: Runner) -> None:
    Path("own.csv").write_text("model,gpu_type,step_time_s\nx,abacus,1\n")
    runner = cli("validate own.csv", fine=False)
    assert runner.code == 2
    assert "no row can be predicted; 1  gpu_type 'abacus': not understood" in runner.err


def test_tables_of_operations(cli: Runner) -> None:
    Path("links.csv").write_text(
        "collective,hardware,ranks,message_bytes,time_us\nall_reduce,dgx-h100,8,1073741824,4300\n"
    )
    runner = cli("validate links.csv")
    assert "median error" in runner.out
    (row,) = cli("validate links.csv --csv").rows
    assert row["points"] == "1"


@pytest.mark.thorough
def test_what_running_takes_is_laid_beside_what_was_published(cli: Runner) -> None:
    """Interruptions of another fleet, spare servers, goodput, and power of logged nodes."""
    rows = cli("validate running --json").records
    by = {
        name: [r for r in rows if r["quantity"] == name]
        for name in tuple(
            "mean_time_between_failures spare_nodes goodput node_dc_power token_energy".split()
        )
    }
    assert sum(map(len, by.values())) == len(rows) == 24
    for row in rows:
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1.0)
        assert row["source_ref"]
    # Of 99 % of the time no fleet was short, and not a third too many would stand ready.
    assert all(0.0 <= row["error"] < 0.33 for row in by["spare_nodes"])
    assert all(abs(row["error"]) < 0.06 for row in by["goodput"])
    gpt3 = [*by["token_energy"], *(r for r in by["node_dc_power"] if r["row_id"] == "P0002")]
    assert all(abs(row["error"]) < 0.05 for row in gpt3)
    assert all(abs(row["error"]) < 0.1 for row in by["node_dc_power"])
    report = cli("validate running --show rows").out
    assert report.startswith("Running: 11 of 24 rows are within 10 %")
    assert "Average node power, DC side (kW): MAPE " in report
    assert "node_dc_power: 4 rows, MAPE" in report
    cli("validate running --plot --output a.nc")
    for name, words in {
        "mean-time-between-failures": "(days)",
        "spare-nodes": "Spare nodes: predicted and measured",
        "goodput": "Goodput",
        "node-dc-power": "(kW)",
        "token-energy": "energy per token",
    }.items():
        assert words in Path(f"a-{name}.svg").read_text(encoding="utf-8")
    goodput = next(row for row in by["goodput"] if "405b" in row["given"])
    assert goodput["measured"] == 0.9
    assert cli("validate running --strict", fine=False).code == 1


@pytest.mark.thorough
def test_fleets_fail_at_different_rates(cli: Runner) -> None:
    """A vendor's best interval, GPUs alone, and restarts of any cause are far from Llama 3's."""
    others = ("F0155", "N0467", "N0468")
    intervals = {
        row["row_id"]: row["error"]
        for row in cli("validate running --json").records
        if row["quantity"] == "mean_time_between_failures"
    }
    assert [round(intervals.pop(name), 1) for name in others] == [-0.7, -0.2, 1.0]
    assert all(abs(error) < 0.3 for error in intervals.values())
    text = find_csv("running", "TABLE", ["running"]).read_text(encoding="utf-8")
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith(others)]
    Path("most.csv").write_text("".join(kept), encoding="utf-8")
    assert cli("validate most.csv --strict --bound 40%").code == 0


@pytest.mark.thorough
def test_attention_with_context_parallelism_is_laid_beside_benchmarks(cli: Runner) -> None:
    rows = cli("validate context --json").records
    by = {
        name: [r for r in rows if r["class"] == name]
        for name in ("kernel", "ring", "all_to_all", "mixed")
    }
    assert [len(of) for of in by.values()] == [2, 30, 27, 48]
    assert sum(map(len, by.values())) == len(rows)
    row = by["mixed"][-1]
    other_ratios = [
        r["measured"] / r["predicted"]
        for r in rows
        if r["group"] == row["group"] and r["class"] != "mixed"
    ]
    expected = float(np.median(other_ratios)) * row["predicted"] / row["measured"] - 1.0
    assert row["left_out_error"] == pytest.approx(expected)
    left = {
        name: [r["left_out_error"] for r in of if r["measured"] > 0.015] for name, of in by.items()
    }
    assert np.mean(np.abs(left["mixed"])) < 0.05
    assert np.mean(np.abs(left["all_to_all"])) < 0.1
    # What merging blocks' results takes isn't counted: rings are told as too short.
    assert -0.2 < np.median(left["ring"]) < -0.1
    first, *_, last = running_lines(rows)
    assert first.startswith("kernel: 2 rows, MAPE 2.6 %")
    assert last.split()[0] == "ring"


def test_faults_of_what_running_takes(cli: Runner) -> None:
    head = "row_id,source_ref,quantity,measured,given,notes\n"
    for row, output in (
        ("a,us,goodpt,1,world_size=8,", "own2.csv, line 2: quantity = 'goodpt'"),
        ("a,us,mean_time_between_failures,1 d,world_sise=8,", "world_sise"),
        (
            "a,us,mean_time_between_failures,many,world_size=8;failure_rate=1/d,",
            "measured = 'many'",
        ),
    ):
        Path("own2.csv").write_text(head + row + "\n")
        ran = cli("validate own2.csv", fine=False)
        assert (ran.code, output in ran.err) == (2, True), ran.err
    Path("own2.csv").write_text("row_id,quantity,given\na,goodput,x=1\n")
    assert "has no column source_ref, measured" in cli("validate own2.csv", fine=False).err
    assert "comes alone" in cli("validate running --kind memory", fine=False).err


@pytest.mark.thorough
def test_nvidia_s_settings_of_overlap_are_near_the_best(cli: Runner) -> None:
    text = cli("validate userbuffers").out
    assert text.startswith("Userbuffers: 95 % of 88 layers of NVIDIA's presets are within 2 % of")
    rows = cli("validate userbuffers --csv").rows
    assert len(rows) == 88
    losses = [float(row["loss"]) for row in rows]
    assert sum(loss <= 0.02 for loss in losses) >= 0.95 * len(rows)
    assert min(losses) >= 0.0
    factors = sorted(max(one, 1 / one) for row in rows if (one := float(row["num_sm_factor"] or 0)))
    assert factors[len(factors) // 2] <= 1.35
    # None of their layers is turned off, and pipelines are chosen.
    assert not any(row["our_method"] == "sequential" for row in rows)
    assert sum(row["our_method"] == "pipeline" for row in rows) >= 9
    # Each that is beyond says what the others take.
    assert all(bool(row["note"]) == (float(row["loss"]) > 0.02) for row in rows)
    assert "inferred from 9 of these presets" in " ".join(text.split())


@pytest.mark.thorough
def test_settings_leave_as_a_file_with_a_figure(cli: Runner, tmp_path: Path) -> None:
    out = cli("validate userbuffers --output own.nc --plot").out
    assert "own-loss.png" in out
    assert (tmp_path / "own-loss.svg").is_file()
    with open_dataset(tmp_path / "own.nc") as values:
        assert values.sizes == {"row": 88}
        assert float(values["their_time"].min()) > 0.0
    assert not verify(tmp_path / "own.nc")
    # A machine of one's own in the place of the catalogue's.
    machine = find_spec("hardware", "dgx-h100").read_text().replace("value = 132", "value = 100")
    (tmp_path / "dgx-h100.toml").write_text(machine)
    plain = cli("validate userbuffers --csv").out
    assert cli(f"validate userbuffers --csv --hardware-folder {tmp_path}").out != plain


def test_a_setting_that_can_t_be_is_refused(cli: Runner, tmp_path: Path) -> None:
    whole = find_csv("userbuffers", "TABLE", ()).read_text()
    for old, new, words in (
        (",bulk,4,", ",bulk,33,", "num_sm = '33': isn't allowed; 1 to 32"),
        ("qkv_dgrad,bulk", "qkv_dgrad,external", "layer, method = 'qkv_dgrad': unknown"),
        (",H100,bf16", ",H900,bf16", "gpu, precision = 'H900 in bf16': unknown"),
        (",8192,8192,8192,28672,", ",8192,8192.5,8192,28672,", "tokens = '8192.5'"),
        (",num_sm,", ",sms,", "has no column num_sm"),
    ):
        assert old in whole
        (tmp_path / "own.csv").write_text(whole.replace(old, new, 1))
        refused = cli("validate own.csv", fine=False)
        assert refused.code == 2, new
        assert words in refused.err, refused.err


@pytest.mark.thorough
def test_sources_outside_the_fit_come_first_and_by_themselves(cli: Runner) -> None:
    """No constant was fitted to them: they are in no class that --strict bounds."""
    text = cli("validate").out
    first = text.splitlines()[0]
    assert re.match(r"Outside the fit, step time: \d+ runs, \d+ % in the band", first)
    assert "dense, several nodes" in text.partition("Step time, by class")[0]
    assert "mcore_moe_recipes" in cli("validate --show sources").out
    fitted = {source for _, source, _ in left_out_errors()}
    rows = read_runs(find_runs("outside-fit")).runs
    assert not fitted & {run.source for run in rows}
    alone = cli("validate outside-fit --source mcore_moe_recipes --strict", fine=False)
    assert alone.code == 0


def test_own_runs_may_name_a_machine_in_place_of_its_gpu(cli: Runner, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    heads = "model,{},gpus,tp,global_batch_size,seq_len,step_time_s\n"
    table.write_text(heads.format("hardware") + "llama3-8b,dgx-h100,64,2,256,8192,3.5\n")
    assert cli(f"validate {table}").out.startswith("Step time: 1 run")
    table.write_text(heads.format("notes") + "llama3-8b,,64,2,256,8192,3.5\n")
    error = cli(f"validate {table}", fine=False).err
    assert "a column 'gpu_type' or 'hardware' in every table of runs" in error


@pytest.mark.parametrize("kind", ["all", "step-time"])
def test_of_plans_alone_no_kind_is_advised(cli: Runner, kind: str) -> None:
    error = cli(f"validate plans --kind {kind}", fine=False).err
    assert "plans, which are no measurements" in error
    assert "--kind" not in error
