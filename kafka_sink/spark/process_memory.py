"""What Spark's Python processes keep from one task to the next: freed memory, and objects that no collection looks at.

Freed memory: Spark's rows are read into some megabytes of fresh memory per Arrow batch, which are freed once they are
encoded. With its own limits glibc returns them to the kernel each time, and the kernel clears them again, page by page:
a page fault per 4 KiB of rows, a fifteenth of Python's CPU with rows of 1000 bytes. A library must not change the
allocator of its user's process; this is called by tasks only. A C library without these parameters (musl, macOS) is
left as it is.

Objects: PySpark's daemon calls `gc.collect()` each time a worker is reused. With pyspark, numpy and pyarrow loaded that
scans 60,000 permanent objects: 20 to 60 ms after each task, planning and commit, which is most of what such a process
does between small pieces of work. `gc.freeze()` excludes live objects from collection.

Frozen objects are never collected, so only permanent ones should be frozen. The number of modules is the criterion:
while it grows the process is still loading, and once it is unchanged nothing is frozen again. Temporary objects alive
at that time (Spark's functions have reference cycles) are frozen as well. That happens a few times per process; in case
user code keeps loading modules, everything is unfrozen and collected once in `RENEWED_AFTER` pieces of work. Reference
counting is not affected: only cycles are kept.

Assumption: the daemon collects between two pieces of work and not during one (`pyspark/daemon.py`), so that little
garbage exists when the next one begins. Without that call freezing would be useless but harmless.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import cache

# Free memory at the end of an arena is kept up to this size, and smaller pieces are not mapped one by one: enough for
# the two Arrow batches of `read_ahead`. It is the largest limit for mapped pieces that every glibc accepts.
KEPT_BYTES = 1 << 25
# Whoever has set one of these limits has made the choice.
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
TUNABLES = ("glibc.malloc.trim_threshold", "glibc.malloc.mmap_threshold")
# Parameters of mallopt(), from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
RENEWED_AFTER = 1000


@cache
def keep_freed_memory() -> None:
    """Once per process: the limits are the process's."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if any(name in os.environ for name in SETTINGS) or any(name in tunables for name in TUNABLES):
        return
    # Loaded already, by numpy.
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, KEPT_BYTES)


class LastingHeap:
    def __init__(self) -> None:
        self._module_count = 0
        self._begun_count = 0

    def on_work_begin(self) -> None:
        """Call when a task, planning or a commit begins, after its imports."""
        self._begun_count += 1
        if self._begun_count % RENEWED_AFTER == 0:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        elif len(sys.modules) != self._module_count:
            gc.freeze()
        self._module_count = len(sys.modules)


# The heap of this process. A forked child continues with its parent's, which it inherits.
HEAP = LastingHeap()
