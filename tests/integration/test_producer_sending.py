"""The public producer against Apache Kafka: futures, callbacks, order, hooks. A foreign reader reads it back."""

from __future__ import annotations

import logging
import threading
import time
from itertools import count

import pyarrow as pa
import pytest

from kafka_sink import Producer, ProducerRecord, RecordMetadata
from kafka_sink.errors import (
    BufferExhausted,
    DataError,
    DeliveryError,
    KafkaSinkError,
    LocalProtocolError,
    OperationTimeout,
)
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.testing import EmbeddedBroker, Fault
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.producing import TIMEOUT_S, producer_of, values
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

HOUR_MS = 3_600_000
INVALID_RECORD = 87


def test_a_future_tells_where_the_record_is_and_how_large_it_was(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=3)
    with producer_of(kafka) as producer:
        future = producer.send(
            topic_name, value=b"value", key=b"k", headers=[("h", b"x"), ("h", None)], timestamp_ms=1_700_000_000_123,
            partition=2,
        )  # fmt: skip
        metadata = future.result(TIMEOUT_S)
        assert future.done()
        assert metadata == RecordMetadata(topic_name, 2, 0, 1_700_000_000_123, 1, 5)
        assert producer.send(topic_name, None, partition=2).result(TIMEOUT_S)[2:] == (
            1, pytest.approx(time.time() * 1000, abs=60_000), -1, -1,
        )  # fmt: skip
    first, second = read_topic(kafka.bootstrap_servers, topic_name)
    assert (first.key, first.value, first.headers, first.timestamp_ms) == (
        b"k", b"value", (("h", b"x"), ("h", None)), 1_700_000_000_123,
    )  # fmt: skip
    assert (second.key, second.value, second.headers) == (None, None, ())


@NEWEST_MAINLY
def test_futures_of_many_records_name_the_offset_of_each(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=4)
    with producer_of(kafka, batch_size=2000) as producer:
        futures = [producer.send(topic_name, b"%d" % number, key=b"%d" % (number % 7)) for number in range(20_000)]
        producer.flush()
        places = {future.result(0)[1:3]: b"%d" % number for number, future in enumerate(futures)}
    records = read_topic(kafka.bootstrap_servers, topic_name)
    assert places == {(record.partition, record.offset): record.value for record in records}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_level_of_acknowledgement_ends_every_future(kafka_4: KafkaCluster, topic_name: str, acks: object) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, acks=acks, enable_idempotence=acks == "all") as producer:
        offsets = [future.result(TIMEOUT_S).offset for future in [producer.send(topic_name, b"v") for _ in range(100)]]
    assert offsets == ([-1] * 100 if acks == 0 else list(range(100)))
    assert len(values(kafka_4, topic_name)) == 100


@NEWEST_MAINLY
def test_rows_of_arrow_go_to_the_topics_of_their_column_and_the_future_names_ranges(
    kafka: KafkaCluster, topic_name: str
) -> None:
    other = f"{topic_name}-other"
    kafka.create_topic(topic_name)
    kafka.create_topic(other, partitions=2)
    table = pa.table({
        "value": [b"%d" % number for number in range(9)],
        "topic": [topic_name, other, topic_name] * 3,
        "partition": pa.array([0, 1, 0] * 3, pa.int32()),
    })  # fmt: skip
    with producer_of(kafka) as producer:
        metadata = producer.send_arrow(table).result(TIMEOUT_S)
        again = producer.send_arrow(table.slice(0, 2)).result(TIMEOUT_S)
        nothing = producer.send_arrow(table.slice(0, 0)).result(0)
    assert metadata.row_count == 9
    assert metadata.byte_count == 9 * 4  # null key, length, one digit, no headers
    assert [(where, *_range(found)) for where, found in metadata.partitions.items()] == [
        ((topic_name, 0), 0, 5, 6), ((other, 1), 0, 2, 3),
    ]  # fmt: skip
    assert [(where, *_range(found)) for where, found in again.partitions.items()] == [
        ((topic_name, 0), 6, 6, 1), ((other, 1), 3, 3, 1),
    ]  # fmt: skip
    assert (nothing.row_count, nothing.partitions) == (0, {})
    assert values(kafka, topic_name) == [b"0", b"2", b"3", b"5", b"6", b"8", b"0"]


def _range(found: object) -> tuple[int, int, int]:
    return found.first_offset, found.last_offset, found.record_count  # type: ignore[attr-defined]


