"""By what the abort of a stream recognises the transactions of its own tasks.

Spark tells query and run only to tasks. A batch of which no task has ended leaves no receipt, so its abort knows
neither: only the options, and which application it belongs to. The same is known when the batch is planned, and goes to
the tasks with the plan. So they begin their run with a hash of the two, and the abort finds what begins so.

One application runs one query at a time on one checkpoint: Spark lets no other one start before the thread of the first
has ended, and that calls the abort. So such a run is that of the batch at hand, or of a start before it. A query of
another application has another code, also if it has taken over the checkpoint and is alive.

Without a location among the options (it comes from the session) two queries of one application may have the same
options. And a folder that is no application's own tells nothing. Then there is no code.

Assumptions, for PySpark 4.0 to 4.3: Spark gives all Python processes on the driver, for planning and for aborts, the
same SPARK_LOCAL_DIRS, and has made the last folder of each for this application, with a random UUID in its name.
"""

from __future__ import annotations

import re

from kafka_sink.commit.identity import code_of_stream
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.files import application_folder

_OF_ONE_APPLICATION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def code_of_own_runs(options: SinkOptions) -> str:
    """Empty: they cannot be told from those of others."""
    folder, location = application_folder(), options.checkpoint_location
    if folder is None or not location or not _OF_ONE_APPLICATION.search(folder):
        return ""
    return code_of_stream(folder, location)
