"""A warning when the schema of keys gets a new id in a topic that has records.

The id is part of a key's bytes, and the bytes are the key: they choose the partition, and compaction compares them. So
after a new version of the schema the records of one key are in two partitions, and the older ones are never removed.
"""

from __future__ import annotations

from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.errors import KafkaSinkError
from kafka_sink.formats.registry.schema import ResolvedSchema
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.driver import CLIENTS

PATIENCE_MS = 5_000


def warn_of_moved_keys(options: SinkOptions, resolved: ResolvedSchema) -> None:
    """`resolved` was registered for this write, beside earlier versions. A stream is planned before each batch."""
    if options.topic is not None and not _has_records(options, options.topic):
        return
    where = "the topics of the rows" if options.topic is None else f"topic {options.topic}"
    warn_once(
        f"the schema of the keys is new: {resolved.subject!r} had {resolved.earlier_version_count} version(s), and now "
        f"has another one, with the id {resolved.schema_id}. Each key begins with this id, so the keys of {where} are "
        "other bytes from now on: they go to other partitions than before, and compaction keeps the records of the old "
        "ones for ever. To go on with the old keys set key.schema.id to the id that they have; for keys that no "
        "version changes write a new topic with key.schema.framing=header, or with key.format=string"
    )


def _has_records(options: SinkOptions, topic: str) -> bool:
    try:
        with CLIENTS.value.borrow(options.producer) as client:
            partitions = range(len(client.describe_topic(topic)))
            return any(PartitionReader(client, topic, each, PATIENCE_MS).extent()[1] > 0 for each in partitions)
    except KafkaSinkError:
        return True  # not known, and the warning says what would follow
