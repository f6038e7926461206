"""One run of one contestant: a new topic, a new process, and a count of the records in the log.

A contestant reports its time. The benchmark checks by the topic's offsets that each record was sent once, and by the
size of its log files whether it compressed and how full its batches were.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.clients.common import Job
from bench.payload import write_payload
from bench.plan import BATCH_BYTES, JVM_PROGRAMS, LINGER_MS, PARTITIONS, Case, Contestant, Plan
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import class_path, java_command

_ROOT = Path(__file__).parent.parent
_JAVA_SOURCE = Path(__file__).parent / "clients" / "PerformanceTwice.java"
_LOGGER = logging.getLogger("bench")
RUN_TIMEOUT_S = 600

# The settings of Kafka's own start scripts, for the broker and for its tools.
_JAVA_SERVER = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
BROKER_JVM = ("-Xms1g", "-Xmx1g", *_JAVA_SERVER)
_TOOL_JVM = ("-Xmx512M", *_JAVA_SERVER, "-Duser.language=en", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
# The data of a finished run is deleted at once, so that it does not fill the disk or load it during later runs.
BROKER_PROPERTIES = {"log.segment.delete.delay.ms": "0", "message.max.bytes": "10485880"}


class ContestantFailed(Exception):
    """A contestant ended with an error, or the log does not have the expected records."""


@dataclass(frozen=True)
class Result:
    contestant: str
    case: str
    records: int
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    log_bytes_per_record: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.records * 1e6


class Arena:
    """A running broker, the payload files, and Java's contestant compiled."""

    def __init__(self, kafka: KafkaCluster, folder: Path) -> None:
        self.kafka = kafka
        self._folder = folder
        self._topic_count = 0

    def run(
        self, contestant: Contestant, case: Case, plan: Plan, *, security: Mapping[str, str] | None = None
    ) -> Result:
        """`security`: the options for another listener, including its address."""
        is_java = contestant.module in JVM_PROGRAMS
        job = Job(
            bootstrap_servers=(security or {}).get("bootstrap.servers", self.kafka.bootstrap_servers),
            topic=self._new_topic(contestant, case),
            payload_path=str(self.payload(case.record_bytes)),
            codec=case.codec,
            batch_bytes=BATCH_BYTES,
            linger_ms=LINGER_MS,
            warm_up_records=case.records(contestant, plan.java_warm_up_s if is_java else plan.warm_up_s),
            records=case.records(contestant, plan.run_s),
            security=security or {},
        )
        try:
            found = _run(self._java_command(contestant, job) if is_java else _python_command(contestant, job))
            sent = job.warm_up_records + job.records
            self._check_count(contestant, job, sent)
            log_bytes = self._log_bytes(job.topic)
        finally:
            self.kafka.delete_topic(job.topic)
        return Result(contestant.name, case.name, job.records, log_bytes_per_record=log_bytes / sent, **found)

    def payload(self, record_bytes: int) -> Path:
        path = self._folder / f"payload-{record_bytes}"
        if not path.exists():
            write_payload(path, record_bytes)
        return path

    def _new_topic(self, contestant: Contestant, case: Case) -> str:
        self._topic_count += 1
        return self.kafka.create_topic(
            f"{self._topic_count}-{contestant.name}-{case.name}",
            partitions=PARTITIONS,
            config={"file.delete.delay.ms": 0},
        )

    def _check_count(self, contestant: Contestant, job: Job, sent: int) -> None:
        logged = log_length(self.kafka.bootstrap_servers, job.topic, PARTITIONS)
        if logged != sent:
            raise ContestantFailed(f"{contestant.name} should have sent {sent} records; the log has {logged}")

    def _log_bytes(self, topic: str) -> int:
        data = self.kafka.data_folder(self.kafka.node_ids[0])
        return sum(path.stat().st_size for path in data.glob(f"{topic}-*/*.log"))

    def _java_command(self, contestant: Contestant, job: Job) -> list[str]:
        version = self.kafka.version
        classes = self._folder / "classes"
        if not classes.exists():
            compiler = [java_command(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            command = [*compiler, "-d", str(classes), "-cp", class_path(version), str(_JAVA_SOURCE)]
            subprocess.run(command, check=True, timeout=RUN_TIMEOUT_S)
        properties = {
            "bootstrap.servers": job.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": "true",
            "compression.type": job.codec,
            "batch.size": job.batch_bytes,
            "linger.ms": job.linger_ms,
            **job.security,
        }
        return [
            *(java_command(), *_TOOL_JVM, "-cp", f"{classes}:{class_path(version)}", "PerformanceTwice"),
            *(contestant.module, job.topic, job.payload_path, str(job.warm_up_records), str(job.records)),
            *(f"{name}={value}" for name, value in properties.items()),
        ]


def log_length(bootstrap_servers: str, topic: str, partition_count: int) -> int:
    """The number of offsets used in all partitions, including those of transaction markers. Last stable offsets would
    be too low until the markers of all partitions are written."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "bench", "isolation.level": "read_uncommitted"}
    consumer = Consumer(settings, logger=_LOGGER)
    try:
        marks = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            for partition in range(partition_count)
        ]
    finally:
        consumer.close()
    return sum(end - start for start, end in marks)


@contextmanager
def open_arena() -> Iterator[Arena]:
    with (
        tempfile.TemporaryDirectory(prefix="pykafka-sink-bench-") as folder,
        KafkaCluster(properties=BROKER_PROPERTIES, jvm_options=BROKER_JVM) as kafka,
    ):
        yield Arena(kafka, Path(folder))


def _python_command(contestant: Contestant, job: Job) -> list[str]:
    return [sys.executable, "-m", contestant.module, json.dumps(asdict(job))]


def _run(command: list[str]) -> dict[str, Any]:
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    lines = run.stdout.strip().splitlines()
    if run.returncode != 0 or not lines:
        raise ContestantFailed(f"{command[:3]} ended with {run.returncode}:\n{(run.stdout + run.stderr)[-3000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found
