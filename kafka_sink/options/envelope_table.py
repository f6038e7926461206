"""Constant headers and CloudEvents as rows. NAME is chosen by the user."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import EVENT_OPTION, HEADER_OPTION
from kafka_sink.frozen import frozen
from kafka_sink.options.option import Chapter, Needs, Option
from kafka_sink.options.sink_options import BINARY_MODE, CLOUDEVENTS, COLUMN, PLACEHOLDER, STRUCTURED_MODE, TRACEPARENT
from kafka_sink.options.values import ANY_TEXT, NOT_EMPTY, Choice

PLACEHOLDERS = ("query.id", "batch.id")
# Attributes that the user cannot set.
_FIXED = {"specversion": "it is 1.0", "data": "it is the value", "data_base64": "it is the value"}
_ATTRIBUTE = re.compile(r"[a-z0-9]+")


@frozen
class HeaderText:
    valid: str = ANY_TEXT.valid

    def parse(self, name: str, value: object) -> str:
        return _check_placeholders(name, str(value))


@frozen
class HeaderName:
    valid: str = NOT_EMPTY.valid

    def parse(self, name: str, value: object) -> str:
        header = NOT_EMPTY.parse(name, value)
        if header.startswith(("ce_", TRACEPARENT)):
            raise ConfigError(f"{name}={header}: this header has another meaning; choose another name", HEADER_OPTION)
        return header


@frozen
class AttributeText:
    valid: str = NOT_EMPTY.valid

    def parse(self, name: str, value: object) -> str:
        text = _check_placeholders(name, NOT_EMPTY.parse(name, value))
        check_attribute_name(name, name)
        return text


@frozen
class AttributeColumn:
    valid: str = NOT_EMPTY.valid

    def parse(self, name: str, value: object) -> str:
        column = NOT_EMPTY.parse(name, value)
        check_attribute_name(name.removesuffix(COLUMN), name)
        return column


def check_attribute_name(name: str, option: str) -> None:
    attribute = name.removeprefix(f"{CLOUDEVENTS}.")
    if attribute in _FIXED:
        raise ConfigError(f"{option} cannot be set: {_FIXED[attribute]}", EVENT_OPTION)
    if not _ATTRIBUTE.fullmatch(attribute):
        raise ConfigError(f"{option}: names of attributes are made of small letters and digits", EVENT_OPTION)


def _check_placeholders(option: str, text: str) -> str:
    for name in PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            known = " and ".join(f"${{{each}}}" for each in PLACEHOLDERS)
            raise ConfigError(f"{option}: ${{{name}}} is no placeholder; there are {known}", HEADER_OPTION)
    return text


_HEADERS = (
    Option("header.NAME", HeaderText(), "A header of every record, after those of the column headers. ${query.id} "
           "and ${batch.id} stand for query and batch. Spark makes option names lower case, NAME as well.",
           into="headers",
           example="header.source=orders-job"),
    Option("row.id.header", HeaderName(), "The name of a header with an id of the row, which stays when the row is "
           "written again: for readers that see rows more than once ([recipe](headers.md#row-ids)). It is the "
           "digest of key, value and timestamp, or the text of row.id.column. With envelope it needs row.id.column.",
           into="row_id_header",
           example="row-id"),
    Option("row.id.column", NOT_EMPTY, "The column with the id: string or whole number. record.errors handles a row "
           "whose id is null or empty. The column is also part of the value, unless value.columns leaves it out.",
           into="row_id_column", example="order_id",
           needs=Needs(("row.id.header",), "row.id.column needs row.id.header: it says where the id goes")),
    Option("cloudevents", Choice((BINARY_MODE, STRUCTURED_MODE)), "Records are CloudEvents 1.0. binary: attributes "
           "are headers ce_NAME, the value is the data. structured: the value is a JSON object with attributes and "
           "data, which are the JSON of value.format=json or of the column value.", into="mode", example="binary"),
    Option("cloudevents.NAME", AttributeText(), "An attribute of every event; placeholders as in header.NAME. type "
           "and source are required, here or from a column; the others have [defaults](headers.md#cloudevents).",
           into="attributes",
           example="cloudevents.type=com.example.order"),
    Option("cloudevents.NAME.column", AttributeColumn(), "The column with the attribute: string, whole number, "
           "boolean or timestamp. null: the row has none; record.errors handles a row without id, type or source. "
           "The column stays in the value, unless value.columns leaves it out.",
           into="attribute_columns", example="cloudevents.id.column=order_id"),
)  # fmt: skip

ENVELOPE_CHAPTERS: Mapping[Chapter, tuple[Option, ...]] = {Chapter.HEADERS: _HEADERS}
# The row with the longer name first: an attribute may be called column.
ENVELOPE_OPTIONS = {row.name: row for row in sorted(_HEADERS, key=lambda row: -len(row.name))}
