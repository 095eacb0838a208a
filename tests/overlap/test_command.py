"""``sweeps overlap``: report, tables, timelines, files, bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from overhead.evaluation import Evaluation
from overhead.overlap.mechanisms import MECHANISMS
from overhead.overlap.timeline import TIMELINES
from sweeps.store.constants import with_constants
from sweeps.tuner.rates import TAKEN, read_rates
from tests.cli_runner import Runner
from tests.tables import examples

NEEDS = {
    "zero3_prefetch": "--layer-elements 2e8",
    "pipeline": "--forward 1ms --backward 2ms --p2p 0.1ms",
    "fused_messages": "--messages 100 --message-latency 20us --transfer 1ms",
}


def of(mechanism: str) -> str:
    """Return the flags of one case of a mechanism."""
    durations = {"pipeline": "", "fused_messages": "--compute 50ms"}
    duration = durations.get(mechanism, "--compute 50ms --comm 10ms")
    return f"overlap --kind {mechanism} {duration} {NEEDS.get(mechanism, '')}"


def told(out: str) -> dict[str, str]:
    return {line[2:32].strip(): line[32:] for line in out.splitlines() if line.startswith("  ")}


# One case: a report.


def test_the_worked_example(cli: Runner) -> None:
    actual = told(cli("overlap --compute 50ms --comm 10ms --efficiency 0.8").out)
    assert actual["sequential"] == "60 ms"
    assert actual["overlapped"] == "52 ms"
    assert actual["ideal (the longer one)"] == "50 ms"
    assert actual["hidden"] == "8 ms"
    assert actual["exposed"] == "2 ms"
    assert actual["speedup"] == "1.154x"
    assert actual["ideal speedup"] == "1.2x"
    assert actual["hidden, of the shorter one"] == "80 %"
    assert actual["bounded by"].startswith("the computation")
    record = cli("overlap --compute 50ms --comm 10ms --efficiency 0.8 --json").records[0]
    assert record["overlapped_time_s"] == pytest.approx(0.052)
    assert record["overlap_speedup"] == pytest.approx(1.1538, abs=5e-5)
    assert record["mechanism"] == "two_durations"
    assert record["compute_time_s"] == 0.05


def test_defaults_that_are_all_named_are_not_counted(cli: Runner) -> None:
    out = cli("overlap --compute 50ms --comm 10ms").out
    assert "Defaults: overlap_efficiency = 1\n" in out


def test_what_can_not_be_is_bounded_and_explained(cli: Runner) -> None:
    out = cli("overlap --compute 50ms --comm 80ms --efficiency-of communication").out
    actual = told(out)
    assert actual["overlapped"] == "80 ms"
    assert "would be 50 ms, less than the" in out
    assert "bounded by" in actual
    assert "would be" not in cli("overlap --compute 50ms --comm 10ms --efficiency 0.8").out


@pytest.mark.parametrize("mechanism", list(MECHANISMS))
def test_every_mechanism_reports(cli: Runner, mechanism: str) -> None:
    out = cli(of(mechanism) + " --verbose").out
    first, second, *_ = out.splitlines()
    assert first.startswith(("overlapped it takes ", "overlap gains nothing: it takes "))
    assert second == f"  {mechanism}: {MECHANISMS[mechanism].title}"
    assert "  source  " in out
    assert "  assumes " in out
    (record,) = cli(of(mechanism) + " --json").records
    assert record["status"] == "ok"
    sequential_time_s = record["sequential_time_s"]
    hidden, time = record["hidden_time_s"], record["overlapped_time_s"]
    # What fusing messages saves isn't sent, so it isn't hidden.
    assert hidden == pytest.approx(
        0.0 if mechanism == "fused_messages" else sequential_time_s - time
    )
    assert record["overlap_speedup"] == pytest.approx(sequential_time_s / time)


def test_what_was_measured(cli: Runner) -> None:
    out = cli("overlap --compute 50ms --comm 10ms --measured 52ms").out
    answer, what, *_ = out.splitlines()
    assert answer == (
        "overlapped it takes 52 ms rather than 60 ms, 1.154x as fast: 8 ms is hidden"
        " (exact for the given values)"
    )
    assert what == "  measured"
    assert told(out)["hidden, of communication"] == "80 %"
    assert "both at once can't be shorter than the longer of them" in cli.refused(
        "overlap --compute 50ms --comm 10ms --measured 42ms"
    )


def test_a_carve_out_that_costs_is_told(cli: Runner) -> None:
    out = cli("overlap --kind bulk_margin --compute 1s --comm 10ms --sms 100 --num-sm 50").out
    assert told(out)["bounded by"] == "running at once: it costs more than it hides"
    assert told(out)["speedup"] == "0.505x"


def test_multiprocessors_are_the_machine_s(cli: Runner) -> None:
    asked = "overlap --kind bulk_margin --compute 1ms --comm 0.4ms --num-sm 16"
    # 108 of them on A100: what the collective lasts, the product runs on 92.
    actual = cli(f"{asked} --hardware dgx-a100 --show defaults")
    assert re.search(r"^  measured.*\n(?:   .*\n)*      sms = 108", actual.out, re.MULTILINE)
    (record,) = cli(f"{asked} --hardware dgx-a100 --json").records
    assert record["overlapped_time_s"] == pytest.approx(1e-3 * 108 / 92)
    assumed = cli(f"{asked} --show defaults").out
    assert re.search(r"^  assumed.*\n(?:   .*\n)*      sms = 132", assumed, re.MULTILINE)
    (given,) = cli(f"{asked} --hardware dgx-a100 --sms 120 --json").records
    assert given["overlapped_time_s"] == pytest.approx(1e-3 * 120 / 104)


def test_pieces_are_compared_with_the_whole_product(cli: Runner) -> None:
    """Seven waves of a whole product beside eight chunks of one wave each."""
    line = "overlap --kind ring_exchange --rows 8192 --columns 3584 --depth 8192 --comm 0.4ms"
    text = cli(f"{line} --ranks 8 --hardware dgx-h100").out
    whole = 7 * 2 * 128 * 256 * 8192 / (794.5e12 / 132)
    assert "speedup                       1.436x" in text
    assert f"computation                   {whole * 1e6:.1f} µs" in text
    assert f"computation in 8 pieces       {whole * 8 / 7 * 1e6:.1f} µs" in text


@pytest.mark.parametrize("machine", ["dgx-h100", "dgx-b200"])
def test_a_cut_product_is_told_as_a_tuning_has_it(cli: Runner, machine: str) -> None:
    """A library's tiles are smaller where pieces are, and pieces run side by side."""
    line = "overlap --rows 8192 --columns 3584 --depth 8192 --comm 0.4ms --ranks 8"
    line += f" --hardware {machine}"
    text = " ".join(cli(f"{line} --kind ring_exchange").out.split())
    match = re.search(r"has it: the product ([\d.]+) µs, overlapped ([\d.]+) µs, (\d.\d+)x\)", text)
    assert match is not None
    rates = read_rates(machine)
    values = {name: rates[name] for name in TAKEN}
    values |= {"matmul_m": 8192.0, "matmul_n": 3584.0, "matmul_k": 8192.0}
    values |= {"communication_time": 4e-4, "ranks": 8.0}
    tuned = Evaluation(values, {"compute": "tiles", "mechanism": "ring_exchange"})
    assert float(match[1]) == pytest.approx(1e6 * float(tuned["unsplit_matmul_time"]), abs=0.06)
    assert float(match[2]) == pytest.approx(1e6 * float(tuned["overlapped_time"]), abs=0.06)
    output = cli(f"{line} --kind ring_exchange --tile-columns 128").out
    assert "seven tiles" not in output
    assert "seven tiles" not in cli(f"{line} --kind bulk_shared".replace(" --ranks 8", "")).out
    line = f"{line} --kind reduce_scatter_pipeline --show defaults"
    parts = cli(line.replace("--ranks", "--splits")).out
    assert "num_sm = 16" in parts
    assert "seven tiles" in parts


