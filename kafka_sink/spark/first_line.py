"""What Spark shows of an error of this sink: name and message first, without a traceback before them.

Spark's Python workers send the text of an exception to the JVM, by default as Python prints it: a traceback, followed
by the message. The JVM shows that text many times (per attempt of a task, for the query, for the caller). They omit the
traceback if SPARK_HIDE_TRACEBACK is set, which Spark does if spark.sql.execution.pyspark.udf.hideTraceback.enabled is.
A worker ends after sending the exception, so setting the variable at the last moment does not affect other code.
PySpark 4.0 to 4.3 read it like this. It is not set in a process that goes on, where it would change the errors of other
code, and of processes started there: a user's own one, or a worker of Spark Connect for foreachBatch.

Errors that only a developer can fix keep their traceback, as do all errors of other packages. With logging at DEBUG the
traceback is in the worker's log.

A process that is out of memory or threads gets an error with the limit and advice, which Python's has not. Spark limits
its Python workers by their address space (`spark.executor.pyspark.memory`). Libraries and threads use far more address
space than memory, so a process can hit the limit with half that memory.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kafka_sink.errors import ConfigError, KafkaSinkError, LocalProtocolError, OutOfMemory, copy_error, explain_error
from kafka_sink.errors.table.writes import INTERPRETER_WITHOUT_PACKAGE
from kafka_sink.spark.process import ends_with_exception

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
# CPython's message if the operating system refuses a thread.
NO_THREAD = "can't start new thread"
MEBIBYTE = 1024 * 1024
_LOGGER = logging.getLogger("kafka_sink")


@contextmanager
def explain_to_spark() -> Iterator[None]:
    """Wrap everything that Spark calls."""
    try:
        yield
    except (KafkaSinkError, MemoryError, RuntimeError) as raised:
        # Also while modules are loaded, where a limit of memory strikes first.
        error = raised if isinstance(raised, KafkaSinkError) else exhaustion_error(raised)
        if error is None:
            raise
        _LOGGER.debug("this error goes to Spark", exc_info=True)
        if isinstance(error, LocalProtocolError):
            raise copy_error(error, explain_error(error)) from raised
        if ends_with_exception():
            os.environ[HIDE_TRACEBACK] = "1"
        raise copy_error(error, explain_error(error)) from None


def missing_package_error(error: ImportError) -> ConfigError:
    """Of a process that Spark started with another interpreter than the user's."""
    return ConfigError(
        f"Spark runs {sys.executable}, where pykafka-sink cannot be loaded: {error}. Install pykafka-sink there, or "
        "set PYSPARK_PYTHON (spark.pyspark.python) to the interpreter that has it, on the driver and on each executor",
        INTERPRETER_WITHOUT_PACKAGE,
    )


def exhaustion_error(error: BaseException) -> OutOfMemory | None:
    """None: another error. The error that ended the sender thread is the cause of the one that the task sees."""
    for one in (error, error.__cause__):
        if isinstance(one, MemoryError):
            detail = f" ({one})" if str(one) else ""
            return OutOfMemory(f"this Python process has no memory left{detail}{_limit_text()}")
        if isinstance(one, RuntimeError) and NO_THREAD in str(one):
            return OutOfMemory(f"this Python process cannot start a thread{_limit_text()}")
    return None


def _limit_text() -> str:
    with suppress(ImportError):  # Windows has no such limits
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            limit_mib = limit // MEBIBYTE
            return f": its address space is limited to {limit_mib} MiB (spark.executor.pyspark.memory, or ulimit -v)"
    return ""
