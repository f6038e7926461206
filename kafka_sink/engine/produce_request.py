"""One Produce request, from the drain of its batches to the answer: the only object that is made for it.

What stands before the topics is the same in all requests of a producer and is made once (`heads`, by version). The
answer is read by hand where all is well, by the generic rows otherwise (wire/produce.py).
"""

from __future__ import annotations

from typing import Any

from kafka_sink.engine.commands import Buffer
from kafka_sink.engine.producer_batch import ProducerBatch, TopicPartition
from kafka_sink.engine.request import Request
from kafka_sink.options import ProducerOptions
from kafka_sink.records.batch import seal
from kafka_sink.wire.apis import PRODUCE
from kafka_sink.wire.produce import encode_behind, produce_head, read_acknowledgements


class ProduceRequest(Request):
    """One Produce request: its batches, by partition, from the drain to the answer."""

    __slots__ = ("_heads", "_options", "_topic_ids", "_topic_names", "batches")

    def __init__(
        self,
        batches: dict[TopicPartition, ProducerBatch],
        topic_ids: dict[str, bytes | None],
        options: ProducerOptions,
        heads: dict[int, bytes],
        version_min: int,
        version_max: int,
    ) -> None:
        super().__init__(
            PRODUCE, {}, self, options.request_timeout_ms, version_min, version_max, expects_answer=options.acks != 0
        )
        self.batches = batches
        self._options = options
        self._topic_ids = topic_ids
        # To read answers by id.
        self._topic_names = {topic_id: name for name, topic_id in topic_ids.items()}
        # By version, what all requests of the producer begin with.
        self._heads = heads

    def encode(self, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
        is_transactional = self._options.transactional_id is not None
        topics: dict[str, list[tuple[int, bytes, bytes]]] = {}
        for batch in self.batches.values():
            header = seal(batch.encoded, *batch.identity, batch.base_sequence, is_transactional)
            topics.setdefault(batch.topic, []).append((batch.partition, header, batch.encoded.payload))
        head = self._heads.get(version)
        if head is None:
            head = self._heads[version] = produce_head(
                version,
                client_id=client_id,
                transactional_id=self._options.transactional_id,
                acks=self._options.acks,
                timeout_ms=self._options.request_timeout_ms,
            )
        named = [(name, self._topic_ids[name], partitions) for name, partitions in topics.items()]
        return encode_behind(head, version, correlation_id, named)

    def decode(self, frame: bytes) -> tuple[Any, int]:
        found = read_acknowledgements(self.version, frame, self.correlation_id)
        return super().decode(frame) if found is None else (found, found.throttle_time_ms)

    def name_of(self, topic: str | bytes) -> str:
        return topic if isinstance(topic, str) else self._topic_names.get(topic, "")
