"""Constant headers and CloudEvents: the options as rows. NAME stands for a name of the user's."""

from __future__ import annotations

from kafka_sink.options.envelope_options import BINARY_MODE, STRUCTURED_MODE
from kafka_sink.options.option import unset_option
from kafka_sink.options.values import Choice, Text

MODE = Choice((BINARY_MODE, STRUCTURED_MODE))
NOT_EMPTY = Text(empty_allowed=False)


_row = unset_option

ENVELOPE_OPTIONS = (
    _row("header.NAME", Text(), "A header of every record, behind those of the column headers. ${query.id} and "
         "${batch.id} stand for what the sink calls the batch: of a stream, Spark's query id and the number of the "
         "micro-batch. Spark makes small letters of the names of options, and so of NAME."),
    _row("cloudevents", MODE, "Records are CloudEvents 1.0. binary: the attributes are headers ce_NAME, the value is "
         "the data. structured: the value is one JSON object with attributes and data; the data is the JSON of "
         "value.format=json, or of a column value."),
    _row("cloudevents.NAME", NOT_EMPTY, "An attribute of every event, with the placeholders of header.NAME. type and "
         "source are required, here or from a column. id is made of query, batch, Spark partition and row unless it "
         "is given. datacontenttype is that of value.format unless it is given, else application/json in structured."),
    _row("cloudevents.NAME.column", NOT_EMPTY, "The column that has the attribute: string, whole number, boolean or "
         "timestamp. Where it is null the row has no such attribute; a row without id, type or source follows "
         "record.errors. The column is part of the value all the same, unless value.columns leaves it out."),
)  # fmt: skip
