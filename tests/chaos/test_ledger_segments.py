"""The ledger's segments are full or old, so that an answer to a Fetch ends before the last stable offset that it tells.

A driver dies with its intent in the log and not decided. While the next start reads the ledger, somebody fences that
driver, which aborts the intent: the end of the log was reported before, the last stable offset afterwards, and the
marker of the abort is in the segment behind. The batch was never decided, so it runs again; each row is there once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from kafka_sink.commit.identity import Line, sink_id_of_query
from kafka_sink.kafka.wire.apis import END_TXN, FETCH
from tests.chaos.bare_spark import Killed
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.faults import Harm, of_the_driver
from tools.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    NEWEST_MAINLY,
]


def test_an_intent_whose_abort_is_in_the_next_segment_of_the_ledger_is_not_taken_for_a_decision(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, topic_name: str
) -> None:
    # Whatever is a millisecond old is in a segment of its own.
    ledger = kafka.create_topic(f"ledger-{topic_name}"[:249], 1, 1, {"cleanup.policy": "compact", "segment.ms": 1})
    stream = stream_on(kafka, ledger__topic=ledger)
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        stream.proxy.on(END_TXN, Harm.LOSE_REQUEST, where=of_the_driver, before=query.strike)
        with pytest.raises(Killed):
            query.commit(messages)
    driver = Line(sink_id_of_query(stream.sink_id, stream.checkpoint.query_id)).driver_id

    def fence() -> None:
        Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": driver}).init_transactions(30)

    reading = stream.proxy.on(FETCH, Harm.DELAY_REQUEST, before=fence)
    stream.run()
    assert reading.has_acted
    stream.check(1)
