"""The continuous trigger is refused. Spark starts such a query, never calls `write`, drops the rows, and every second
calls commit for an epoch whose messages are all None (seen on PySpark 4.0 to 4.3).

Spark does not pass the trigger to planning. But a query writes `metadata` into its checkpoint when it starts; a
micro-batch is written into the folder `offsets` before it is planned, and an epoch only after it has ended. So a query
whose checkpoint is readable and has no batch is a continuous one, and fails at its start. If that cannot be determined
(the checkpoint is not on this machine, or has earlier batches), the first commit raises. Spark then logs the text and
the query makes no progress: no epoch is ever committed.

Real-time triggers never get here: Spark refuses them for a sink that is not on its list.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import TRIGGER_NOT_SUPPORTED
from kafka_sink.spark.files import local_folder

CHECKPOINT_LOCATION, ASYNCHRONOUS_PROGRESS = "checkpointlocation", "asyncprogresstrackingenabled"


def continuous_error() -> ConfigError:
    return ConfigError(
        "trigger(continuous=...) is not supported: Spark passes no row of such a query to a Python data source, so all "
        "rows would be lost. Nothing was written or committed. Use trigger(processingTime=...), "
        "trigger(availableNow=True), or no trigger at all. If the query has run like this on a checkpoint, delete the "
        "files in its folder offsets that are newer than the latest file in commits: these batches were not delivered",
        TRIGGER_NOT_SUPPORTED,
    )


def is_before_any_batch(settings: Mapping[str, str]) -> bool:
    """False also if unknown: with asynchronous progress tracking the folder is written later."""
    given = {name.lower(): value for name, value in settings.items()}
    if given.get(ASYNCHRONOUS_PROGRESS, "").strip().lower() == "true":
        return False
    checkpoint = local_folder(given.get(CHECKPOINT_LOCATION))
    if checkpoint is None or not os.path.exists(checkpoint / "metadata"):
        return False
    try:
        names = os.listdir(checkpoint / "offsets")
    except FileNotFoundError:  # PySpark 4.0 and 4.1 create it for the first batch
        return True
    except OSError:
        return False
    return not any(name.isdecimal() for name in names)
