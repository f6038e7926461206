"""What PySpark's worker processes do around a task, which the sink relies on: they are reused, and collect garbage in
between.

The spy is a partitioner: user code that runs in the middle of a task. The session of these tests connects to Python
over TCP, as Spark does by default; the jobs of test_jobs.py and the demo run with conf/, over Unix sockets.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_sink.testing import EmbeddedBroker

# If nothing were frozen, the collector would visit several times as many objects after each task.
IN_SIGHT_MAX = 15_000
SPY = """
import gc, json, os
import numpy as np

def spy(topic, columns, view):
    seen = {"pid": os.getpid(), "frozen": gc.get_freeze_count(), "in_sight": len(gc.get_objects()),
            "is_over_unix_socket": os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() == "true"}
    with open(FILE, "a") as file:
        file.write(json.dumps(seen) + "\\n")
    return np.zeros(columns.row_count, np.int32)
"""


def test_a_worker_that_is_used_again_has_little_in_the_collectors_sight(spark: SparkSession, tmp_path: Path) -> None:
    name, seen = f"spy_{uuid.uuid4().hex}", tmp_path / "seen"
    (tmp_path / f"{name}.py").write_text(SPY.replace("FILE", repr(str(seen))))
    spark.sparkContext.addPyFile(str(tmp_path / f"{name}.py"))
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        for _ in range(3):
            writer = spark.range(0, 40, 1, 4).selectExpr("CAST(id AS STRING) AS value").write.format("pykafka-sink")
            writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", "rows")
            writer.option("kafka.partitioner.class", f"{name}:spy").mode("append").save()
    looks = [json.loads(line) for line in seen.read_text().splitlines()]
    assert len(looks) == 12 and not any(look["is_over_unix_socket"] for look in looks)
    # The last task of a process that ran several tasks: everything is loaded by then.
    last = {look["pid"]: look for look in looks}
    counts = {pid: sum(look["pid"] == pid for look in looks) for pid in last}
    reused = [look for pid, look in last.items() if counts[pid] >= 3]
    assert reused, "Spark has used no worker again"
    for look in reused:
        assert look["frozen"] > 2 * IN_SIGHT_MAX and look["in_sight"] < IN_SIGHT_MAX, look
