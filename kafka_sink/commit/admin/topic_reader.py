"""Reads one partition from an offset to its last stable offset, as a read_committed consumer does; for commands that
read a topic once. Leaders that move are found again; no answer in time is an error."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_sink.commit.admin.asking import Bodies, Lacks
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.log_scan import (
    EARLIEST,
    FETCH_BYTES_MAX,
    LATEST,
    READ_COMMITTED,
    RawBatch,
    committed_batches,
    committed_records,
    end_of_batches,
    fetch_body,
    offsets_body,
    only_partition,
    read_fetch_answer,
    read_offset_answer,
)
from kafka_sink.errors import BrokerError, KafkaSinkError, OperationTimeout
from kafka_sink.formats.records.scalar import Record
from kafka_sink.kafka.client.ask import Leader, Repeat
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.wire.apis import FETCH, LIST_OFFSETS, Api

WAIT_MS = 100
# How far back the newest records are looked for, step by step: markers and aborted records take offsets, too.
WINDOWS = (10, 1_000, 10_000)


class PartitionReader:
    """`keeps_own_time`: as in `committed_records`."""

    def __init__(
        self, client: Client, topic: str, partition: int, patience_ms: int, *, keeps_own_time: bool = False
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._client = client
        self._leader = Leader(topic, partition)
        self._patience_ms = patience_ms
        self._keeps_own_time = keeps_own_time

    def extent(self) -> tuple[int, int]:
        """The log start offset and the last stable offset."""
        return self._offset(EARLIEST), self._offset(LATEST)

    def newest(self, count: int, end: int) -> list[tuple[int, Record]]:
        """The last `count` records below `end`; fewer, if the others are further back than is looked."""
        start = self._offset(EARLIEST)
        found = deque[tuple[int, Record]](maxlen=count)
        for window in WINDOWS:
            begin = max(start, end - window)
            found.clear()
            for records, _ in self.read(begin, end):
                found += records
            if len(found) == count or begin == start:
                break
        return list(found)

    def read(self, offset: int, end: int) -> Iterator[tuple[list[tuple[int, Record]], int]]:
        """Records below `end`, as many as an answer has and memory should hold, with the next offset to fetch."""
        is_there = False
        while offset < end:
            records, aborted = self._fetch(offset, is_there=is_there)
            found, next_offset = committed_records(records, aborted, offset, keeps_own_time=self._keeps_own_time)
            if next_offset > offset:
                yield [each for each in found if each[0] < end], min(next_offset, end)
                offset, is_there = next_offset, False
            elif (first := self._offset(EARLIEST)) > offset:
                # Retention has deleted the records meanwhile.
                yield [], min(first, end)
                offset = first
            else:
                # Records that are there must not be skipped: this leader may be behind, too.
                is_there = True

    def first_batches(self, offset: int, end: int, bytes_max: int) -> Iterator[RawBatch]:
        """Those below `end` that readers see, not decoded, until there are so many bytes of them. Brokers cut an answer
        after that as well, but for its first batch, which is whole however large it is."""
        seen, asked = 0, bytes_max
        while offset < end and seen < bytes_max:
            records, aborted = self._fetch(offset, is_there=True, bytes_max=asked)
            for batch in committed_batches(records, aborted):
                seen += len(batch.content)
                yield batch
            offset = end_of_batches(records, offset)
            # Where readers see nothing, it may go on so.
            asked = bytes_max if seen else FETCH_BYTES_MAX

    def _fetch(self, offset: int, *, is_there: bool, bytes_max: int | None = None) -> tuple[bytes, Any]:
        """Whole batches with the aborted transactions among them; none if the offset is out of range. `is_there`: then
        it is asked for again."""

        def lacks(bodies: Bodies) -> KafkaSinkError | None:
            answer = read_fetch_answer(bodies[0])
            if driver_outcome(FETCH, answer.error_code) is DriverOutcome.OUT_OF_RANGE:
                return self._trouble(FETCH, answer.error_code, offset) if is_there else None
            # A leader without the records is behind the one that returned the end. Or it is not Apache Kafka, and has
            # something there that clients do not get.
            if not answer.error_code and end_of_batches(answer.records, offset) == offset:
                return self._timeout(f"its leader shows nothing from offset {offset} on, though there is more")
            return self._trouble_of(FETCH, answer.error_code)

        body = self._ask(
            FETCH, fetch_body(self.topic, self.partition, offset, READ_COMMITTED, bytes_max=bytes_max), lacks,
            version_max=FETCH.last_by_name, find_again=is_there,
        )  # fmt: skip
        answer = read_fetch_answer(body)
        if answer.error_code:
            return b"", None
        return answer.records, only_partition(body["responses"])["aborted_transactions"]

    def _offset(self, timestamp: int) -> int:
        body = self._ask(
            LIST_OFFSETS, offsets_body([(self.topic, self.partition)], timestamp, READ_COMMITTED),
            lambda bodies: self._trouble_of(LIST_OFFSETS, read_offset_answer(bodies[0])[0]),
            version_min=LIST_OFFSETS.isolated_since,
        )  # fmt: skip
        return read_offset_answer(body)[1]

    def _ask(self, api: Api, body: Mapping[str, Any], lacks: Lacks, **more: Any) -> Mapping[str, Any]:
        how = {"repeat": Repeat.ALWAYS, "timeout_ms": self._patience_ms, "wait_ms": WAIT_MS}
        return self._client.ask(self._leader, api, body, lacks=lacks, **how, **more)

    def _trouble_of(self, api: Api, error_code: int) -> KafkaSinkError | None:
        """Raised at once unless it may pass."""
        found = driver_outcome(api, error_code)
        if found is DriverOutcome.DONE:
            return None
        trouble = self._trouble(api, error_code)
        if not found.is_again:
            raise BrokerError(str(trouble), code=error_code, api=api.name, topic=self.topic)
        return trouble

    def _trouble(self, api: Api, error_code: int, offset: int = -1) -> OperationTimeout:
        text = describe_answer(api.name, error_code)
        if offset >= 0:
            text += f". It ends before offset {offset}: it was created again meanwhile, or has lost records"
        return self._timeout(text)

    def _timeout(self, text: str) -> OperationTimeout:
        return OperationTimeout(f"{self.topic}-{self.partition}: {text}")
