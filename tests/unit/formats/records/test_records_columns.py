"""The content of columns: every accepted type, every refusal with column and row, and no value in an error text."""

from __future__ import annotations

import datetime
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.errors import ConfigError, DataError
from kafka_sink.formats.records import bytes_column
from kafka_sink.formats.records.bytes_column import BytesColumn
from kafka_sink.formats.records.columns import RecordColumns, check_schema, columns_by_topic
from kafka_sink.formats.records.scalar import encode_headers
from kafka_sink.formats.records.timestamps import milliseconds
from tests.support.view_types import BINARY_VIEWS, STRING_VIEWS

BYTES_TYPES = [
    pa.binary(),
    pa.large_binary(),
    *BINARY_VIEWS,
    pa.string(),
    pa.large_string(),
    *STRING_VIEWS,
]


def rows_of(column: BytesColumn | None, count: int) -> list[bytes | None]:
    return [None] * count if column is None else [column.row(index) for index in range(count)]


@pytest.mark.parametrize("kind", BYTES_TYPES, ids=str)
def test_every_bytes_type_gives_the_same_rows(kind: pa.DataType) -> None:
    rows = ["", None, "a", "longer than twelve bytes", None]
    columns = RecordColumns.from_arrow(pa.table({"value": pa.array(rows, kind)}))
    assert rows_of(columns.value, 5) == [None if row is None else row.encode() for row in rows]


def test_fixed_size_and_dictionary_and_run_end_columns_give_their_rows() -> None:
    fixed = pa.array([b"ab", None, b"cd"], pa.binary(2))
    dictionary = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array([None, "text"]))
    run_ends = pa.RunEndEncodedArray.from_arrays([2, 3], [b"x", b"y"], pa.run_end_encoded(pa.int32(), pa.binary()))
    for array, expected in (
        (fixed, [b"ab", None, b"cd"]),
        (dictionary, [b"text", None, None]),
        (run_ends, [b"x", b"x", b"y"]),
    ):
        columns = RecordColumns.from_arrow(pa.table({"value": array}))
        assert rows_of(columns.value, 3) == expected


