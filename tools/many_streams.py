"""`make streams MINUTES=10`: starts and stops many streams in one Spark application, and kills their processes.

Ten streams with their own checkpoints and topics run in one session, some inside foreachBatch, with labelled batch
writes beside them. Every few seconds two of them are stopped while they work and started again, and a Python process in
which Spark plans or commits is killed. At the end all streams recover and read the rest, and confluent-kafka reads the
topics with isolation read_committed: every row must be there once.

With `--door functions` everything is written by the functions of the package (foreach_batch, write_batch, write). Over
Spark Connect the functions of streams have a process each, which is killed; in a classic session they run in this
process, and nothing is killed.

Spark gives the commits of a query to any free process, so no process may assume that it knows the latest state of a
query. A query must not end, with one exception: if its process is killed during a call, Spark itself ends the query and
says so. Such ends are counted separately and the query is started again; an end for any other reason is a finding, and
the exit code is 1. Ctrl-C ends the run early, but the topics are still read and judged; a second Ctrl-C ends at once.

The seed decides what is stopped and killed and when, but not what runs at that time.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kafka_sink.spark import register
from kafka_sink.testing import EmbeddedBroker
from tools.driver_processes import driver_processes, kill
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import VERSIONS
from tools.quiet_spark import quiet_session
from tools.stream_load import DOORS, Exports, Stream, count_misplaced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
ROWS_PER_FILE = 20
FILE_PAUSE_S = 0.7  # between two files of one stream
EXPORT_PAUSE_S = 5.0
RESTART_PAUSE_S = (2.0, 6.0)
KILL_PAUSE_S = (2.0, 6.0)
DOWN_S = (0.0, 1.0)  # how long a stopped stream stays stopped
TOLD_EVERY_S = 15.0
WARM_PATIENCE_S = 300
END_PATIENCE_S = 600
# If no batch follows, only this time-out ends the transaction of a task that outlives its run and writes late.
TRANSACTION_TIMEOUT_S = 120
SPARK_SETTINGS = {"spark.sql.streaming.stopTimeout": f"{END_PATIENCE_S}s"}
IN_FOREACH_BATCH = 5  # every fifth stream
# Texts by which Spark reports that a Python process ended during a call.
ENDED_BY_SPARK = ("exited unexpectedly", "EOFException", "Connection reset", "Broken pipe")
RESTARTED, KILLED = "stream stopped and started", "planning or committing process killed"
_CAUSE = re.compile(r"(: |Caused by: )?[\w.]+(Error|Exception)\b")


class ManyStreams:
    """The streams in a given session. Call `run` with a time, then `judge`."""

    def __init__(
        self,
        spark: SparkSession,
        servers: str,
        folder: Path,
        dice: random.Random,
        *,
        prefix: str = "stream",
        streams: int = 10,
        restless: int = 2,
        kills: bool = True,
        trigger: str = "1 second",
        door: str = "format",
    ) -> None:
        options = {
            "kafka.bootstrap.servers": servers, "kafka.linger.ms": "0",
            "kafka.transaction.timeout.ms": str(TRANSACTION_TIMEOUT_S * 1000),
        }  # fmt: skip
        self._spark = spark
        self._servers = servers
        self._dice = dice
        self._restless = restless
        self._has_kills = kills
        self._trigger = trigger
        self._door = door
        self.streams = [
            Stream(spark, options, folder, name, door=door, in_foreach_batch=number % IN_FOREACH_BATCH == 0)
            for number, name in enumerate(names_of(prefix, streams)[:-1], 1)
        ]
        self.exports = Exports(spark, options, names_of(prefix, streams)[-1], ROWS_PER_FILE, EXPORT_PAUSE_S, door=door)
        self.faults: Counter[str] = Counter()
        self.is_interrupted = threading.Event()
        self._has_fed = threading.Event()
        self._feeder = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self._started_s = time.monotonic()

    def run(self, seconds: float) -> None:
        try:
            self._run_for(seconds)
        finally:
            self._has_fed.set()  # also after a second Ctrl-C, because the folders are removed

    def _run_for(self, seconds: float) -> None:
        if self._door == "format":
            register(self._spark)
        self._feeder.start()
        self.exports.start()
        # Over Spark Connect a foreachBatch must start within ten seconds: these start first, on an idle machine.
        for stream in sorted(self.streams, key=lambda stream: not stream.in_foreach_batch):
            stream.start(processingTime=self._trigger)
        self._wait_until_warm()
        restart_s, kill_s, told_s = (self._later(RESTART_PAUSE_S), self._later(KILL_PAUSE_S), 0.0)
        end_s, committed = self._age_s() + seconds, 0
        # If a stop or a start takes longer than the given time, the run continues until each fault was tried.
        while (self._age_s() < end_s or not self._is_each_fault_tried) and not self.is_interrupted.is_set():
            self._start_what_has_ended()
            if self._age_s() >= restart_s and self._commit_count > committed:
                # Otherwise a slow machine would commit nothing between two restarts.
                committed = self._commit_count
                self._restart_some()
                restart_s = self._later(RESTART_PAUSE_S)
            if self._has_kills and self._age_s() >= kill_s:
                self._kill_one()
                kill_s = self._later(KILL_PAUSE_S)
            if self._age_s() >= told_s:
                self._tell()
                told_s = self._age_s() + TOLD_EVERY_S
            time.sleep(0.2)
        self._come_to_the_end()

    @property
    def _is_each_fault_tried(self) -> bool:
        return bool(self.faults[RESTARTED]) and (bool(self.faults[KILLED]) or not self._has_kills)

    def _wait_until_warm(self) -> None:
        """Waits for the first batch of each stream, which loads everything once: restarts could prevent its end."""
        end_s = self._age_s() + WARM_PATIENCE_S
        while self._age_s() < end_s and not self.is_interrupted.is_set():
            self._start_what_has_ended()
            if all(stream.commit_count for stream in self.streams):
                return
            time.sleep(0.2)

    def _feed(self) -> None:
        while not self._has_fed.wait(FILE_PAUSE_S):
            for stream in self.streams:
                stream.source.add(ROWS_PER_FILE)

    def _restart_some(self) -> None:
        chosen = self._dice.sample(self.streams, min(self._restless, len(self.streams)))
        for stream in chosen:
            stream.stop()
        time.sleep(self._dice.uniform(*DOWN_S))
        for stream in chosen:
            stream.start(processingTime=self._trigger)
            self.faults[RESTARTED] += 1

    def _kill_one(self) -> None:
        found = driver_processes()
        if found and kill(self._dice.choice(found)):
            self.faults[KILLED] += 1

    def _start_what_has_ended(self) -> None:
        for stream in self.streams:
            if stream.has_ended():
                self._say(f"{stream.name} has ended: {reason_of(stream.ends[-1]) if stream.ends else 'no reason'}")
                stream.start(processingTime=self._trigger)

    def _come_to_the_end(self) -> None:
        """Starts every stream once more to read the rest of its input and end by itself."""
        self._has_fed.set()
        self._feeder.join()
        if not self.exports.finish(END_PATIENCE_S):
            self.exports.ends.append(f"still writing after {END_PATIENCE_S} s")
        for stream in self.streams:
            stream.stop()
        for stream in self.streams:
            # The last start may fail because of an earlier fault and need a second start.
            for _ in range(2):
                known = len(stream.ends)
                stream.start(availableNow=True)
                if not stream.wait_for_end(END_PATIENCE_S):
                    stream.ends.append(f"not at its end after {END_PATIENCE_S} s")
                stream.stop()
                if len(stream.ends) == known:
                    break
        self._say("the input is over")

    # ---- the verdict -----------------------------------------------------------------------------------------------

    def findings(self) -> list[str]:
        """The complete errors of queries and writes that were not ended by Spark itself."""
        told = [f"{stream.name}: {end}" for stream in self.streams for end in stream.ends]
        told += [f"{self.exports.name}: {end}" for end in self.exports.ends]
        return [end for end in told if not self._is_of_spark(end)]

    def judge(self) -> bool:
        """Prints the result for every row and query. True if all are as required."""
        print(f"\n{'':16}{'rows in':>10}{'missing':>9}{'doubled':>9}{'commits':>9}{'starts':>8}{'ended':>7}")
        is_right = True
        for name, rows_in, commits, starts, ends in self._rows():
            missing, doubled = count_misplaced(self._servers, name, rows_in, open_s_max=TRANSACTION_TIMEOUT_S + 60)
            is_right = is_right and missing == doubled == 0
            print(f"{name:16}{rows_in:>10,}{missing:>9,}{doubled:>9,}{commits:>9,}{starts:>8,}{len(ends):>7,}")
        findings = self.findings()
        count_of_spark = sum(len(ends) for *_, ends in self._rows()) - len(findings)
        for fault, count in sorted(self.faults.items()):
            print(f"{count:6} x {fault}")
        print(f"{count_of_spark:6} x query or write ended by Spark, because its process was killed in a call")
        for text, count in Counter(map(reason_of, findings)).most_common():
            print(f"{count:6} x FINDING {text}")
        if findings:
            print(f"the first of them:\n{findings[0][:4000]}")
        is_right = is_right and not findings
        print("Every row once, and no query ended." if is_right else "NOT RIGHT.", flush=True)
        return is_right

    def _rows(self) -> Iterator[tuple[str, int, int, int, list[str]]]:
        for stream in self.streams:
            yield stream.name, stream.source.row_count, stream.commit_count, stream.start_count, stream.ends
        yield self.exports.name, self.exports.row_count, self.exports.write_count, 1, self.exports.ends

    def _is_of_spark(self, end: str) -> bool:
        return self._has_kills and any(text in end for text in ENDED_BY_SPARK) and "kafka_sink.errors" not in end

    @property
    def _commit_count(self) -> int:
        return sum(stream.commit_count for stream in self.streams)

    def _later(self, pause_s: tuple[float, float]) -> float:
        return self._age_s() + self._dice.uniform(*pause_s)

    def _age_s(self) -> float:
        return time.monotonic() - self._started_s

    def _tell(self) -> None:
        rows = sum(stream.source.row_count for stream in self.streams)
        ends = sum(len(stream.ends) for stream in self.streams)
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        self._say(f"rows in {rows:>8,}  commits {self._commit_count:>6,}  ended {ends:>3}  {faults}")

    def _say(self, text: str) -> None:
        print(f"{self._age_s():6.0f} s  {text}", flush=True)


def names_of(prefix: str, streams: int) -> list[str]:
    """Names of the topics: one for each stream, and one for the batch writes."""
    return [*(f"{prefix}-{number}" for number in range(1, streams + 1)), f"{prefix}-exports"]


def reason_of(end: str) -> str:
    """The line of Spark's error that has the reason: an error of ours, otherwise the last exception."""
    lines = [line.strip() for line in end.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    ours = [line for line in lines if "kafka_sink.errors." in line]
    causes = [line for line in lines if _CAUSE.match(line)]
    return (ours or causes or lines[:1] or [""])[-1][:300]


# ---- the command -----------------------------------------------------------------------------------------------------


@contextmanager
def broker(kind: str, topics: Mapping[str, int]) -> Iterator[str]:
    """Bootstrap servers of the embedded broker, or of Apache Kafka in that version."""
    if kind == "embedded":
        with EmbeddedBroker(topics=topics) as embedded:
            yield embedded.bootstrap_servers
        return
    with KafkaCluster(kind) as kafka:
        for topic, partitions in topics.items():
            kafka.create_topic(topic, partitions=partitions)
        yield kafka.bootstrap_servers


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--restless", type=int, default=2, help="number of streams that are restarted at once")
    parser.add_argument("--trigger", default="1 second", help="processingTime of each stream")
    parser.add_argument("--no-kills", action="store_true", help="kill no process")
    parser.add_argument("--door", choices=DOORS, default=DOORS[0], help="what writes: the format, or the functions")
    parser.add_argument("--connect", action="store_true", help="one Spark Connect session with a server of its own")
    parser.add_argument("--broker", default=VERSIONS[0], help=f"{', '.join(VERSIONS)} or embedded")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--nice", type=int, default=0, help="added to the niceness of all started processes")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="file for the output of Spark and the sink")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    return parser.parse_args()


def main() -> int:
    given = arguments()
    os.nice(given.nice)
    kind = "Spark Connect" if given.connect else "one session"
    where = "the embedded broker" if given.broker == "embedded" else f"Apache Kafka {given.broker}"
    what = f"{given.streams} streams through the {given.door}"
    print(f"seed {given.seed}, {what}, {kind}, {where}, {given.minutes:g} minutes", flush=True)
    topics = dict.fromkeys(names_of("stream", given.streams), PARTITIONS)
    with (
        TemporaryDirectory(prefix="pykafka-sink-streams-") as folder,
        broker(given.broker, topics) as servers,
        quiet_session(
            Path(folder), given.log, cores=given.cores, is_connect=given.connect, conf=SPARK_SETTINGS
        ) as spark,
    ):
        streams = ManyStreams(
            spark,
            servers,
            Path(folder),
            random.Random(given.seed),
            streams=given.streams,
            restless=given.restless,
            kills=not given.no_kills and (given.connect or given.door == "format"),
            trigger=given.trigger,
            door=given.door,
        )

        def interrupt(_number: int, _frame: object) -> None:
            # Spark's own handler would cancel every job, which looks like queries that end.
            if streams.is_interrupted.is_set():
                raise KeyboardInterrupt
            streams.is_interrupted.set()

        signal.signal(signal.SIGINT, interrupt)
        streams.run(given.minutes * 60)
        return 0 if streams.judge() else 1


if __name__ == "__main__":
    sys.exit(main())
