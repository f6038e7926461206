"""What Spark shows of an error of this sink: name and message first, without a traceback before them.

Spark's Python workers send the text of an exception to the JVM, by default as Python prints it: a traceback, followed
by the message. The JVM shows that text many times (per attempt of a task, for the query, for the caller). They omit the
traceback if SPARK_HIDE_TRACEBACK is set, which Spark does if spark.sql.execution.pyspark.udf.hideTraceback.enabled is.
A worker ends after sending the exception, so setting the variable at the last moment does not affect other code.
PySpark 4.1 to 4.3 read it like this.

Errors that only a developer can fix keep their traceback, as do all errors of other packages. With logging at DEBUG the
traceback is in the worker's log.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.errors import KafkaSinkError, LocalProtocolError, copy_error, explain_error
from kafka_sink.spark.exhaustion import exhaustion_error

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
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
        if is_spark_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise copy_error(error, explain_error(error)) from None


def is_spark_worker() -> bool:
    """A process that Spark started, and that ends with an exception. Others may start workers, which inherit it."""
    specification = getattr(sys.modules["__main__"], "__spec__", None)
    return specification is not None and specification.name.startswith("pyspark.")
