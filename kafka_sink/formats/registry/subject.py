"""The subject of a schema: Confluent's three strategies, or a custom name.

A context is a registry inside the registry; it precedes the subject as `:.context:`.
"""

from __future__ import annotations

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import SUBJECT_UNNAMED

TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = "TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"
STRATEGIES = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)


def subject_name(strategy: str, side: str, topic: str | None, record_name: str | None) -> str:
    """`side` is key or value; `record_name` the full name of the record, of the message, or a JSON schema's title."""
    if strategy != RECORD_NAME and topic is None:
        raise ConfigError(
            f"{side}.subject.name.strategy={strategy} needs one topic for all rows: set the option topic, or choose "
            f"{RECORD_NAME}, or name the subject as {side}.subject.name",
            SUBJECT_UNNAMED,
        )
    if strategy != TOPIC_NAME and not record_name:
        raise ConfigError(
            f"{side}.subject.name.strategy={strategy} needs the name of a record, and the schema has none: give it one "
            f"(in JSON Schema a title), or name the subject as {side}.subject.name",
            SUBJECT_UNNAMED,
        )
    if strategy == TOPIC_NAME:
        return f"{topic}-{side}"
    return f"{record_name}" if strategy == RECORD_NAME else f"{topic}-{record_name}"


def add_context(context: str | None, subject: str) -> str:
    """A subject with a context keeps it."""
    if context is None or subject.startswith(":."):
        return subject
    return f":.{context}:{subject}"


def add_context_of(subject: str, other: str) -> str:
    """Resolves `other`, as referenced by a schema under `subject`: in the same context, unless it has one."""
    context = subject[2:].partition(":")[0] if subject.startswith(":.") else ""
    return add_context(context or None, other)
