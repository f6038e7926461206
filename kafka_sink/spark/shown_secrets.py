"""A warning about secrets that Spark writes down.

A classic session of PySpark shows the value of no option. Spark Connect logs the client's request with all options,
spark-sql and the Thrift server the text of the statement: in event log, UI and REST interface. Nothing in the sink can
prevent that, since it is called later.

Assumption: in Python processes that plan a write Spark sets SPARK_JOB_ARTIFACT_UUID to "default" in a classic session,
to the id of the session in the others. Tests with the newest PySpark: test_canary.py and test_canary_doors.py in
tests/spark, tests/compat/test_connect_canary.py. Seen as well with PySpark 4.1.4 and 4.2.1: batch write, foreachBatch,
stream and SQL, of a classic session and over Spark Connect; spark-sql with 4.1.4. Over Connect the tasks of a stream
have "default", and the process that calls the function of foreachBatch has none. The second door plans there, or in
the client: without a warning, since Spark shows no option of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.kafka.io.warn_once import warn_once

SESSION_ID, OF_CLASSIC = "SPARK_JOB_ARTIFACT_UUID", "default"


def warn_of_shown_secrets(settings: Mapping[str, str]) -> None:
    """For a process in which Spark plans a write."""
    if os.environ.get(SESSION_ID, OF_CLASSIC) == OF_CLASSIC:
        return
    from kafka_sink.options.secret_options import literal_secrets  # loads the tables of formats

    shown = literal_secrets(settings)
    if shown:
        warn_once(shown_secrets_text(shown))


def is_of_connect(session: Any) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect.")


def shown_secrets_text(names: Sequence[str]) -> str:
    hold = "holds a secret" if len(names) == 1 else "hold secrets"
    return (
        f"{', '.join(names)} {hold} in clear, which Spark Connect, spark-sql and the Thrift server write to event log "
        "and UI. Set a reference instead, such as ${file:/path/to/file.properties:key}; see docs/security.md"
    )
