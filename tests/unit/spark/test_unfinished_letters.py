"""Rows that could not become a change, an event or a record with an id are left out by a replay: what it would write
has never been a record."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from kafka_sink.commit.replay import Replay
from kafka_sink.errors import DataError
from kafka_sink.formats.records.scalar import Record
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import ATTRIBUTE_COLUMN, ROW_ID, ChangeOptions
from kafka_sink.spark.changes import ChangeRows
from kafka_sink.spark.envelope import Envelope
from kafka_sink.spark.unsendable import split_misfits

REPLAY = Replay("again", "dead", "people", {})


def left_out_of_a_replay(
    rows: pa.RecordBatch, given: pa.RecordBatch, misfits: Mapping[int, DataError]
) -> Mapping[str, int]:
    _, _, unfit = split_misfits(rows, given, misfits, None)
    letters = unfit.make_letters(place={}, topic="people", first_row=0, bytes_max=10_000).to_pylist()
    records = [
        Record(0, each["key"], each["value"], tuple((pair["key"], pair["value"]) for pair in each["headers"]))
        for each in letters
    ]
    chosen, left_out = REPLAY.split_letters(list(enumerate(records)))
    assert not chosen and letters
    return left_out


def envelope_of(options: dict[str, str]) -> Envelope:
    where = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "people"}
    parsed = parse_sink_options({**where, **options}).envelope
    assert parsed is not None
    return Envelope(parsed, {}, "prefix")


def test_a_row_whose_operation_is_unknown_or_that_has_no_key_never_becomes_an_upsert() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"key": ["1", "2", None], "value": ["a", "b", "c"], "operation": ["insert", "truncate", "insert"]}
    )
    records, misfits, _ = ChangeRows(ChangeOptions("upsert", "op", None)).apply(rows)
    assert left_out_of_a_replay(records, records, misfits) == {"kept as it came, since it could not become a change": 2}


def test_a_row_without_what_an_event_needs_never_becomes_a_bare_record() -> None:
    about = {"cloudevents": "binary", "cloudevents.source": "/shop", "cloudevents.type.column": "kind"}
    given = pa.RecordBatch.from_pydict({"value": ["a", "b"], f"{ATTRIBUTE_COLUMN}type": ["placed", None]})
    rows, misfits = envelope_of(about).apply(given, 0)
    assert left_out_of_a_replay(rows, given, misfits) == {"kept as it came, since it could not become an event": 1}


def test_a_row_without_its_id_never_becomes_a_record_that_has_none() -> None:
    given = pa.RecordBatch.from_pydict({"value": ["a", "b"], ROW_ID: ["1", None]})
    rows, misfits = envelope_of({"row.id.header": "row-id", "row.id.column": "id"}).apply(given, 0)
    assert left_out_of_a_replay(rows, given, misfits) == {
        "kept as it came, since it could not become a record with an id": 1
    }
