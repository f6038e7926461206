"""Plays one of Spark's Python processes (planning, a task or a commit) and reports which modules its part has loaded.

Modules that Spark's own worker loads are loaded first and do not count. Standard input holds what the process before it
has handed over, as with Spark; the report holds what goes to the next one. test_spark_imports.py runs it.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

TASK = ("numpy", "pyarrow", "pyspark.worker", "pyspark.sql.datasource")
PLANNING = ("pyspark.sql.worker.lookup_data_sources", "pyspark.sql.worker.write_into_data_source")
COMMIT = ("pyspark.sql.worker.commit_data_source_write",)
STREAM_COMMIT = ("pyspark.sql.worker.python_streaming_sink_runner",)


def plan(given: Any) -> Any:
    from pyspark.sql.types import StructType

    from pyspark_pykafka_sink import DefaultSource

    options, types = given
    schema = StructType()
    for name, kind in types.items():
        schema.add(name, kind)
    return DefaultSource(options).writer(schema, False)


def write(given: Any) -> Any:
    from pyspark import TaskContext

    writer, rows = given
    context = TaskContext._getOrCreate()
    context._partitionId, context._taskAttemptId, context._localProperties = 0, 7, {}
    TaskContext._setTaskContext(context)
    return writer, [writer.write(iter([rows]))]


def commit(given: Any) -> Any:
    writer, messages = given
    writer.commit(messages)
    return messages[0].receipt.row_count


def commit_stream(given: Any) -> Any:
    """For each commit of a stream Spark creates the writer again, so the process of the commit also plans."""
    from pyspark.sql.types import StringType, StructType

    from pyspark_pykafka_sink import DefaultSource

    writer = DefaultSource(given).streamWriter(StructType().add("value", StringType()), False)
    writer.commit([], 0)
    return None


ROLES: Mapping[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "planning": (PLANNING, plan),
    "task": (TASK, write),
    "commit": (COMMIT, commit),
    "stream commit": (STREAM_COMMIT, commit_stream),
}


def main() -> None:
    loaded_by_spark, act = ROLES[sys.argv[1]]
    for name in loaded_by_spark:
        importlib.import_module(name)
    before = set(sys.modules)
    result = act(pickle.load(sys.stdin.buffer))
    loaded = sorted(set(sys.modules) - before)
    print(json.dumps({"loaded": loaded, "result": pickle.dumps(result).hex()}))


if __name__ == "__main__":
    main()
