"""Topics that were deleted and created again with fewer partitions: what waits for one of the others waits in vain.

Only the id tells. Brokers before 2.8 give none, and there a partition that is missing may be one that a broker has not
heard of yet. A broker that lags behind may also show the old topic after another one has shown the new one. So a new id
counts when a refresh of the metadata that was requested after its discovery shows it as well.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_sink.kafka.client.cluster import NO_TOPIC_ID, ClusterView, TopicView, topic_id_text
from kafka_sink.kafka.client.metadata import Metadata


class Replaced(NamedTuple):
    """`refresh`: the number of the one that confirms it."""

    old: TopicView
    new_id: bytes
    refresh: int


class ReplacedTopics:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.found: dict[str, Replaced] = {}

    def on_answer(self, before: ClusterView) -> None:
        """`before`: the view until this answer of a broker."""
        for topic, new in self._metadata.view.topics.items():
            old = before.topics.get(topic)
            if old is None or new.error_code or new.topic_id in (old.topic_id, NO_TOPIC_ID):
                continue
            earlier = self.found.pop(topic, None)
            if earlier is not None and len(earlier.old.partitions) > len(old.partitions):
                old = earlier.old
            if old.topic_id not in (new.topic_id, NO_TOPIC_ID) and len(new.partitions) < len(old.partitions):
                self.found[topic] = Replaced(old, new.topic_id, self._metadata.request_news())

    def loss_of(self, topic: str, partition: int) -> str:
        """Why nothing can be written to this partition any more. Empty: it may come, or come back."""
        found, new = self.found.get(topic), self._metadata.view.topics.get(topic)
        if found is None or new is None or new.error_code or new.topic_id != found.new_id:
            return ""
        if partition in new.partitions or not self._metadata.has_answered(found.refresh):
            return ""
        old_id, new_id = topic_id_text(found.old.topic_id), topic_id_text(new.topic_id)
        return (
            f"topic {topic} was deleted and created again: it had {len(found.old.partitions)} partitions (topic id "
            f"{old_id}), the new one has {len(new.partitions)} ({new_id}), and partition {partition} is gone"
        )
