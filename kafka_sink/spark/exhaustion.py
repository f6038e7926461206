"""A task whose process has no memory or no thread left: Python's own words name neither the limit nor what to do next.

Spark limits its Python workers by their address space (`spark.executor.pyspark.memory`). Libraries and threads take far
more of that than of memory, so a limit can be reached by a process that uses half of it.
"""

from __future__ import annotations

from contextlib import suppress

from kafka_sink.errors import OutOfMemory

# All that CPython says of a thread that the operating system refuses.
NO_THREAD = "can't start new thread"
MEBIBYTE = 1024 * 1024


def exhaustion_error(error: BaseException) -> OutOfMemory | None:
    """None: it is another error. What ended the sender thread is the cause of the error that the task sees."""
    for one in (error, error.__cause__):
        if isinstance(one, MemoryError):
            return OutOfMemory(f"this task's Python process has no memory left{_in_brackets(str(one))}{_limit_text()}")
        if isinstance(one, RuntimeError) and NO_THREAD in str(one):
            return OutOfMemory(f"this task's Python process cannot start a thread{_limit_text()}")
    return None


def _in_brackets(detail: str) -> str:
    return f" ({detail})" if detail else ""


def _limit_text() -> str:
    with suppress(ImportError):  # Windows has no such limits
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            limit_mib = limit // MEBIBYTE
            return f": its address space is limited to {limit_mib} MiB (spark.executor.pyspark.memory, or ulimit -v)"
    return ""
