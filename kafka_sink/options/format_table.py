"""How key and value are written: the options as rows. Those of schemas and the registry are in registry_table.py."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.options.format_names import EVERY_COLUMN, FORMATS
from kafka_sink.options.option import Option, unset_option
from kafka_sink.options.values import Choice, Names, Text

_row = unset_option

_ROWS = (
    _row("value.format", Choice(FORMATS), "How values are written. avro, protobuf and json-schema: by a schema, with "
         "what a reader needs to find it in the registry. json: as to_json does it. string and binary: the column as "
         "it is. Not set: a string or binary column as it is."),
    _row("value.columns", Names("column names separated by commas, or *"), "The columns that form the record; "
         f"{EVERY_COLUMN} is all but key, value, topic, partition, headers and timestamp. Not set: the column value, "
         "and where there is none, as *."),
    _row("value.record.name", Text(empty_allowed=False), "What a schema that is made from the columns is called, "
         "with its namespace (topLevelRecord if it is not set, as in Spark); in Protobuf, which message of the schema "
         "is written (the first)."),
    _row("key.format", Choice(FORMATS), "How the column key is written: as value.format."),
    _row("key.record.name", Text(empty_allowed=False), "As value.record.name."),
)  # fmt: skip

FORMAT_OPTIONS: Mapping[str, Option] = {row.name: row for row in _ROWS}
