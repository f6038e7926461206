"""Lets the C library keep the memory of one Arrow batch for the next one.

Spark's rows are read into some megabytes of fresh memory per Arrow batch, which are freed once they are encoded. With
its own limits glibc returns them to the kernel each time, and the kernel clears them again, page by page: a page fault
per 4 KiB of rows, a fifteenth of Python's CPU with rows of 1000 bytes.

A library must not change the allocator of its user's process. This one is called by tasks only, in Spark's Python
workers. A C library without these parameters (musl, macOS) is left as it is.
"""

from __future__ import annotations

import os

# Free memory at the end of an arena is kept up to this size, and smaller pieces are not mapped one by one: enough for
# the two Arrow batches of `read_ahead`. It is the largest limit for mapped pieces that every glibc accepts.
KEPT_BYTES = 1 << 25
# Whoever has set one of these limits has made the choice.
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
TUNABLES = ("glibc.malloc.trim_threshold", "glibc.malloc.mmap_threshold")
# Parameters of mallopt(), from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """The limits are the process's; setting them again costs twelve microseconds."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if any(name in os.environ for name in SETTINGS) or any(name in tunables for name in TUNABLES):
        return
    # Loaded already, by numpy.
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, KEPT_BYTES)
