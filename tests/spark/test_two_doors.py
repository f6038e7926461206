"""A stream moves from `format("pykafka-sink")` to `kafka_sink.foreach_batch` and back: one checkpoint, one ledger."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

import kafka_sink
from tests.spark.parity import Folder, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.spark.test_foreach_batch import forget_commit
from tests.spark.test_second_door import options, run
from tools.kafka_cluster import KafkaCluster


@pytest.mark.parametrize("name", ["sink.id", "checkpointLocation"])
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
    new = "PKS-6005(?s:.*)has no record of sink(?s:.*)used another sink.id until now"
    for function, text in ((kafka_sink.foreach_batch(other), known), (write, new)):
        with pytest.raises(Exception, match=text):
            run(folder.read(), function, checkpoint)
    assert values(kafka_4, topic_name) == [b"a"]
    run(folder.read(), kafka_sink.foreach_batch(options(kafka_4, topic_name, sink_id=first)), checkpoint)
    assert values(kafka_4, topic_name) == [b"a", b"b"]