def test_layers_wait_for_what_they_need_unless_said_otherwise(cli: Runner) -> None:
    line = "overlap --kind layer_by_layer --compute 10ms --comm 4ms"
    assert "speedup                       1x" in cli(line).out
    assert "speedup                       1.383x" in cli(f"{line} --independent-share 1").out


def test_durations_from_shapes_and_bytes(cli: Runner) -> None:
    line = "overlap --kind ring_exchange --rows 8192 --columns 3584 --depth 4096 --M 64MiB"
    line += " --ranks 8 --sm-bandwidth 20GB/s --num-sm 2:32:x2"
    records = cli(line + " --json").records
    times = [record["communication_time_s"] for record in records]
    assert times[0] > times[-1]
    assert times[0] == pytest.approx(7 * (0.8e-6 + 2**26 / 8 / 40e9))
    assert len({record["compute_time_s"] for record in records}) == 1
    assert "peak_measured_matmul_flops" in cli(f"{line} --show defaults").out
    half = "overlap --kind bulk_margin --compute 1ms --M 64MiB --ranks 8 --latency 1us"
    assert cli(half + " --half-sms 4 --num-sm 4 --json").records[0][
        "communication_time_s"
    ] == pytest.approx(7 * (1e-6 + 2**23 / 225e9))
    engine = cli(half + " --copy-engine 300GB/s --num-sm 0 --json").records[0]
    assert engine["overlapped_time_s"] == 1e-3
    buckets = "overlap --kind ddp_buckets --compute 50ms --comm 10ms"
    sized = cli(f"{buckets} --M 101MiB --bucket-size 25MiB --json").records[0]
    assert sized["overlapped_time_s"] == pytest.approx(0.05 + 0.01 * 25 / 101)
    counted = cli(f"{buckets} --gradients 1e9 --dp 8 --json").records[0]
    assert counted["overlapped_time_s"] == pytest.approx(0.05 + 0.01 / 25)


