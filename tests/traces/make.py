"""Traces made by hand: events, and files in the forms that profilers write."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["GEMM", "NCCL", "OTHER", "call", "kernel", "launched", "step", "write"]

Event = dict[str, Any]

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OTHER = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"


def kernel(name: str, start: float, duration: float, stream: int = 7, **more: Any) -> Event:
    """Return a row of the GPU; `more` are arguments, and ``cat``."""
    category = more.pop("cat", "kernel")
    args = {"device": 0, "stream": stream, "correlation": -1, **more}
    return dict(
        ph="X", cat=category, name=name, pid=0, tid=stream, ts=start, dur=duration, args=args
    )


def call(start: float, correlation: int, thread: int = 1, name: str = "cudaLaunchKernel") -> Event:
    """Return a call of the host that launches something."""
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": name,
        "pid": 9,
        "tid": thread,
        "ts": start,
        "dur": 2,
        "args": {"External id": 1, "correlation": correlation},
    }


def launched(
    name: str, at: float, start: float, duration: float, stream: int, number: int, **more: Any
) -> list[Event]:
    """Return a row of the GPU with its launch."""
    return [call(at, number), kernel(name, start, duration, stream, correlation=number, **more)]


def step(number: int, start: float, duration: float, **more: Any) -> Event:
    """Return a step of the training loop, as the host marks it."""
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{number}",
        "pid": 9,
        "tid": 1,
        "ts": start,
        "dur": duration,
        "args": {},
        **more,
    }


def write(path: Path, events: Sequence[Any], **members: Any) -> Path:
    """Write a trace: an object, gzipped where the name says so."""
    text = json.dumps(
        {"schemaVersion": 1, **members, "traceEvents": list(events), "traceName": "t"}
    )
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path
