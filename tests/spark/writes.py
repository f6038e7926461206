"""Options of a write through the functions, and streams that write through them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from tests.spark.spark_session import run_to_end
from tools.kafka_cluster import KafkaCluster


def options(kafka: KafkaCluster, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def run(frame: DataFrame, function: object, checkpoint: str, mode: str = "append") -> None:
    writer = frame.writeStream.foreachBatch(function).outputMode(mode)  # type: ignore[arg-type]
    run_to_end(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())


def forget_commit(checkpoint: str, batch: int) -> None:
    for name in (f"{batch}", f".{batch}.crc"):
        (Path(checkpoint) / "commits" / name).unlink()


def named(kafka: KafkaCluster, topic: str, **more: str) -> dict[str, str]:
    return options(kafka, topic, **{"sink_id": topic[-60:].lstrip("-"), "batch_id": "day-1", **more})
