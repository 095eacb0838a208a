"""Speed and memory of reading profiler traces, as ratios to what the machine can do, in one run."""

import gzip
import io
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweeps.traces.overlap import analyse
from sweeps.traces.reader import read_trace
from tests.benchmarks.conftest import best_of

Ratio = Callable[[str, float, float, str], None]
FOLDER = Path(__file__).parents[1] / "data" / "traces"
CONTROL = FOLDER / "control.json.gz"
HEADER = '{\n  "schemaVersion": 1,\n  "distributedInfo": {"rank": 0},\n  "traceEvents": [\n'
END = '\n  ],\n  "traceName": "made"\n}\n'
NAMES = (
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
)


def launched(number: int, rng: random.Random) -> Iterator[str]:
    """Yield what a profile holds of one kernel: Python and operators, the launch, flows, itself."""
    start = 1365627862757.064 + 20.0 * number
    stream = 20 if number % 50 == 0 else 7
    name = NAMES[0] if stream == 20 else NAMES[1 + number % 2]
    for depth in range(3):
        yield (
            f'  {{\n    "ph": "X", "cat": "python_function", "name": "torch/nn/modules/module.py'
            f'(1773): _call_impl", "pid": 6583, "tid": 6583,\n    "ts": {start + depth:.3f}, '
            f'"dur": {9 - depth}.517,\n    "args": {{\n      "Python id": {number}, '
            f'"Python parent id": {depth}, "Ev Idx": {number}\n    }}\n  }}'
        )
    yield (
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::add_", "pid": 6583, "tid": 6583,\n'
        f'    "ts": {start + 4:.3f}, "dur": 5.120,\n    "args": {{\n      "External id": {number},'
        f'"Record function id": 0, "Ev Idx": {number}\n    }}\n  }}'
    )
    yield (
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 6583, '
        f'"tid": 6583,\n    "ts": {start + 5:.3f}, "dur": 2.114,\n    "args": {{\n      '
        f'"External id": {number}, "cbid": 211, "correlation": {number}\n    }}\n  }}'
    )
    yield (
        f'  {{\n    "ph": "s", "id": {number}, "pid": 6583, "tid": 6583, "ts": {start + 5:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g"\n  }}'
    )
    yield (
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream},\n    '
        f'"ts": {start + 8:.3f}, "dur": {rng.uniform(1.0, 18.0):.3f},\n    "args": {{\n      '
        f'"External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, '
        f'"correlation": {number}, "registers per thread": 96, "shared memory": 103808,\n      '
        f'"blocks per SM": 0.074324, "warps per SM": 1.189189, "grid": [11, 1, 1], '
        f'"block": [512, 1, 1], "est. achieved occupancy %": 0\n    }}\n  }}'
    )


def make_trace(path: Path, nbytes: int) -> None:
    """Write a trace of about so many bytes."""
    rng = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER)
        number = 0
        while file.tell() < nbytes if number % 1000 == 0 else True:
            file.write(",\n" * (number > 0) + ",\n".join(launched(number, rng)))
            number += 1
        file.write(END)


def repeat_traces(path: Path, nbytes: int) -> None:
    """Write the events of two recorded traces, as they were written, until there are enough."""
    bodies = []
    for name in ("control", "nccl_data"):
        text = gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()).decode()
        start = text.index("[", text.index('"traceEvents"'))
        _, end = json.JSONDecoder(strict=False).raw_decode(text, start)
        bodies.append(text[start + 1 : end - 1].strip())
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER + bodies[0])
        number = 1
        while file.tell() < nbytes:
            file.write(",\n  " + bodies[number % len(bodies)])
            number += 1
        file.write(END)


READ = """
import sys, time
from sweeps.traces.overlap import analyse
from sweeps.traces.reader import read_trace
start = time.perf_counter()
analyse(read_trace(sys.argv[1]))
from tests.benchmarks.test_speed import peak_memory
print(time.perf_counter() - start, peak_memory())
"""


def read_alone(path: Path) -> tuple[float, float]:
    """Read and analyse in a process of its own; return its seconds and its peak memory in MiB."""
    process = subprocess.run(
        [sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True
    )
    seconds, peak = process.stdout.split()
    return float(seconds), float(peak)


@pytest.mark.parametrize("megabytes", [100, 1000])
def test_large_trace(benchmark: object, ratio: Ratio, tmp_path: Path, megabytes: int) -> None:
    path = tmp_path / "large.json"
    make_trace(path, megabytes * 10**6)
    seconds, peak = read_alone(path)
    rate = path.stat().st_size / seconds / 1e6
    note = f"{rate:.0f} MB/s, {seconds:.1f} s"
    ratio(f"trace of {megabytes} MB of JSON, peak MiB", peak, 1024, note)
    ratio("30 MB/s by its rate", 30.0 / rate, 1.0, note)
    benchmark.pedantic(lambda: None, rounds=1)  # type: ignore[attr-defined]


def test_real_trace(benchmark: object, ratio: Ratio) -> None:
    """A trace of 1.8 MB gzipped, beside what its JSON takes to unpack and to parse whole."""
    data = CONTROL.read_bytes()

    def plain() -> None:
        json.load(io.BytesIO(gzip.decompress(data)))

    def work() -> None:
        analyse(read_trace(CONTROL))

    bare, spent = best_of(3, plain, work)
    ratio("real trace by json.load", spent / bare, 1.0, f"{spent:.2f} s")
    ratio("real trace of 1.8 MB gzipped (seconds)", spent, 2.0, "")
    benchmark.pedantic(work, rounds=2)  # type: ignore[attr-defined]
