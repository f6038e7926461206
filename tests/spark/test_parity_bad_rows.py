"""Rows that can never be sent, through Spark: record.errors, the dead letters, what a listener gets, the log.

The listener is a user's module, given with addPyFile as --py-files would do. It runs in one of Spark's Python
processes, so it writes what it gets to a file.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from tests.spark.parity import Folder, append, records, start, writable_topic
from tests.spark.spark_session import run_to_end
from tools.kafka_cluster import KafkaCluster

_NUMBERS = itertools.count(1)
REQUEST_BYTES_MAX = 10_000
# line -> topic, partition, value, header key; everything else of the row is valid.
BAD = {
    "null topic": ("null", "null", "'v'", "'h'"),
    "invalid topic": ("'not a topic'", "null", "'v'", "'h'"),
    "bad partition": ("'{topic}'", "9", "'v'", "'h'"),
    "negative partition": ("'{topic}'", "-1", "'v'", "'h'"),
    "null header key": ("'{topic}'", "null", "'v'", "null"),
    "too large": ("'{topic}'", "null", "repeat('x', 20000)", "'h'"),
}
GOOD = ("'{topic}'", "1", "concat('value of ', line)", "'h'")
COUNTS = {"bad headers": 1, "no such partition": 2, "no topic": 2, "too large": 1}


class Listener(NamedTuple):
    option: str
    heard: Callable[[], list[dict[str, Any]]]
    logged: Callable[[], str]


@pytest.fixture
def listener(spark: SparkSession, tmp_path: Path) -> Listener:
    name = f"listener_{next(_NUMBERS)}_of_a_test"
    heard, logged = tmp_path / "heard", tmp_path / "logged"
    (tmp_path / f"{name}.py").write_text(
        "import dataclasses, json, logging\n"
        f"logging.getLogger('kafka_sink').addHandler(logging.FileHandler({str(logged)!r}))\n"
        "def told(key, summary):\n"
        f"    with open({str(heard)!r}, 'a') as file:\n"
        "        file.write(json.dumps([key, dataclasses.asdict(summary)]) + '\\n')\n"
        "def failing(key, summary):\n"
        "    told(key, summary)\n"
        "    raise ValueError('the listener is broken')\n"
    )
    spark.sparkContext.addPyFile(str(tmp_path / f"{name}.py"))

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in heard.read_text().splitlines()]
        return [{"query_id": key[0], "batch_id": key[1], **summary} for key, summary in found]

    return Listener(name, lines, lambda: logged.read_text() if logged.exists() else "")


def columns(topic: str) -> list[str]:
    """The columns for a frame with one column `line`."""
    found = []
    for index, name in enumerate(("topic", "partition", "value", "header")):
        cases = " ".join(f"when '{line}' then {row[index]}" for line, row in BAD.items())
        found.append(f"case line {cases} else {GOOD[index]} end as {name}".replace("{topic}", topic))
    return ["line as key", *found]


WRITTEN = [
    "cast(topic as string) as topic", "cast(partition as int) as partition", "key", "value",
    "array(struct(header as key, cast('kept' as binary) as value)) as headers",
]  # fmt: skip


def test_fail_names_the_first_bad_row_and_no_part_of_its_content(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    frame = spark.range(0, 30, 1, 1).selectExpr("if(id = 20, repeat('secret ', 3000), 'v') as value")
    with pytest.raises(PythonException) as raised:
        append(frame, kafka_4, topic=topic_name, kafka_max_request_size=str(REQUEST_BYTES_MAX))
    text = str(raised.value)
    assert "the record of row 20 takes 21" in text and f"max.request.size allows {REQUEST_BYTES_MAX}" in text
    assert "secret" not in text


def test_drop_leaves_out_every_kind_of_bad_row_and_counts_each(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, checkpoint: str, listener: Listener
) -> None:
    writable_topic(kafka_4, topic_name)
    folder = Folder(spark, tmp_path)
    folder.add("a", *BAD, "b")
    folder.add("c")
    frame = folder.read().selectExpr("value as line").selectExpr(*columns(topic_name)).selectExpr(*WRITTEN)
    query = start(
        frame, kafka_4, checkpoint,
        record_errors="drop", kafka_max_request_size=str(REQUEST_BYTES_MAX), summary_listener=f"{listener.option}:told",
    )  # fmt: skip
    run_to_end(query)
    found = records(kafka_4, topic_name)
    assert [record.key for record in found] == [b"a", b"b", b"c"]
    assert {(record.partition, record.headers) for record in found} == {(1, (("h", b"kept"),))}
    first, second = listener.heard()
    assert (first["query_id"], first["batch_id"], second["batch_id"]) == (query.id, 0, 1)
    assert (first["row_count"], second["row_count"]) == (2, 1)
    assert (first["record_errors"], second["record_errors"]) == (COUNTS, {})
    assert first["written"] == [[topic_name, 1, 2, 0, 1]]
    assert second["written"][0][2] == 1 and second["written"][0][3] >= 2
    assert first["topics"] == {topic_name: [2, 1]}
    # The first commit loads the module, whose log then contains the line of the second commit.
    assert f"batch 1 of query {query.id} delivered: 1 rows, " in listener.logged()


def test_dead_letters_carry_the_row_and_say_what_was_wrong_with_it(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, checkpoint: str, listener: Listener
) -> None:
    writable_topic(kafka_4, topic_name)
    letters = writable_topic(kafka_4, f"{topic_name}-bad", partitions=1)
    folder = Folder(spark, tmp_path)
    folder.add("a", *BAD, "b")
    frame = folder.read().selectExpr("value as line").selectExpr(*columns(topic_name)).selectExpr(*WRITTEN)
    query = start(
        frame, kafka_4, checkpoint,
        record_errors="dead-letter", dead_letter_topic=letters, kafka_max_request_size=str(REQUEST_BYTES_MAX),
        summary_listener=f"{listener.option}:failing",
    )  # fmt: skip
    run_to_end(query)
    assert [record.key for record in records(kafka_4, topic_name)] == [b"a", b"b"]
    found = {(record.key or b"").decode(): record for record in records(kafka_4, letters)}
    assert set(found) == set(BAD)
    for row, (line, record) in enumerate(found.items(), 1):
        about = {name.removeprefix("pykafka-sink."): (said or b"").decode() for name, said in record.headers}
        assert (about["query.id"], about["batch.id"], about["spark.partition"]) == (query.id, "0", "0")
        assert about["row"] == str(row)
        assert about["error"], line
        assert ("h", b"kept") in record.headers or line == "null header key"
        assert record.value == (None if line == "too large" else b"v")
    reasons = {line: dict(record.headers)["pykafka-sink.reason"] for line, record in found.items()}
    assert reasons == {
        "null topic": b"no topic", "invalid topic": b"no topic", "bad partition": b"no such partition",
        "negative partition": b"no such partition", "null header key": b"bad headers", "too large": b"too large",
    }  # fmt: skip
    assert dict(found["too large"].headers)["pykafka-sink.value.bytes"] == b"20000"
    assert dict(found["bad partition"].headers)["pykafka-sink.partition"] == b"9"
    assert dict(found["invalid topic"].headers)["pykafka-sink.topic"] == b"not a topic"
    # The listener raised, and the batch still counts as delivered.
    (heard,) = listener.heard()
    assert (heard["row_count"], heard["record_errors"]) == (2 + len(BAD), COUNTS)
    assert heard["topics"] == {topic_name: [2, 1], letters: [len(BAD), 1]}


def test_the_partition_column_beats_a_partitioner_of_the_users_own(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    name = f"partitioner_{next(_NUMBERS)}_of_a_test"
    (tmp_path / f"{name}.py").write_text(
        "def always_zero(topic, columns, view):\n    return [0] * columns.row_count\n"
        "def broken(topic, columns, view):\n    raise ValueError('this partitioner is broken')\n"
    )
    spark.sparkContext.addPyFile(str(tmp_path / f"{name}.py"))
    writable_topic(kafka_4, topic_name)
    frame = spark.range(0, 20, 1, 2).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    append(frame, kafka_4, topic=topic_name, kafka_partitioner_class=f"{name}:always_zero")
    placed = frame.selectExpr("*", "if(key < '2', 2, null) as partition")
    append(placed, kafka_4, topic=topic_name, kafka_partitioner_class=f"{name}:always_zero")
    found = [(record.partition, int(record.key or b"")) for record in records(kafka_4, topic_name)]
    theirs = [number for number in range(20) if str(number) < "2"]
    assert sorted(key for partition, key in found if partition == 2) == theirs
    assert sorted(key for partition, key in found if partition == 0) == sorted(
        [*range(20), *(set(range(20)) - set(theirs))]
    )
    with pytest.raises(PythonException, match="this partitioner is broken"):
        append(frame, kafka_4, topic=topic_name, kafka_partitioner_class=f"{name}:broken")