# Many: tables, files, figures.


def test_all_that_suffices(cli: Runner) -> None:
    rows = cli("overlap --kind all --compute 50ms --comm 10ms --csv").rows
    kinds = {row["mechanism"] for row in rows}
    assert kinds == set(MECHANISMS) - set(NEEDS)
    more = cli("overlap --kind all --compute 50ms --comm 10ms --layer-elements 2e8 --csv").rows
    assert {row["mechanism"] for row in more} == kinds | {"zero3_prefetch"}


def test_grids(cli: Runner) -> None:
    line = "overlap --kind ddp_buckets,ring_exchange_aggregate --compute 50ms"
    line += " --comm 1ms:100ms:log5 --buckets 4,25 --ranks 2,3"
    result = cli(line)
    _, head, *rows = result.out.split("\n\n")[0].splitlines()
    # As everywhere labels come first, then the shorter axes.
    assert head.split()[:4] == "mechanism gradient_buckets ranks communication_time".split()
    assert len(rows) == 40
    odd = [row for row in rows if row.startswith("ring") and " 3 " in row]
    assert odd
    assert all(row.split()[-1] == "ranks_odd" for row in odd)
    records = cli(line + " --json").records
    assert len(records) == 40
    assert all((r["overlapped_time_s"] is None) == (r["status"] != "ok") for r in records)
    two = [r for r in records if r["mechanism"].endswith("aggregate") and r["ranks"] == 2.0]
    assert all(r["overlap_of_shorter"] == 0.0 for r in two)


def test_pipelines_by_schedule(cli: Runner) -> None:
    line = "overlap --kind pipeline --forward 1ms --backward 2ms --p2p 100us --pp 8"
    line += " --micro-batches 8,12 --schedule gpipe,interleaved --virtual-stages 2 --json"
    by = {(r["schedule"], r["num_micro_batches"]): r for r in cli(line).records}
    assert by["gpipe", 8.0]["status"] == "virtual_stages_need_interleaving"
    assert by["interleaved", 12.0]["status"] == "micro_batches_not_multiple_of_stages"
    assert by["interleaved", 8.0]["overlapped_time_s"] == pytest.approx(
        8 * 3e-3 + 7 * 3e-3 / 2 + 2 * 1e-4 * 15
    )


@pytest.mark.thorough
def test_a_figure_beside_a_file_has_words_and_leaves_no_folder(cli: Runner, tmp_path: Path) -> None:
    cli("overlap --kind ring_exchange,bulk_queued --compute 4ms --comm 3ms --output o.nc --plot")
    assert not (tmp_path / "outputs").exists()
    for figure in ("o-timeline.svg", "o-hidden.svg"):
        drawn = (tmp_path / figure).read_text(encoding="utf-8")
        assert "ring exchange" in drawn
        assert "ring_exchange" not in drawn


def test_one_default_is_one_value(cli: Runner) -> None:
    out = cli("overlap --mechanism ring_exchange --compute 40ms --comm 30ms").out
    assert "Defaults: 1 value\n" in out


@pytest.mark.thorough
def test_a_file_and_its_figures(cli: Runner, tmp_path: Path) -> None:
    from sweeps.store.netcdf import open_dataset, verify

    line = "overlap --kind ddp_buckets,bulk_shared --compute 50ms --comm 1ms:1s:log40"
    out = cli(f"{line} --buckets 1,8 --output o.nc --plot").out
    assert "wrote o.nc" in out
    assert not verify(Path("o.nc"))
    assert {p.name for p in tmp_path.glob("o-*.png")} == {"o-time.png", "o-speedup.png"}
    with open_dataset(Path("o.nc")) as dataset:
        assert dataset.overlapped_time.dims == (
            "mechanism",
            "gradient_buckets",
            "communication_time",
        )
        overlapped_time = dataset.overlapped_time.sel(
            mechanism="ddp_buckets", gradient_buckets=8
        ).values
        sent = dataset.communication_time.values
        np.testing.assert_allclose(overlapped_time, np.maximum(0.05 + sent / 8, sent + 0.05 / 8))
        assert "li2020" in str(dataset.overlapped_time.attrs) or "PyTorch distributed" in str(
            dataset.overlapped_time.attrs
        )
        assert json.loads(dataset.attrs["constants"])["compute_time"]["units"] == "s"
    assert "exists already" in cli.refused(f"{line} --output o.nc")
    assert "complete already" in cli(f"{line} --buckets 1,8 --output o.nc").out


