"""Batch writes of one Spark session: a backfill of fifty days from threads, and a commit whose Python process dies."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from kafka_sink import register
from kafka_sink.kafka.wire.apis import END_TXN
from tests.spark.parity import append, values, writable_topic
from tests.support.faults import Harm, of_a_task
from tests.support.kafka_proxy import KafkaProxy
from tools.driver_processes import driver_processes, kill, select_connected
from tools.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.timeout(1200)

ROWS = 20
COMMIT = "commit_data_source_write"


@pytest.fixture
def proxy(kafka_4: KafkaCluster) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka_4.bootstrap_servers) as proxy:
        yield proxy


# Twenty drivers at once without Spark are in every run: tests/chaos/test_exports_at_once.py.
@pytest.mark.parametrize("days", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_many_days_of_one_export_written_at_once_from_threads_are_all_delivered(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, days: int
) -> None:
    writable_topic(kafka_4, topic_name)

    def export(day: int) -> None:
        register(spark)
        rows = spark.range(day * ROWS, (day + 1) * ROWS, 1, 1).selectExpr("CAST(id AS STRING) AS value")
        append(rows, kafka_4, topic=topic_name, sink_id=f"nightly-{topic_name[-20:]}", batch_id=f"day-{day}")

    with ThreadPoolExecutor(days) as pool:
        list(pool.map(export, range(days)))
    assert values(kafka_4, topic_name) == sorted((b"%d" % number for number in range(days * ROWS)), key=repr)


def kill_committing(proxy: KafkaProxy) -> None:
    """Not the idle ones of earlier writes: Spark would hand the abort to one of these, which is gone."""
    ports = [int(address.rpartition(":")[2]) for address in proxy.bootstrap_servers.split(",")]
    for process_id in select_connected(driver_processes(COMMIT), ports):
        kill(process_id)


def test_a_write_without_a_label_whose_commit_process_is_killed_after_the_decision_is_finished_by_its_abort(
    spark: SparkSession, kafka_4: KafkaCluster, proxy: KafkaProxy, topic_name: str
) -> None:
    """Spark calls abort() in another process, and reports the write as failed. What the log says of that:
    tests/chaos/test_writes_without_a_label.py."""
    writable_topic(kafka_4, topic_name)
    fault = proxy.on(END_TXN, Harm.LOSE_REQUEST, nth=2, where=of_a_task, before=partial(kill_committing, proxy))
    rows = spark.range(0, 60, 1, 3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Py4JJavaError):
        # A ledger of its own: planning would end what other tests have decided in a common one, through this proxy.
        append(rows, proxy.bootstrap_servers, topic=topic_name, ledger_topic=f"ledger-{topic_name}"[:249])
    assert fault.has_acted
    assert values(kafka_4, topic_name) == sorted((b"%d" % number for number in range(60)), key=repr)
