"""The strategy calculator: its table, what it recommends, its options and how they are read."""

from __future__ import annotations

import pytest

from sweeps.errors import InputError
from sweeps.search.calculator import (
    Cluster,
    calculate,
    script_choice,
    script_rows,
    shapes_of,
)
from tests.cli_runner import Runner
from tests.tables import examples

# Of the calculator's own table: degrees, GB a GPU, whether it fits.
TABLE = [
    (1, 1, 64, 840.0, False),
    (8, 1, 8, 105.0, False),
    (8, 2, 4, 52.5, True),
    (8, 4, 2, 26.25, True),
]


def test_its_example() -> None:
    calculation = calculate(Cluster())
    rows = [(row.tp, row.pp, row.dp, row.memory / 1e9, row.fits) for row in calculation.rows]
    assert rows == [(*row[:3], pytest.approx(row[3]), row[4]) for row in TABLE]
    best = calculation.recommended
    assert best is not None
    assert (best.tp, best.pp, best.dp) == (8, 4, 2)


# What the script prints for its example (its source is public; run on 70 64 80 512 4096).
PRINTED = examples(__file__, "printed")


def test_the_script_gives_its_own_rows_to_the_digit() -> None:
    rows = script_rows(Cluster())
    printed = [
        f"{row.tp} {row.pp} {row.dp} {row.memory:.1f}GB {'yes' if row.fits else 'no'} "
        + " ".join(f"{row.volumes[name]:.2f}GB" for name in ("tp", "pp", "dp"))
        for row in rows
    ]
    assert printed == PRINTED.split("\n")[1:-1]
    assert len(printed) == 19
    best = script_choice(rows)
    assert best is not None
    assert (best.tp, best.pp, best.dp) == (2, 16, 2)
    assert (f"{best.memory:.1f}", f"{best.total:.0f}") == ("43.2", "421")


def test_a_batch_of_fewer_sequences_than_stages_breaks_the_script() -> None:
    with pytest.raises(InputError, match="divides by zero"):
        script_rows(Cluster(batch=8.0))


def test_bytes_of_the_model() -> None:
    calculation = calculate(Cluster())
    assert calculation.states == {"weight": 140e9, "gradient": 140e9, "optimizer": 560e9}
    # Its sizes of layers make another number of parameters than the one it is given.
    assert shapes_of(Cluster())[1] == pytest.approx(65.5e9, rel=1e-3)


def test_volumes() -> None:
    pure, _, two, four = calculate(Cluster()).rows
    assert pure.volumes["dp"] == pytest.approx(2 * 63 / 64 * 140e9)
    assert pure.volumes["tp"] == pure.volumes["pp"] == 0.0
    # What all stages and replicas of a tensor-parallel group send is the same however it is cut.
    assert two.volumes["tp"] == pytest.approx(four.volumes["tp"])
    # Gradients are divided among tensor-parallel ranks, too.
    assert four.volumes["dp"] == pytest.approx(2 * 1 / 2 * 140e9 / 32)
    # Activations forward and gradients backward, a stage between: each micro-batch's eighth.
    piece = 4096 * 8192 * 2 / 8
    assert two.volumes["pp"] == pytest.approx(128 * piece)
    assert four.volumes["pp"] == pytest.approx(2 * 256 * piece)


def test_bubbles() -> None:
    bubbles = [row.bubble for row in calculate(Cluster()).rows]
    assert bubbles == pytest.approx([0.0, 0.0, 1 / (128 + 1), 3 / (256 + 3)])


@pytest.mark.parametrize(("threshold", "fits"), [(0.9, 2), (0.3, 0), (0.33, 1), (0.66, 2)])
def test_the_threshold_decides(threshold: float, fits: int) -> None:
    calculation = calculate(Cluster(threshold=threshold))
    assert sum(row.fits for row in calculation.rows) == fits
    assert (calculation.recommended is None) == (fits == 0)


def test_gpus_dont_vanish() -> None:
    calculation = calculate(Cluster(gpus=48, batch=504))
    reasons = {(row.tp, row.pp): row.reasons for row in calculation.rows}
    assert reasons[8, 2] == ()
    assert "number of GPUs" in " ".join(reasons[8, 4])


