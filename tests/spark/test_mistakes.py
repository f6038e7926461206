"""Thirty mistakes of users, through Spark: the first line of the error names the mistake and how to correct it.

The first line is the text of the exception before its first line break, after Spark's own prefix: a notebook shows it,
and users search the driver's log for it. One session, one embedded broker; errors of Spark itself are in the table,
too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs do not re-export it
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kafka_sink.testing.server import EmbeddedBroker
from tests.spark.spark_session import run_to_end

FORMAT = "pykafka-sink"
# What Spark puts before the text of a Python worker.
OF_SPARK = re.compile(
    r"^(\[\w+\]|An exception was thrown from the Python worker:?\s|Query \[id = .*?\] terminated with exception:"
    r"|Failed to [\w ]+ Python data source[\w ]*:|kafka_sink\.errors\.\w+:|\s)+"
)


@dataclass
class Bench:
    spark: SparkSession
    servers: str
    folder: Path
    deaf: str

    def frame(self, *columns: str) -> DataFrame:
        return self.spark.range(0, 3, 1, 1).selectExpr(*(columns or ("'v' as value",)))

    def write(self, frame: DataFrame | None = None, mode: str | None = "append", **options: str) -> None:
        named = {name.replace("_", "."): value for name, value in options.items()}
        writer = (self.frame() if frame is None else frame).write.format(FORMAT)
        settings = {"kafka.bootstrap.servers": self.servers, "topic": "t", **named}
        writer.options(**{name: value for name, value in settings.items() if value}).mode(mode).save()

    def stream(self, **options: str) -> DataStreamWriter:
        source = self.folder / "in"
        source.mkdir(exist_ok=True)
        (source / "rows.txt").write_text("a\nb\n")
        named = {name.replace("_", "."): value for name, value in options.items()}
        writer = self.spark.readStream.text(str(source)).writeStream.format(FORMAT).trigger(availableNow=True)
        return writer.options(**{"kafka.bootstrap.servers": self.servers, "topic": "t", **named})

    def run(self, writer: DataStreamWriter) -> None:
        run_to_end(writer.option("checkpointLocation", str(self.folder / "checkpoint")).start(), 60)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(properties={"auto.create.topics.enable": "false"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        forgetful = NewTopic("forgetful", 1, config={"cleanup.policy": "delete"})
        for future in admin.create_topics([NewTopic("t", 2), forgetful]).values():
            future.result()
        yield broker.bootstrap_servers


def first_line(error: PySparkException) -> str:
    return OF_SPARK.sub("", str(error)).partition("\n")[0]


class Mistake(NamedTuple):
    """`name` is empty if the error comes from Spark itself."""

    make: Callable[[Bench], object]
    name: str
    says: str
    way_out: str


def same_export_twice(bench: Bench) -> None:
    bench.write(sink_id="export", batch_id="monday")
    bench.write(bench.spark.range(500).selectExpr("'v' as value"), sink_id="export", batch_id="monday")


def without_checkpoint(bench: Bench) -> None:
    location = "spark.sql.streaming.checkpointLocation"
    bench.spark.conf.set(location, str(bench.folder / "default"))
    try:
        run_to_end(bench.stream().start(), 60)
    finally:
        bench.spark.conf.unset(location)


def continuous(bench: Bench) -> None:
    rows = bench.spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    writer = rows.writeStream.format(FORMAT).trigger(continuous="1 second")
    writer = writer.options(**{"kafka.bootstrap.servers": bench.servers, "topic": "t"})
    run_to_end(writer.option("checkpointLocation", str(bench.folder / "continuous")).start(), 60)


def counted(bench: Bench) -> None:
    (bench.folder / "in").mkdir()
    (bench.folder / "in" / "rows.txt").write_text("a\n")
    counts = bench.spark.readStream.text(str(bench.folder / "in")).groupBy("value").count().select("value")
    writer = counts.writeStream.format(FORMAT).outputMode("complete").trigger(availableNow=True)
    bench.run(writer.options(**{"kafka.bootstrap.servers": bench.servers, "topic": "t"}))


MISTAKES: dict[str, Mistake] = {
    "an option misspelt": Mistake(
        lambda on: on.write(tpoic="t"), "PKS-1001", "'tpoic' is not an option", "did you mean topic?"
    ),
    "a producer option without its prefix": Mistake(
        lambda on: on.write(linger_ms="5"), "PKS-1001", "'linger.ms'", "did you mean kafka.linger.ms?"
    ),
    "an option of the source": Mistake(
        lambda on: on.write(startingOffsets="earliest"), "PKS-1001", "Kafka as a source", "leave it out"
    ),
    "a value that cannot be": Mistake(
        lambda on: on.write(kafka_compression_type="brotli"), "PKS-1002", "compression.type='brotli'", "expected"
    ),
    "no brokers": Mistake(
        lambda on: on.write(kafka_bootstrap_servers=""), "PKS-1003", "bootstrap.servers is missing", "prefix kafka."
    ),
    "a broker without a port": Mistake(
        lambda on: on.write(kafka_bootstrap_servers="broker1"),
        "PKS-1002",
        "'broker1' is not valid",
        "expected host:port",
    ),
    "a name without its sink": Mistake(
        lambda on: on.write(batch_id="monday"), "PKS-1003", "batch.id needs sink.id", "together they name an export"
    ),
    "dead letters without a topic": Mistake(
        lambda on: on.write(record_errors="dead-letter"), "PKS-1003", "record.errors=dead-letter", "dead.letter.topic"
    ),
    "exactly once without acks": Mistake(
        lambda on: on.write(kafka_acks="1"), "PKS-1004", "kafka.acks=all", "leave them at their defaults"
    ),
    "serializers": Mistake(
        lambda on: on.write(kafka_value_serializer="StringSerializer"),
        "PKS-1005",
        "kafka.value.serializer is not supported",
        "use DataFrame operations",
    ),
    "a partitioner that is not installed": Mistake(
        lambda on: on.write(kafka_partitioner_class="nowhere:place"), "PKS-1007", "nowhere", "--py-files"
    ),
    "a listener that is not installed": Mistake(
        lambda on: on.write(summary_listener="nowhere:tell"), "PKS-1007", "summary.listener=nowhere:tell", "--py-files"
    ),
    "protobuf without a schema": Mistake(
        lambda on: on.write(value_format="protobuf"), "PKS-7003", "needs a schema", "value.schema"
    ),
    "reading": Mistake(lambda on: on.spark.read.format(FORMAT).load(), "PKS-1101", "only writes", 'format("kafka")'),
    "reading a stream": Mistake(
        lambda on: on.spark.readStream.format(FORMAT).load(), "PKS-1101", "only writes", 'format("kafka")'
    ),
    "no mode": Mistake(lambda on: on.write(mode=None), "", "ErrorIfExists", '"Append"'),
    "overwrite": Mistake(
        lambda on: on.write(mode="overwrite"), "PKS-1102", 'mode("overwrite") is not supported', 'mode("append")'
    ),
    "no topic": Mistake(lambda on: on.write(topic=""), "PKS-1202", "no topic", "set the option topic"),
    "no column value": Mistake(
        lambda on: on.write(on.frame("'v' as Value")), "PKS-1201", "value not found", "to_json(struct(*)) AS value"
    ),
    "a key of several fields": Mistake(
        lambda on: on.write(on.frame("struct(id, 'b') as key", "'v' as value")),
        "PKS-1203",
        "key has the unsupported type struct",
        "to_json(key) AS key",
    ),
    "a value that is a number": Mistake(
        lambda on: on.write(on.frame("id as value")), "PKS-1203", "type bigint", "CAST(value AS STRING)"
    ),
    "headers that are words": Mistake(
        lambda on: on.write(on.frame("array('h') as headers", "'v' as value")), "PKS-1203", "headers", "array(struct("
    ),
    "a broker that does not run": Mistake(
        lambda on: on.write(kafka_bootstrap_servers=on.deaf, kafka_max_block_ms="500"),
        "PKS-3001",
        "no broker has answered",
        "Connection refused",
    ),
    "TLS to a port without it": Mistake(
        lambda on: on.write(kafka_security_protocol="SSL", kafka_max_block_ms="500"), "PKS-3001", "TLS", "listener"
    ),
    "a topic that is not there": Mistake(
        lambda on: on.write(topic="nowhere", kafka_max_block_ms="500"),
        "PKS-3002",
        "topic nowhere is not known",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    "a ledger that forgets": Mistake(
        lambda on: on.write(ledger_topic="forgetful", sink_id="s", batch_id="b"),
        "PKS-3006",
        "cleanup.policy=delete",
        "kafka-configs --alter",
    ),
    "transactions longer than brokers allow": Mistake(
        lambda on: on.write(kafka_transaction_timeout_ms="90000000"), "PKS-3007", "90000000", "lower it"
    ),
    "a name used again for other rows": Mistake(
        same_export_twice, "PKS-6004", "delivered under this name were 3 rows to t, this time there are 500", "batch.id"
    ),
    "a row without a topic": Mistake(
        lambda on: on.write(on.frame("if(id = 2, null, 't') as topic", "'v' as value"), topic=""),
        "PKS-2002",
        "null topic in row 2",
        "set the option topic",
    ),
    "a row too large": Mistake(
        lambda on: on.write(on.frame("repeat('x', 2000000) as value")), "PKS-2003", "row 0", "max.request.size allows"
    ),
    "a partition that is not there": Mistake(
        lambda on: on.write(on.frame("7 as partition", "'v' as value"), kafka_max_block_ms="500"),
        "PKS-2005",
        "names partition 7",
        "2 partitions (0 to 1)",
    ),
    "a time before 1970": Mistake(
        lambda on: on.write(on.frame("-5L as timestamp", "'v' as value")),
        "PKS-2006",
        "negative in row 0",
        "null means now",
    ),
    "a stream without a checkpoint": Mistake(
        without_checkpoint, "PKS-1106", "has to know this stream again", "checkpointLocation on the writer"
    ),
    "a stream of counts": Mistake(counted, "PKS-1102", 'outputMode("complete")', "foreachBatch"),
    "a continuous stream": Mistake(continuous, "PKS-1105", "trigger(continuous=...)", "trigger(availableNow=True)"),
}


# Further ones of a kind come the same way, from the same process. tests/unit/test_options.py and its neighbours have
# their texts.
OF_THE_SAME_KIND = frozenset(
    {"a producer option without its prefix", "an option of the source", "a broker without a port"}
    | {
        "a name without its sink",
        "dead letters without a topic",
        "a listener that is not installed",
        "reading a stream",
    }
    | {"a value that is a number", "headers that are words", "TLS to a port without it"}
)


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(each, marks=[pytest.mark.slow] if each in OF_THE_SAME_KIND else []) for each in MISTAKES],
)
def test_the_first_line_names_the_mistake_and_the_way_out(
    mistake: str, spark: SparkSession, servers: str, deaf: str, tmp_path: Path
) -> None:
    made = MISTAKES[mistake]
    with pytest.raises(PySparkException) as raised:
        made.make(Bench(spark, servers, tmp_path, deaf))
    line = first_line(raised.value)
    print(f"{mistake}: {line}")
    assert line.startswith(made.name) and made.says in line and made.way_out in line, str(raised.value)
    assert "Traceback" not in str(raised.value)
    if made.name:
        assert re.search(rf"\n  Data: .*\n  Next: .*\n  More: pykafka-sink explain {made.name}", str(raised.value))
