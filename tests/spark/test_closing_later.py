"""With Spark a stream's batch is delivered before the record that closes its decision is written; the next batch, and a
start after the process has ended just then, go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafka_sink
from kafka_sink.kafka.wire.apis import PRODUCE
from tests.chaos.refusals import produce_refused
from tests.spark.parity import Folder, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.spark.test_restarts_in_one_session import kill_committing
from tests.spark.writes import run
from tests.support.closing import open_decisions, wait_until_closed
from tests.support.faults import Harm, Request, of_the_driver
from tests.support.kafka_proxy import KafkaProxy
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

# Of the first commit of a process: the claim, the intent, and what closes it.
CLOSING = 3


@pytest.fixture
def proxy(kafka_4: KafkaCluster) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka_4.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def sink(topic_name: str) -> str:
    return topic_name[-60:].lstrip("-")


@pytest.fixture(params=["format", "function"])
def deliver(
    request: pytest.FixtureRequest, proxy: KafkaProxy, folder: Folder, checkpoint: str, topic_name: str, sink: str
) -> Callable[[], None]:
    """Runs the stream until its source is exhausted."""
    if request.param == "format":
        return lambda: run_to_end(
            start(folder.read(), proxy.bootstrap_servers, checkpoint, topic=topic_name, sink_id=sink)
        )
    options = {"kafka.bootstrap.servers": proxy.bootstrap_servers, "topic": topic_name, "sink.id": sink}
    return lambda: run(folder.read(), kafka_sink.foreach_batch(options), checkpoint)


def of_ledger(request: Request) -> bool:
    return of_the_driver(request) and request.body["topic_data"][0]["name"].startswith("__")


def test_batches_and_restarts_go_on_and_each_decision_is_closed_within_moments(
    deliver: Callable[[], None], kafka_4: KafkaCluster, topic_name: str, folder: Folder, sink: str
) -> None:
    writable_topic(kafka_4, topic_name)
    for row in ("a", "b", "c"):
        folder.add(row)
    deliver()
    wait_until_closed(kafka_4.bootstrap_servers, sink)
    folder.add("d")
    deliver()
    wait_until_closed(kafka_4.bootstrap_servers, sink)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("deliver", ["format", pytest.param("function", marks=pytest.mark.slow)], indirect=True)
def test_the_next_batch_closes_a_decision_whose_record_was_refused(
    deliver: Callable[[], None],
    kafka_4: KafkaCluster,
    proxy: KafkaProxy,
    topic_name: str,
    folder: Folder,
    sink: str,
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a")
    folder.add("b")
    fault = proxy.on(PRODUCE, Harm.REFUSE, nth=CLOSING, where=of_ledger, refusal=produce_refused)
    deliver()
    assert fault.has_acted
    wait_until_closed(kafka_4.bootstrap_servers, sink)
    assert values(kafka_4, topic_name) == [b"a", b"b"]


@pytest.mark.parametrize("deliver", ["format"], indirect=True)
def test_a_start_closes_what_a_process_has_left_open_that_ended_right_after_the_batch(
    deliver: Callable[[], None],
    kafka_4: KafkaCluster,
    proxy: KafkaProxy,
    topic_name: str,
    folder: Folder,
    checkpoint: str,
    sink: str,
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a")

    def end() -> None:
        wait_until((Path(checkpoint) / "commits" / "0").exists, "Spark knows that the batch is delivered")
        kill_committing()

    fault = proxy.on(PRODUCE, Harm.LOSE_REQUEST, nth=CLOSING, where=of_ledger, before=end)
    deliver()
    assert fault.wait_until_acted() and open_decisions(kafka_4.bootstrap_servers, sink)
    assert values(kafka_4, topic_name) == [b"a"]
    folder.add("b")
    deliver()
    wait_until_closed(kafka_4.bootstrap_servers, sink)
    assert values(kafka_4, topic_name) == [b"a", b"b"]
