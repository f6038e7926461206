"""Random frames and random options go through planning and a task into the embedded broker.

Every case ends in a result, or in an error that this package names: ConfigError for what the driver can know, DataError
for rows, and for what only brokers know the error with their answer. A result is checked: every row is accounted for,
in the receipt and in the broker's log.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)  # fmt: skip

from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.errors import BrokerError, ConfigError, DataError, DeliveryError, OperationTimeout
from kafka_sink.options.sink_table import SINK_OPTIONS
from kafka_sink.options.table import OPTIONS
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.datasource import plan_batch
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker

TOPICS = {"rows": 4, "others": 1, "bad": 1}
PAIR = StructType().add("key", StringType()).add("value", BinaryType())


class Kind(NamedTuple):
    """A type of Spark, the Arrow type for it, and values of it."""

    spark: DataType
    arrow: pa.DataType
    cells: st.SearchStrategy[Any]


_TEXT = st.one_of(st.sampled_from([*TOPICS, "rows", "nobody", "a b", "", "."]), st.text(max_size=5))
_BYTES = st.one_of(st.binary(max_size=8), st.just(b"x" * 3000))
_STRUCT = pa.struct([("key", pa.string()), ("value", pa.binary())])
KINDS = [
    Kind(StringType(), pa.string(), _TEXT),
    Kind(StringType(), pa.large_string(), _TEXT),
    Kind(BinaryType(), pa.binary(), _BYTES),
    Kind(IntegerType(), pa.int32(), st.one_of(st.integers(0, 3), st.integers(-(2**31), 2**31 - 1))),
    Kind(LongType(), pa.int64(), st.one_of(st.integers(0, 2**41), st.integers(-(2**63), 2**63 - 1))),
    Kind(TimestampType(), pa.timestamp("us", "UTC"), st.integers(-(2**55), 2**55)),
    Kind(DoubleType(), pa.float64(), st.floats()),
    Kind(BooleanType(), pa.bool_(), st.booleans()),
    Kind(PAIR, _STRUCT, st.fixed_dictionaries({"key": _TEXT, "value": _BYTES})),
    Kind(
        ArrayType(PAIR), pa.list_(_STRUCT),
        st.lists(
            st.one_of(
                st.none(),
                st.fixed_dictionaries({"key": st.one_of(st.none(), _TEXT), "value": st.one_of(st.none(), _BYTES)}),
            ),
            max_size=3,
        ),
    ),
    Kind(
        MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string()),
        st.lists(st.tuples(_TEXT, _TEXT), max_size=3),
    ),
    Kind(ArrayType(StringType()), pa.list_(pa.string()), st.lists(_TEXT, max_size=2)),
]  # fmt: skip
FITTING = {
    "value": (0, 1, 2),
    "key": (0, 1, 2),
    "topic": (0, 1),
    "partition": (3,),
    "headers": (9, 10),
    "timestamp": (4, 5),
}
NAMES = [*FITTING, "Value", "other", "offset", ""]


# Valid values, for frames that must get further than their first error.
GOOD_CELLS = {
    "topic": st.sampled_from(["rows", "others"]),
    "partition": st.sampled_from([None, 0]),
    "timestamp": st.integers(0, 2**41),
    "headers": st.just([]),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[StructType, list[pa.RecordBatch]]:
    is_tame = draw(st.integers(0, 3)) > 0
    names = draw(st.lists(st.sampled_from([*FITTING] if is_tame else NAMES), max_size=6, unique=is_tame))
    if is_tame and "value" not in names:
        names.append("value")
    row_count = draw(st.integers(0, 6))
    fields, arrays = [], []
    for name in names:
        fits = name in FITTING and (is_tame or draw(st.integers(0, 9)) > 0)
        kind = KINDS[draw(st.sampled_from(FITTING[name]))] if fits else draw(st.sampled_from(KINDS))
        cells = st.one_of(st.none(), kind.cells, kind.cells)
        if is_tame and name in GOOD_CELLS and draw(st.integers(0, 4)) > 0:
            cells = GOOD_CELLS[name]
        fields.append(StructField(name, kind.spark))
        arrays.append(pa.array(draw(st.lists(cells, min_size=row_count, max_size=row_count)), kind.arrow))
    batch = pa.RecordBatch.from_arrays(arrays, names)
    start = draw(st.integers(0, row_count))
    return StructType(fields), [batch.slice(0, start), batch.slice(start)]


# No option may block a run: time limits are short, and options that open other connections are left out.
_PLAIN = sorted(set(OPTIONS) - {"bootstrap.servers", "max.block.ms", "delivery.timeout.ms", "request.timeout.ms"})
_WORDS = st.sampled_from(
    ["", "0", "1", "-1", "5", "100", "2000", "all", "true", "false", "none", "gzip", "lz4", "zstd", "rows", "bad",
     "drop", "dead-letter", "fail", "exactly-once", "at-least-once", "os:path", "os.path:join", "builtins:len",
     "nothing:there", "round_robin", "random", "consistent_random", "RoundRobinPartitioner", "a b"]
)  # fmt: skip
_OWN = st.sampled_from([*SINK_OPTIONS, "includeheaders", "path", "topik", "startingoffsets", "queryname"])
options = st.one_of(
    st.fixed_dictionaries({}, optional={"topic": st.sampled_from(["rows", "others", "nobody"]),
                                        "record.errors": st.sampled_from(["fail", "drop"]),
                                        "kafka.max.request.size": st.just("2000")}),
    st.fixed_dictionaries({"record.errors": st.just("dead-letter"), "dead.letter.topic": st.just("bad"),
                           "kafka.max.request.size": st.just("4000")}, optional={"topic": st.just("rows")}),
    st.dictionaries(st.one_of(_OWN, st.sampled_from(_PLAIN).map("kafka.{}".format)), _WORDS, max_size=3),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2),
)  # fmt: skip

NAMED = (ConfigError, DataError)
# What only a broker can know: a topic does not exist, or its name is not valid.
OF_BROKERS = (OperationTimeout, BrokerError)
# Also which timestamps a topic accepts: up to an hour ahead of the broker's clock.
INVALID_TIMESTAMP = 32


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, topics=TOPICS, properties={"auto.create.topics.enable": "false"}) as broker:
        yield broker
    POOL.close()


def outcome(
    broker: EmbeddedBroker, schema: StructType, batches: list[pa.RecordBatch], given: dict[str, str]
) -> TaskReceipt | None:
    """None for an error with a name and a text; any other error fails the test."""
    fixed = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.block.ms": "60"}
    # This tests one task, not the commit of its transaction on the driver.
    fixed["delivery.guarantee"] = "at-least-once"
    place = TaskPlace(BatchKey("", ""), "", 0, 1)
    try:
        writer = pickle.loads(pickle.dumps(plan_batch({**given, **fixed}, schema, False)))
        return write_task(writer._options, writer._columns, iter(batches), place)
    except (*NAMED, *OF_BROKERS) as error:
        assert str(error)
        return None
    except DeliveryError as error:
        assert error.code == INVALID_TIMESTAMP, error
        return None


def record_count(broker: EmbeddedBroker) -> int:
    with broker.control() as core:
        topics = [core.cluster.topics[name] for name in TOPICS]
        return sum(partition.log.end_offset for topic in topics for partition in topic.partitions)


@given(columns(), options)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_frames_and_options_end_in_a_result_or_in_an_error_with_a_name(
    broker: EmbeddedBroker, frame: tuple[StructType, list[pa.RecordBatch]], given: dict[str, str]
) -> None:
    schema, batches = frame
    before = record_count(broker)
    receipt = outcome(broker, schema, batches, given)
    event("refused" if receipt is None else "delivered")
    if receipt is None:
        return
    row_count = sum(batch.num_rows for batch in batches)
    left_out = sum(receipt.record_errors.values())
    letters = left_out if given.get("record.errors", "").strip() == "dead-letter" else 0
    assert receipt.row_count == row_count - left_out + letters
    if given.get("kafka.acks", "all") not in ("0",):
        assert record_count(broker) - before == receipt.row_count
