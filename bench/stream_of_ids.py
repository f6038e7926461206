"""A Spark stream, batch by batch, in which some task attempts fail or are killed.

Each file is one micro-batch. In some, the first attempt of the first task raises an error after its rows have gone to
the sink. In others it stops there and creates a file, and this process makes Spark kill it, as Spark kills speculative
copies. In both cases Spark runs the task again. Killed and failed attempts also end their worker processes.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from kafka_sink.spark import register
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.quiet_spark import quiet_session

ROWS = 400
FAILURE_EVERY, KILL_EVERY = 25, 60
FAILS_AT, STALLS_AT = 7, 31
# By then the task has sent some of its rows: in such a batch they are long, and reach the sink ten at a time.
ROWS_BEFORE, PADDING = ROWS // 4 - 10, "." * 10_000
CONF = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10"}
CORES = 2
STALL_S, BATCH_PATIENCE_S = 60, 300

_rows_seen: Counter[int] = Counter()


def is_ill_fated(number: int) -> bool:
    return number % FAILURE_EVERY == FAILS_AT or number % KILL_EVERY == STALLS_AT


def misfortune(folder: str, line: str) -> str:
    """Runs in a task, between the source and the sink."""
    from pyspark import TaskContext

    number = int(line.partition("-")[0])
    task = TaskContext.get()
    assert task is not None
    if not is_ill_fated(number) or task.attemptNumber() or task.partitionId():
        return line
    _rows_seen[task.taskAttemptId()] += 1
    if _rows_seen[task.taskAttemptId()] == ROWS_BEFORE:
        if number % FAILURE_EVERY == FAILS_AT:
            raise RuntimeError("the source of this attempt fails")
        Path(folder, str(task.taskAttemptId())).touch()
        time.sleep(STALL_S)
    return line


class StreamOfIds(AbstractContextManager["StreamOfIds"]):
    def __init__(self, folder: Path, kafka: KafkaCluster, topic: str, sink_id: str, tasks: int) -> None:
        self.failures = self.kills = 0
        self._kafka, self._topic, self._sink_id, self._tasks = kafka, topic, sink_id, tasks
        self._source, self._stalled, self._scratch = (folder / name for name in ("source", "stalled", "scratch"))
        for one in (self._source, self._stalled, self._scratch):
            one.mkdir()
        self._checkpoint, self._spark_folder = folder / "checkpoint", folder / "spark"
        self._spark_folder.mkdir()
        self._batches = 0
        self._started_s = time.monotonic()
        self._open = ExitStack()

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self._started_s) / 60

    def __enter__(self) -> StreamOfIds:
        from pyspark.sql.functions import udf

        log = self._spark_folder / "spark.log"
        session = quiet_session(self._spark_folder, log, cores=CORES, is_connect=False, conf=CONF)
        self._spark = self._open.enter_context(session)
        register(self._spark)
        stalled = str(self._stalled)
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._source))
        unlucky = udf(lambda line: misfortune(stalled, line))
        frame = lines.repartition(self._tasks).select(unlucky("value").alias("value"))
        stream = frame.writeStream.format("pykafka-sink").option("checkpointLocation", str(self._checkpoint))
        stream = stream.option("kafka.bootstrap.servers", self._kafka.bootstrap_servers)
        self._query = stream.option("topic", self._topic).option("sink.id", self._sink_id).start()
        self._open.callback(self._query.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run_to(self, count: int) -> None:
        """Writes one batch after the other until `count` batches are committed."""
        while self._batches < count:
            self._run_batch(self._batches)
            self._batches += 1

    def _run_batch(self, number: int) -> None:
        padding = PADDING if is_ill_fated(number) else ""
        text = "".join(f"{number}-{row}-{padding}\n" for row in range(ROWS))
        made = self._scratch / f"{number:05}.txt"
        made.write_text(text)
        made.rename(self._source / made.name)
        end_s = time.monotonic() + BATCH_PATIENCE_S
        while not (self._checkpoint / "commits" / str(number)).exists():
            error = self._query.exception()
            if error is not None:
                raise error
            if time.monotonic() > end_s:
                raise TimeoutError(f"batch {number} is not committed after {BATCH_PATIENCE_S} s")
            self._kill_what_stalls()
            time.sleep(0.02)
        self.failures += number % FAILURE_EVERY == FAILS_AT

    def _kill_what_stalls(self) -> None:
        for stalled in self._stalled.iterdir():
            stalled.unlink()
            self._spark.sparkContext._jsc.sc().killTaskAttempt(int(stalled.name), True, "another attempt has won")
            self.kills += 1

    def judge(self) -> str:
        expected = {f"{number}-{row}".encode() for number in range(self._batches) for row in range(ROWS)}
        records = read_topic(self._kafka.bootstrap_servers, self._topic)
        seen = Counter((record.value or b"").rpartition(b"-")[0] for record in records)
        twice = sum(count > 1 for count in seen.values())
        return f"{len(expected)} rows in, {len(expected - seen.keys())} missing, {twice} twice"
