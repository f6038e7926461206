"""A stream that an earlier release began is continued by this one: nothing is lost, nothing is duplicated.

It may have left a decision that was not carried out, under the sink id alone: this release has to find it there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_sink.kafka.wire.apis import END_TXN
from tests.spark.parity import start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.spark.stepwise import StepwiseStream
from tests.support.faults import Harm, of_a_task
from tests.support.kafka_proxy import KafkaProxy
from tests.support.open_transactions import open_transactions
from tests.support.releases import BEFORE_QUERY_IDS, release_of
from tools.kafka_cluster import KafkaCluster

SINK = "upgraded"
PATIENCE_S = 300


def lines_of(number: int) -> list[str]:
    return [f"{number}-{row}" for row in range(6)]


def go_on(spark: SparkSession, servers: str, folder: Path, topic: str, sink_id: str) -> None:
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "source")).repartition(2)
    run_to_end(start(rows, servers, str(folder / "checkpoint"), topic=topic, sink_id=sink_id), PATIENCE_S)


@pytest.mark.slow  # without Spark in every run: tests/chaos/test_upgrades.py
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "killed_at",
    [
        pytest.param(1, id="killed-at-the-first-end"),
        pytest.param(None, id="ended"),
        pytest.param(2, id="killed-at-the-second"),
    ],
)
def test_a_stream_of_the_release_before_is_continued_with_every_row_once(
    spark: SparkSession,
    kafka_4: KafkaCluster,
    topic_name: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    killed_at: int | None,
) -> None:
    """`killed_at`: the EndTxn after the decision at which the whole application is killed, if any."""
    package, folder = release_of(BEFORE_QUERY_IDS, tmp_path_factory), tmp_path / "stream"
    writable_topic(kafka_4, topic_name)
    sink_id = f"{SINK}-{topic_name.rpartition('-')[2]}"
    with KafkaProxy(kafka_4.bootstrap_servers) as proxy:
        options = {"kafka.bootstrap.servers": proxy.bootstrap_servers, "topic": topic_name, "sink.id": sink_id}
        with StepwiseStream(folder, options, checkpoint=str(folder / "checkpoint"), package=package) as old:
            for number in range(2):
                old.add(*lines_of(number))
                assert old.step() == "delivered"
            old.add(*lines_of(2))
            if killed_at is None:
                assert old.step() == "delivered"
            else:
                fault = proxy.on(END_TXN, Harm.LOSE_REQUEST, nth=killed_at, where=of_a_task, before=old.kill)
                old.begin_step()
                assert fault.wait_until_acted(PATIENCE_S)
                old.wait_until_dead()
            old.add(*lines_of(3))
    go_on(spark, kafka_4.bootstrap_servers, folder, topic_name, sink_id)
    wanted = sorted(line.encode() for number in range(4) for line in lines_of(number))
    assert values(kafka_4, topic_name) == wanted
    # Again, as after any restart.
    go_on(spark, kafka_4.bootstrap_servers, folder, topic_name, sink_id)
    assert values(kafka_4, topic_name) == wanted
    assert open_transactions(kafka_4.bootstrap_servers, sink_id) == []
