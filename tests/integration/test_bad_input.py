"""What a user gets for a wrong option or a wrong record: an error that says what to do, before anything is sent.

Config errors name the option, the value, what is valid, and the nearest known name. Data errors name row and column,
size and limit. No text contains the content of a record or a secret.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafka_sink import Producer
from kafka_sink.errors import ConfigError, DataError, KafkaSinkError, OperationTimeout
from kafka_sink.testing import EmbeddedBroker
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

TIMEOUT_S = 90
SECRET = "content-that-no-text-may-show"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"linger.mss": 5}, r"'linger\.mss' is not a producer option: did you mean linger\.ms\?"),
        ({"linger_ms": 5}, r"did you mean linger\.ms\?"),
        ({"compresion.type": "lz4"}, r"did you mean compression\.type\?"),
        ({"entirely.unknown": 1}, r"'entirely\.unknown' is not a producer option"),
        ({"group.id": "g"}, r"group\.id is an option of consumers"),
        ({"acks": 2}, r"acks=2 is not valid: expected all, -1, 0 or 1"),
        ({"batch.size": -1}, r"batch\.size=-1 is not valid: expected a whole number from 0 to 2147483647"),
        ({"linger.ms": "soon"}, r"linger\.ms='soon' is not valid: expected a whole number from 0 to"),
        ({"retries": 1.5}, r"retries=1\.5 is not valid: expected a whole number"),
        ({"enable.idempotence": "yes"}, r"enable\.idempotence='yes' is not valid: expected true or false"),
        ({"compression.type": "brotli"}, r"compression\.type='brotli' is not valid: .*none, gzip, snappy, lz4, zstd"),
        ({"compression.type": "zstd", "compression.zstd.level": 40}, r"compression\.zstd\.level=40 .* to 22"),
        ({"compression.type": "gzip", "compression.gzip.level": 0}, r"compression\.gzip\.level=0 .*from 1 to 9, or -1"),
        ({"partitioner.class": "com.example.Mine"}, r"partitioner\.class='com\.example\.Mine' .*Python callable"),
        ({"key.serializer": "com.example.Mine"}, r"key\.serializer='com\.example\.Mine' .*Python callable"),
        ({"max.in.flight.requests.per.connection": 6}, r"=6 is too many for enable\.idempotence=true: at most 5"),
        ({"enable.idempotence": True, "acks": 1}, r"acks=1 contradicts enable\.idempotence=true: it needs acks=all"),
        ({"transactional.id": "t", "enable.idempotence": False}, r"transactional\.id needs enable\.idempotence=true"),
        ({"transactional.id": ""}, r"transactional\.id='' is not valid: expected text that is not empty"),
        ({"delivery.timeout.ms": 10}, r"delivery\.timeout\.ms=10 is too short: it must be at least linger\.ms"),
        ({"buffer.memory": None}, r"buffer\.memory is None: expected a whole number"),
        ({"security.protocol": "SSL", "ssl.keystore.password": "hush"}, r"ssl\.keystore\.location names none"),
        ({"bootstrap.servers": "host"}, r"bootstrap\.servers: the entry 'host' is not valid: expected host:port"),
        ({"bootstrap.servers": "host:99999"}, r"port 99999: expected a port from 1 to 65535"),
        ({"bootstrap.servers": ""}, r"bootstrap\.servers is empty"),
        ({"bootstrap.servers": "SSL://host:9093"}, r"asks for SSL"),
        ({"linger.ms": 5, "queue.buffering.max.ms": 9}, r"linger\.ms.*mean the same and have different values"),
    ],
    ids=lambda part: next(iter(part)) if isinstance(part, dict) else "",
)
def test_a_wrong_option_is_refused_with_a_text_to_act_on(options: dict[str, object], says: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError) as caught:
        Producer({"bootstrap.servers": "localhost:9092", **options})
    assert re.search(says, str(caught.value)), str(caught.value)
    assert "hush" not in str(caught.value)
    assert set(threading.enumerate()) <= before


def test_all_wrong_options_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match="3 problems") as caught:
        Producer({"acks": 7, "linger.mss": 1})
    text = str(caught.value)
    assert "acks=7" in text and "did you mean linger.ms?" in text and "bootstrap.servers is missing" in text


@pytest.mark.parametrize("options", [None, "bootstrap.servers=localhost:9092", ["bootstrap.servers"]])
def test_options_that_are_no_mapping_are_refused(options: object) -> None:
    with pytest.raises(ConfigError, match="a mapping of names to values, not"):
        Producer(options)  # type: ignore[arg-type]


@pytest.fixture
def topic(kafka_4: KafkaCluster, topic_name: str) -> str:
    return kafka_4.create_topic(topic_name, partitions=2)


@pytest.fixture
def producer(kafka_4: KafkaCluster, topic: str) -> Iterator[Producer]:
    """At the end nothing that was refused may be in the log, and the producer must still work."""
    options = {"bootstrap.servers": kafka_4.bootstrap_servers, "max.block.ms": 3000, "max.request.size": 5000}
    with Producer({**options, "buffer.memory": 50_000}) as producer:
        # The topic is known from here on, so later waits are for something that does not exist.
        assert wait_until(lambda: producer.partitions_for(topic), "the topic is known", passing=(OperationTimeout,))
        yield producer
        assert producer.send(topic, value=b"still works").result(TIMEOUT_S).topic == topic
    values = [record.value for record in read_topic(kafka_4.bootstrap_servers, topic)]
    assert values == [b"still works"]


@pytest.mark.parametrize(
    ("record", "column", "says"),
    [
        ({"value": 7}, "value", "value of a record for topic .* is of type int; needed is bytes, str or None"),
        ({"value": [SECRET]}, "value", "is of type list"),
        ({"value": SECRET + "\ud800"}, "value", "no valid text"),
        ({"value": b"v", "key": 1.5}, "key", "key of a record .* is of type float"),
        ({"value": b"v", "headers": [(1, b"x")]}, "headers", "a name of type int"),
        ({"value": b"v", "headers": [SECRET]}, "headers", "pairs of a name and bytes"),
        ({"value": b"v", "headers": [("h", 5)]}, "header 'h'", "is of type int"),
        ({"value": b"v", "timestamp_ms": -1}, "timestamp", "timestamp_ms must be a number of milliseconds"),
        ({"value": b"v", "timestamp_ms": "today"}, "timestamp", "timestamp_ms must be"),
        ({"value": b"v", "partition": -1}, "partition", "partition -1"),
        ({"value": b"v", "partition": "0"}, "partition", "partition '0'"),
        ({"value": b"v", "partition": 2}, "partition", r"2 partitions \(0 to 1\); partition 2"),
        ({"value": SECRET * 1000}, None, r"29\d{3} bytes .*max\.request\.size allows 5000"),
        ({"value": b"v", "headers": [("h", SECRET * 1000)]}, None, r"max\.request\.size"),
    ],
    ids=lambda part: "-".join(part) if isinstance(part, dict) else "",
)
def test_a_record_that_cannot_be_sent_is_refused_with_topic_and_field(
    producer: Producer, topic: str, record: dict[str, object], column: str | None, says: str
) -> None:
    with pytest.raises(DataError) as caught:
        producer.send(topic, **record).result(TIMEOUT_S)  # type: ignore[arg-type]
    text = str(caught.value)
    assert re.search(says, text), text
    assert topic in text or column in ("timestamp", "partition")
    assert SECRET not in text
    assert column is None or caught.value.column == column


def test_a_timestamp_beyond_64_bits_is_refused_and_spoils_no_other_record() -> None:
    with EmbeddedBroker(topics={"t": 1}) as kafka, Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        assert producer.send("t", b"a").result(TIMEOUT_S).offset == 0
        pending = producer.send("t", b"b")
        for timestamp_ms in (2**63, -1, 1.5):
            with pytest.raises(DataError, match="timestamp_ms must be a number of milliseconds"):
                producer.send("t", b"c", timestamp_ms=timestamp_ms)  # type: ignore[arg-type]
        assert pending.result(TIMEOUT_S).offset == 1


def test_a_topic_of_a_row_writes_no_line_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does client.id."""
    forged = "x\nERROR pykafka-sink: forged"
    with caplog.at_level("INFO", "kafka_sink"), EmbeddedBroker() as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "m\ne", "max.block.ms": 5000}
        with Producer(options) as producer, pytest.raises(KafkaSinkError):
            producer.send(forged, b"value").result(TIMEOUT_S)
    said = [record.getMessage() for record in caplog.records]
    assert any(each.startswith(r"[m\ne] topic x\nERROR pykafka-sink: forged: ") for each in said), said
    assert all(each.isprintable() for each in said), said


