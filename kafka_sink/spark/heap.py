"""Keeps the collector away from what lives as long as its process.

PySpark's daemon calls `gc.collect()` each time a worker is used again. With pyspark, numpy and pyarrow loaded that is a
look at 60,000 objects which will never go: 20 to 60 ms after each task, after each planning and after each commit, most
of what such a process does between small pieces of work. `gc.freeze()` puts what is alive out of the collector's sight.

What is frozen is never collected, so only what stays may be frozen. That is told by the number of modules: while it
grows a process still loads what it needs, and once it has not changed since the last time nothing is frozen again. What
a piece of work itself had alive at such a moment (Spark's functions refer to each other in circles) is frozen with it.
That happens a few times per process; should some user's code load modules for ever, everything is looked at once in
`RENEWED_AFTER` pieces of work, and what has become garbage goes. Reference counts work as ever: only circles wait.

Rests on: the daemon collects between two pieces of work and not while one runs (`pyspark/daemon.py`), so that little
garbage is alive where the next one begins. Were that call gone, freezing would be of no use and do no harm.
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
        """To be called where a task, planning or a commit begins, behind its imports."""
        self._begun_count += 1
        if self._begun_count % RENEWED_AFTER == 0:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        elif len(sys.modules) != self._module_count:
            gc.freeze()
        self._module_count = len(sys.modules)


# The one heap of this process. A forked child goes on with its parent's, which it has in full.
HEAP = LastingHeap()
