"""Rows that would be records of a ledger are refused: a ledger does not know who wrote a record, and a row could settle
a batch that was never delivered.

The ledger of this sink and the default one are known by their names. That of another sink may have any name. If the
topic comes from the rows, their values are compared with what every record of a ledger begins with; a null value has
nothing to compare. A ledger that others must not write to needs an ACL (docs/security.md).
"""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.commit.ledger_codec import VALUE_BEGINS
from kafka_sink.errors import DataError, RowsRefused
from kafka_sink.options.sink_options import DEFAULT_LEDGER, SinkOptions


def ledger_names(options: SinkOptions) -> frozenset[str]:
    return frozenset({DEFAULT_LEDGER, options.ledger_topic} if options.is_exactly_once else {DEFAULT_LEDGER})


def ledger_row_error(topic: str) -> DataError:
    return DataError(
        f"a row is for the topic {topic}, which holds the decisions of sinks: choose another", column="topic"
    )


def check_values(rows: pa.RecordBatch) -> None:
    """For rows that name their topics."""
    import pyarrow.compute as pc  # most writes have one topic

    column = rows.column("value")
    if pa.types.is_null(column.type):
        return
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        column = column.cast(pa.large_binary())
    found = pc.indices_nonzero(pc.starts_with(column, VALUE_BEGINS)).to_pylist()
    if found:
        raise RowsRefused(found, _ledger_value_error)


def _ledger_value_error(row: int, _: int) -> DataError:
    return DataError(
        f"row {row} has a value that begins like a decision of a sink ({VALUE_BEGINS.decode().strip()}) and names "
        "its topic itself: it may be the ledger of another sink. Write copies of a ledger with the option topic",
        row=row,
        column="value",
    )
