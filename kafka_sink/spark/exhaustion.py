"""A process of Spark that is out of memory or threads: Python's message has neither the limit nor advice.

Spark limits its Python workers by their address space (`spark.executor.pyspark.memory`). Libraries and threads use far
more address space than memory, so a process can hit the limit with half that memory.
"""

from __future__ import annotations

from contextlib import suppress

from kafka_sink.errors import OutOfMemory

# CPython's message if the operating system refuses a thread.
NO_THREAD = "can't start new thread"
MEBIBYTE = 1024 * 1024


def exhaustion_error(error: BaseException) -> OutOfMemory | None:
    """None: another error. The error that ended the sender thread is the cause of the one that the task sees."""
    for one in (error, error.__cause__):
        if isinstance(one, MemoryError):
            return OutOfMemory(f"this Python process has no memory left{_in_brackets(str(one))}{_limit_text()}")
        if isinstance(one, RuntimeError) and NO_THREAD in str(one):
            return OutOfMemory(f"this Python process cannot start a thread{_limit_text()}")
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