class Tagged(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.string(), "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> Tagged:
        return cls()


def test_an_extension_type_is_read_as_what_it_is_stored_as() -> None:
    array = pa.ExtensionArray.from_storage(Tagged(), pa.array(["x", None, "y"])).slice(1)
    assert rows_of(RecordColumns.from_arrow(pa.table({"value": array})).value, 2) == [None, b"y"]


def test_an_array_that_arrow_cannot_read_is_refused() -> None:
    """Also a dictionary whose rows take more than 2 GiB; that takes too long here."""
    outside = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a"]), safe=False)
    with pytest.raises(DataError, match=r"the rows cannot be read: .* send fewer at once"):
        RecordColumns.from_arrow(pa.table({"value": outside}))


def test_offsets_that_do_not_fit_an_array_are_refused_instead_of_read_somewhere_else() -> None:
    for byte_count in (2**31, 2**32 + 5):
        column = BytesColumn.of(np.empty(0, np.uint8), np.array([0, byte_count]), np.array([byte_count]))
        with pytest.raises(DataError, match="2 GiB and more"):
            column.elements()


def test_headers_that_do_not_fit_an_array_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_sink.formats.records.pieces.BYTES_MAX", 100)
    headers = pa.array([[("key", b"x" * 60)]] * 2, pa.map_(pa.string(), pa.binary()))
    with pytest.raises(DataError, match="2 GiB and more"):
        RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"] * 2), "headers": headers}))


@pytest.mark.slow
def test_chunks_of_more_than_2_gib_together_keep_their_rows() -> None:
    """NumPy 1.26 once computed the offsets in 32 bits."""
    data = np.zeros(1_200_000_000, np.uint8)
    chunk = BytesColumn.of(data, np.array([0, len(data) - 5, len(data)], np.int32), np.array([len(data) - 5, 5]))
    assert BytesColumn.concat([chunk, chunk]).starts.tolist() == [
        0,
        1_199_999_995,
        1_200_000_000,
        2_399_999_995,
        2_400_000_000,
    ]


def test_bytes_under_a_null_are_never_read() -> None:
    starts = pa.py_buffer(np.array([0, 2, 5, 6], np.int32))
    validity = pa.py_buffer(b"\x05")
    array = pa.Array.from_buffers(pa.binary(), 3, [validity, starts, pa.py_buffer(b"aaXXXb")])
    columns = RecordColumns.from_arrow(pa.table({"key": array, "value": array}))
    assert rows_of(columns.key, 3) == [b"aa", None, b"b"]
    assert columns.sizes.tolist() == [1 + 2 + 1 + 2 + 1, 3, 1 + 1 + 1 + 1 + 1]  # type: ignore[union-attr]
    # As large values are read, which are not copied.
    assert columns.key is not None
    assert [bytes(view) for view in columns.key.views(np.array([2, 1, 0]))] == [b"b", b"", b"aa"]


def test_slices_and_chunks_give_the_rows_they_show() -> None:
    array = pa.array([b"%d" % number for number in range(10)])
    chunked = pa.chunked_array([array.slice(2, 3), array.slice(0, 0), array.slice(7, 2)])
    columns = RecordColumns.from_arrow(pa.table({"value": chunked}))
    assert rows_of(columns.value, 5) == [b"2", b"3", b"4", b"7", b"8"]
    assert rows_of(columns.slice(1, 4).value, 3) == [b"3", b"4", b"7"]
    assert columns.slice(1, 4).row_ids.tolist() == [1, 2, 3]


def test_a_table_without_chunks_has_no_rows_whatever_its_types() -> None:
    kind = pa.run_end_encoded(pa.int32(), pa.string())
    headers = pa.list_(pa.struct([("key", kind), ("value", kind)]))
    numbers = pa.chunked_array([], pa.int64())
    table = pa.table(
        {
            "value": pa.chunked_array([], kind), "headers": pa.chunked_array([], headers), "timestamp": numbers,
            "partition": numbers,
        }
    )  # fmt: skip
    assert RecordColumns.from_arrow(table).row_count == 0


def test_null_key_and_empty_key_differ() -> None:
    columns = RecordColumns.from_arrow(pa.table({"key": pa.array([None, b""]), "value": pa.array([b"", None])}))
    assert rows_of(columns.key, 2) == [None, b""]
    assert rows_of(columns.value, 2) == [b"", None]


@pytest.mark.parametrize("kind", [pa.binary(), pa.null()], ids=str)
def test_columns_without_any_content_are_as_if_absent(kind: pa.DataType) -> None:
    empty = pa.array([None, None], kind)
    columns = RecordColumns.from_arrow(
        pa.table({"key": empty, "value": empty, "headers": pa.array([None, None]), "timestamp": pa.array([None, None])})
    )
    assert (columns.key, columns.value, columns.headers, columns.timestamps) == (None, None, None, None)
    assert (columns.row_count, columns.sizes) == (2, 3)


def test_no_rows_are_no_rows_for_every_type() -> None:
    for kind in BYTES_TYPES:
        columns = RecordColumns.from_arrow(pa.table({"value": pa.array([], kind), "key": pa.array([], kind)}))
        assert (columns.row_count, columns.bytes_max) == (0, 0)
        columns.check_record_sizes(0)


HEADER_ROWS = [[("a", b"1"), ("a", None)], None, [], [("", b"")]]
ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(ENTRY),
        pa.large_list(ENTRY),
        pa.list_(pa.struct([("name", pa.string()), ("content", pa.binary())])),
        pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])),
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.string(), pa.string()),
    ],
    ids=str,
)
def test_headers_keep_order_duplicates_and_null_values(kind: pa.DataType) -> None:
    rows: list[Any] = HEADER_ROWS
    if not pa.types.is_map(kind):
        names = [kind.value_type.field(index).name for index in range(2)]
        names = ["key", "value"] if "key" in names else names
        rows = [None if row is None else [dict(zip(names, pair, strict=True)) for pair in row] for row in rows]
    array = pa.array([*rows, *rows], kind)
    for part, expected in ((array, HEADER_ROWS * 2), (array.slice(1, 4), (HEADER_ROWS * 2)[1:5])):
        columns = RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"] * len(part)), "headers": part}))
        assert rows_of(columns.headers, len(part)) == [encode_headers(row or ()) for row in expected]


