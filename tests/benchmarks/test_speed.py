"""Speed of the engine, as ratios to what the machine can do, in one run.

What numpy's passes allow, by a warm fill of 0.5 GB (27 GB/s), in blocks of 1 MiB that stay in
cache: one product of two open arrays 2.0 fills, a sum onto it 2.4, a third step 2.8. A time is a
product and a sum, so that the bare kernel can't be at 1.5. The best of 7 such times by 7 fills, by
hand: 1.95, and 2.8 with which it is, which needs a comparison and a masked copy each.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sweeps.engine.program import Program
from sweeps.spec.axis import Axis
from tests.benchmarks.conftest import best_of, raw_file

Ratio = Callable[[str, float, float, str], None]
LABELS = {
    "collective": "all_reduce",
    "topology": "switch",
    "algorithm": "ring",
    "latency_per": "hop",
    "link": "auto",
    "hardware": "none",
}
CONSTANTS = {"gpus_per_node": 8.0, "intra_nvls": 0.0, "intra_inc": 0.0, "inter_inc": 0.0}


def axis(name: str, values: np.ndarray) -> Axis:
    """Return an axis of one column."""
    return Axis(name, {name: values})


def grid(ranks: int, sizes: int, latencies: int, bandwidths: int) -> list[Axis]:
    """Return axes of so many values each."""
    return [
        axis("ranks", np.arange(2.0, 2.0 + ranks)),
        axis("message_bytes", np.geomspace(1e3, 1e10, sizes)),
        axis("latency", np.linspace(1e-6, 1e-5, latencies)),
        axis("bandwidth", np.geomspace(1e9, 1e12, bandwidths)),
    ]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("10^7 cells", (10, 1000, 10, 100)),
        ("10^8 cells", (50, 1000, 20, 100)),
        ("10^7 cells, one latency", (100, 1000, 1, 100)),
    ],
)
def test_ring_all_reduce(
    benchmark: object, ratio: Ratio, name: str, shape: tuple[int, int, int, int]
) -> None:
    plan = Program(grid(*shape), CONSTANTS, LABELS, ["time"])
    out = np.ones(plan.grid.shape)
    work = lambda: plan.fill({"time": out})  # noqa: E731
    fill, spent = best_of(5, lambda: out.fill(2.0), work)
    ratio(f"ring all_reduce by fill, {name}", spent / fill, 2.5, f"{out.size / spent:.3g} cells/s")
    benchmark.pedantic(work, rounds=3)  # type: ignore[attr-defined]


def test_best_of_algorithms(benchmark: object, ratio: Ratio) -> None:
    axes = grid(1, 1000, 10, 100)[1:]
    shapes = Axis(
        "ranks",
        {
            "ranks": np.array([4.0, 8.0, 16.0, 32.0, 64.0]),
            "mesh_nx": np.array([2.0, 4.0, 4.0, 8.0, 8.0]),
            "mesh_ny": np.array([2.0, 2.0, 4.0, 4.0, 8.0]),
            "mesh_nz": np.ones(5),
        },
    )
    constants = {**CONSTANTS, "hops": 1.0, "chunks": 16.0}
    labels = {**LABELS, "algorithm": "auto", "topology": "torus"}
    plan = Program([*axes, shapes], constants, labels, ["time", "chosen_algorithm"])
    count = len(plan.algorithms())
    out = np.ones(plan.shape(plan.variables[0]))
    code = np.ones(out.shape, dtype=np.int32)
    work = lambda: plan.fill({"time": out, "chosen_algorithm": code})  # noqa: E731
    bare = Program([*axes, shapes], constants, labels, ["time"])
    alone = lambda: bare.fill({"time": out})  # noqa: E731
    fill, spent, least = best_of(4, lambda: out.fill(2.0), work, alone)
    note = f"best of {count}, {out.size:.2g} cells"
    ratio("best of k all_reduce by k fills", least / fill / count, 2.5, note)
    ratio("the same, with which it is", spent / fill / count, 2.5, note)
    benchmark.pedantic(work, rounds=2)  # type: ignore[attr-defined]


def test_quickstart(benchmark: object, ratio: Ratio) -> None:
    from sweeps.job import prepare
    from sweeps.spec.catalog import find_sweep
    from sweeps.spec.sweep import load_sweep

    sweep, text = load_sweep(find_sweep("quickstart"))

    def work() -> None:
        prepare(sweep, text=text).program.evaluate()

    (spent,) = best_of(3, work)
    ratio("quickstart, evaluation (seconds)", spent, 1.0, "")
    benchmark.pedantic(work, rounds=2)  # type: ignore[attr-defined]


def peak_memory() -> float:
    """Return this process' peak memory in MiB (ru_maxrss would count the parent's too)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def streamed(cells: int, script: str) -> tuple[float, float]:
    """Run a script in a process of its own; return its seconds and its peak memory in MiB."""
    process = subprocess.run(
        [sys.executable, "-c", script, str(cells)], check=True, capture_output=True, text=True
    )
    seconds, peak = process.stdout.split()
    return float(seconds), float(peak)


