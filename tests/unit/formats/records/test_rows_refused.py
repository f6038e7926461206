"""The error of the first of several rows makes those of the others, and is an ordinary one everywhere else."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from kafka_sink.errors import DataError, RowsRefused, copy_error
from kafka_sink.errors.table.writes import ROW_TIMESTAMP
from kafka_sink.formats.records.columns import RecordColumns, columns_by_topic

ROWS = pa.record_batch([pa.array([b"v"] * 4), pa.array([0, -1, 0, -1])], ["value", "timestamp"])


def refusal_of(rows: pa.RecordBatch) -> RowsRefused:
    with pytest.raises(RowsRefused) as raised:
        columns_by_topic(rows, topic="t")
    return raised.value


def test_it_is_the_error_of_the_first_row_and_makes_that_of_each() -> None:
    error = refusal_of(ROWS)
    assert (error.entry, error.row, error.column) == (ROW_TIMESTAMP, 1, "timestamp")
    errors = error.by_row()
    assert list(errors) == [1, 3]
    assert str(errors[1]) == str(error)
    assert str(errors[3]) == str(error).replace("row 1", "row 3")
    assert {type(each) for each in errors.values()} == {DataError}


def test_what_is_copied_or_sent_to_another_process_has_no_rows() -> None:
    error = refusal_of(ROWS)
    error.ambiguous = True
    for other in (copy_error(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is DataError
        assert vars(other) == {"name": error.name, "row": 1, "column": "timestamp", "ambiguous": True}
        assert str(other) == str(error)


def test_records_that_are_too_large_are_named_with_their_own_sizes() -> None:
    columns = RecordColumns.from_rows([None] * 3, [b"x" * 200, b"", b"x" * 300])
    with pytest.raises(RowsRefused) as raised:
        columns.check_record_sizes(150)
    texts = [str(error) for error in raised.value.by_row().values()]
    assert [text.partition(" in a request")[0] for text in texts] == [
        "the record of row 0 takes 286 bytes",
        "the record of row 2 takes 386 bytes",
    ]