def test_a_file_s_spec_gives_it_again(cli: Runner, tmp_path: Path) -> None:
    from sweeps.store.netcdf import open_dataset

    line = "overlap --kind two_durations,bulk_shared --compute 50ms --comm 1ms:1s:log4"
    cli(f"{line} --num-sm 8,16 --output one.nc")
    with open_dataset(Path("one.nc")) as dataset:
        (tmp_path / "again.toml").write_text(str(dataset.attrs["spec"]))
        cli("run again.toml --output two.nc --no-plot")
        with open_dataset(Path("two.nc")) as two:
            assert set(dataset.variables) == set(two.variables)
            for name in dataset.variables:
                np.testing.assert_array_equal(dataset[name].values, two[name].values)
            # Only one of the two mechanisms takes multiprocessors, and the other no efficiency.
            assert two.attrs["sms"] == 132.0
            assert "the default" in with_constants(two).sms.attrs["origin"]
            assert dataset.overlapped_time.dims == ("mechanism", "num_sm", "communication_time")


@pytest.mark.parametrize(
    ("constants", "lines"),
    [
        (
            'mechanism = "pipeline"\npp = 4\nnum_micro_batches = 8',
            [
                f"the mechanism pipeline needs the {text} time per"
                for text in ("forward", "backward", "PP send/recv")
            ],
        ),
        (
            'mechanism = "bulk_queued"\ncompute_time = "1 s"\ncommunication_time = "1 s"\n'
            'topology = "ring"',
            ["topology = '..': has no meaning for an overlap by itself"],
        ),
        (
            'mechanism = "bulk_queued"\ncollective = "all_reduce"\ncompute_time = "1 s"',
            ["collective = '..': has no meaning for an overlap by itself"],
        ),
        ('mechanism = "bulk"', ["mechanism = 'bulk': unknown; known: bulk_margin"]),
    ],
)
def test_faults_of_a_spec(cli: Runner, tmp_path: Path, constants: str, lines: list[str]) -> None:
    (tmp_path / "own.toml").write_text(f"[constants]\n{constants}\n")
    result = cli("run own.toml --no-plot", fine=False)
    assert result.code == 2
    given = result.err.splitlines()
    assert len(given) == len(lines), given
    assert all(words in line for words, line in zip(lines, given, strict=True)), given


# Timelines.


@pytest.mark.parametrize("mechanism", list(TIMELINES))
def test_timelines_are_chrome_traces(cli: Runner, tmp_path: Path, mechanism: str) -> None:
    cli(of(mechanism) + " --timeline t.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    about = [event for event in trace["traceEvents"] if event["ph"] == "M"]
    assert {event["name"] for event in about} >= {"process_name", "thread_name"}
    rows = {event["args"]["name"] for event in about if event["name"] == "thread_name"}
    assert rows == {"computation", "communication"}
    (record,) = cli(of(mechanism) + " --json").records
    end = max(event["ts"] + event["dur"] for event in complete)
    assert end == pytest.approx(record["overlapped_time_s"] * 1e6)
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in complete)
    result = cli(of(mechanism) + " --timeline t.json", fine=False)
    assert (result.code, "exists already" in result.err) == (2, True)


@pytest.mark.thorough
def test_timelines_as_a_figure(cli: Runner, tmp_path: Path) -> None:
    cli("overlap --kind ddp_buckets --compute 50ms --comm 10ms --plot")
    assert (tmp_path / "outputs" / "overlap-ddp_buckets-timeline.png").stat().st_size > 5000
    cli("overlap --kind all --compute 50ms --comm 10ms --plot --timeline all.json")
    assert (tmp_path / "outputs" / "overlap-timeline.svg").is_file()
    trace = json.loads((tmp_path / "all.json").read_text())
    assert len({event["pid"] for event in trace["traceEvents"]}) > 10


# Bad input.


@pytest.mark.parametrize(("line", "lines"), examples(__file__, "bad_input"))
def test_bad_input(cli: Runner, tmp_path: Path, line: str, lines: list[str]) -> None:
    result = cli(f"overlap {line}", fine=False)
    assert result.code == 2
    given = result.err.splitlines()
    assert len(given) == len(lines)
    for words, found in zip(lines, given, strict=True):
        assert found.startswith("sweeps: ")
        assert words in found
    assert not result.out
    assert not list(tmp_path.iterdir())


def test_help_names_every_kind(cli: Runner) -> None:
    out = " ".join(cli("overlap --help").out.split())
    assert all(name in out for name in MECHANISMS)