def test_headers_under_a_null_list_belong_to_nobody() -> None:
    entries = pa.array([{"key": "a", "value": b"1"}, {"key": None, "value": b"x"}, {"key": "b", "value": b"2"}], ENTRY)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), entries, mask=pa.array([False, True, False]))
    columns = RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"] * 3), "headers": lists}))
    expected = [encode_headers([("a", b"1")]), encode_headers([]), encode_headers([("b", b"2")])]
    assert rows_of(columns.headers, 3) == expected


@pytest.mark.parametrize("entry", [{"key": None, "value": b"secret"}, None])
def test_null_header_or_header_key_is_refused_by_row(entry: Any) -> None:
    good = pa.array([[{"key": "a", "value": b"1"}]], pa.list_(ENTRY))
    bad = pa.array([[], [{"key": "a", "value": b"1"}, entry]], pa.list_(ENTRY))
    table = pa.table({"value": pa.array([b"v"] * 3), "headers": pa.chunked_array([good, bad])})
    with pytest.raises(DataError, match=r"column headers has a .*null.* in row 2") as caught:
        RecordColumns.from_arrow(table)
    assert (caught.value.row, caught.value.column) == (2, "headers")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "nulls", "text"),
    [
        ([b"a", b"", None, None], [], "a header whose key is null"),
        ([b"a", b"", b"\xff", b"\xff"], [], "a header whose key is no text in UTF-8"),
        ([b"a", b"", b"b", b"c"], [2, 3], "a null header"),
    ],
)
def test_the_first_row_with_a_bad_header_is_named_after_headers_that_belong_to_nobody(
    keys: list[bytes | None], nulls: list[int], text: str
) -> None:
    names = pa.array(keys, pa.binary()).view(pa.string())
    is_null = pa.array([index in nulls for index in range(4)])
    entries = pa.StructArray.from_arrays([names, pa.array([b"v"] * 4)], fields=list(ENTRY), mask=is_null)
    is_nobodys = pa.array([True, False, False, False])
    lists = pa.ListArray.from_arrays(pa.array(range(5), pa.int32()), entries, mask=is_nobodys)
    with pytest.raises(DataError, match=f"column headers has {text} in row 2"):
        RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"] * 4), "headers": lists}))


def test_bytes_under_a_null_header_value_are_never_read() -> None:
    starts = pa.py_buffer(np.array([0, 2, 5], np.int32))
    values = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x01"), starts, pa.py_buffer(b"aaXXX")])
    headers = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["a", "b"]), values)
    columns = RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"]), "headers": headers}))
    assert rows_of(columns.headers, 1) == [encode_headers([("a", b"aa"), ("b", None)])]


MOMENT_MS = 1_700_000_000_123


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.timestamp("s"), MOMENT_MS // 1000, MOMENT_MS // 1000 * 1000),
        (pa.timestamp("ms"), MOMENT_MS, MOMENT_MS),
        (pa.timestamp("us", "UTC"), MOMENT_MS * 1000 + 999, MOMENT_MS),
        (pa.timestamp("ns", "Asia/Kolkata"), MOMENT_MS * 10**6 + 999_999, MOMENT_MS),
        (pa.int64(), MOMENT_MS, MOMENT_MS),
    ],
    ids=str,
)
def test_timestamps_of_every_unit_become_milliseconds(kind: pa.DataType, value: int, expected: int) -> None:
    array = pa.array([value, None, 0], pa.int64()).cast(kind)
    columns = RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"] * 3), "timestamp": array}))
    assert columns.timestamps is not None
    assert columns.timestamps.tolist() == [expected, -1, 0]


