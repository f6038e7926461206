"""INSERT INTO: the options that a statement gives reach the sink, and its rows are written once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.parity import values, writable_topic
from tools.kafka_cluster import KafkaCluster


def test_a_statement_with_options_writes_its_rows_once_however_often_it_is_run(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    options = {
        "kafka.bootstrap.servers": kafka_4.bootstrap_servers, "topic": topic_name,
        "sink.id": f"sink-{topic_name}", "batch.id": "today",
    }  # fmt: skip
    given = ", ".join(f"`{name}` = '{text}'" for name, text in options.items())
    spark.sql("CREATE TABLE sink_table (key STRING, value STRING) USING `pykafka-sink`")
    for _ in range(2):
        spark.sql(
            f"INSERT INTO sink_table WITH ({given}) BY NAME "
            "SELECT concat('v', id) AS value, CAST(id AS STRING) AS key FROM range(10)"
        )
    spark.sql("DROP TABLE sink_table")
    assert values(kafka_4, topic_name) == sorted(b"v%d" % number for number in range(10))
