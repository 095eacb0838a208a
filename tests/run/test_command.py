"""The command: estimates, options, and what a user sees of blocks."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.asked import recorded
from sweeps.blocks import run
from sweeps.blocks.estimate import Estimate, duration, estimate, limits_for
from sweeps.blocks.run import Assignment, Means, cut_for, here, keeps_blocks
from sweeps.cli.progress import Progress
from sweeps.engine.evaluate import Limits
from sweeps.engine.grid import Block
from sweeps.engine.program import Steps
from sweeps.errors import InputError
from sweeps.job import prepare
from sweeps.spec.units import to_toml
from tests.cli_runner import Runner
from tests.run.sweep import EPOCH, SMALL, large, small
from tests.tables import examples

GIB = 1 << 30
SECONDS_A_CELL = 1e-6


@pytest.fixture
def runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Runner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    spec = {**SMALL, "axes": {**SMALL["axes"], "message_bytes": "1 KiB:1 GiB:log5"}}
    Path("small.toml").write_text(to_toml(spec), encoding="utf-8")
    return Runner(capsys)


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep blocks of this small sweep, a few of them."""
    monkeypatch.setattr(run, "SHORT_SECONDS", 0.0)
    monkeypatch.setattr(run, "MOST_OVERHEAD", 1e9)
    monkeypatch.setattr(run, "PARALLEL_SECONDS", 0.0)
    monkeypatch.setattr(run, "limits_for", lambda *_: Limits(block=10))
    monkeypatch.setattr(run, "cut_for", lambda _, limits, *__: run.Cut(limits, 1))


def test_a_dry_run_says_cells_bytes_and_seconds(runner: Runner) -> None:
    output = runner("run small.toml --dry-run").out
    assert "axis ranks: 4\n" in output
    assert "to compute: " in output
    assert " s on one core" in output
    assert "file: about " in output
    assert not Path("outputs").exists()


@pytest.mark.thorough
def test_killed_resumed_and_by_workers_the_same_bytes(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner("run small.toml --no-plot --output a.nc")
    always(monkeypatch)
    with monkeypatch.context() as patch:

        def some(assignment: Assignment) -> Iterator[int]:
            yield from itertools.islice(here(assignment), 2)
            raise KeyboardInterrupt

        patch.setattr(Means, "pool", lambda _: some)
        done = runner("run small.toml --no-plot --output b.nc", fine=False)
        assert done.code == 130
        assert "--resume" in done.err
    done = runner("run small.toml --no-plot --output b.nc", fine=False)
    assert done.code == 2
    assert "has 2 of" in done.err
    done = runner("run small.toml --no-plot --output b.nc --resume --set title=Other", fine=False)
    assert done.code == 2
    assert "the spec changed" in done.err
    output = runner("run small.toml --no-plot --output b.nc --resume --max-memory 1GiB").out
    assert "wrote b.nc" in output
    runner("run small.toml --no-plot --output c.nc --workers 2")
    assert Path("a.nc").read_bytes() == Path("b.nc").read_bytes() == Path("c.nc").read_bytes()
    assert "every checksum holds" in runner("info b.nc --verify").out
    assert "is complete already" in runner("run small.toml --no-plot --output b.nc --resume").out
    assert not [name for name in Path().iterdir() if name.name.startswith(".")]


@pytest.mark.thorough
def test_own_formulas_travel_to_workers(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Path(__file__).parents[2] / "README.md"
    assert shown.exists()
    always(monkeypatch)
    Path("mine.py").write_text("# nothing is declared here\n", encoding="utf-8")
    output = runner("run small.toml --no-plot --output a.nc --workers 1 --formulas mine.py").out
    assert "wrote a.nc" in output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--workers -1", "--workers -1: isn't allowed; 0 or more processes"),
        ("--workers 2 --scheduler tcp://x:1", "--workers 2: are those of the cluster"),
        ("--format hdf", "--format hdf: is unknown; known: netcdf, zarr"),
    ],
)
def test_options_that_cannot_be(runner: Runner, options: str, said: str) -> None:
    done = runner(f"run small.toml --no-plot {options}", fine=False)
    assert done.code == 2
    assert said in done.err