@pytest.mark.parametrize("zone", [None, "Asia/Kolkata"])
@pytest.mark.parametrize(("unit", "per_s"), [("s", 1), ("ms", 10**3), ("us", 10**6)])
def test_milliseconds_of_every_unit_are_rounded_down_and_a_null_stays_one(
    unit: str, per_s: int, zone: str | None
) -> None:
    numbers = [0, None, 1, -1, 12_345_678_901, -12_345_678_901, None]
    column = pa.array(numbers, pa.int64()).view(pa.timestamp(unit, zone)).slice(1)
    expected = [None if number is None else number * 1000 // per_s for number in numbers[1:]]
    assert milliseconds(column).to_pylist() == expected


def test_a_number_is_milliseconds_already() -> None:
    assert milliseconds(pa.array([5, None, -7], pa.int32())).equals(pa.array([5, None, -7], pa.int64()))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_negative_timestamp_is_refused_by_row(unit: str) -> None:
    array = pa.array([None, 5, -1], pa.timestamp(unit))
    with pytest.raises(DataError, match="column timestamp is negative in row 2") as caught:
        RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"] * 3), "timestamp": array}))
    assert (caught.value.row, caught.value.column) == (2, "timestamp")


def test_timestamp_beyond_64_bits_of_milliseconds_is_refused() -> None:
    array = pa.array([2**62], pa.timestamp("s"))
    with pytest.raises(DataError, match=r"column timestamp is above \d+ in row 0"):
        RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"]), "timestamp": array}))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
def test_partition_null_is_any_and_negative_is_refused(kind: pa.DataType) -> None:
    values = pa.array([b"v"] * 2)
    columns = RecordColumns.from_arrow(pa.table({"value": values, "partition": pa.array([7, None], kind)}))
    assert columns.partitions is not None
    assert (columns.partitions.tolist(), columns.partitions.dtype) == ([7, -1], np.int32)
    with pytest.raises(DataError, match="column partition is negative in row 1"):
        RecordColumns.from_arrow(pa.table({"value": values, "partition": pa.array([7, -1], kind)}))


def test_partition_beyond_32_bits_is_refused() -> None:
    with pytest.raises(DataError, match="column partition is above 2147483647 in row 0"):
        RecordColumns.from_arrow(pa.table({"value": pa.array([b"v"]), "partition": pa.array([2**31])}))


@pytest.mark.parametrize(
    ("column", "kind", "accepted"),
    [
        ("value", pa.int64(), "binary"),
        ("value", pa.list_(pa.binary()), "binary"),
        ("key", pa.float64(), "string"),
        ("key", pa.dictionary(pa.int8(), pa.int64()), "string"),
        ("topic", pa.binary(), "string"),
        ("headers", pa.binary(), "map<string, binary or string>"),
        ("headers", pa.list_(pa.string()), "list<struct<key: string, value: binary>>"),
        ("headers", pa.list_(pa.struct([("key", pa.string())])), "list<struct"),
        ("timestamp", pa.date32(), "timestamp of any unit"),
        ("timestamp", pa.float64(), "int64"),
        ("partition", pa.string(), "int32 and int64"),
    ],
)
def test_wrong_type_is_named_with_the_types_accepted(column: str, kind: pa.DataType, accepted: str) -> None:
    fields = [("value", pa.binary())] if column != "value" else []
    with pytest.raises(DataError) as caught:
        check_schema(pa.schema([*fields, (column, kind)]))
    assert caught.value.column == column
    text = str(caught.value)
    assert f"column {column}" in text and accepted in text and "has type" in text


def test_wrong_types_inside_headers_name_the_part() -> None:
    with pytest.raises(DataError, match=r"column headers\.key has type binary"):
        check_schema(pa.schema([("value", pa.binary()), ("headers", pa.map_(pa.binary(), pa.binary()))]))
    with pytest.raises(DataError, match=r"column headers\.value has type int64"):
        check_schema(pa.schema([("value", pa.binary()), ("headers", pa.map_(pa.string(), pa.int64()))]))


def test_missing_value_column_is_refused_and_foreign_columns_are_not_looked_at() -> None:
    with pytest.raises(DataError, match="there is no column value"):
        check_schema(pa.schema([("key", pa.binary())]))
    table = pa.table(
        {"value": pa.array([b"v"]), "Value": pa.array([1.5]), "other": pa.array([datetime.date(2024, 2, 29)])}
    )
    assert RecordColumns.from_arrow(table).row_count == 1


def test_of_two_columns_of_one_name_none_is_chosen() -> None:
    """As after a join; a foreign name may occur twice."""
    twice = pa.table([pa.array([b"a"]), pa.array([b"b"]), pa.array([1]), pa.array([2])], ["value", "value", "n", "n"])
    with pytest.raises(DataError, match="there are 2 columns value"):
        RecordColumns.from_arrow(twice)
    assert RecordColumns.from_arrow(twice.select([1, 2, 3])).row_count == 1


def test_topic_comes_from_the_option_before_the_column() -> None:
    table = pa.table({"value": pa.array([b"a", b"b"]), "topic": pa.array(["", None])})
    assert [topic for topic, _ in columns_by_topic(table, topic="option")] == ["option"]
    with pytest.raises(DataError, match="null topic in row 1") as caught:
        columns_by_topic(table, topic=None)
    assert (caught.value.row, caught.value.column) == (1, "topic")
    with pytest.raises(ConfigError, match="set the option topic or add a column topic"):
        columns_by_topic(table.drop_columns(["topic"]), topic=None)


def test_rows_of_one_topic_are_not_copied_and_rows_of_two_keep_their_numbers() -> None:
    table = pa.table({"value": pa.array([b"a", b"b", b"c"]), "topic": pa.array(["x", "x", "x"])})
    ((topic, columns),) = columns_by_topic(table, topic=None)
    assert (topic, rows_of(columns.value, 3)) == ("x", [b"a", b"b", b"c"])
    assert columns.value is not None
    assert columns.value.data.ctypes.data == table["value"].chunk(0).buffers()[2].address
    table = table.set_column(1, "topic", pa.array(["x", "y", "x"]))
    dealt = [(topic, columns.row_ids.tolist()) for topic, columns in columns_by_topic(table, topic=None)]
    assert dealt == [("x", [0, 2]), ("y", [1])]


def test_rows_of_two_topics_keep_all_that_is_said_of_them() -> None:
    table = pa.table(
        {
            "topic": ["x", "y", "x"], "key": [b"a", b"b", b"c"], "value": [b"1", b"2", b"3"], "timestamp": [1, 2, 3],
            "partition": [4, 5, 6], "headers": pa.array([[("h", b"")], [], [("i", b"")]], pa.map_("string", "binary")),
        }
    )  # fmt: skip
    _, columns = columns_by_topic(table, topic=None)[0]
    assert (rows_of(columns.key, 2), rows_of(columns.value, 2)) == ([b"a", b"c"], [b"1", b"3"])
    assert rows_of(columns.headers, 2) == [encode_headers([(name, b"")]) for name in ("h", "i")]
    assert columns.timestamps is not None and columns.timestamps.tolist() == [1, 3]
    assert columns.partitions is not None and columns.partitions.tolist() == [4, 6]


def test_a_topic_that_is_not_utf_8_is_refused_by_row() -> None:
    starts = pa.py_buffer(np.array([0, 1, 2], np.int32))
    topics = pa.Array.from_buffers(pa.string(), 2, [None, starts, pa.py_buffer(b"x\xff")])
    with pytest.raises(DataError, match="the topic of row 1 is not UTF-8") as caught:
        columns_by_topic(pa.table({"value": [b"a", b"b"], "topic": topics}), topic=None)
    assert (caught.value.row, caught.value.column) == (1, "topic")


def test_rows_of_two_topics_keep_their_contents_with_nulls_and_nothing_and_bytes_under_a_null() -> None:
    contents = [b"a", None, b"", b"bcd", None, b"e", b"", b"f"]
    starts, data = pa.array([0, 1, 3, 3, 6, 6, 7, 7, 8], pa.int32()).buffers()[1], pa.py_buffer(b"aXXbcdef")
    is_there = pa.py_buffer(bytes([sum(1 << row for row, content in enumerate(contents) if content is not None)]))
    values = pa.Array.from_buffers(pa.binary(), 8, [is_there, starts, data])
    assert values.to_pylist() == contents
    topics = ["x", "y", "x", "x", "y", "x", "z", "y"]
    for first in range(4):
        table = pa.table({"value": values, "topic": topics}).slice(first)
        for topic, columns in columns_by_topic(table, topic=None):
            own = [content for content, name in zip(contents, topics, strict=True) if name == topic][
                -columns.row_count :
            ]
            assert rows_of(columns.value, columns.row_count) == own


def test_a_column_dealt_to_topics_takes_its_own_size_of_memory_once() -> None:
    size = 32 * 1024 * 1024
    table = pa.table({"value": pa.array([bytes(1024)] * (size // 1024)), "topic": ["x", "y"] * (size // 2048)})
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    dealt = columns_by_topic(table, topic=None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(dealt) == 2
    assert peak < size / 4  # numpy's: indexes of rows, not of bytes
    assert pa.total_allocated_bytes() - before < 1.5 * size


def test_record_above_the_request_limit_is_refused_by_row_size_and_limit() -> None:
    table = pa.table({"value": pa.array([b"x" * 599, b"secret" * 100, b"x"])})
    columns = RecordColumns.from_arrow(table)
    size = 61 + 21 + 1 + 2 + 600 + 1
    columns.check_record_sizes(size)
    with pytest.raises(DataError) as caught:
        columns.check_record_sizes(size - 1)
    text = f"the record of row 1 takes {size} bytes in a request; max.request.size allows {size - 1}"
    assert (str(caught.value), caught.value.row) == (text, 1)


def test_of_rows_that_are_all_too_large_the_first_is_named_as_the_caller_numbers_them() -> None:
    for values in ([b"x" * 600] * 4, [b"x" * 600, b"y" * 600, b"z" * 700, b""]):
        columns = RecordColumns.from_arrow(pa.table({"value": pa.array(values)})).slice(1, 4)
        with pytest.raises(DataError, match="the record of row 1 takes 686 bytes") as caught:
            columns.check_record_sizes(685)
        assert caught.value.row == 1


def test_a_record_that_fits_a_request_may_be_too_large_for_the_memory() -> None:
    columns = RecordColumns.from_arrow(pa.table({"value": pa.array([b"x", b"x" * 600])}))
    size = 21 + 1 + 2 + 600 + 1
    columns.check_record_sizes(1000, size)
    columns.check_record_sizes(61 + size, 10**6)
    with pytest.raises(DataError) as caught:
        columns.check_record_sizes(1000, size - 1)
    assert str(caught.value) == (f"the record of row 1 takes {size} bytes and never fits into buffer.memory={size - 1}")
    with pytest.raises(DataError, match=r"takes 686 bytes in a request; max\.request\.size allows 100"):
        columns.check_record_sizes(100, 50)


@pytest.mark.parametrize("name", ["timestamp", "partition"])
def test_the_largest_numbers_that_kafka_has_are_taken(name: str) -> None:
    largest = {"timestamp": 2**63 - 1, "partition": 2**31 - 1}[name]
    columns = RecordColumns.from_arrow(pa.table({"value": [b"v"] * 2, name: pa.array([largest, None], pa.int64())}))
    assert getattr(columns, f"{name}s").tolist() == [largest, -1]


def test_rows_given_one_by_one_become_the_same_columns() -> None:
    columns = RecordColumns.from_rows([b"k", None], [None, b"v"], [None, (("h", None),)])
    assert rows_of(columns.key, 2) == [b"k", None]
    assert rows_of(columns.value, 2) == [None, b"v"]
    assert rows_of(columns.headers, 2) == [encode_headers(()), encode_headers((("h", None),))]


def test_a_view_that_pyarrow_cannot_cast_is_refused_with_the_version_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytes_column, "_can_be_cast", lambda view: False)
    for view in (*STRING_VIEWS, *BINARY_VIEWS):
        with pytest.raises(DataError, match=r"\(from pyarrow 18 on\) string_view"):
            bytes_column.check_bytes_type(view, "value")