@NEWEST_MAINLY
def test_records_of_one_thread_keep_their_order_across_send_and_send_arrow(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=2)
    sent: list[bytes] = []
    with producer_of(kafka, linger_ms=1) as producer:
        for turn in range(200):
            singles = [b"%d-%d" % (turn, number) for number in range(turn % 7)]
            for single in singles:
                producer.send(topic_name, single, partition=1)
            columns = [b"%d-arrow-%d" % (turn, number) for number in range(turn % 5)]
            partitions = pa.array([1] * len(columns), pa.int32())
            table = pa.table({"value": pa.array(columns, pa.binary()), "partition": partitions})
            producer.send_arrow(table, topic_name)
            sent += singles + columns
    assert values(kafka, topic_name) == sent


@NEWEST_MAINLY
def test_callbacks_run_once_per_record_in_the_order_of_the_partition(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    seen: list[tuple[int, object]] = []
    threads = set()

    def note(metadata: RecordMetadata | None, error: KafkaSinkError | None) -> None:
        assert metadata is not None
        seen.append((metadata.offset, error))
        threads.add(threading.current_thread().name)

    with producer_of(kafka, client_id="caller") as producer:
        for _ in range(1000):
            producer.send(topic_name, b"v", on_delivery=note)
        producer.flush()
        assert seen == [(offset, None) for offset in range(1000)]
    assert threads == {"kafka-sink-sender | caller"}


def test_a_callback_may_send_again_and_may_not_wait(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    refused: list[KafkaSinkError] = []
    done = threading.Event()

    def on_delivery(metadata: RecordMetadata | None, error: KafkaSinkError | None) -> None:
        follow_up = producer.send(topic_name, b"second")
        for call in (producer.flush, follow_up.result, lambda: producer.send("a-topic-nobody-asked-for")):
            try:
                call()
            except KafkaSinkError as failure:
                refused.append(failure)
        follow_up.add_done_callback(lambda future: done.set())

    with producer_of(kafka_4) as producer:
        producer.send(topic_name, b"first", on_delivery=on_delivery)
        assert done.wait(TIMEOUT_S)
    assert [type(failure) for failure in refused] == [LocalProtocolError, LocalProtocolError, OperationTimeout]
    assert all("callbacks run on the sender thread" in str(failure) for failure in refused[:2])
    assert "a delivery callback cannot wait" in str(refused[2])
    assert values(kafka_4, topic_name) == [b"first", b"second"]


def test_a_callback_that_raises_is_reported_and_costs_nobody_anything(
    kafka_4: KafkaCluster, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_4.create_topic(topic_name)
    seen: list[int] = []

    def broken(metadata: RecordMetadata | None, error: KafkaSinkError | None) -> None:
        raise RuntimeError("callback")

    with producer_of(kafka_4) as producer:
        future = producer.send(topic_name, b"v", on_delivery=broken)
        future.add_done_callback(lambda done: seen.append(done.result(0).offset))
        producer.flush()
        future.add_done_callback(lambda done: seen.append(-2))
        assert producer.send(topic_name, b"v", on_delivery=lambda *_: exit(1)).result(TIMEOUT_S).offset == 1
        assert producer.send(topic_name, b"v").result(TIMEOUT_S).offset == 2
    assert seen == [0, -2]
    reports = [record for record in caplog.records if "raised" in record.getMessage()]
    assert [record.levelno for record in reports] == [logging.ERROR] * 2


def test_interceptors_see_and_replace_records_and_see_every_outcome_once(
    kafka_4: KafkaCluster, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_4.create_topic(topic_name)

    class Stamp:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(record.topic, record.value + b"!", headers=[("seen", b"1")])

    class Broken:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise RuntimeError("on_send")

        def on_acknowledgement(self, metadata: object, error: object) -> None:
            raise RuntimeError("on_acknowledgement")

    class Count:
        def __init__(self) -> None:
            self.outcomes: list[object] = []
            self.close_count = 0

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaSinkError | None) -> None:
            self.outcomes.append(metadata.offset if metadata is not None else type(error))

        def close(self) -> None:
            self.close_count += 1

    count = Count()
    with producer_of(kafka_4, interceptors=[Stamp(), Broken(), count], max_request_size=1000) as producer:
        futures = [producer.send(topic_name, b"%d" % number) for number in range(3)]
        with pytest.raises(DataError):
            producer.send(topic_name, bytes(2000))
        with pytest.raises(LocalProtocolError, match="interceptors see single records"):
            producer.send_arrow(pa.table({"value": ["a"]}), topic_name)
        producer.flush()
        assert [future.result(0).offset for future in futures] == [0, 1, 2]
    producer.close()
    assert count.close_count == 1
    assert sorted(count.outcomes, key=str) == [0, 1, 2, DataError]
    found = read_topic(kafka_4.bootstrap_servers, topic_name)
    assert [(record.value, record.headers) for record in found] == [
        (b"%d!" % number, (("seen", b"1"),)) for number in range(3)
    ]
    raised = [record for record in caplog.records if "Broken raised" in record.getMessage()]
    assert len(raised) == 8  # four sends, four outcomes


def test_an_interceptor_sees_an_outcome_that_send_waited_for_once() -> None:
    class Seen:
        def __init__(self) -> None:
            self.errors: list[KafkaSinkError | None] = []

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaSinkError | None) -> None:
            self.errors.append(error)

    seen = Seen()
    options = {"producer_type": "sync", "interceptors": [seen]}
    with EmbeddedBroker(topics={"t": 1}) as broker, producer_of(broker, **options) as producer:
        producer.send("t", b"delivered")
        broker.inject(Fault("Produce", error_code=INVALID_RECORD))
        with pytest.raises(DeliveryError, match="INVALID_RECORD"):
            producer.send("t", b"refused")
    assert [type(error) for error in seen.errors] == [type(None), DeliveryError]


def test_serializers_apply_and_without_them_text_is_utf8(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    hooks = {"value_serializer": lambda number: b"%d" % number, "key_serializer": "IntegerSerializer"}
    with producer_of(kafka_4, **hooks) as one:
        one.send(topic_name, 42, key=7).result(TIMEOUT_S)
    with producer_of(kafka_4) as two:
        two.send(topic_name, "grün", key=bytearray(b"k")).result(TIMEOUT_S)
        with pytest.raises(DataError, match=r"the value of a record for topic .* is of type int"):
            two.send(topic_name, 42)
    found = read_topic(kafka_4.bootstrap_servers, topic_name)
    assert [(record.key, record.value) for record in found] == [
        (b"\0\0\0\x07", b"42"), (b"k", "grün".encode()),
    ]  # fmt: skip


def test_a_synchronous_producer_returns_when_the_record_is_there(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, producer_type="sync", linger_ms=0) as producer:
        assert [producer.send(topic_name, b"v").done() for _ in range(5)] == [True] * 5


def test_linger_zero_sends_at_once_and_a_long_linger_waits_for_a_full_batch(
    kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, linger_ms=0) as producer:
        for number in range(21):
            assert producer.send(topic_name, b"v").result(TIMEOUT_S).offset == number
    with producer_of(kafka_4, linger_ms=60_000, batch_size=5000) as producer:
        first = producer.send(topic_name, b"v")
        with pytest.raises(OperationTimeout, match="it may still come"):
            first.result(0.2)
        for _ in range(10):
            producer.send(topic_name, bytes(1000))
        assert first.result(TIMEOUT_S).offset == 21


def test_partitions_of_a_topic_are_listed_with_their_leaders(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name, partitions=3)
    with producer_of(kafka_4, max_block_ms=3000, allow_auto_create_topics=False) as producer:
        assert [(info.partition, info.leader_id) for info in producer.partitions_for(topic_name)] == [
            (0, 1), (1, 1), (2, 1),
        ]  # fmt: skip
        with pytest.raises(OperationTimeout, match=r"max\.block\.ms=3000: .*UNKNOWN_TOPIC_OR_PARTITION"):
            producer.partitions_for(f"{topic_name}-missing")


@pytest.mark.parametrize("name", ["\ud800", "t" * 32_768], ids=["surrogate", "long"])
def test_a_topic_whose_name_fits_into_no_request_costs_no_other_topic_anything(
    kafka_4: KafkaCluster, topic_name: str, name: str
) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, max_block_ms=10_000) as producer:
        with pytest.raises(DataError, match="name of a topic cannot be sent"):
            producer.send(name, b"v")
        with pytest.raises(DataError, match="name of a topic cannot be sent"):
            producer.look_ahead(name)
        assert producer.send(topic_name, b"v").result(TIMEOUT_S).offset == 0


def test_max_block_ms_zero_never_waits(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, max_block_ms=0) as producer:
        with pytest.raises(OperationTimeout, match=r"not known within max\.block\.ms=0"):
            producer.send(topic_name, b"v")
        sent = wait_until(lambda: producer.send(topic_name, b"v"), "the topic is known", passing=(OperationTimeout,))
        assert sent.result(TIMEOUT_S).offset == 0


def test_what_the_wait_for_a_topic_took_is_not_waited_again_for_room() -> None:
    class LateClock(Clock):
        """Between any two looks at it an hour passes."""

        hours = count()

        def monotonic_ns(self) -> int:  # type: ignore[override]
            return next(self.hours) * HOUR_MS * 1_000_000

    with EmbeddedBroker(topics={"t": 1, "new": 1}) as broker:
        broker.inject(Fault("Produce", delay_before_ms=HOUR_MS))
        producer = producer_of(broker, max_block_ms=HOUR_MS, linger_ms=HOUR_MS, buffer_memory=1000)
        producer.send("t", bytes(800))
        producer._clock = LateClock()  # only this one: it measures the wait for the topic
        with pytest.raises(BufferExhausted, match="no room for 1 records"):
            producer.send("new", bytes(800))
        producer.close(0)


def test_metrics_have_java_names_and_count_what_was_sent(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, client_id="counted") as producer:
        for _ in range(100):
            producer.send(topic_name, b"v")
        producer.flush()
        found = producer.metrics()
    tags = (("client-id", "counted"),)
    assert found["producer-metrics", "record-send-total", tags] == 100
    assert found["producer-metrics", "buffer-available-bytes", tags] == 33_554_432
    assert found["producer-metrics", "connection-count", tags] >= 1
    assert found["producer-metrics", "requests-in-flight", tags] == 0
    assert found["producer-metrics", "flush-time-ns-total", tags] > 0
    assert found["producer-topic-metrics", "record-send-total", (*tags, ("topic", topic_name))] == 100


def test_every_step_of_a_transaction_is_measured(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, transactional_id=topic_name, client_id="measured") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic_name, b"v")
            producer.send_offsets_to_transaction({(topic_name, 0): 5}, "a-group")
        producer.begin_transaction()
        producer.abort_transaction()
        found = producer.metrics()
    for name in ("init", "begin", "send-offsets", "commit", "abort"):
        assert found["producer-metrics", f"txn-{name}-time-ns-total", (("client-id", "measured"),)] > 0


@pytest.mark.parametrize("transaction_version", ["1", "2"])
def test_a_producer_whose_id_the_brokers_have_forgotten_says_why_and_another_one_goes_on(
    transaction_version: str,
) -> None:
    """It was idle for a week. Java's producer of Kafka 4 ends, too; those before began anew with the next abort."""
    with EmbeddedBroker(topics={"t": 1}, properties={"transaction.version": transaction_version}) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "weekly"}
        with Producer(options) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"first week")
            # A commit is answered before its markers are written, and brokers forget no id before that.
            assert [record.value for record in read_topic(broker.bootstrap_servers, "t")] == [b"first week"]
            broker.do(lambda core: core.coordinator.transactions.clear())
            producer.begin_transaction()
            producer.send("t", b"second week")
            for call in (producer.commit_transaction, producer.abort_transaction, producer.begin_transaction):
                with pytest.raises(KafkaSinkError) as caught:
                    call()
                assert "not used for longer than transactional.id.expiration.ms" in str(caught.value)
                assert "INVALID_PRODUCER_ID_MAPPING (49)" in str(caught.value)
                assert "make a new producer" in str(caught.value)
        with Producer(options) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"second week")
        found = [record.value for record in read_topic(broker.bootstrap_servers, "t")]
    assert found == [b"first week", b"second week"]


@pytest.mark.parametrize("given", [None, "receipt", (1, 2)])
def test_what_is_no_receipt_is_refused_and_the_producer_goes_on(given: object) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker, producer_of(broker, transactional_id="a") as producer:
        with pytest.raises(LocalProtocolError, match="takes what prepare_transaction"):
            producer.resume_transaction(given)  # type: ignore[arg-type]
        producer.init_transactions()
        with producer.transaction():
            assert producer.send("t", b"v").result(TIMEOUT_S).offset == 0
