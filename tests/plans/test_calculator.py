"""The strategy calculator: its table, what it recommends, its options and how they are read."""

from __future__ import annotations

import pytest

from sweeps.errors import InputError
from sweeps.search.calculator import Cluster, calculate, compared, nearest_model
from tests.cli_runner import Runner

# Of the calculator's own table: degrees, GB a GPU, whether it fits.
TABLE = [
    (1, 1, 64, 840.0, False),
    (8, 1, 8, 105.0, False),
    (8, 2, 4, 52.5, True),
    (8, 4, 2, 26.25, True),
]


def test_its_example() -> None:
    found = calculate(Cluster())
    rows = [(row.tp, row.pp, row.dp, row.memory / 1e9, row.fits) for row in found.rows]
    assert rows == [(*row[:3], pytest.approx(row[3]), row[4]) for row in TABLE]
    best = found.recommended
    assert best is not None
    assert (best.tp, best.pp, best.dp) == (8, 4, 2)


def test_over_all_that_it_tries_it_would_take_no_tensor_parallelism() -> None:
    fewest = calculate(Cluster()).fewest
    assert fewest is not None
    assert (fewest.tp, fewest.pp, fewest.dp) == (1, 16, 4)


def test_bytes_of_the_model() -> None:
    found = calculate(Cluster())
    assert found.states == {"weight": 140e9, "gradient": 140e9, "optimizer": 560e9}
    # Its sizes of layers make another number of parameters than the one it is given.
    assert found.derived == pytest.approx(65.5e9, rel=1e-3)


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
    found = calculate(Cluster(threshold=threshold))
    assert sum(row.fits for row in found.rows) == fits
    assert (found.recommended is None) == (fits == 0)


def test_gpus_dont_vanish() -> None:
    found = calculate(Cluster(gpus=48, batch=504))
    reasons = {(row.tp, row.pp): row.reasons for row in found.rows}
    assert reasons[8, 2] == ()
    assert "number of GPUs" in " ".join(reasons[8, 4])
    assert found.fewest is not None
    assert found.fewest.tp * found.fewest.pp * found.fewest.dp == 48


def test_experts_are_sharded() -> None:
    cluster = Cluster(experts=64)
    found = calculate(cluster)
    assert {row.ep for row in found.rows} == {8}
    pure = found.rows[0]
    # Eight of 64 experts on a GPU: not 64, and not 840 GB.
    assert pure.memory < 0.5 * 840e9
    assert pure.volumes["ep"] > 0.0
    assert found.rows[1].memory == pytest.approx(105e9, rel=0.01)


def test_notes_on_experts_come_from_numbers() -> None:
    notes = compared(Cluster(experts=64))
    assert (notes.forward, notes.backward) == (2.0, 2.0)
    assert notes.ranks == 8
    # A token's activation to its one expert, split along the sequence.
    assert notes.message == pytest.approx(4096 * 8192 * 2 / 8)
    # Slices of experts are worse matrices than whole ones.
    assert notes.sliced > notes.whole > 0.0


def test_the_nearest_model() -> None:
    assert nearest_model(70e9, routed=False) == ("llama3-70b", pytest.approx(70.55e9, rel=1e-3))
    name, _ = nearest_model(46e9, routed=True) or ("", 0.0)
    assert name == "mixtral-8x7b"
    assert nearest_model(1e15, routed=False) is None


@pytest.mark.parametrize("wrong", [{"parameters": 0.0}, {"gpus": 0}, {"memory": -1.0},
                                   {"batch": 0.0}, {"experts": 64, "parameters": 1e9}])  # fmt: skip
def test_numbers_that_cant_be_are_faults(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        calculate(Cluster(**wrong))


# The command.


@pytest.fixture
def sweeps(capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capsys)


def test_without_arguments_it_prints_the_example(sweeps: Runner) -> None:
    out = sweeps("plan").out
    assert "840 GB" in out
    assert "yes (rec)" in out
    assert "recommended: TP=8, PP=4, DP=2" in out
    assert "TP=1, PP=16, DP=4" in out


@pytest.mark.parametrize(
    "line",
    [
        "-p 70 -g 64 -m 80 -b 512 -s 4096",
        "--params 70e9 --gpus 64 --memory 80e9 --batch-size 512 --seq-len 4096",
        "--parameters 70 --num-gpus 64 --memory 80GB --global-batch 512 --seq-length 4096",
    ],
)
def test_all_spellings_say_the_same(sweeps: Runner, line: str) -> None:
    rows = sweeps(f"plan {line} --json").records
    assert [row["per_gpu_memory_bytes"] for row in rows] == [840e9, 105e9, 52.5e9, 26.25e9]
    assert [row["recommended"] for row in rows] == [False, False, False, True]
    named = sweeps(f"plan {line} --csv").rows
    assert [row["strategy"] for row in named] == [
        "Pure DP", "TP=8, DP=8", "TP=8, PP=2", "TP=8, PP=4",
    ]  # fmt: skip


def test_it_says_how_it_read_short_numbers(sweeps: Runner) -> None:
    out = sweeps("plan -p 70 -m 80e9").out
    assert "--params 70 is read as 70 billion parameters" in out
    assert "--memory 80e9 is read as 8e+10 bytes" in out


def test_several_values_make_several_tables(sweeps: Runner) -> None:
    rows = sweeps("plan -p 7,70 -g 64,128 --csv").rows
    asked = dict.fromkeys((row["parameters"], row["world_size"]) for row in rows)
    assert list(asked) == [("7000000000.0", "64"), ("7000000000.0", "128"),
                           ("70000000000.0", "64"), ("70000000000.0", "128")]  # fmt: skip


def test_notes_on_experts(sweeps: Runner) -> None:
    out = sweeps("plan --moe").out
    assert "8 of 64 experts" in out
    assert "2 all-to-alls" in out
    assert "so EP for the experts" in out
    assert "2 of 16 experts" in sweeps("plan --moe --num-experts 16").out


def test_nothing_fits(sweeps: Runner) -> None:
    ran = sweeps("plan -p 3000", fine=False)
    assert ran.code == 1
    assert "recommended: none" in ran.out
    assert "nearest: TP=8, PP=4" in ran.out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-p 70 --zero-stage 1", "--zero-stage = '1': needs a model's shapes"),
        ("-p 70 --explain tp=8", "--explain = 'tp=8': needs a model's shapes"),
        ("-p seventy", "--params = 'seventy'"),
        ("-g 6.5", "--gpus"),
        ("--memory-threshold 2", "a share of the memory"),
        ("--moe --num-experts 1", "--num-experts = '1'"),
        ("-p 1 --moe", "leave nothing for experts"),
    ],
)
def test_bad_input(sweeps: Runner, line: str, told: str) -> None:
    ran = sweeps(f"plan {line}", fine=False)
    assert ran.code == 2
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1
