"""One version of the package per write: what planned a write in one process carries it out in another.

Both find the package by themselves. With an older one in the way on some hosts (an image beside --py-files, a forgotten
zip in PYTHONPATH) rows would be written by other rules than were planned, in silence. So a writer, and what its tasks
tell the commit, are pickled with version and folder, and both are looked at before anything else is unpickled.

The class of the format is not: each process looks it up by its name, and the JVM keeps it over an upgrade.

A release that does not have this module yet cannot compare, but it fails, too: pickle names the module that is missing.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import VERSIONS_DIFFER
from kafka_sink.spark.first_line import explain_to_spark, missing_package_error
from kafka_sink.version import VERSION

FOLDER = os.path.dirname(os.path.dirname(__file__))


class SameVersion:
    """A base class for what Spark pickles."""

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle, (VERSION, FOLDER, pickle.dumps((type(self), self.__dict__)))


def unpickle(version: str, folder: str, pickled: bytes) -> SameVersion:
    """`pickled` is opaque until the versions are known to agree: another one may not have its classes."""
    _check(version, folder)
    try:
        kind, state = pickle.loads(pickled)
    except ImportError as error:
        with explain_to_spark():
            raise missing_package_error(error) from error
    made: SameVersion = kind.__new__(kind)
    made.__dict__.update(state)
    return made


def _check(version: str, folder: str) -> None:
    if version == VERSION:
        return
    advice = (
        "one of the two processes still has the release from before: restart the Spark application (over Connect, the "
        "server)"
        if folder == FOLDER
        else "install the same version on the driver and on every executor, or remove the one that is in the way"
    )
    with explain_to_spark():
        raise ConfigError(
            f"this write was planned by pykafka-sink {version} in {folder}, and this process has pykafka-sink "
            f"{VERSION} in {FOLDER}: {advice}",
            VERSIONS_DIFFER,
        )
