"""One Produce request, from draining its batches to the response: the only object allocated for it.

The fields before the topics are the same in all requests of a producer and encoded once (`heads`, by version). A
response without errors is decoded by hand, any other by the generic decoder (kafka/wire/produce.py).
"""

from __future__ import annotations

from typing import Any

from kafka_sink.formats.records.batch import seal
from kafka_sink.kafka.client.commands import Buffer
from kafka_sink.kafka.client.request import Request
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.kafka.wire.produce import TopicBatches, encode_after_head, encode_produce_head, read_acknowledgements
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine.producer_batch import ProducerBatch, TopicPartition


class ProduceRequest(Request):
    """Its type says what it is for. It must not be its own `purpose`: nothing may refer to itself here, or the batches'
    bytes are freed by the garbage collector, many megabytes late, instead of with the last reference."""

    __slots__ = ("_heads", "_options", "batches", "has_current_ids", "topic_ids")

    def __init__(
        self,
        batches: dict[TopicPartition, ProducerBatch],
        topic_ids: dict[str, bytes],
        has_current_ids: bool,
        options: ProducerOptions,
        heads: dict[int, bytes],
        version_min: int,
        version_max: int,
    ) -> None:
        super().__init__(
            PRODUCE, {}, None, options.request_timeout_ms, version_min, version_max, expects_answer=options.acks != 0
        )
        self.batches = batches
        self._options = options
        self.topic_ids = topic_ids
        # They are from metadata that is younger than the producer.
        self.has_current_ids = has_current_ids
        # By version, the encoded fields before the topics.
        self._heads = heads

    def encode(self, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
        is_transactional = self._options.transactional_id is not None
        by_topic: dict[str, list[tuple[int, bytes, bytes]]] = {}
        topics: list[TopicBatches] = []
        for batch in self.batches.values():
            partitions = by_topic.get(batch.topic)
            if partitions is None:
                partitions = by_topic[batch.topic] = []
                topics.append((batch.topic, self.topic_ids.get(batch.topic), partitions))
            header = seal(batch.encoded, *batch.identity, batch.base_sequence, is_transactional)
            partitions.append((batch.partition, header, batch.encoded.payload))
        head = self._heads.get(version)
        if head is None:
            head = self._heads[version] = encode_produce_head(
                version,
                client_id=client_id,
                transactional_id=self._options.transactional_id,
                acks=self._options.acks,
                timeout_ms=self._options.request_timeout_ms,
            )
        return encode_after_head(head, version, correlation_id, topics)

    def decode(self, frame: bytes) -> tuple[Any, int]:
        found = read_acknowledgements(self.version, frame, self.correlation_id)
        return super().decode(frame) if found is None else (found, found.throttle_time_ms)
