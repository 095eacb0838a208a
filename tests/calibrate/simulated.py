"""Logs as nccl-tests would print them of a machine with known constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sweeps.calibration.model import Model, Rows, bus_factor, machine_for
from tests.tables import keyed

PROGRAMS = keyed(
    "all_reduce=all_reduce_perf all_gather=all_gather_perf reduce_scatter=reduce_scatter_perf "
    "broadcast=broadcast_perf reduce=reduce_perf all_to_all=alltoall_perf p2p=sendrecv_perf"
)
SIZES = tuple(2.0**power for power in range(10, 33))
Group = tuple[str, int, int]  # operation, ranks, nodes


def rows_of_groups(groups: Sequence[Group], sizes: Sequence[float] = SIZES) -> Rows:
    """Return rows of groups over message sizes, without times yet."""
    count = len(sizes)
    each = [(index, *group) for index, group in enumerate(groups) for _ in range(count)]
    return Rows(
        np.array([one[0] for one in each]),
        np.arange(len(each)) + 1,
        np.array([one[1] for one in each]),
        np.array([float(one[2]) for one in each]),
        np.array([float(one[3]) for one in each]),
        np.array([*sizes] * len(groups)),
        np.ones(len(each)),
        np.array(["out-of-place"] * len(each)),
        np.array([""] * len(each)),
        np.array([""] * len(each)),
        np.zeros(len(each)),
    )


def timed(
    groups: Sequence[Group],
    constants: Mapping[str, float],
    hardware: str = "dgx-h100",
    sizes: Sequence[float] = SIZES,
    noise: float = 0.0,
    seed: int = 0,
) -> Rows:
    """Return rows with the times of a machine's profile with other constants, and noise."""
    rows = rows_of_groups(groups, sizes)
    times = Model(rows, machine_for(hardware)).times(constants)
    times *= np.exp(noise * np.random.default_rng(seed).standard_normal(len(rows)))
    return replace(rows, time=times)


def float_text(value: float, width: int) -> str:
    """Write a number as nccl-tests 2.19 does: as many digits as the width has room for."""
    for digits in (2, 1, 0):
        if len(text := f"{value:.{digits}f}") <= width:
            return text.rjust(width)
    return f"{value:{width}.1e}"


def header(operation: str, ranks: int, nodes: int, device: str = "NVIDIA H100 80GB HBM3") -> str:
    """Return the lines above the rows, as version 2.17 prints them."""
    share = ranks // nodes
    lines = [
        "# nccl-tests version 2.17.6 nccl-headers=22803 nccl-library=22803",
        f"# Collective test starting: {PROGRAMS[operation]}",
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 4294967296 step: 2(factor) warmup iters: 5 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on     node{rank // share} "
            f"device {rank % share:2d} [0000:{rank % share:02x}:00] {device}"
            for rank in range(ranks)
        ),
        "#",
        "#                                                              out-of-place"
        "                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong ",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
        "      (us)  (GB/s)  (GB/s)         ",
    ]
    return "\n".join(lines) + "\n"


def row_text(operation: str, ranks: int, size: float, time: float, wrong: int = 0) -> str:
    """Return one row's line: out of place, and in place where that takes 2 % longer."""
    factor = bus_factor(operation, ranks)
    parts = [f"{size:12.0f}  {size / 4:12.0f}  {'float':>8}  {'sum':>6}  {-1:6d}"]
    for seconds in (time, 1.02 * time):
        rate = size / seconds / 1e9
        texts = float_text(seconds * 1e6, 7), float_text(rate, 6), float_text(factor * rate, 6)
        parts.append(f"  {'  '.join(texts)}  {wrong:6d}")
    return "".join(parts) + "\n"


def log_text(rows: Rows, group: Group, number: int = 0) -> str:
    """Return the whole log of one group."""
    operation, ranks, nodes = group
    own = rows.where(rows.case == number)
    lines = [
        row_text(operation, ranks, float(size), float(time))
        for size, time in zip(own.message_bytes, own.time, strict=True)
    ]
    footer = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100 \n#\n"
    return header(operation, ranks, nodes) + "".join(lines) + footer


def write_logs(folder: Path, rows: Rows, groups: Sequence[Group]) -> list[str]:
    """Write a log for each group; return their paths."""
    paths = []
    for index, group in enumerate(groups):
        path = folder / f"{group[0]}-{group[1]}x{group[2]}.log"
        path.write_text(log_text(rows, group, index))
        paths.append(str(path))
    return paths