def headers_of(*names: bytes) -> pa.Array:
    """A header in each row. As with Spark, the names of a string column may be any bytes."""
    names_as_text = pa.array(names, pa.binary()).view(pa.string())
    entries = pa.StructArray.from_arrays([names_as_text, pa.array(names, pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(range(len(names) + 1), pa.int32()), entries)


def value_and(**columns: object) -> pa.Table:
    return pa.table({"value": [b"a", b"b", b"c"], **columns})


HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("data", "row", "column", "says"),
    [
        (pa.table({"key": [b"k"]}), None, "value", "no column value"),
        (pa.table({"value": [1, 2]}), None, "value", "value.*int64.*accepted"),
        (pa.table({"value": [[SECRET]]}), None, "value", "value.*list"),
        (value_and(key=[1.5, 2.5, 3.5]), None, "key", "key.*double"),
        (value_and(headers=["x", "y", "z"]), None, "headers", "headers.*string"),
        (value_and(timestamp=["x", "y", "z"]), None, "timestamp", "timestamp.*string"),
        (value_and(partition=[0.0, 1.0, 0.0]), None, "partition", "partition.*double"),
        (value_and(partition=pa.array([0, 1, -5])), 2, "partition", "column partition is negative in row 2"),
        (value_and(partition=pa.array([0, 9, 1])), 1, "partition", "row 1 names partition 9; topic .* has 2"),
        (value_and(partition=pa.array([0, 2**40, 1])), 1, "partition", "above 2147483647 in row 1"),
        (value_and(timestamp=pa.array([1, 2, -3])), 2, "timestamp", "column timestamp is negative in row 2"),
        (
            value_and(headers=pa.array([[], [{"key": None, "value": b"v"}], []], HEADER)),
            1, "headers", "header whose key is null in row 1",
        ),
        (
            value_and(headers=headers_of(b"fine", "schön".encode(), b"sch\xf6n")),
            2, "headers", "header whose key is no text in UTF-8 in row 2",
        ),
        (pa.table({"value": ["a", SECRET * 1000]}), 1, None, r"row 1 takes 29\d{3} bytes .*max\.request\.size"),
    ],
    ids=lambda part: part if isinstance(part, str) and " " not in part else "",
)  # fmt: skip
def test_rows_that_cannot_be_sent_are_refused_with_row_and_column_and_none_of_the_call_is_sent(
    producer: Producer, topic: str, data: pa.Table, row: int | None, column: str | None, says: str
) -> None:
    with pytest.raises(DataError) as caught:
        producer.send_arrow(data, topic=topic).result(TIMEOUT_S)
    text = str(caught.value)
    assert re.search(says, text), text
    assert SECRET not in text
    assert (caught.value.row, caught.value.column) == (row, column)


def test_rows_of_later_chunks_and_slices_are_counted_as_the_caller_counts_them(producer: Producer, topic: str) -> None:
    good = pa.table({"value": [b"v"] * 10, "partition": pa.array([0] * 10, pa.int32())})
    bad = pa.table({"value": [b"v"] * 3, "partition": pa.array([0, 7, 0], pa.int32())})
    with pytest.raises(DataError, match="row 11 names partition 7") as caught:
        producer.send_arrow(pa.concat_tables([good, bad]), topic=topic)
    assert caught.value.row == 11
    with pytest.raises(DataError, match="row 6 names partition 7") as caught:
        producer.send_arrow(pa.concat_tables([good, bad]).slice(5), topic=topic)
    assert caught.value.row == 6


def test_a_missing_or_null_topic_is_named(producer: Producer) -> None:
    with pytest.raises(KafkaSinkError, match="no topic"):
        producer.send_arrow(pa.table({"value": [b"v"]}))
    with pytest.raises(DataError, match="null topic in row 1") as caught:
        producer.send_arrow(pa.table({"value": [b"v", b"v"], "topic": ["t", None]}))
    assert (caught.value.row, caught.value.column) == (1, "topic")


def test_what_is_no_arrow_data_is_refused(producer: Producer, topic: str) -> None:
    with pytest.raises(DataError, match="RecordBatch or Table, not list"):
        producer.send_arrow([b"a", b"b"], topic=topic)  # type: ignore[arg-type]


def test_a_serializer_that_raises_is_named_and_its_record_is_not(kafka_4: KafkaCluster, topic: str) -> None:
    def fragile(content: object) -> bytes:
        raise ValueError(f"cannot serialize {content}")

    options = {"bootstrap.servers": kafka_4.bootstrap_servers, "value.serializer": fragile}
    with Producer(options) as producer:
        with pytest.raises(DataError, match=r"the value of a record for topic .*fragile raised ValueError") as caught:
            producer.send(topic, value=SECRET)
        assert SECRET not in str(caught.value)
        assert caught.value.column == "value"
        # None goes through the serializer as well, as in Java.
        with pytest.raises(DataError):
            producer.send(topic, value=None)


def test_a_record_larger_than_the_whole_buffer_is_refused_at_once(kafka_4: KafkaCluster, topic: str) -> None:
    options = {"bootstrap.servers": kafka_4.bootstrap_servers, "buffer.memory": 20_000}
    with Producer(options) as producer:
        with pytest.raises(DataError, match=r"buffer\.memory=20000") as caught:
            producer.send(topic, value=SECRET * 1000)
        assert SECRET not in str(caught.value)
        with pytest.raises(DataError, match=r"buffer\.memory=20000"):
            producer.send_arrow(pa.table({"value": [SECRET * 1000]}), topic=topic).result(TIMEOUT_S)
        assert producer.send(topic, value=b"still works").result(TIMEOUT_S).topic == topic
