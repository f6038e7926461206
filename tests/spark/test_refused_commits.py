"""A stream of Spark whose commit is refused: Spark plans its abort anew, in a new process, and what planning refuses
there holds no reader back. Each refusal, without Spark: tests/integration/test_refused_commits.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions
from pyspark.sql.types import StringType

from kafka_sink.testing import EmbeddedBroker
from tests.spark.parity import Folder
from tests.spark.spark_session import PATIENCE_S
from tests.support.faults import is_drivers
from tests.support.open_transactions import open_transactions
from tools.foreign_reader import read_topic
from tools.waiting import wait_until

LAST = "last of a batch"


def holding_last_row(reached: Path, gate: Path) -> Callable[[str], str]:
    """A task waits before this row until the gate opens: the others are in its transaction."""
    reached_path, gate_path, last = str(reached), str(gate), LAST

    def hold(value: str) -> str:
        import os
        import time

        if value == last:
            open(reached_path, "w").close()
            while not os.path.exists(gate_path):
                time.sleep(0.05)
        return value

    return hold


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("batches", [0, 1], ids=["first batch", "second batch"])
def test_a_stream_whose_manifest_topic_is_deleted_holds_no_reader_back_after_it_has_ended(
    folder: Folder, tmp_path: Path, checkpoint: str, batches: int
) -> None:
    """In the first batch the process that commits has not planned before."""
    reached, gate = tmp_path / "reached", tmp_path / "gate"
    topics, properties = {"t": 1, "manifests": 1}, {"auto.create.topics.enable": "false"}
    with EmbeddedBroker(topics=topics, properties=properties) as broker:
        hold = functions.udf(holding_last_row(reached, gate), StringType(), useArrow=False)
        writer = folder.read().select(hold("value").alias("value")).writeStream.format("pykafka-sink")
        writer = writer.options(
            **{
                "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "sink.id": "gated",
                "manifest.topic": "manifests", "checkpointLocation": checkpoint, "kafka.max.block.ms": "3000",
            }
        )  # fmt: skip
        if batches:
            folder.add("earlier")
        query = writer.start()
        try:
            if batches:
                query.processAllAvailable()
            folder.add("first of a batch", LAST)
            wait_until(reached.exists, "a task holds the last row", PATIENCE_S)
            broker.do(lambda core: core.cluster.delete_topic("manifests"))
            gate.touch()
            with pytest.raises(StreamingQueryException, match=r"was not committed.*manifests"):
                query.awaitTermination(PATIENCE_S)
        finally:
            gate.touch()
            query.stop()
        began_s = time.monotonic()
        found = open_transactions(broker.bootstrap_servers, "gated", patience_s=5)
        assert [one for one in found if not is_drivers(one.split()[0])] == []
        assert [record.value for record in read_topic(broker.bootstrap_servers, "t")] == [b"earlier"] * batches
        assert time.monotonic() - began_s < 60  # the time-out of the transactions is much longer
