"""Excludes long-lived objects from garbage collection.

PySpark's daemon calls `gc.collect()` each time a worker is reused. With pyspark, numpy and pyarrow loaded that scans
60,000 permanent objects: 20 to 60 ms after each task, planning and commit, which is most of what such a process does
between small pieces of work. `gc.freeze()` excludes live objects from collection.

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
import sys

RENEWED_AFTER = 1000


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
