"""What a record leaves behind is freed with its last reference, not by the garbage collector.

An object that refers to itself, directly or through others, is freed by a collection, which comes when many objects
have been made. Record batches are few and large: hundreds of megabytes would wait for it.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from kafka_sink import Producer
from kafka_sink.errors import KafkaSinkError
from kafka_sink.testing import EmbeddedBroker, Fault
from tests.support.producing import TIMEOUT_S, producer_of, rows, transactional

TOPIC = "events"
RECORD_COUNT = 2000
NOT_ENOUGH_REPLICAS, INVALID_RECORD = 19, 87


def send(producer: Producer) -> None:
    for number in range(RECORD_COUNT):
        producer.send(TOPIC, b"v" * 900, key=b"%d" % number, headers=[("h", b"x")])
    producer.flush(timeout_s=TIMEOUT_S)


def send_arrow(producer: Producer) -> None:
    columns = pa.table({"value": [b"v" * 1000] * RECORD_COUNT, "key": [b"%d" % key for key in range(RECORD_COUNT)]})
    producer.send_arrow(columns, topic=TOPIC).result(TIMEOUT_S)


def send_in_transactions(producer: Producer) -> None:
    for commits in (True, False):
        producer.begin_transaction()
        producer.send_arrow(rows("x", RECORD_COUNT), topic=TOPIC)
        producer.commit_transaction() if commits else producer.abort_transaction()


def collect_own(work: Callable[[], None]) -> Counter[str]:
    """The types of what only the collector could free after the work, except for those of the broker and of others."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        kinds = Counter(type(each) for each in gc.garbage)
        return Counter({kind.__name__: count for kind, count in kinds.items() if _is_own(kind.__module__)})
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _is_own(module: str) -> bool:
    return module.startswith("kafka_sink.") and not module.startswith("kafka_sink.testing.")


@pytest.mark.parametrize("work", [send, send_arrow])
@pytest.mark.parametrize("acks", ["all", "0"])
def test_delivered_records_leave_nothing_for_the_collector(work: Callable[[Producer], None], acks: str) -> None:
    with EmbeddedBroker(topics={TOPIC: 4}) as kafka, producer_of(kafka, acks=acks, linger_ms=1000) as producer:
        work(producer)
        assert collect_own(lambda: work(producer)) == {}


def test_nor_do_transactions() -> None:
    with EmbeddedBroker(topics={TOPIC: 4}) as kafka, transactional(kafka, "garbage") as producer:
        producer.init_transactions()
        send_in_transactions(producer)
        assert collect_own(lambda: send_in_transactions(producer)) == {}


def test_nor_do_batches_that_are_sent_again() -> None:
    with EmbeddedBroker(topics={TOPIC: 4}) as kafka, producer_of(kafka, retry_backoff_ms=1) as producer:
        send_arrow(producer)

        def send_twice() -> None:
            kafka.inject(Fault("Produce", error_code=NOT_ENOUGH_REPLICAS, times=3))
            send_arrow(producer)

        assert collect_own(send_twice) == {}


def test_nor_do_records_that_fail() -> None:
    with EmbeddedBroker(topics={TOPIC: 4}) as kafka, producer_of(kafka) as producer:
        send_arrow(producer)

        def fail() -> None:
            kafka.inject(Fault("Produce", error_code=INVALID_RECORD, times=1))
            future = producer.send_arrow(rows("x", 10), topic=TOPIC)
            with pytest.raises(KafkaSinkError):
                future.result(TIMEOUT_S)

        # An error that was raised knows the frame that knows the future; no bytes of records.
        assert collect_own(fail).keys() <= {"DeliveryError", "ArrowFuture"}
