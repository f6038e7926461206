"""The order of a key's changes, by the function of the guide, where adaptive execution plans the shuffle anew."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import kafka_sink
from kafka_sink.testing import EmbeddedBroker
from tests.support.change_events import rebuild_from_rows, versions_per_key
from tests.support.page_blocks import code_blocks
from tools.foreign_reader import read_topic

KEYS, VERSIONS = 20, 40


def in_order(changes: Any) -> Any:
    """That of the page."""
    (block,) = (block.code for block in code_blocks("docs/guides/change-feeds.md") if "def in_order" in block.code)
    names: dict[str, Any] = {}
    exec(block.partition("\ndef write_changes")[0], names)
    return names["in_order"](changes)


def test_changes_of_a_key_are_in_the_order_of_their_commits_whatever_spark_makes_of_the_shuffle(
    spark: SparkSession,
) -> None:
    every = spark.range(KEYS * VERSIONS).repartition(7, F.hash("id"))
    changes = every.select(
        (F.col("id") % KEYS).cast("string").alias("key"), (F.col("id") / KEYS).cast("long").alias("_commit_version")
    )
    # A join of which adaptive execution makes another one while it runs, and with it another shuffle.
    kinds = spark.range(KEYS).selectExpr("CAST(id AS STRING) AS key", "id % 4 AS kind")
    joined = changes.join(kinds.hint("MERGE"), "key").selectExpr(
        "key", "_commit_version", "CAST(key AS BIGINT) AS id", "concat('name ', _commit_version) AS name",
        f"IF(kind = 0 AND _commit_version = {VERSIONS - 1}, 'delete', 'update_postimage') AS _change_type",
    )  # fmt: skip
    ordered = in_order(joined)
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    with EmbeddedBroker(1, topics={"t": 3}) as broker:
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "value.format": "json"}
        summary = kafka_sink.write(ordered, {**options, "envelope": "upsert"})
        assert summary.rows == KEYS * VERSIONS
        records = read_topic(broker.bootstrap_servers, "t")
    logs = [[record for record in records if record.partition == partition] for partition in range(3)]
    last = VERSIONS - 1
    assert rebuild_from_rows(logs) == {str(key): f"name {last}" for key in range(KEYS) if key % 4}
    for key, versions in versions_per_key(logs).items():
        assert versions == list(range(VERSIONS if int(key) % 4 else last))
