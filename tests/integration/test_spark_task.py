"""Plans and tasks of the sink without Spark's JVM: Arrow batches of every shape go into the embedded broker.

The schema is given as Spark would give it, the rows as Arrow arrays in the forms that may occur: sliced, large, with
dictionaries, in many batches. kafka-python reads the records back, or the receipt counts them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # stubs do not re-export it
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructType

from kafka_sink.commit.identity import PARTITION_STEP, run_hash
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.errors import BrokerError, BufferExhausted, CommitAborted, DataError, DeliveryError, OperationTimeout
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.producer.pool import POOL
from kafka_sink.spark import task
from kafka_sink.spark.added_headers import set_column
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.datasource import plan_stream
from kafka_sink.spark.driver import ANSWERS, FinishedBatch, commit_batch
from kafka_sink.spark.planning import plan_query
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker, Fault
from tools.foreign_reader import ForeignRecord, read_topic

PLACE = TaskPlace(BatchKey("q-1", 7), "run", 3, 11)
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = (
    StructType().add("value", StringType()).add("topic", StringType()).add("partition", IntegerType())
    .add("headers", HEADERS).add("timestamp", LongType())
)  # fmt: skip


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, topics={"rows": 4, "others": 1, "bad": 1}) as broker:
        yield broker
    POOL.close()


def rows(*given: dict[str, Any]) -> pa.RecordBatch:
    kinds = {"value": pa.string(), "topic": pa.string(), "partition": pa.int32(), "headers": PAIRS, "t": pa.int64()}
    arrays = [pa.array([row.get(name) for row in given], kind) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays(arrays, [*list(kinds)[:-1], "timestamp"])


def write(
    broker: EmbeddedBroker, batches: Sequence[pa.RecordBatch], schema: StructType = SCHEMA, **settings: str
) -> TaskReceipt:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    options = parse_sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **named})
    # As Spark hands them from the driver to a task.
    carried = pickle.loads(pickle.dumps((options, choose_columns(schema, options.topic))))
    receipt: TaskReceipt = pickle.loads(pickle.dumps(write_task(*carried, iter(batches), PLACE)))
    return receipt


def read(broker: EmbeddedBroker, topic: str) -> list[ForeignRecord]:
    return read_topic(broker.bootstrap_servers, topic)


def test_the_receipt_says_what_was_written_where(broker: EmbeddedBroker) -> None:
    many = [rows(*({"value": f"{n}", "topic": "rows", "partition": n % 2} for n in range(10))) for _ in range(3)]
    receipt = write(broker, [*many, rows({"value": "x", "topic": "others"})])
    assert (receipt.key, receipt.run, receipt.spark_partition, receipt.attempt) == (PLACE.key, "run", 3, 11)
    assert [tuple(written) for written in receipt.written] == [
        ("others", 0, 1, 0, 0), ("rows", 0, 15, 0, 14), ("rows", 1, 15, 0, 14),
    ]  # fmt: skip
    assert (receipt.row_count, receipt.record_errors) == (31, {})
    assert len(read(broker, "rows")) == 30


@pytest.mark.parametrize("record_errors", ["fail", "drop"])
def test_no_row_gets_among_the_decisions_of_a_ledger(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, record_errors: str
) -> None:
    """A ledger believes its records. A column topic may come from anywhere, and the sink may write to its ledger."""
    monkeypatch.setattr(f"{__name__}.PLACE", replace(PLACE, sink_id="orders"))
    batch = rows(*({"value": f"{n}", "topic": "bad" if n == 1 else "rows"} for n in range(3)))
    chosen = {"ledger_topic": "bad", "sink_id": "orders", "record_errors": record_errors}
    if record_errors == "fail":
        with pytest.raises(DataError, match="a row is for the topic bad, which holds the decisions of sinks"):
            write(broker, [batch], **chosen)
    else:
        assert write(broker, [batch], **chosen).record_errors == {"no topic": 1}
    assert read(broker, "bad") == []


@pytest.mark.parametrize("record_errors", ["fail", "drop"])
def test_no_row_gets_into_the_default_ledger_from_a_sink_that_has_another(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, record_errors: str
) -> None:
    monkeypatch.setattr(f"{__name__}.PLACE", replace(PLACE, sink_id="orders"))
    batch = rows(*({"value": f"{n}", "topic": "__pykafka_sink_ledger" if n == 1 else "rows"} for n in range(3)))
    chosen = {"ledger_topic": "own", "sink_id": "orders", "record_errors": record_errors}
    if record_errors == "fail":
        with pytest.raises(DataError, match="a row is for the topic __pykafka_sink_ledger, which holds the decisions"):
            write(broker, [batch], **chosen)
    else:
        assert write(broker, [batch], **chosen).record_errors == {"no topic": 1}


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
@pytest.mark.parametrize("record_errors", ["fail", "drop"])
def test_no_row_with_a_topic_of_its_own_has_a_value_like_a_decision(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, record_errors: str, kind: pa.DataType
) -> None:
    """The ledger of another sink may have any name, and its reader would believe the row."""
    monkeypatch.setattr(f"{__name__}.PLACE", replace(PLACE, sink_id="orders"))
    values = pa.array(["a", None, "pykafka-sink-ledger 1 json\n{}", "pykafka-sink"]).cast(kind)
    batch = set_column(rows(*({"topic": "bad"} for _ in values)), "value", values)
    chosen = {"ledger_topic": "own", "sink_id": "orders", "record_errors": record_errors}
    if record_errors == "fail":
        with pytest.raises(DataError, match="row 2 has a value that begins like a decision of a sink"):
            write(broker, [batch], **chosen)
    else:
        receipt = write(broker, [batch], **chosen)
        assert (receipt.row_count, dict(receipt.record_errors)) == (3, {"bad value": 1})


def test_a_task_without_rows_touches_no_broker() -> None:
    options = parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "rows"})
    columns = choose_columns(StructType().add("value", StringType()), "rows")
    empty = pa.RecordBatch.from_arrays([pa.array([], pa.string())], ["value"])
    receipt = write_task(options, columns, [empty], PLACE)
    assert receipt.is_empty and receipt.row_count == 0


def test_a_task_that_cannot_prepare_its_rows_touches_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "RowPath", lambda *_: 1 / 0)
    monkeypatch.setattr(task, "begin_attempt", lambda *_: pytest.fail("it has begun"))
    options = parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "rows"})
    with pytest.raises(ZeroDivisionError):
        write_task(
            options, choose_columns(StructType().add("value", StringType()), "rows"), [rows({"value": "a"})], PLACE
        )


TEXT = ["a", None, "", "ü", "zz"]
# No views: Spark sends none, and pyarrow before 24 does not report their size.
SHAPES: dict[str, pa.Array] = {
    "large": pa.array(TEXT, pa.large_string()),
    "dictionary": pa.array(TEXT).dictionary_encode(),
    "sliced": pa.array(["before", *TEXT, "behind"]).slice(1, 5),
    "binary": pa.array([None if text is None else text.encode() for text in TEXT], pa.binary()),
}


@pytest.mark.parametrize("array", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("record_errors", ["fail", "drop"])
def test_arrow_arrays_of_every_shape_give_the_same_records(
    broker: EmbeddedBroker, array: pa.Array, record_errors: str
) -> None:
    schema = StructType().add("value", StringType()).add("key", StringType())
    batch = pa.RecordBatch.from_arrays([array, array], ["value", "key"])
    write(broker, [batch, batch.slice(1, 3)], schema, topic="others", record_errors=record_errors)
    expected = [None if text is None else text.encode() for text in (*TEXT, *TEXT[1:4])]
    assert [record.value for record in read(broker, "others")] == expected
    assert [record.key for record in read(broker, "others")] == expected


def test_milliseconds_of_a_timestamp_column_are_the_records_own(broker: EmbeddedBroker) -> None:
    write(broker, [rows({"value": "x", "topic": "others", "t": 1_700_000_000_123})])
    assert [record.timestamp_ms for record in read(broker, "others")] == [1_700_000_000_123]


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "null topic": ({"topic": None}, "null topic in row 12", "no topic"),
    "invalid topic": ({"topic": "no topic"}, "", "no topic"),
    "partition out of range": ({"partition": 4}, "row 12 names partition 4", "no such partition"),
    "negative partition": ({"partition": -1}, "partition is negative in row 12", "no such partition"),
    "null header key": ({"headers": [{"key": None, "value": b""}]}, "null in row 12", "bad headers"),
    "too large": ({"value": "x" * 3000}, "the record of row 12 takes 30", "too large"),
    "negative timestamp": ({"t": -5}, "timestamp is negative in row 12", "bad timestamp"),
}


@pytest.fixture
def with_bad_row(request: pytest.FixtureRequest) -> list[pa.RecordBatch]:
    good = {"value": "v", "topic": "rows", "partition": 1}
    first = rows(*[good] * 10)
    return [first, rows(good, good, {**good, **request.param}, good)]


SMALL = {"kafka_max_request_size": "2000", "kafka_max_block_ms": "2000"}


@pytest.mark.parametrize(
    ("with_bad_row", "text"), [pytest.param(row, text, id=name) for name, (row, text, _) in BAD.items() if text],
    indirect=["with_bad_row"],
)  # fmt: skip
def test_fail_names_the_row_counted_from_the_start_of_the_task(
    broker: EmbeddedBroker, with_bad_row: list[pa.RecordBatch], text: str
) -> None:
    with pytest.raises(DataError) as raised:
        write(broker, with_bad_row, **SMALL)
    assert text in str(raised.value)
    assert str(raised.value).endswith(" (Spark partition 3, TID 11, of batch 7 of query q-1)")
    assert raised.value.row == 12
    assert POOL._idle == []


def test_fail_names_a_topic_that_cannot_be(broker: EmbeddedBroker) -> None:
    """The broker refuses the name of the topic, not the row."""
    with pytest.raises(BrokerError, match="'no topic' is no valid topic name"):
        write(broker, [rows({"value": "v", "topic": "no topic"})])


@pytest.mark.parametrize(
    ("with_bad_row", "reason"), [pytest.param(row, reason, id=name) for name, (row, _, reason) in BAD.items()],
    indirect=["with_bad_row"],
)  # fmt: skip
@pytest.mark.parametrize("record_errors", ["drop", "dead-letter"])
def test_drop_and_dead_letter_leave_out_that_row_alone_and_count_it(
    broker: EmbeddedBroker, with_bad_row: list[pa.RecordBatch], reason: str, record_errors: str
) -> None:
    own = {"dead_letter_topic": "bad"} if record_errors == "dead-letter" else {}
    receipt = write(broker, with_bad_row, record_errors=record_errors, **own, **SMALL)
    assert receipt.record_errors == {reason: 1}
    assert len(read(broker, "rows")) == 13
    letters = [dict(record.headers) for record in read(broker, "bad")]
    assert [letter["pykafka-sink.row"] for letter in letters] == ([b"12"] if own else [])
    assert [letter["pykafka-sink.spark.partition"] for letter in letters] == ([b"3"] if own else [])


@pytest.mark.parametrize("record_errors", ["drop", "dead-letter"])
def test_a_row_for_a_partition_that_was_just_added_is_not_left_out(broker: EmbeddedBroker, record_errors: str) -> None:
    """The producer of the process knows the topic from an earlier task, from before there were more partitions."""
    chosen = {"record_errors": record_errors, **({"dead_letter_topic": "bad"} if record_errors != "drop" else {})}
    write(broker, [rows({"value": "old", "topic": "rows", "partition": 3})], **chosen)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions("rows", 6)])["rows"].result(30)
    new = [{"value": f"{number}", "topic": "rows", "partition": number} for number in (0, 5, 6)]
    assert write(broker, [rows(*new)], **chosen).record_errors == {"no such partition": 1}
    assert [record.value for record in read(broker, "rows") if record.partition == 5] == [b"5"]


def grow(broker: EmbeddedBroker, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions("rows", partitions)])["rows"].result(30)


@pytest.mark.parametrize("more", [{}, {"topic.create": "true"}], ids=["found", "created"])
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_producer_that_lived_on_places_keys_as_new_ones_do_when_partitions_were_added(
    broker: EmbeddedBroker, guarantee: str, more: dict[str, str]
) -> None:
    """The query was stopped, partitions were added, and it starts again in the same application."""
    schema = StructType().add("key", StringType()).add("value", StringType())
    settings = {
        "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "rows", "sink.id": "s",
        # For so long an answer about the cluster counts as news.
        "delivery.guarantee": guarantee, "kafka.retry.backoff.ms": "1", **more,
    }  # fmt: skip
    keys = pa.RecordBatch.from_arrays([pa.array([f"key-{number}" for number in range(40)])] * 2, ["key", "value"])

    def written(batch: int) -> list[int]:
        planned = plan_query(settings, schema)
        place = TaskPlace(BatchKey("q-1", batch), "run", batch, batch, planned.sink_id)
        return [one.partition for one in write_task(planned.options, planned.columns, [keys], place).written]

    assert written(1) == [0, 1, 2, 3]
    grow(broker, 12)
    ANSWERS.value.doubt()  # as after the abort of the batch in which it was stopped
    lived_on = written(2)
    POOL.close()
    assert lived_on == written(3) == list(range(12))


def test_a_row_of_which_nothing_fits_leaves_a_letter_with_sizes_only(broker: EmbeddedBroker) -> None:
    schema = StructType().add("value", StringType()).add("key", StringType()).add("headers", HEADERS)
    pairs = pa.array([[{"key": "h", "value": b"y" * 5000}]], PAIRS)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["x" * 6000]), pa.array(["k" * 7000]), pairs], ["value", "key", "headers"]
    )
    write(
        broker, [batch], schema, topic="rows",
        record_errors="dead-letter", dead_letter_topic="bad", kafka_max_request_size="4000",
    )  # fmt: skip
    (letter,) = read(broker, "bad")
    said = dict(letter.headers)
    assert (letter.key, letter.value) == (None, None)
    assert (said["pykafka-sink.key.bytes"], said["pykafka-sink.value.bytes"]) == (b"7000", b"6000")
    assert "h" not in said


@pytest.mark.parametrize("record_errors", ["drop", "dead-letter"])
def test_a_row_that_no_memory_is_enough_for_is_left_out_as_one_that_no_request_is(
    broker: EmbeddedBroker, record_errors: str
) -> None:
    """max.request.size was raised, and buffer.memory was not."""
    own = {"dead_letter_topic": "bad"} if record_errors == "dead-letter" else {}
    limits = {"kafka_max_request_size": "1000000", "kafka_buffer_memory": "300000"}
    good = {"value": "v", "topic": "rows"}
    given = [rows(good, {**good, "value": "x" * 600_000}, good)]
    assert write(broker, given, record_errors=record_errors, **own, **limits).record_errors == {"too large": 1}
    assert [record.value for record in read(broker, "rows")] == [b"v", b"v"]
    assert len(read(broker, "bad")) == len(own)
    with pytest.raises(DataError, match=r"the record of row 1 takes 600026 bytes and never fits into buffer\.memory="):
        write(broker, given, **limits)


SMALL_HEADERS = [{"key": "a", "value": b"b"}] * 1500


@pytest.mark.parametrize(
    "row",
    [
        # Four bytes each, of which two are name and value.
        pytest.param({"value": "x" * 4500, "topic": "rows", "headers": SMALL_HEADERS}, id="many small headers"),
        pytest.param({"value": "x", "topic": "rows", "headers": SMALL_HEADERS * 2}, id="headers alone are too large"),
        pytest.param({"value": "x", "topic": "t" * 100_000}, id="long topic"),
        pytest.param({"value": "x" * 8500, "topic": "ü" * 2000}, id="topic of many bytes"),
    ],
)
def test_a_letter_is_never_too_large_whatever_made_the_row_so(broker: EmbeddedBroker, row: dict[str, Any]) -> None:
    receipt = write(
        broker, [rows(row)], record_errors="dead-letter", dead_letter_topic="bad", kafka_max_request_size="10000"
    )
    assert sum(receipt.record_errors.values()) == 1
    (letter,) = read(broker, "bad")
    # Longer than any name of a topic: a replay must not take it for one.
    assert len(dict(letter.headers)["pykafka-sink.topic"]) in (4, 1000, 2000)


@pytest.mark.parametrize("key", [UNNAMED_BATCH, BatchKey("", "monday"), BatchKey("q-1", 7)])
def test_a_commit_that_finds_no_broker_says_that_the_batch_is_not_committed(key: BatchKey) -> None:
    """In a process that has no connection yet. The error of planning would say that nothing was written."""
    options = parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.max.block.ms": "300"})
    written = (WrittenPartition("t", 0, 2, 0, 1),)
    prepared = PreparedTransaction("s-run-3-11", 1, 0, 2)
    receipt = TaskReceipt(key, "run", 3, 11, transaction=prepared, written=written, row_count=2)
    with pytest.raises(CommitAborted, match=r"2 rows.* was not committed: no broker has answered .*127\.0\.0\.1:1"):
        commit_batch(FinishedBatch(options, "s", key, "run", [receipt]))


def test_a_refusal_of_the_broker_fails_the_task_and_its_producer_is_thrown_away(broker: EmbeddedBroker) -> None:
    write(broker, [rows({"value": "x", "topic": "rows"})])
    assert len(POOL._idle) == 1
    broker.inject(Fault(api="Produce", error_code=87))  # INVALID_RECORD
    with pytest.raises(DeliveryError, match="Spark partition 3"):
        write(broker, [rows({"value": "x", "topic": "rows"})])
    assert POOL._idle == []


def test_an_init_producer_id_without_an_answer_costs_the_attempt_its_transactional_id(broker: EmbeddedBroker) -> None:
    """The unanswered request may arrive after the transaction is decided, and would abort it."""
    broker.inject(Fault(api="InitProducerId", disconnect=True, times=2))
    place = replace(PLACE, run=run_hash("run"), sink_id="sink")
    options = parse_sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "sink.id": "sink"})
    batch = rows({"value": "x", "topic": "others"})
    receipt = write_task(options, choose_columns(SCHEMA, None), iter([batch]), place)
    assert receipt.transaction is not None
    assert receipt.attempt == PLACE.attempt
    assert receipt.transaction.transactional_id == f"sink-{place.run}-{PARTITION_STEP + 3}-11"


def test_a_coordinator_that_never_answers_init_producer_id_fails_the_task(broker: EmbeddedBroker) -> None:
    broker.inject(Fault(api="InitProducerId", disconnect=True, times=None))
    place = replace(PLACE, run=run_hash("run"), sink_id="sink")
    settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, "sink.id": "sink", "kafka.max.block.ms": "500"}
    batch = rows({"value": "x", "topic": "others"})
    with pytest.raises(OperationTimeout, match="Spark partition 3"):
        write_task(parse_sink_options(settings), choose_columns(SCHEMA, None), iter([batch]), place)


@pytest.mark.timeout(60)
def test_a_broker_that_stalls_ends_in_buffer_exhausted_as_soon_as_a_row_finds_no_room(broker: EmbeddedBroker) -> None:
    """Some rows are in the buffer by then; their delivery.timeout.ms is two minutes."""
    batch = rows(*[{"value": "x" * 1000, "topic": "others"}] * 100)
    settings = {"kafka_buffer_memory": "20000", "kafka_max_block_ms": "300"}
    write(broker, [rows({"value": "x", "topic": "others"})], **settings)
    broker.inject(Fault(api="Produce", delay_before_ms=60_000, times=None))
    with pytest.raises(BufferExhausted, match=r"1000 rows failed.*\(Spark partition 3, "):
        write(broker, [batch] * 10, **settings)


def test_an_error_of_the_source_comes_through_unchanged(broker: EmbeddedBroker) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows({"value": "x", "topic": "rows"})
        raise ValueError("of the user's own")

    with pytest.raises(ValueError, match=r"^of the user's own$"):
        write(broker, failing())  # type: ignore[arg-type]
    assert POOL._idle == []


def test_columns_that_are_not_written_and_options_without_effect_are_told_once_for_all_batches_of_a_stream(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    schema = StructType().add("value", StringType()).add("Key", StringType()).add("offset", LongType())
    settings = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": "rows",
        "includeHeaders": "true",
        "delivery.guarantee": "at-least-once",
        "queryname": "rows",
    }
    for _ in range(3):
        plan_stream(settings, schema, False)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "includeHeaders has no effect: a column headers is written whenever there is one",
        "columns that are not written: Key, offset (written are value, key, topic, partition, headers, timestamp)",
    ]


def test_large_arrow_batches_are_told_once_with_the_setting_that_makes_them_small(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    small, large = ["x" * 10_000], ["x" * 10_000] * 3_300
    batches = [rows(*({"value": each, "topic": "rows"} for each in values)) for values in (small, large)]
    write(broker, [batches[0]])
    assert "maxBytesPerBatch" not in caplog.text
    for _ in range(2):
        write(broker, [batches[1]])
    assert caplog.text.count("spark.sql.execution.arrow.maxBytesPerBatch=4m") == 1