def test_experts_are_sharded() -> None:
    cluster = Cluster(experts=64)
    calculation = calculate(cluster)
    assert {row.ep for row in calculation.rows} == {8}
    pure = calculation.rows[0]
    # Eight of 64 experts on a GPU: not 64, and not 840 GB.
    assert pure.memory < 0.5 * 840e9
    assert pure.volumes["ep"] > 0.0
    assert calculation.rows[1].memory == pytest.approx(105e9, rel=0.01)


@pytest.mark.parametrize("wrong", examples(__file__, "numbers_that_cant_be_are_faults"))
def test_numbers_that_cant_be_are_faults(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        calculate(Cluster(**wrong))


# The command.


@pytest.mark.thorough
def test_without_arguments_it_prints_the_example(cli: Runner) -> None:
    out = cli("plan").out
    assert "840 GB" in out
    assert "yes (rec)" in out
    assert "recommended: TP=8, PP=4, DP=2" in out


@pytest.mark.parametrize(
    "line",
    [
        "-p 70 -g 64 -m 80 -b 512 -s 4096",
        "--params 70e9 --gpus 64 --memory 80e9 --batch-size 512 --seq-len 4096",
        "--parameters 70 --num-gpus 64 --memory 80GB --global-batch 512 --seq-length 4096",
    ],
)
def test_all_spellings_say_the_same(cli: Runner, line: str) -> None:
    rows = cli(f"plan {line} --json").records
    assert [row["per_gpu_memory_bytes"] for row in rows] == [840e9, 105e9, 52.5e9, 26.25e9]
    assert [row["recommended"] for row in rows] == [False, False, False, True]
    named = cli(f"plan {line} --csv").rows
    assert [row["strategy"] for row in named] == [
        "Pure DP",
        "TP=8, DP=8",
        "TP=8, PP=2",
        "TP=8, PP=4",
    ]


def test_it_says_how_it_read_short_numbers(cli: Runner) -> None:
    out = cli("plan -p 70 -m 80e9").out
    assert "-p 70 is read as 70 billion parameters" in out
    assert "-m 80e9 is read as 80 GB" in out


def test_several_values_make_one_table(cli: Runner) -> None:
    out = cli("plan -p 7,70 -g 64,128").out
    assert out.count("strategy  ") == 1
    lines = [line.split() for line in out.splitlines() if "yes (rec)" in line]
    assert [line[:5] for line in lines] == [
        ["7", "billion", "64", "TP=8,", "PP=2"],
        ["7", "billion", "128", "TP=8,", "PP=2"],
        ["70", "billion", "64", "TP=8,", "PP=4"],
        ["70", "billion", "128", "TP=8,", "PP=4"],
    ]
    rows = cli("plan -p 7,70 -g 64,128 --csv").rows
    asked = dict.fromkeys((row["parameters"], row["world_size"]) for row in rows)
    assert list(asked) == [
        ("7000000000.0", "64"),
        ("7000000000.0", "128"),
        ("70000000000.0", "64"),
        ("70000000000.0", "128"),
    ]


@pytest.mark.thorough
def test_notes_on_experts(cli: Runner) -> None:
    out = cli("plan --moe").out
    assert "8 of 64 experts" in out
    assert "2 of 16 experts" in cli("plan --moe --num-experts 16").out


def test_nothing_fits(cli: Runner) -> None:
    ran = cli("plan -p 3000", fine=False)
    assert ran.code == 1
    assert "recommended: none" in ran.out
    assert "nearest: TP=8, PP=4" in ran.out


@pytest.mark.thorough
def test_the_command_lays_the_script_beside_ours(cli: Runner) -> None:
    out = cli("plan --script").out
    assert "recommended: TP=2, PP=16, DP=2" in out
    assert "memory 43.2 GB; 421.07 GB sent in a step" in out
    rows = cli("plan --script --json").records
    assert len(rows) == 19
    (best,) = (row for row in rows if row["recommended"])
    assert (best["tp"], best["pp"], best["dp"]) == (2, 16, 2)
    assert best["script_memory_bytes"] == pytest.approx(43.21e9, rel=1e-3)
    assert best["per_gpu_memory_bytes"] == pytest.approx(26.25e9)
    assert "whose bytes are others, recommends TP=2, PP=16, DP=2: see --compare-script" in " ".join(
        cli("plan --params 70").out.split()
    )
    assert "--script" in cli.refused("plan --model llama3-8b --script")


@pytest.mark.thorough
def test_shapes_that_make_another_number_are_told(cli: Runner) -> None:
    out = " ".join(cli("plan --params 70 --hidden-size 4096 --layers 64").out.split())
    assert "the sizes given make 13.4 billion parameters, not 70" in out


@pytest.mark.thorough
def test_sizes_are_honoured(cli: Runner) -> None:
    plain = cli("plan --params 70 --json").records
    ffn = cli("plan --params 70 --vocab-size 32000 --ffn-size 8192 --heads 32").out
    assert "make 32.5 billion parameters" in " ".join(ffn.split())
    bytes_ = cli("plan --params 70 --optimizer-bytes 4 --gradient-bytes 4 --json").records
    assert bytes_[0]["per_gpu_memory_bytes"] == pytest.approx(70e9 * (2 + 4 + 4))
    assert plain[0]["per_gpu_memory_bytes"] == pytest.approx(70e9 * 12)
    nodes = cli("plan --params 70 --gpus-per-node 4 --json").records
    assert [row["tp"] for row in nodes] == [1, 4, 4, 4]
    top = cli("plan --params 70 --moe --num-experts 8 --top-k 2 --json").records
    records = cli("plan --params 70 --moe --num-experts 8 --json").records
    assert top[1]["ep_volume_bytes"] == pytest.approx(2.0 * records[1]["ep_volume_bytes"])


@pytest.mark.thorough
def test_the_planner_plans_on_the_calculators_sizes(cli: Runner) -> None:
    shapes = (
        "--hidden-size 8192 --layers 80 --heads 64 --vocabulary-size 128000 --ffn-size 32768 "
        "--gated off --tied-embeddings on"
    )
    options = "--gpus 64 --memory 80 --tp 4,8 --pp 2 --cp 1 --inter-bandwidth '25 GB/s'"
    out = " ".join(cli(f"plan --params 70 {options}").out.split())
    assert "80 layers, hidden size 8192, 64 heads, FFN 32768, vocabulary 128000" in out
    assert "these make 65.47 billion parameters, not 70: memory and time are of the sizes" in out
    records = cli(f"plan --params 70 {options} --json").records
    assert records == cli(f"plan {shapes} {options} --json").records
    assert {row["tp"] for row in records} == {4, 8}
    smaller = cli("plan --params 13 --hidden-size 4096 --layers 64 --gpus 8 --objective memory")
    told = " ".join(smaller.out.split())
    assert "64 layers, hidden size 4096" in told
    assert "these make 13.41 billion parameters, not 13: " in told
    line = "plan --params 70 --moe --num-experts 8 --top-k 2 --pp 2 --tp 4 --cp 1"
    experts = " ".join(cli(line).out.split())
    assert "experts in every layer, 4527 wide, 2 for each token" in experts
    assert "these make" not in experts
    # The calculator itself says what it finds.
    plain = " ".join(cli("plan --params 70").out.split())
    assert "of all plans of its sizes (65.47 billion parameters) the best is tp 8, pp 1" in plain


@pytest.mark.thorough
def test_experts_that_nothing_divides(cli: Runner) -> None:
    out = " ".join(cli("plan --params 70 --moe --num-experts 7", fine=False).out.split())
    assert "no part of 7 experts divides TP x DP" in out
    assert "invented, so that there are so many parameters" in out


@pytest.mark.thorough
def test_gpus_that_no_row_divides_say_so(cli: Runner) -> None:
    out = cli("plan --params 70 --gpus 60", fine=False).out
    assert "for 60 GPUs leave no rows whose degrees make up all GPUs" in out
    assert "no row fits into" not in out
    part = cli("plan --params 2 --gpus 6 -b 60", fine=False).out
    assert "whole nodes" not in part
    assert "recommended: TP=1, PP=1, DP=6" in part


def test_a_mixtures_bubble_is_that_of_even_stages(cli: Runner) -> None:
    """(pp - 1)/m of the ideal time, as without experts: of their layers' times nothing is known."""
    line = "plan --params 70 --gpus 64 --memory 80 --batch-size 512 --seq-len 4096 --json"
    for more in ("", " --moe --num-experts 64"):
        rows = cli(line + more).records
        assert [row["pp"] for row in rows] == [1, 1, 2, 4]
        for row in rows:
            over_ideal = (row["pp"] - 1) * row["dp"] / 512
            assert row["bubble_fraction"] == pytest.approx(over_ideal / (1.0 + over_ideal))