def test_what_is_recorded_of_a_command_is_what_decides_the_file() -> None:
    given = "run a.toml --workers 2 --output=x.nc --set axes.ranks=8 --resume --compress -v"
    assert recorded(given.split()) == ["run", "a.toml", "--set", "axes.ranks=8", "--compress"]
    assert recorded(["plan", "--plot", "--style", "paper"]) == ["plan"]
    assert recorded(["run", "--output", "--x", "--scheduler", "tcp://h:1"]) == ["run"]


def of(seconds: float, nbytes: int = 0, steps: int = 1000) -> Estimate:
    return Estimate(10**9, nbytes, seconds, steps, nbytes)


def test_what_is_worth_keeping() -> None:
    short, long, bulky = of(5), of(100, GIB), of(5, 100 * GIB)
    assert not keeps_blocks(short, Means())
    assert not keeps_blocks(short, Means(resume=True))
    assert keeps_blocks(short, Means(workers=2))
    assert not keeps_blocks(of(0.5), Means(workers=2))
    assert keeps_blocks(of(0.5), Means(scheduler="tcp://host:8786"))
    assert keeps_blocks(long, Means())
    # Writing takes longer than computing: kept only where that is asked for.
    assert not keeps_blocks(bulky, Means())
    assert keeps_blocks(bulky, Means(resume=True))


def test_how_long_blocks_are() -> None:
    assert cut_for(of(100), Limits(), 1).per_block == 20
    assert cut_for(of(100, 100 * GIB), Limits(), 1).per_block == 1
    assert cut_for(of(1000.0, steps=10), Limits(), 1).per_block == 1
    assert cut_for(of(10.0, steps=160), Limits(), 2).per_block == 10
    assert cut_for(of(0.0, steps=7), Limits(), 1).per_block == 7


def test_durations_for_a_person() -> None:
    given = (0.034, 3.21, 42.3, 150.0, 10_000.0, 10**6)
    said = ["0.034 s", "3.2 s", "42 s", "2.5 min", "2.78 h", "11.6 days"]
    assert [duration(seconds) for seconds in given] == said


def test_an_estimate_is_of_the_right_size(monkeypatch: pytest.MonkeyPatch) -> None:
    original, now = Steps.run, [0.0]

    def slowly(*args: Any) -> Iterator[Block]:
        for block in original(*args):
            now[0] += SECONDS_A_CELL * block.values.size
            yield block

    monkeypatch.setattr(Steps, "run", slowly)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    estimated_time = estimate(large(), Limits(block=50))
    names = {"time", "chosen_algorithm", "steps", "status", "energy"}
    shapes = [large().program.shape(v) for v in large().program.variables if v.name in names]
    import math

    assert estimated_time.cells == sum(map(math.prod, shapes))
    assert estimated_time.seconds == pytest.approx(SECONDS_A_CELL * estimated_time.cells, rel=0.01)


GRIDS: dict[str, dict[str, Any]] = examples(__file__, "grids")


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("limit", [24, 256])
def test_memory_stays_within_the_limit(name: str, limit: int) -> None:
    job = prepare(GRIDS[name])
    limits = limits_for(job, f"{limit} MiB")
    steps = Steps(job.program, job.stored, limits)
    tracemalloc.start()
    try:
        chosen = sorted({*range(min(3, len(steps))), len(steps) // 2, len(steps) - 1})
        for step in chosen:
            for _ in steps.run(step, step + 1):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit * 2**20


@pytest.mark.thorough
def test_memory_that_cannot_suffice() -> None:
    with pytest.raises(InputError, match="--max-memory = '1 kB'"):
        limits_for(small(), "1 kB")
    spec = {
        "quantities": [],
        "axes": {"ranks": "2:1001:lin1000", "message_bytes": "1:1e9:log1000", "latency": [1, 2]},
        "reductions": [{"quantity": "time", "operation": "min", "over": ["latency"]}],
    }
    with pytest.raises(InputError, match="the reductions' results need"):
        limits_for(prepare(spec), "10 MB")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_says_how_long_it_takes(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    line = Progress("computing")
    line(25, 100)
    for index in range(26, 76):
        # What an earlier run has done counts as done, but not as fast: two seconds a part.
        now[0] += 2.0
        line(index, 100)
    line.end()
    output = capsys.readouterr().err
    if terminal:
        assert "\rcomputing:  75 %, 50 s left" in output
        assert output.endswith("\r")
    else:
        assert output.splitlines()[0] == "computing:  40 %, 2 min left"
        assert len(output.splitlines()) == 3