REDUCTION = """
import sys, time
import numpy as np
from tests.benchmarks.test_speed import CONSTANTS, LABELS, axis
from sweeps.engine.program import Program
from sweeps.engine.reduce import reducer
from sweeps.spec.reduction import Reduction
count = int(sys.argv[1]) // 10**6  # bandwidths
axes = [axis("ranks", np.arange(2.0, 102.0)), axis("message_bytes", np.geomspace(1e3, 1e10, 1000)),
        axis("latency", np.linspace(1e-6, 1e-5, 10)),
        axis("bandwidth", np.geomspace(1e9, 1e12, count))]
plan = Program(axes, CONSTANTS, LABELS, ["time"])
found = reducer(Reduction("time", "min", ("latency", "bandwidth"), "least"),
                plan.variables[0].dims, plan.grid.sizes,
                {a.name: a.columns[a.name] for a in plan.grid.axes})
start = time.perf_counter()
for block in plan.blocks(["time"]):
    found.update(block.region, block.values)
found.columns({})
from tests.benchmarks.test_speed import peak_memory
print(time.perf_counter() - start, peak_memory())
"""


def test_streamed_reduction(benchmark: object, ratio: Ratio) -> None:
    seconds, peak = streamed(10**9, REDUCTION)
    ratio("10^9 cells into a reduction, peak MiB", peak, 1024, f"{seconds:.1f} s")
    benchmark.pedantic(lambda: streamed(10**7, REDUCTION), rounds=1)  # type: ignore[attr-defined]


def test_streamed_file(benchmark: object, ratio: Ratio, tmp_path: Path) -> None:
    from sweeps.job import prepare
    from sweeps.store.netcdf import write

    spec = {
        "quantities": ["time"],
        "axes": {
            "ranks": "2:101:lin100",
            "message_bytes": "1e3:1e10:log1000",
            "latency": "1e-6:1e-5:lin10",
            "bandwidth": "1e9:1e12:log1000",
        },
        "constants": {"algorithm": "ring"},
    }
    job = prepare(spec)
    raw = np.ones(1 << 24, dtype=np.float64)
    plain = raw_file(tmp_path / "raw", raw, 10**9 // raw.size)

    def work() -> None:
        layout, blocks = job.result()
        write(tmp_path / "sweep.nc", layout, blocks, overwrite=True)

    bare, spent = best_of(2, plain, work)
    note = f"{spent:.1f} s, peak {peak_memory():.0f} MiB of this whole process"
    ratio("10^9 cells streamed to a file by raw bytes", spent / bare, 5.0, note)
    benchmark.pedantic(plain, rounds=1)  # type: ignore[attr-defined]


def command(*args: str) -> Callable[[], object]:
    """Return the work of a whole process."""
    return lambda: subprocess.run([sys.executable, *args], check=True, capture_output=True)


def test_cold_start(benchmark: object, ratio: Ratio) -> None:
    one = command("-m", "sweeps", "collective", "--topology", "ring", "--N", "8", "--M", "1GiB")
    numpy_only = command("-c", "import numpy")
    help_only = command("-m", "sweeps", "--help")
    cold, bare, helped = best_of(7, one, numpy_only, help_only)
    ratio("sweeps collective by import numpy", cold / bare, 3.0, f"{cold:.3f} s")
    ratio("sweeps --help (seconds)", helped, 0.1, "")
    benchmark.pedantic(one, rounds=2)  # type: ignore[attr-defined]


def test_axes_cost_nothing(benchmark: object, ratio: Ratio) -> None:
    """A sweep costs what its largest variable costs, not its number of axes."""
    few = Program(grid(10, 1000, 10, 100), CONSTANTS, LABELS, ["time"])
    more = [axis(f"mesh_n{x}", np.array([1.0, 2.0, 4.0])) for x in "xyz"]
    many = Program([*grid(10, 1000, 10, 100), *more], CONSTANTS, LABELS, ["time"])
    assert few.variables[0].dims == many.variables[0].dims
    out = np.ones(few.shape(few.variables[0]))
    one, other = best_of(5, lambda: few.fill({"time": out}), lambda: many.fill({"time": out}))
    ratio("three idle axes more, by none", other / one, 1.2, "")
    benchmark.pedantic(lambda: few.fill({"time": out}), rounds=2)  # type: ignore[attr-defined]
