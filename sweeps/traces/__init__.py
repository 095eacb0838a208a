"""Profiler traces: what a GPU did, what hid behind what, and what it waited for.

>>> from sweeps.traces import analyse, read_trace
>>> overlap = analyse(read_trace("rank0.json.gz"))  # doctest: +SKIP
>>> overlap.of_communication, overlap.exposed  # doctest: +SKIP
"""

from sweeps.traces.overlap import Kernel, Overlap, analyse, kernels_of
from sweeps.traces.patterns import Patterns, load_patterns
from sweeps.traces.ranks import Ranks, analyse_files, split_devices
from sweeps.traces.reader import read_trace
from sweeps.traces.skew import Skew, skew_of
from sweeps.traces.trace import Trace

__all__ = [
    "Kernel",
    "Overlap",
    "Patterns",
    "Ranks",
    "Skew",
    "Trace",
    "analyse",
    "analyse_files",
    "kernels_of",
    "load_patterns",
    "read_trace",
    "skew_of",
    "split_devices",
]
