"""Memory that was freed stays with the process, for the next array of a block."""

from __future__ import annotations

import ctypes
from functools import cache

__all__ = ["keep_freed"]

# Of glibc's mallopt: how much free memory is kept, and what size is asked of the system each time.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 128 << 20
LARGE_BYTES = 32 << 20


@cache
def keep_freed() -> None:
    """Let the C library keep freed arrays, once in a process; elsewhere nothing happens.

    Dask starts workers with ``MALLOC_TRIM_THRESHOLD_`` set, so that they give memory back at once:
    then the system has to clear each array of a block anew, which takes longer than to compute it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
