"""``sweeps collective --software``: what machines measure, a time's parts, their origins."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from sweeps.spec.files import shipped
from sweeps.spec.software import load_software
from tests.cli_runner import Runner
from tests.tables import examples

NCCL = "--software nccl"
RACK = f"--hardware gb200-nvl72 {NCCL}"


def record(cli: Runner, arguments: str) -> dict[str, Any]:
    (found,) = cli(f"collective {arguments} --json").records
    return found


@pytest.mark.parametrize(
    ("arguments", "quantity", "low", "high"),
    [
        (f"--N 16 --M 1GiB {NCCL}", "latency_s", 4.3e-3, 4.8e-3),
        (f"--N 1024 --M 1KiB {NCCL}", "latency_s", 0.8e-4, 1.4e-4),
        (f"--N 8 --M 8GiB {NCCL}", "busbw_bytes_per_s", 465e9, 495e9),
        (f"--N 72 --M 8GiB {RACK}", "busbw_bytes_per_s", 8e11, 1e12),
    ],
)
def test_known_measurements(
    cli: Runner, arguments: str, quantity: str, low: float, high: float
) -> None:
    assert low < record(cli, arguments)[quantity] < high


def test_the_report_names_profile_algorithm_protocol_and_parts(cli: Runner) -> None:
    output = cli(f"collective --N 16 --M 64KiB {NCCL} --show defaults").out
    assert "algorithm tree_path, software nccl, protocol LL" in output
    for words in ("launch", "steps", "wire"):  # what takes no time isn't printed
        assert f"\n      {words} " in output
    assert "inter_node_step_latency = 8 µs" in output
    assert "(nccl, infiniband)" in " ".join(output.split())
    assert "protocol Simple" in cli(f"collective --N 16 --M 1GiB {NCCL}").out
    assert ", protocol" not in cli("collective --N 16 --M 1GiB --software none").out


def test_what_was_not_given_is_gathered_by_kind_and_whole_if_asked(cli: Runner) -> None:
    line = "collective --N 16 --M 1GiB --hardware dgx-h100"
    short = " ".join(cli(line).out.split("Defaults: ")[1].split())
    assert short.startswith("collective = all_reduce; software = nccl; topology = hierarchical; ")
    left = int(re.search(r"; (\d+) more More: --show formulas,defaults$", short)[1])  # type: ignore[index]
    whole = cli(f"{line} --show defaults").out.split("more")[-1]
    assert "\n  measured: fitted to public logs" in whole
    assert "step_latency = 810 ns" in whole
    assert whole.count(" = ") > left / 2


def test_the_machines_own_library_is_the_default(cli: Runner) -> None:
    line = "collective --N 8,16 --M 1KiB,1GiB --json"
    assert cli(line).records == cli(f"{line} --software nccl").records


def test_a_described_network_has_no_library(cli: Runner) -> None:
    line = "collective --topology switch --N 8,16 --M 1KiB,1GiB --bandwidth 50GB/s --json"
    assert cli(line).records == cli(f"{line} --software none --latency 1us").records
    # Nor the default machine's switch, which reduces: 2 (8 - 1)/8 of 100 MB at 50 GB/s.
    (auto,) = cli(
        "collective --topology switch --N 8 --M 100MB --bandwidth 50GB/s --algorithm auto --json"
    ).records
    assert auto["latency_s"] == pytest.approx(3.5e-3, rel=1e-3)
    assert auto["energy_j"] is None


def test_a_machines_figure_is_replaced_and_nothing_else(cli: Runner) -> None:
    """Without a machine named it is the default one's, whose own figure changes nothing."""
    line = "collective --N 16 --M 1GiB --json"
    records = cli(line).records
    for given in (
        "--inter-bandwidth 50GB/s",
        "--intra-latency 800ns",
        "--link auto",
        "--hardware dgx-h100",
        "--hardware dgx-h100 --inter-latency 2.7us",
    ):
        assert cli(f"{line} {given}").records == records, given
    (slow,) = cli(f"{line} --inter-bandwidth 25GB/s").records
    assert (slow["algorithm"], records[0]["algorithm"]) == ("nvls_tree", "nvls_tree")
    assert records[0]["latency_s"] < slow["latency_s"] < 2 * records[0]["latency_s"]


def test_a_latency_moves_the_librarys_steps_by_what_it_is_off(cli: Runner) -> None:
    """A tree of two nodes has two steps between them, each 0.68 more in Simple."""
    line = "collective --N 16 --M 1GiB --json"

    def latency(given: str) -> float:
        return float(cli(f"{line} {given}").records[0]["latency_part_s"])

    own = latency("")
    assert latency("--inter-latency 3.7us") == pytest.approx(own + 2 * 1.68e-6)
    assert latency("--inter-latency 2.7001us") == pytest.approx(own + 2 * 1.68e-10)
    assert latency("--inter-latency 1.7us") == pytest.approx(own - 2 * 1.68e-6)


@pytest.mark.parametrize(("arguments", "network", "algorithm"), examples(__file__, "networks"))
def test_a_profile_takes_the_machines_own_network(
    cli: Runner, arguments: str, network: str, algorithm: str
) -> None:
    line = cli(f"collective --M 1GiB {arguments}").out.splitlines()[1]
    assert line.startswith(f"  on a {network} network, algorithm {algorithm}")


def test_machines_of_several_kinds_have_a_network_each(cli: Runner) -> None:
    rows = cli(f"collective --N 16 --M 1GiB --hardware dgx-h100,gb200-nvl72 {NCCL} --json")
    assert [row["algorithm"] for row in rows.records] == ["nvls_tree", "nvls"]


