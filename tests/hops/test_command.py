"""``sweeps hops``: the notebook's table, corrected beside it, other networks, bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from overhead.evaluation import Evaluation
from overhead.hops import HopMatrix, ring_all_reduce
from sweeps.job import evaluation_of
from tests.analysis_cases import job_of
from tests.cli_runner import Runner
from tests.hops.test_forms import BLOCK, NOTEBOOK, TABLE
from tests.tables import examples, keyed

SHIPPED = Path(__file__).parents[2] / "specs" / "sweeps" / "llama3-8b-hops.toml"


@pytest.mark.thorough
def test_the_notebook_s_table_to_the_printed_digit(cli: Runner) -> None:
    out = cli("hops --show communication").out
    table = out.split("\nnotebook (")[1].split("\n\n")[0].splitlines()[2:]
    actual = {}
    for line in table:
        layer, mode, sent, mib, _, _, time, energy = line.split()
        actual[layer, mode] = (float(sent), float(time), float(energy))
        assert float(mib) == pytest.approx(float(sent) * 1e6 / 2**20, abs=1e-3)
    assert actual == TABLE


@pytest.mark.thorough
def test_corrected_stands_beside_with_its_reasons(cli: Runner) -> None:
    out = cli("hops --show defaults").out
    table = out.split("\n\n")[1].splitlines()
    assert table[0].count("(ms)") == table[0].count("(mJ)") == 3
    assert len(table) == 1 + len(TABLE)
    assert "11.11" in out
    assert "2.222" in out
    for words in ("90 GB/s, a fifth", "450 GB/s of one direction", "gate"):
        assert words in out.replace("\n", " ")
    records = cli("hops --json").records
    by_case = {(r["case"], r["layer"], r["mode"]): r for r in records}
    for layer, mode in TABLE:
        old, new = (by_case[case, layer, mode] for case in ("notebook", "corrected links"))
        assert new["energy_j"] == old["energy_j"]
        assert new["volume_bytes"] == old["volume_bytes"]
        slower = old["latency_s"] / new["latency_s"]
        assert 1.0 < slower <= 5.0
        if "Cross" not in mode and mode != "DP-16":
            assert slower > 4.9
    real = by_case["corrected model", "MLP", "DP-8"]
    assert real["volume_bytes"] == pytest.approx(2 * 7 / 8 * 2 * 3 * 14336 * 4096)
    assert real["total_volume_bytes"] == 8 * real["volume_bytes"]
    assert real["volume_MiB"] == real["volume_bytes"] / 2**20


@pytest.mark.thorough
def test_corrected_is_what_collective_charges(cli: Runner) -> None:
    for case in ("corrected model", "dgx-a100"):
        line, machine = "hops --json --hardware dgx-a100 --dp 2,8,16,32 --tp 4,8", case
        if case == "corrected model":
            line, machine = "hops --json", "hop-energy-notebook-corrected"
        records = [r for r in cli(line).records if r["case"] == case and r["mode"][:2] != "PP"]
        assert records
        for record in records:
            ranks, count = record["ranks"], 2 if record["mode"].startswith("TP") else 1
            size = 2048 * 4096 * 2
            if count == 1:
                size = 2 * (4096 * 4096 * 2 + 2 * 1024 * 4096)
                size = size if record["layer"] == "ATTN" else 2 * 3 * 14336 * 4096
            (one,) = cli(
                f"collective --topology hierarchical --algorithm nccl --N {ranks} --M {size}"
                f" --hardware {machine} --json"
            ).records
            for ours, theirs in (
                ("latency_s", "latency_s"),
                ("energy_j", "energy_j"),
                ("volume_bytes", "volume_bytes"),
                ("total_volume_bytes", "link_bytes"),
            ):
                assert record[ours] == count * one[theirs], (record["mode"], ours)
    assert "ranks = '12': 'dgx-a100': ranks not multiple of gpus per node" in cli.refused(
        "hops --hardware dgx-a100 --dp 8,12 --csv"
    )


def test_each_algorithm_is_what_collective_charges(cli: Runner) -> None:
    line = "hops --json --hardware dgx-a100 --dp 16 --tp 8 --algorithm ring_ring,auto"
    records = {(r["case"], r["mode"], r["layer"]): r for r in cli(line).records}
    size = 2 * 3 * 14336 * 4096
    for way in ("ring_ring", "auto"):
        (record,) = cli(
            f"collective --topology hierarchical --algorithm {way} --N 16 --M {size}"
            " --hardware dgx-a100 --json"
        ).records
        assert records[f"dgx-a100, {way}", "DP-16", "MLP"]["latency_s"] == record["latency_s"]
    assert len({case for case, _, _ in records}) == 2
    for flags, result in (
        ("--hardware dgx-a100 --algorithm rng", "--algorithm rng: is unknown"),
        ("--hardware dgx-a100 --algorithm bruck", "--algorithm bruck: 'dgx-a100': algorithm not"),
        ("--spec own.toml --algorithm nccl", "'own' is a network of its own, which runs one ring"),
    ):
        Path("own.toml").write_text(OWN)
        assert result in cli.refused(f"hops {flags}")


@pytest.mark.thorough
def test_messages_by_mix_of_hops(cli: Runner) -> None:
    rows = cli("hops --messages --csv").rows
    notebook = [row for row in rows if row["case"] == "notebook"]
    assert {row["hop_mix"] for row in notebook} == {"1 NVLink", "2 NVLink + 1 InfiniBand"}
    (cross,) = [row for row in notebook if row["message"] == "PP-Cross"]
    assert float(cross["message_bytes"]) == BLOCK
    assert float(cross["latency_s"]) * 1e3 == pytest.approx(0.711, abs=5e-4)
    assert float(cross["energy_j"]) * 1e3 == pytest.approx(4.698, abs=5e-4)
    rows = cli("hops --show rows").out.split("More: ")[1]
    assert rows.count("1 NVLink") > 9


@pytest.mark.thorough
def test_flags_change_the_study(cli: Runner) -> None:
    line = "hops --model llama3-70b --hardware dgx-h100,dgx-a100 --dp 8,64 --tp 4 --json"
    records = cli(
        line + " --seq-length 4096,8192 --switching store_and_forward,cut_through"
    ).records
    assert len({r["case"] for r in records}) == 4
    assert {r["mode"] for r in records} == {"DP-8", "DP-64", "TP-4", "PP-NV", "PP-Cross"}
    one = {(r["case"], r["mode"], r["layer"], r["sequence_length"]): r for r in records}
    case = "dgx-h100, cut_through"
    short, long = (one[case, "PP-NV", "BLOCK", s] for s in (4096.0, 8192.0))
    assert long["volume_bytes"] == 2 * short["volume_bytes"]
    stored = one["dgx-h100, store_and_forward", "PP-Cross", "BLOCK", 4096.0]
    assert one[case, "PP-Cross", "BLOCK", 4096.0]["latency_s"] < stored["latency_s"]
    # Among 72 GPUs of a node the boundary between nodes lies elsewhere.
    rows = cli("hops --hardware dgx-h100,gb200-nvl72 --messages --csv").rows
    mixes = {row["case"]: row["hop_mix"] for row in rows if row["message"] == "PP-Cross"}
    # A GPU reaches its card by PCIe, where the machine's file has that.
    assert mixes["dgx-h100"] == "2 PCIe + 1 link between nodes"
    assert mixes["gb200-nvl72"] == "1 link between nodes"
    whole = cli("hops --tensor messages --json").records
    ring = cli("hops --tensor ring --json").records
    assert any(a["latency_s"] != b["latency_s"] for a, b in zip(whole, ring, strict=True))


@pytest.mark.thorough
def test_link_figures_are_changed_as_collective_changes_them(cli: Runner) -> None:
    flags = "--intra-bandwidth 300GB/s --inter-latency 1us --inter-energy-per-bit 9pJ/bit"
    records = cli(f"hops --json --hardware dgx-h100 --dp 16 --tp 8 {flags}").records
    actual_records = {(r["layer"], r["mode"]): r for r in records}
    (record,) = cli(
        f"collective --topology hierarchical --algorithm nccl --N 16 --M {2 * 3 * 14336 * 4096}"
        " --hardware dgx-h100 --json --intra-bandwidth 300GB/s --inter-latency 1us"
    ).records
    assert actual_records["MLP", "DP-16"]["latency_s"] == record["latency_s"]
    (p2p,) = cli(
        f"collective --collective p2p --topology switch --N 2 --M {BLOCK} --link inter --json"
        " --hardware dgx-h100 --inter-latency 1us --software none"
    ).records
    # Over PCIe a message streams: the slower link between nodes counts.
    assert actual_records["BLOCK", "PP-Cross"]["latency_s"] == pytest.approx(
        p2p["latency_s"], rel=1e-9
    )
    assert actual_records["BLOCK", "PP-Cross"]["energy_j"] == pytest.approx(8 * BLOCK * 9e-12)
    slow = cli("hops --json --hardware dgx-h100 --card-bandwidth 10GB/s --card-latency 1us").records
    (cross,) = [r for r in slow if r["mode"] == "PP-Cross"]
    assert cross["latency_s"] == pytest.approx(2.7e-6 + 2e-6 + BLOCK / 10e9)
    # What leaves a node in an all_reduce passes PCIe at either end, too.
    flags = "--card-bandwidth 10GB/s --card-latency 1us --card-energy-per-bit 5pJ/bit"
    done = cli(f"hops --hardware dgx-h100 --combined tp8-dp2 {flags} --json").records
    actual_records = {(r["layer"], r["mode"]): r for r in done}
    assert "isn't counted" not in cli(f"hops --hardware dgx-h100 {flags}").out
    size = 2 * 3 * 14336 * 4096
    link = "--inter-bandwidth 10GB/s --inter-latency 4.7us --inter-energy-per-bit 54pJ/bit"
    for ranks, nodes, message in (
        (16, "", size),
        (2, "--gpus-per-node 1 --nics-per-node 1", size // 8),
    ):
        (record,) = cli(
            f"collective --topology hierarchical --algorithm nccl --N {ranks} --M {message} {nodes}"
            f" --hardware dgx-h100 {link} --json"
        ).records
        if ranks == 16:
            result = (
                actual_records["MLP", "DP-16"]["latency_s"],
                actual_records["MLP", "DP-16"]["energy_j"],
            )
        else:
            combined, inner = actual_records["MLP", "TP-8 x DP-2"], actual_records["MLP", "TP-8"]
            result = (
                combined["latency_s"] - inner["latency_s"],
                (combined["energy_j"] - 2 * inner["energy_j"]) / 8,
            )
        assert result == pytest.approx((record["latency_s"], record["energy_j"]), rel=1e-9)
    assert actual_records["MLP", "DP-8"]["energy_j"] == pytest.approx(0.279039, rel=1e-5)
    for flags, result in (
        ("--hardware dgx-h100 --wiring in_node_links --card-latency 1us", "there is no link from"),
        ("--spec own.toml --intra-latency 1us", "which has its links in its file"),
        ("--layers two", "one or all"),
        ("--combined tp8", "such as tp8-dp2"),
        ("--spec own.toml --combined tp2-dp4", "'own' has fewer ranks; at most 4"),
    ):
        Path("own.toml").write_text(OWN)
        done = cli(f"hops {flags}", fine=False)
        assert (done.code, done.out) == (2, "")
        assert result in done.err


def test_a_step_s_operations_take_what_hops_says(cli: Runner) -> None:
    """Tensor parallelism in nodes, and data parallelism across them, placed as `analysis` does."""
    line = "--model llama3-8b --hardware dgx-h100 --num-gpus 32 --tp 4 --seq-length 2048"
    known = evaluation_of(job_of(f"{line} --micro-batches 1 --zero-stage 0"))
    # One message of a quarter of a layer's MLP, as hops sends it.
    given = {**known.given, "dp_reduce_bytes": 2.0 * 3 * 14336 * 4096 / 4}
    step = Evaluation(given, known.labels)
    records = cli("hops --json --hardware dgx-h100 --tp 4 --combined tp4-dp8").records
    actual_records = {(r["layer"], r["mode"]): r for r in records}
    inner, combined = actual_records["MLP", "TP-4"], actual_records["MLP", "TP-4 x DP-8"]
    assert inner["latency_s"] == pytest.approx(2.0 * float(step["tp_all_reduce_time"]), rel=1e-12)
    outer = combined["latency_s"] - inner["latency_s"]
    assert outer == pytest.approx(float(step["dp_all_reduce_time"]), rel=1e-9)
    energies = 8.0 * inner["energy_j"], 4.0 * float(step["dp_all_reduce_energy"])
    assert combined["energy_j"] == pytest.approx(sum(energies), rel=1e-9)


def test_bytes_of_gradients_and_of_activations_are_apart(cli: Runner) -> None:
    def of(flags: str) -> dict[tuple[str, str], float]:
        records = cli(f"hops --json {flags}").records
        return {
            (r["layer"], r["mode"]): r["volume_bytes"]
            for r in records
            if r["case"] == "corrected model"
        }

    combined, gradients, activations = of(""), of("--gradient-bytes 4"), of("--activation-bytes 1")
    for layer, mode in combined:
        data = mode.startswith("DP")
        assert gradients[layer, mode] == combined[layer, mode] * (2.0 if data else 1.0)
        assert activations[layer, mode] == combined[layer, mode] * (1.0 if data else 0.5)


@pytest.mark.thorough
def test_all_layers_are_the_layers_one_after_another(cli: Runner) -> None:
    one = cli("hops --json --combined tp4-dp2").records
    whole = cli("hops --json --combined tp4-dp2 --layers all").records
    for layer_row, all_ in zip(one, whole, strict=True):
        count = 1.0 if layer_row["layer"] == "BLOCK" else 32.0
        assert (layer_row["layers"], all_["layers"]) == (1.0, count)
        for name in ("latency_s", "energy_j", "volume_bytes", "total_volume_bytes"):
            assert all_[name] == pytest.approx(count * layer_row[name], rel=1e-12)
    # Of a mixture of experts the first layers have none.
    records = cli("hops --json --model deepseek-v3 --hardware dgx-h100 --layers all").records
    assert {r["layer"]: r["layers"] for r in records} == keyed(
        "ATTN=61.0 MLP=3.0 MoE=58.0 BLOCK=1.0"
    )


@pytest.mark.thorough
def test_combined_strategies_are_their_groups(cli: Runner) -> None:
    line = "hops --json --hardware dgx-a100 --dp 2 --tp 4 --combined tp4-dp4"
    records = {(r["layer"], r["mode"]): r for r in cli(line).records}
    combined, inner = records["MLP", "TP-4 x DP-4"], records["MLP", "TP-4"]
    # Two of a data-parallel group's ranks are in each node, and half of its groups' cards.
    (outer,) = cli(
        f"collective --topology hierarchical --algorithm nccl --N 4 --M {2 * 3 * 14336 * 4096 // 4}"
        " --hardware dgx-a100 --gpus-per-node 2 --nics-per-node 2 --json"
    ).records
    assert combined["ranks"] == 16
    for name, of_collective, groups in (
        ("latency_s", "latency_s", (1, 1)),
        ("volume_bytes", "volume_bytes", (1, 1)),
        ("energy_j", "energy_j", (4, 4)),
        ("total_volume_bytes", "link_bytes", (4, 4)),
    ):
        expected = groups[0] * inner[name] + groups[1] * outer[of_collective]
        assert combined[name] == pytest.approx(expected, rel=1e-12), name
    result = cli("hops --hardware dgx-a100 --combined tp4-dp4 --verbose").out
    assert "path_time = path_latency + path_serialization_time" in result
    assert "every 4th: sweeps collective --topology hierarchical --algorithm nccl" in result
    assert "--gpus-per-node 2 --nics-per-node 2 --verbose" in result


OWN = examples(__file__, "own")


def test_a_given_matrix_of_three_types(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    records = cli("hops --spec own.toml --json").records
    (four,) = [r for r in records if r["mode"] == "DP-4" and r["layer"] == "MLP"]
    cells = np.zeros((3, 4, 4))
    for number, other_number, hops in (
        (0, 1, (1, 0, 0)),
        (1, 2, (0, 2, 1)),
        (2, 3, (1, 0, 0)),
        (0, 3, (0, 2, 1)),
        (0, 2, (0, 1, 0)),
        (1, 3, (0, 1, 0)),
    ):
        cells[:, number, other_number] = cells[:, other_number, number] = hops
    from overhead.hops import Links

    links = Links(
        ("chip", "board", "fibre"),
        (0.1e-6, 0.5e-6, 3e-6),
        (900e9, 200e9, 25e9),
        (1e-12, 5e-12, 30e-12),
    )
    ours = ring_all_reduce(2 * 3 * 14336 * 4096, 4, HopMatrix(cells), links)
    assert four["latency_s"] == pytest.approx(float(ours.time), rel=1e-12)
    assert four["energy_j"] == pytest.approx(float(ours.energy), rel=1e-12)
    mixes = {row["hop_mix"] for row in cli("hops --spec own.toml --messages --csv").rows}
    assert mixes == {"1 chip", "2 board + 1 fibre"}
    result = cli("hops --spec own.toml --dp 8", fine=False)
    assert result.code == 2
    assert result.err == "sweeps: --dp 8: 'own' has fewer ranks; at most 4\n"


@pytest.mark.thorough
def test_a_file_with_charts(cli: Runner, tmp_path: Path) -> None:
    from sweeps.store.netcdf import is_complete, open_dataset, verify

    out = cli("hops --output h.nc --plot").out
    assert "wrote h.nc" in out
    assert not verify(Path("h.nc"))
    drawn = {path.name for path in tmp_path.glob("h-*.png")}
    assert drawn == {"h-latency.png", "h-energy.png", "h-volume.png", "h-messages.png"}
    with open_dataset(Path("h.nc")) as dataset:
        assert dataset.strategy_time.dims == ("case", "strategy")
        value = dataset.strategy_time.sel(case="notebook", strategy="MLP DP-16")
        assert round(float(value) * 1e3, 3) == 18.667
        size = dataset.message_bytes.values
        time = dataset.path_time.sel(case="notebook", hop_mix="1 NVLink").values
        np.testing.assert_allclose(time, NOTEBOOK.latency[0] + size / NOTEBOOK.bandwidth[0])
        assert is_complete(Path("h.nc"), dataset.attrs["fingerprint"])
    assert "exists already" in cli.refused("hops --output h.nc --seq-length 1024")
    cli("hops --output lengths.nc --seq-length 1024,2048")
    with open_dataset(Path("lengths.nc")) as dataset:
        assert dataset.strategy_time.dims == ("case", "strategy", "sequence_length")


@pytest.mark.parametrize(("change", "result"), examples(__file__, "faults_of_a_spec"))
def test_faults_of_a_spec(
    cli: Runner, tmp_path: Path, change: tuple[str, str], result: str
) -> None:
    assert change[0] in OWN
    (tmp_path / "own.toml").write_text(OWN.replace(*change))
    done = cli("hops --spec own.toml", fine=False)
    assert done.code == 2
    assert result in done.err
    assert all(line.startswith("sweeps: ") for line in done.err.splitlines())


def test_the_shipped_study_is_read_by_its_path(cli: Runner) -> None:
    assert cli(f"hops --spec {SHIPPED} --json").out == cli("hops --json").out


@pytest.mark.thorough
def test_run_runs_a_study_as_it_does_a_sweep(cli: Runner, tmp_path: Path) -> None:
    output = tmp_path / "mine.nc"
    result = cli(f"run llama3-8b-hops --output {output} --no-plot")
    assert result.code == 0
    assert "ATTN   DP-16     6.713" in result.out
    assert output.is_file()
    assert "cases" in cli("run llama3-8b-hops --dry-run").out
    assert cli("run llama3-8b-hops --set title=x", fine=False).code == 2
