"""The digest of a task's rows: the same rows give the same digest however they are split, other rows another one."""

import pyarrow as pa
import pytest
from crc32c import crc32c

from kafka_sink.formats.records.digest import RowDigest


def digest(*batches: pa.RecordBatch) -> int:
    found = RowDigest()
    for batch in batches:
        found.add(batch)
    return found.value


def rows(
    *values: bytes | None, keys: tuple[bytes, ...] | None = None, kind: pa.DataType | None = None
) -> pa.RecordBatch:
    columns = {"value": pa.array(values, kind or pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    return pa.RecordBatch.from_pydict(columns)


def test_how_rows_are_cut_into_batches_changes_nothing() -> None:
    whole = rows(b"one", b"two", None, b"three", keys=(b"a", b"b", b"c", b"d"))
    assert digest(whole) == digest(whole.slice(0, 1), whole.slice(1, 2), whole.slice(3)) != 0


@pytest.mark.parametrize(
    "other",
    [rows(b"one", b"twO"), rows(b"one"), rows(b"one", b"two", b"three"), rows(b"one", b"two", keys=(b"a", b"b"))],
    ids=["content", "fewer", "more", "keys"],
)
def test_other_rows_have_another_digest(other: pa.RecordBatch) -> None:
    assert digest(rows(b"one", b"two")) != digest(other)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_the_arrow_type_of_a_column_changes_nothing(kind: pa.DataType) -> None:
    values = (b"one", b"two") if kind == pa.large_binary() else ("one", "two")
    assert digest(rows(*values, kind=kind)) == digest(rows(b"one", b"two"))  # type: ignore[arg-type]


def test_keys_and_values_do_not_stand_for_each_other() -> None:
    assert digest(rows(b"one", keys=(b"two",))) != digest(rows(b"two", keys=(b"one",)))
    assert digest(rows(b"one")) == digest(rows(b"one", keys=(b"",))) != digest(rows(b"one", keys=(b"one",)))


def test_no_rows_and_columns_without_bytes_have_a_digest_too() -> None:
    assert digest() == digest(rows()) == 0
    assert 0 <= digest(rows(b"x" * 100, keys=(b"\xff" * 9,))) < 2**63


def test_a_digest_is_the_one_that_earlier_releases_have_made_of_the_same_rows() -> None:
    """A batch may be run again after an update: another digest would be taken for other rows."""
    assert digest(rows(b"one", b"two", None, keys=(b"a", b"", b"c"))) == (crc32c(b"ac") << 31) ^ crc32c(b"onetwo")
    assert digest(rows(b"one", b"two", keys=(b"\xff" * 3, b"k"))) == 6153828571203018784