def test_a_torus_has_its_machines_axes(cli: Runner) -> None:
    """An all_gather of a pod's 256 chips at 0.95 of four links each."""
    actual_record = record(
        cli, "--op all_gather --N 256 --M 1GiB --hardware tpu-v5e --software xla"
    )
    assert actual_record["latency_s"] == pytest.approx(
        21e-6 + 255 / 256 * 2**30 / (0.95 * 4 * 45e9)
    )
    cube = cli("collective --N 64 --M 1GiB --hardware tpu-v5p --show defaults").out
    assert "mesh_nx, mesh_ny, mesh_nz = 4" in " ".join(cube.split())


STEP = "analysis --model llama3-8b --gpus 16 --tp 8 --sp on --seq-len 4096 --global-batch 32"


@pytest.mark.thorough
def test_a_training_step_names_its_profile(cli: Runner) -> None:
    for given in ("", " --software nccl"):
        output = cli(f"{STEP}{given} --show communication,defaults", fine=False).out
        assert "times by the profile of nccl; environment = step" in output
        assert "inter_node_step_latency" in output
    line = f"{STEP} --software none --show communication"
    assert "times by" not in cli(line, fine=False).out


@pytest.mark.thorough
@pytest.mark.parametrize("words", ["environment pytorch", "fabric efa"])
def test_a_training_step_takes_what_a_profile_has(cli: Runner, words: str) -> None:
    plain = cli(f"{STEP} --json").records[0]
    found = cli(f"{STEP} --json --{words}").records[0]
    assert found["step_time_s"] > plain["step_time_s"]


@pytest.mark.thorough
def test_a_share_of_links_is_beside_the_profiles(cli: Runner) -> None:
    plain = cli(f"{STEP} --json").records
    assert cli(f"{STEP} --intra-efficiency 1 --inter-efficiency 1 --json").records == plain
    (found,) = cli(f"{STEP} --intra-efficiency 0.7 --json").records
    assert found["step_time_s"] > plain[0]["step_time_s"]
    line = f"{STEP} --intra-efficiency 0.7 --show communication"
    assert "links at intra_efficiency 0.7" in cli(line).out


@pytest.mark.parametrize(("arguments", "words"), examples(__file__, "a_time_has_its_band"))
def test_a_time_has_its_band(cli: Runner, arguments: str, words: str) -> None:
    text = " ".join(cli(f"collective --M 1GiB {arguments}").out.split())
    assert words in text
    known = words.partition(" holds")[0] if " holds" in words else "band not known"
    assert f"({known})" in text.partition(" on a ")[0]


def test_what_nobody_measured_has_no_band(cli: Runner) -> None:
    output = cli("collective --N 8 --M 1GiB --software none").out
    assert "(band not known)" in output.splitlines()[0]


def test_files_have_expected_errors() -> None:
    from sweeps import sweep

    common = {"ranks": 8, "message_bytes": 1e9, "hardware": "dgx-h100"}
    output = sweep("time", **common).attrs["expected_errors"]  # type: ignore[arg-type]
    assert "nccl: " in output
    assert "all_reduce, one node, above: -8 to +17 % of 182 rows" in output
    bare = sweep("time", software="none", **common)  # type: ignore[arg-type]
    assert "expected_errors" not in bare.attrs


def test_many_times_have_their_errors_and_networks(cli: Runner) -> None:
    """A row each: the error of its operation, size and nodes, and how many rows tell it."""
    line = "collective --N 8,16,72 --M 1KiB,1GiB --hardware gb200-nvl72 --op all_reduce,all_to_all"
    rows = cli(f"{line} --csv").rows
    profile = load_software("nccl")
    for row in rows:
        node, size = float(row["ranks"]) <= 72, float(row["message_bytes"]) > 2**20
        count, *_, low, high = profile.errors["one_node"][row["collective"]][2 * size]
        assert node
        if row["collective"] == "all_to_all" and row["ranks"] == "72.0":
            count, low, high = 0, math.nan, math.nan
        assert float(row["error_band_samples"]) == count
        for name, end in (("time_band_low", low), ("time_band_high", high)):
            assert float(row[name] or "nan") == pytest.approx(end / 100, nan_ok=True)
    output = cli("collective --N 8,16 --M 1GiB --show rows").out
    table = output.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table] == ["topology", "switch", "hierarchical"]
    assert [line.split()[3:5] for line in table[1:]] == [["-8/+17", "%"], ["-10/+14", "%"]]
    assert "band, low" in output
    for row in ("-8 % 17 % 182", "-10 % 14 % 123"):
        assert row in " ".join(output.split())


def test_times_without_measured_rows_say_so(cli: Runner) -> None:
    for line in ("--hardware mi300x", "--software none", "--op broadcast", "--topology switch"):
        rows = cli(f"collective --N 16,32 --M 1GiB {line} --csv").rows
        assert all(row.get("time_band_low", "") == "" for row in rows)
        assert all(float(row.get("error_band_samples", 0.0)) == 0.0 for row in rows)


def test_a_calibrated_machine_has_errors_of_its_own(cli: Runner, tmp_path: Path) -> None:
    text = (shipped("hardware") / "dgx-h100.toml").read_text(encoding="utf-8")
    own = 'profile = "nccl"\nstep_latency = { value = "1 us", kind = "measured", source = "a log" }'
    (tmp_path / "mine.toml").write_text(
        text.replace('fabric = "infiniband"\n', f'fabric = "infiniband"\n{own}\n', 1).replace(
            'name = "dgx-h100"', 'name = "mine"'
        )
    )
    actual_record = record(cli, f"--N 8 --M 1GiB --hardware {tmp_path / 'mine.toml'}")
    assert "time_band_low" not in actual_record
    assert "time_band_low" in record(cli, "--N 8 --M 1GiB --hardware dgx-h100")
