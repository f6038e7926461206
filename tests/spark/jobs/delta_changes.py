"""The code of docs/guides/change-feeds.md, in a process of its own, with Delta Lake. What it does comes last:

make COMMITS     a table with that many commits; its rows go to the file `rows.json`
follow           both envelopes in one query, which says each micro-batch that it begins
page             the blocks of the page, one after the other
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.page_blocks import BROKER, FOLDER, code_blocks, placed

PAGE = "docs/guides/change-feeds.md"
KEYS = 30
# Changes of several commits in one micro-batch, and many micro-batches.
FILES = 12


def blocks(servers: str, folder: str, topics: str) -> list[str]:
    """`topics`: a prefix of their names, and of those of sinks."""
    places = {BROKER: servers, FOLDER: f"{folder}/"}
    places |= {f'"{name}": "': f'"{name}": "{topics}' for name in ("topic", "sink.id")}
    return [placed(block.code, places) for block in code_blocks(PAGE)]


def session(jars: str, folder: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .getOrCreate()
    )


def find_table(spark: SparkSession, folder: str) -> None:
    spark.sql(f"CREATE TABLE customers USING delta LOCATION '{folder}/customers'")


def make(spark: SparkSession, folder: str, commits: int) -> None:
    spark.sql(
        f"CREATE TABLE customers (id BIGINT, name STRING) USING delta LOCATION '{folder}/customers' "
        # This Delta was built for an earlier PySpark 4.1, and cannot write a checkpoint of its log with this one.
        "TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.checkpointInterval = 1000)"
    )
    dice = random.Random(7)
    for number in range(1, commits):
        ids = sorted(dice.sample(range(KEYS), 6))
        rows = ", ".join(f"({each}, 'name {number}')" for each in ids)
        spark.sql(f"CREATE OR REPLACE TEMP VIEW news AS SELECT * FROM VALUES {rows} AS v(id, name)")
        kind = number % 5
        if kind == 3:
            spark.sql(f"DELETE FROM customers WHERE id IN ({ids[0]}, {ids[1]}, {ids[2]})")
        elif kind == 4:
            spark.sql(f"UPDATE customers SET name = 'updated {number}' WHERE id % 3 = {number % 3}")
        else:
            spark.sql(
                "MERGE INTO customers t USING news n ON t.id = n.id "
                f"WHEN MATCHED AND n.id % 4 = {number % 4} THEN DELETE WHEN MATCHED THEN UPDATE SET name = n.name "
                "WHEN NOT MATCHED THEN INSERT *"
            )
    rows_now = {str(row["id"]): row["name"] for row in spark.table("customers").collect()}
    versions = spark.sql("DESCRIBE HISTORY customers").count()
    Path(folder, "rows.json").write_text(json.dumps({"rows": rows_now, "versions": versions}))


def follow(spark: SparkSession, code: Sequence[str], folder: str) -> None:
    names: dict[str, Any] = {"spark": spark, "__name__": "page"}
    stream, events, *_ = code
    # Only what it defines: the query of this test writes to both topics.
    exec(stream.partition("\nchanges = ")[0], names)
    exec(events, names)

    def write_both(changes: Any, batch_id: int) -> None:
        sys.stdout.write(f"batch {batch_id}\n")
        sys.stdout.flush()
        names["write_changes"](changes, batch_id)
        names["write_events"](changes, batch_id)

    feed = spark.readStream.option("readChangeFeed", "true").option("startingVersion", 0)
    query = (
        feed.option("maxFilesPerTrigger", FILES)
        .table("customers")
        .writeStream.foreachBatch(write_both)
        .option("checkpointLocation", f"{folder}/checkpoint-of-both")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def page(spark: SparkSession, code: Sequence[str]) -> None:
    names: dict[str, Any] = {"spark": spark, "__name__": "page"}
    for block in code:
        exec(block, names)


def main() -> None:
    jars, servers, folder, topics, what, *rest = sys.argv[1:]
    spark = session(jars, folder)
    if what == "make":
        make(spark, folder, int(rest[0]))
        return
    find_table(spark, folder)
    code = blocks(servers, folder, topics)
    follow(spark, code, folder) if what == "follow" else page(spark, code)
    sys.stdout.write("the end\n")


if __name__ == "__main__":
    main()
