"""The second door over Spark Connect: the client plans and commits a batch write; the function of foreachBatch runs in
a process of the server, which lives as long as its query. Run alone, because a process has one kind of session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kafka_sink
from kafka_sink.spark.query_batch import application_of
from tests.compat.connect_streams import run, start, stream_of
from tests.spark.parity import values, writable_topic
from tests.spark.test_cancelled_writes import PATIENCE_S, interrupted, readers_reach_the_end, slow_rows
from tests.spark.writes import forget_commit, options
from tests.support.open_transactions import open_transactions
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

pytest.importorskip("grpc")


def of_sink(kafka: KafkaCluster, topic: str, **more: str) -> dict[str, str]:
    return options(kafka, topic, sink_id=topic[-60:].lstrip("-"), **more)


def test_a_write_of_the_client_says_what_it_wrote_and_is_not_repeated(
    connected: Any, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = connected.range(0, 20, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    named = of_sink(kafka_4, topic_name, batch_id="day-1")
    first, second = kafka_sink.write(rows, named), kafka_sink.write(rows, named)
    assert (first.rows, first.tasks, first.is_repeated, second.is_repeated) == (20, 2, False, True)
    assert values(kafka_4, topic_name) == sorted(b"%d" % number for number in range(20))
    assert open_transactions(kafka_4.bootstrap_servers, named["sink.id"]) == []


def test_a_write_of_the_client_that_fails_leaves_nothing_and_says_why(
    connected: Any, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = connected.range(0, 20, 1, 2).selectExpr("IF(id = 15, repeat('x', 5000), CAST(id AS STRING)) AS value")
    given = of_sink(kafka_4, topic_name, batch_id="day-1")
    with pytest.raises(Exception, match="PKS-"):
        kafka_sink.write(rows, {**given, "kafka.max.request.size": "2000"})
    assert values(kafka_4, topic_name) == []
    assert open_transactions(kafka_4.bootstrap_servers, given["sink.id"]) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_the_operation_of_an_interrupted_write_is_cancelled_and_no_reader_waits(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, error: type[BaseException]
) -> None:
    writable_topic(kafka_4, topic_name)
    beats = tmp_path / "beats"
    with pytest.raises(error), interrupted(error, beats.exists):
        kafka_sink.write(slow_rows(connected, 120, str(beats)), of_sink(kafka_4, topic_name))
    wait_until(lambda: time.time() - beats.stat().st_mtime > 5, "no task waits any more", 60)
    wait_until(lambda: readers_reach_the_end(kafka_4, topic_name), "readers reach the end", PATIENCE_S)
    assert connected.getTags() == set() if hasattr(connected, "getTags") else True


def write_by_format(frame: Any, named: dict[str, str]) -> None:
    frame.write.format("pykafka-sink").options(**named).mode("append").save()


@pytest.mark.parametrize("write", [kafka_sink.write, write_by_format], ids=["functions", "format"])
def test_a_write_that_the_session_s_interrupt_all_cancels_holds_no_reader_back(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, write: Callable[[Any, Any], Any]
) -> None:
    """As the stop button of a notebook does it: the server cancels the operation, and the client hears of it."""
    writable_topic(kafka_4, topic_name)
    beats, named = tmp_path / "beats", of_sink(kafka_4, topic_name, batch_id="day-1")
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, slow_rows(connected, 120, str(beats)), named)
        wait_until(beats.exists, "a task runs", 120)
        assert connected.interruptAll()
        with pytest.raises(Exception, match="OPERATION_CANCELED"):
            writing.result(120)
    wait_until(lambda: time.time() - beats.stat().st_mtime > 5, "no task waits any more", 60)
    wait_until(lambda: readers_reach_the_end(kafka_4, topic_name), "readers reach the end", PATIENCE_S)
    rows = connected.range(0, 20, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    write(rows, named)
    assert len(values(kafka_4, topic_name)) == 20


def test_a_query_that_is_stopped_in_the_middle_of_a_batch_cancels_its_job_and_no_reader_waits(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    """One task has ended, the other one waits: without a word the transaction of the first would stay open."""
    writable_topic(kafka_4, topic_name)
    beats, named = tmp_path / "beats", of_sink(kafka_4, topic_name, query_id="stopped")
    both = stream_of(connected, tmp_path / "source").repartition(2)
    rows = both.mapInArrow(one_waits(str(beats)), "value string")
    query = start(rows, kafka_sink.foreach_batch(named), tmp_path / "checkpoint", processingTime="1 second")
    try:
        wait_until(
            lambda: beats.exists() and open_transactions(kafka_4.bootstrap_servers, named["sink.id"], 0),
            "one task has ended, the other one waits",
            120,
        )
    finally:
        query.stop()
    wait_until(lambda: readers_reach_the_end(kafka_4, topic_name), "readers reach the end", 3 * PATIENCE_S)
    wait_until(lambda: time.time() - beats.stat().st_mtime > 5, "no task waits any more", 60)
    assert open_transactions(kafka_4.bootstrap_servers, named["sink.id"]) == []


def one_waits(beats: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for _ in range(120 if context.partitionId() == 0 else 0):
            time.sleep(1)
            with open(beats, "a") as file:
                file.write(".")
        yield from batches

    return wait


def test_a_query_has_to_be_named_also_if_it_is_the_only_one(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    writable_topic(kafka_4, topic_name)
    function = kafka_sink.foreach_batch(of_sink(kafka_4, topic_name))
    with pytest.raises(Exception, match="is not known: over Spark Connect") as caught:
        run(stream_of(connected, tmp_path / "source"), function, tmp_path / "checkpoint")
    assert "Set the option query.id" in str(caught.value)
    assert values(kafka_4, topic_name) == []


def test_a_folder_among_the_options_that_is_no_checkpoint_is_refused_also_with_a_query_id(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    writable_topic(kafka_4, topic_name)
    named = of_sink(kafka_4, topic_name, query_id="one", checkpointLocation=str(tmp_path))
    with pytest.raises(Exception, match=r"PKS-1111(?s:.*)has no file metadata with the id of a query"):
        run(stream_of(connected, tmp_path / "source"), kafka_sink.foreach_batch(named), tmp_path / "checkpoint")
    assert values(kafka_4, topic_name) == []


@pytest.mark.parametrize("named", ["query.id", "checkpointLocation"])
def test_a_repeated_batch_is_skipped_and_a_new_checkpoint_is_not(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, named: str
) -> None:
    """The server's process can read the checkpoint."""
    writable_topic(kafka_4, topic_name)
    rows = stream_of(connected, tmp_path / "source")

    def run_named(checkpoint: str) -> None:
        name = {named: checkpoint if named == "query.id" else str(tmp_path / checkpoint)}
        run(rows, kafka_sink.foreach_batch({**of_sink(kafka_4, topic_name), **name}), tmp_path / checkpoint)

    run_named("first")
    forget_commit(str(tmp_path / "first"), 1)
    run_named("first")
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]
    run_named("second")
    assert values(kafka_4, topic_name) == [b"a", b"a", b"b", b"b", b"c", b"c"]


def test_two_queries_of_one_session_deliver_each_row_once_and_skip_repeated_batches(
    connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    topics = [writable_topic(kafka_4, f"{topic_name}-{number}") for number in range(2)]
    rows = stream_of(connected, tmp_path / "source")
    for _ in range(2):
        queries = []
        for topic in topics:
            function = kafka_sink.foreach_batch(of_sink(kafka_4, topic, query_id=f"query-of-{topic[-1]}"))
            queries.append(start(rows, function, tmp_path / topic[-1], availableNow=True))
        for query in queries:
            assert query.awaitTermination(600)
            query.stop()
        for topic in topics:
            forget_commit(str(tmp_path / topic[-1]), 1)
    for topic in topics:
        assert values(kafka_4, topic) == [b"a", b"b", b"c"]
        assert open_transactions(kafka_4.bootstrap_servers, topic[-60:].lstrip("-")) == []


def test_the_application_of_a_client_s_server_is_known_as_transactional_ids_are_used_again_within_one_only(
    connected: Any,
) -> None:
    assert application_of(connected).startswith("local-")
