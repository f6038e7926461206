"""Folders of Spark's: for files passed with --files, which options may name without their folder; for data that all
Python processes of an application on one machine share; and the checkpoint of a query.

Spark names the second one in SPARK_LOCAL_DIRS, for every Python process that it starts, over Spark Connect as well. In
any other process that variable is an operator's setting for all applications. A driver process of the user's asks its
JVM instead, once per SparkContext: so both have the same folder, where `sink_metrics` looks, too.

A forked child has its parent's SparkContext, whose connections it must not use. It has the folder that its parent knew.

A client of Spark Connect has no folder: nothing that it writes is on the driver's host.
"""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafka_sink.commit.location import read_location
from kafka_sink.options.host.files import OWN_FOLDER, add_search_folder
from kafka_sink.spark.process import is_sparks

if TYPE_CHECKING:
    from pyspark import SparkContext

LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"


class _Known(NamedTuple):
    """`folder` None: only the parent of this process may ask for it."""

    context: weakref.ref[SparkContext]
    folder: str | None
    is_parents: bool = False


_known: _Known | None = None


def look_in_spark_files() -> None:
    """Call before connecting from inside Spark; once is enough."""
    add_search_folder(spark_folder)


def spark_folder() -> str | None:
    if not is_sparks() and _context_to_ask() is None:
        return None
    try:
        from pyspark import SparkFiles  # a client of Spark Connect alone has none

        return SparkFiles.getRootDirectory() or None
    except Exception:
        # This is neither a worker nor a process with a SparkContext (what Python raises then depends on its -O), or the
        # JVM has just ended, which py4j tells in several ways. The caller is in the middle of connecting.
        return None


def local_folder(location: str | None) -> Path | None:
    """Of a location that an option names. None: it is in another file system than this process's."""
    scheme, _, path = read_location(location or "")
    return None if scheme or not path else Path(path)


def application_folder() -> str | None:
    """This package's folder. It may not exist; Spark deletes it with the application. None: there is none."""
    if is_sparks():
        local_folder = os.environ.get(LOCAL_FOLDERS, "").split(",")[0]
        return os.path.join(local_folder, OWN_FOLDER) if local_folder else None
    return _folder_of_driver()


def _folder_of_driver() -> str | None:
    global _known
    known, context = _known, _active_context()
    if context is None:
        return None
    if known is not None and known.context() is context:
        return known.folder
    from kafka_sink.telemetry.metrics.application import folder_of_jvm  # not for Spark's processes

    try:
        folder = folder_of_jvm(context._jvm)
    except Exception:  # py4j's: the JVM or its application has just ended, and no write may fail because of a folder
        return None
    if folder is not None:
        _known = _Known(weakref.ref(context), folder)
    return folder


def _active_context() -> SparkContext | None:
    module = sys.modules.get("pyspark")  # a process that has not imported it has no context
    context_type = getattr(module, "SparkContext", None)  # a client of Spark Connect alone has none
    return None if context_type is None else context_type._active_spark_context


def _context_to_ask() -> SparkContext | None:
    known, context = _known, _active_context()
    is_parents = known is not None and known.is_parents and known.context() is context
    return None if is_parents else context


def _after_fork_in_child() -> None:
    global _known
    context = _active_context()
    if context is not None:
        folder = _known.folder if _known is not None and _known.context() is context else None
        _known = _Known(weakref.ref(context), folder, is_parents=True)


os.register_at_fork(after_in_child=_after_fork_in_child)
