"""Profiler traces: what a GPU did, what hid behind what, and what it waited for.

>>> from sweeps.traces.overlap import analyse
>>> from sweeps.traces.reader import read_trace
>>> overlap = analyse(read_trace("rank0.json.gz"))  # doctest: +SKIP
>>> overlap.of_communication, overlap.exposed  # doctest: +SKIP
"""
