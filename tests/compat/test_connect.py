"""Spark Connect: a server and a client on one machine. Run alone, because a process has one kind of session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafka_sink
from tests.compat.connect_streams import run, stream_of
from tests.spark.parity import OURS, append, values, writable_topic
from tests.spark.process_facts import Facts, facts_in, writer_of_facts
from tools.kafka_cluster import KafkaCluster

pytest.importorskip("grpc")


def test_a_batch_arrives(connected: Any, kafka_4: KafkaCluster, topic_name: str) -> None:
    writable_topic(kafka_4, topic_name)
    append(connected.range(0, 20, 1, 2).selectExpr("cast(id as string) as value"), kafka_4, topic=topic_name)
    assert values(kafka_4, topic_name) == sorted(b"%d" % number for number in range(20))


def test_a_stream_arrives(connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    writable_topic(kafka_4, topic_name)
    writer = stream_of(connected, tmp_path / "source").writeStream.format(OURS).option("topic", topic_name)
    writer = writer.option("kafka.bootstrap.servers", kafka_4.bootstrap_servers)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(600)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]


def run_foreach_batch(rows: Any, checkpoint: Path, kafka: KafkaCluster, topic: str, **options: str) -> None:
    """Each micro-batch is a separate write, with its number as `batch.id` if the options name a sink."""
    named = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **options}

    # It is pickled and run by the server, so it may hold only text from this test.
    def write(rows: Any, batch_id: int) -> None:
        label = {"batch.id": str(batch_id)} if "sink.id" in named else {}
        rows.write.format("pykafka-sink").mode("append").options(**named, **label).save()

    run(rows, write, checkpoint)


def test_foreach_batch_arrives(connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    writable_topic(kafka_4, topic_name)
    run_foreach_batch(stream_of(connected, tmp_path / "source"), tmp_path / "checkpoint", kafka_4, topic_name)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]


def test_foreach_batch_with_bare_numbers_is_refused_before_anything_is_sent(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    """Tasks of a Connect session do not know their query, so 0 under the next checkpoint would be a repetition."""
    writable_topic(kafka_4, topic_name)
    rows = stream_of(connected, tmp_path / "source")
    with pytest.raises(Exception, match="its query is not known") as caught:
        run_foreach_batch(rows, tmp_path / "checkpoint", kafka_4, topic_name, **{"sink.id": topic_name})
    assert "set the option query.id" in str(caught.value)
    assert values(kafka_4, topic_name) == []


def test_the_worker_of_foreach_batch_is_sparks_but_does_not_end_with_an_exception(
    connected: Any, tmp_path: Path
) -> None:
    """It lives as long as the query, and the user's function may catch what the sink raises."""
    seen = tmp_path / "seen"
    rows, named = stream_of(connected, tmp_path / "source"), {}
    exec(writer_of_facts(seen), named)  # by value, as a notebook's function is
    tell = named["tell"]

    def look(rows: Any, batch_id: int) -> None:
        import os

        from kafka_sink.errors import ConfigError
        from kafka_sink.spark.first_line import HIDE_TRACEBACK, explain_to_spark

        try:
            with explain_to_spark():
                raise ConfigError("caught by the user's function")
        except ConfigError:
            tell("with traceback" if HIDE_TRACEBACK not in os.environ else "without")

    run(rows, look, tmp_path / "checkpoint")
    ((place, facts),) = facts_in(seen).items()
    (found,) = facts
    assert found == Facts(is_sparks=True, ends=False, lives_on=True, folder=found.folder, handlers=1)
    # A folder that Spark deletes with the application, and not one that an operator has set for all of them.
    assert found.folder is not None and Path(found.folder).parent.name.startswith("blockmgr-")
    assert place == "with traceback"


def test_foreach_batch_under_a_new_checkpoint_is_another_query_if_it_says_so_and_no_repetition(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    """The first checkpoint loses the commit of its last batch, like a restored backup, and runs again: nothing is there
    twice. Then the query begins with a new checkpoint, from the first row on: all rows arrive again."""
    writable_topic(kafka_4, topic_name)
    source = stream_of(connected, tmp_path / "source")
    first = {"sink.id": topic_name, "query.id": "checkpoint-1"}
    run_foreach_batch(source, tmp_path / "checkpoint-1", kafka_4, topic_name, **first)
    (tmp_path / "checkpoint-1" / "commits" / "1").unlink()
    (tmp_path / "checkpoint-1" / "commits" / ".1.crc").unlink(missing_ok=True)
    run_foreach_batch(source, tmp_path / "checkpoint-1", kafka_4, topic_name, **first)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]
    second = {"sink.id": topic_name, "query.id": "checkpoint-2"}
    run_foreach_batch(source, tmp_path / "checkpoint-2", kafka_4, topic_name, **second)
    assert values(kafka_4, topic_name) == [b"a", b"a", b"b", b"b", b"c", b"c"]


def test_the_check_names_secrets_that_the_server_writes_down_until_its_advice_is_pasted(
    connected: Any, topic_name: str
) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice", "sasl.password": "hunter2"}
    options = {f"kafka.{name}": value for name, value in {**login, "bootstrap.servers": "127.0.0.1:1"}.items()}

    def lines() -> list[Any]:
        report = kafka_sink.check({**options, "kafka.sasl.mechanism": "PLAIN", "topic": topic_name})
        return [each for each in report if each.name == "options" and "holds a secret in clear" in each.text]

    (line,) = lines()
    command = line.advice.split("`")[1]
    assert command.startswith("spark.conf.set(")
    try:
        exec(command, {"spark": connected})
        assert lines() == []
    finally:
        connected.conf.unset("spark.sql.redaction.string.regex")
