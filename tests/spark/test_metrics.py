"""Metrics of several streams in one application, whose Python processes are killed, as is the exporter."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_sink import sink_metrics
from kafka_sink.telemetry.metrics.notebook import application_folder_of
from kafka_sink.testing import EmbeddedBroker
from tests.spark.parity import Folder, start
from tests.spark.spark_session import read_rows, run_to_end
from tests.support.served_figures import answers, exporter_of, served, value
from tools.driver_processes import driver_processes, kill
from tools.kafka_node import free_port
from tools.waiting import wait_until

TOPICS = ("figures-a", "figures-b")


def test_figures_outlive_the_processes_that_plan_commit_and_serve(spark: SparkSession, tmp_path: Path) -> None:
    """Three rounds of two streams. After the first all planning and committing processes are killed, after the second
    the exporter; each time the next figures continue from the earlier ones."""
    port = free_port()
    options = {"metrics_prometheus_port": str(port), "metrics_prometheus_address": "127.0.0.1"}
    folders = {}
    for topic in TOPICS:
        (tmp_path / topic).mkdir()
        folders[topic] = Folder(spark, tmp_path / topic)
    with EmbeddedBroker(1, topics=dict.fromkeys(TOPICS, 2)) as broker:
        for round_ in range(3):
            queries = []
            for topic in TOPICS:
                folders[topic].add(*(f"{round_}-{number}" for number in range(10)))
                checkpoint = str(tmp_path / topic / "checkpoint")
                named = {**options, "sink_id": topic}
                queries.append(start(folders[topic].read(), broker.bootstrap_servers, checkpoint, topic, **named))
            for query in queries:
                run_to_end(query)
            text = served(port)
            for topic in TOPICS:
                assert value(text, "pykafka_sink_rows_total", sink=topic, topic=topic) == 10 * (round_ + 1)
                assert value(text, "pykafka_sink_batches_total", sink=topic, outcome="delivered") == round_ + 1
                assert value(text, "pykafka_sink_last_batch_id", sink=topic) == round_
                assert len(read_rows(broker.bootstrap_servers, topic)) == 10 * (round_ + 1)
            if round_ == 0:
                assert [kill(each) for each in driver_processes()].count(True) >= 1
            elif round_ == 1:
                os.kill(exporter_of(application_folder_of(spark)), signal.SIGKILL)
                wait_until(lambda: not answers(port), "the exporter to end")
        found = sink_metrics(spark)
        # Tests before this one had streams in the same application.
        mine = {stream.sink: stream.value("rows") for stream in found if stream.sink in TOPICS}
        assert mine == dict.fromkeys(TOPICS, 30)
        assert [batch["batch_id"] for batch in found.of(TOPICS[0]).recent] == [0, 1, 2]
        assert "<td>figures-b</td>" in found._repr_html_()
    with pytest.raises(KeyError, match="there are figures of"):
        found.of("nobody")
