"""`format("pykafka-sink")` and the functions beside each other: a stream moves from one to the other and back, with one
checkpoint and one ledger; options do the same in both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from tests.spark.parity import Folder, append, records, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.spark.writes import forget_commit, options, run
from tools.kafka_cluster import KafkaCluster


@pytest.mark.parametrize("name", [pytest.param("sink.id", marks=pytest.mark.slow), "checkpointLocation"])
def test_a_stream_goes_through_one_door_and_then_the_other_and_each_row_is_there_once(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str, name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    named = {"sink.id": topic_name[-60:].lstrip("-")} if name == "sink.id" else {}
    by_function = kafka_sink.foreach_batch(
        {**options(kafka_4, topic_name), **(named or {"checkpointLocation": checkpoint})}
    )

    def by_format() -> None:
        given = {each.replace(".", "_"): value for each, value in named.items()}
        run_to_end(start(folder.read(), kafka_4, checkpoint, topic=topic_name, **given))

    folder.add("a")
    by_format()
    forget_commit(checkpoint, 0)  # the other door repeats the last batch
    folder.add("b")
    run(folder.read(), by_function, checkpoint)
    forget_commit(checkpoint, 1)
    folder.add("c")
    by_format()
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]


def test_under_another_sink_id_the_other_door_is_refused_and_says_how_to_go_on(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    first, second = (f"{topic_name[-50:].lstrip('-')}-{each}" for each in ("first", "second"))
    folder.add("a")
    run_to_end(start(folder.read(), kafka_4, checkpoint, topic=topic_name, sink_id=first))
    folder.add("b")
    other = options(kafka_4, topic_name, sink_id=second)

    def write(frame: DataFrame, batch_id: int) -> None:
        kafka_sink.write_batch(frame, batch_id, other)

    # A function of the user's may write to several targets, of which one is new: there the old name is no hint.
    known = rf"PKS-6009(?s:.*)knows this query under another sink id \({first}\)(?s:.*)Set sink\.id={first}"
    new = "PKS-6005(?s:.*)has no record of sink(?s:.*)used another sink.id until now(?s:.*)set that again"
    for function, text in ((kafka_sink.foreach_batch(other), known), (write, new)):
        with pytest.raises(Exception, match=text):
            run(folder.read(), function, checkpoint)
    assert values(kafka_4, topic_name) == [b"a"]
    run(folder.read(), kafka_sink.foreach_batch(options(kafka_4, topic_name, sink_id=first)), checkpoint)
    assert values(kafka_4, topic_name) == [b"a", b"b"]


@pytest.mark.parametrize("is_the_checkpoints", [True, False], ids=["the id in the checkpoint", "any other text"])
def test_with_a_query_id_the_other_door_goes_on_if_it_is_that_of_the_checkpoint_or_says_what_to_do(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str, is_the_checkpoints: bool
) -> None:
    """As over Spark Connect, where the functions need it. The format has the id that Spark keeps in the checkpoint."""
    writable_topic(kafka_4, topic_name)
    name = topic_name[-50:].lstrip("-")

    def by_function() -> None:
        metadata = Path(checkpoint) / "metadata"  # there before the first batch
        query_id = f"people-of-{name}"

        def write(frame: DataFrame, batch_id: int) -> None:
            chosen = json.loads(metadata.read_text())["id"] if is_the_checkpoints else query_id
            kafka_sink.write_batch(frame, batch_id, options(kafka_4, topic_name, sink_id=name, query_id=chosen))

        run(folder.read(), write, checkpoint)

    def by_format(**more: str) -> None:
        run_to_end(start(folder.read(), kafka_4, checkpoint, topic=topic_name, sink_id=name, **more))

    for letter in "ab":
        folder.add(letter)
        by_function()
    forget_commit(checkpoint, 1)  # the other door would repeat it
    if is_the_checkpoints:
        by_format()
        folder.add("c")
        by_format()
    else:
        folder.add("c")
        with pytest.raises(Exception, match=r"PKS-6005(?s:.*)or a query\.id that was added, changed or left out"):
            by_format()
        by_function()
        folder.add("d")
        by_format(ledger_accept_new_sink="true")
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"] + [b"d"] * (not is_the_checkpoints)


def test_dead_letters_figures_and_lineage_events_are_the_same(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    rows = spark.range(0, 20, 1, 2).selectExpr(
        "CAST(id AS STRING) AS key", "concat('row ', id) AS value", "IF(id % 10 = 3, 99, 0) AS partition"
    )
    found: dict[str, Any] = {}
    for door in ("format", "function"):
        topic = writable_topic(kafka_4, f"{topic_name}-{door}")
        letters = writable_topic(kafka_4, f"{topic}-letters", partitions=1)
        name, lineage = f"{topic_name[-50:].lstrip('-')}-{door}", tmp_path / door
        given = {
            "record_errors": "dead-letter", "dead_letter_topic": letters, "metrics_enabled": "true",
            "lineage_file": str(lineage), "lineage_job": "job", "sink_id": name, "batch_id": "day",
        }  # fmt: skip
        if door == "format":
            append(rows, kafka_4, topic=topic, **given)
        else:
            summary = kafka_sink.write(rows, options(kafka_4, topic, **given))
            assert summary.left_out == {"no such partition": 2}
        figures = kafka_sink.sink_metrics(spark).of(name)
        events = [json.loads(line) for line in lineage.read_text().splitlines()]
        found[door] = {
            "rows": sorted((each.key, each.value, each.headers) for each in records(kafka_4, topic)),
            "letters": sorted(
                (each.key, each.value, [header for header, _ in each.headers]) for each in records(kafka_4, letters)
            ),
            "figures": [figures.value(each) for each in ("rows", "batches", "tasks", "dead_letters", "transactions")],
            "events": [(each["eventType"], each["job"]["name"], sorted(each["run"]["facets"])) for each in events],
        }
    assert found["function"] == found["format"]
    assert found["format"]["figures"][:4] == [20, 1, 2, 2]
    assert len(found["format"]["rows"]) == 18 and len(found["format"]["letters"]) == 2
    assert [each[0] for each in found["format"]["events"]] == ["START", "COMPLETE"]
