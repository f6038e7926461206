"""Reads one partition from an offset to its last stable offset, as a read_committed consumer does; for commands that
read a topic once. Leaders that move are found again; no answer in time is an error."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.log_scan import (
    EARLIEST,
    FETCH_LAST_BY_NAME,
    LATEST,
    LIST_OFFSETS_FIRST_ISOLATED,
    READ_COMMITTED,
    committed_records,
    fetch_body,
    offsets_body,
    read_fetch_answer,
    read_offset_answer,
)
from kafka_sink.commit.outcome import Meaning, describe_answer, meaning
from kafka_sink.errors import BrokerError, OperationTimeout
from kafka_sink.formats.records.scalar import Record
from kafka_sink.kafka.client.admin_request import Leader
from kafka_sink.kafka.wire.apis import FETCH, LIST_OFFSETS, Api

AGAIN = (Meaning.REPEAT, Meaning.REPEAT_SOON, Meaning.FIND_AGAIN)
WAIT_S = 0.1


class PartitionReader:
    def __init__(self, client: Client, topic: str, partition: int, patience_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self._client = client
        self._leader = Leader(topic, partition)
        self._patience_ms = patience_ms

    def extent(self) -> tuple[int, int]:
        """The log start offset and the last stable offset."""
        return self._offset(EARLIEST), self._offset(LATEST)

    def read(self, offset: int, end: int) -> Iterator[tuple[list[tuple[int, Record]], int]]:
        """Records below `end`, fetch by fetch, each with the next offset to fetch."""
        give_up_ms = self._client.now_ms() + self._patience_ms
        find_again = False
        while offset < end:
            body = self._client.ask(
                self._leader, FETCH, fetch_body(self.topic, self.partition, offset, READ_COMMITTED),
                version_max=FETCH_LAST_BY_NAME, find_again=find_again, changes_nothing=True,
            )  # fmt: skip
            answer = read_fetch_answer(body)
            found = meaning(FETCH, answer.error_code)
            if found is Meaning.OUT_OF_RANGE:
                first = self._offset(EARLIEST)
                if first > offset:
                    # Retention has deleted the records meanwhile.
                    offset = first
                    yield [], min(offset, end)
                    continue
                # Records that are there must not be skipped: this leader may be behind, too.
                found = Meaning.REPEAT
            find_again = found is not Meaning.DONE
            if find_again:
                self._wait_or_raise(found, FETCH, answer.error_code, give_up_ms, offset)
                continue
            (partition,) = (each for topic in body["responses"] for each in topic["partitions"])
            records, next_offset = committed_records(answer.records, partition["aborted_transactions"], offset)
            if next_offset == offset:
                # This leader is behind the one that returned the end.
                find_again = True
                self._wait_or_raise(Meaning.REPEAT, FETCH, 0, give_up_ms)
                continue
            give_up_ms = self._client.now_ms() + self._patience_ms
            yield [each for each in records if each[0] < end], min(next_offset, end)
            offset = next_offset

    def _offset(self, timestamp: int) -> int:
        give_up_ms = self._client.now_ms() + self._patience_ms
        find_again = False
        while True:
            body = self._client.ask(
                self._leader, LIST_OFFSETS, offsets_body([(self.topic, self.partition)], timestamp, READ_COMMITTED),
                version_min=LIST_OFFSETS_FIRST_ISOLATED, find_again=find_again, changes_nothing=True,
            )  # fmt: skip
            error_code, offset = read_offset_answer(body)
            found = meaning(LIST_OFFSETS, error_code)
            if found is Meaning.DONE:
                return offset
            find_again = True
            self._wait_or_raise(found, LIST_OFFSETS, error_code, give_up_ms)

    def _wait_or_raise(self, found: Meaning, api: Api, error_code: int, give_up_ms: int, offset: int = -1) -> None:
        text = f"{self.topic}-{self.partition}: {describe_answer(api.name, error_code)}"
        if meaning(api, error_code) is Meaning.OUT_OF_RANGE:
            text += f". It ends before offset {offset}: it was created again meanwhile, or has lost records"
        if found not in AGAIN:
            raise BrokerError(text, code=error_code, api=api.name, topic=self.topic)
        if self._client.now_ms() >= give_up_ms:
            raise OperationTimeout(text)
        time.sleep(WAIT_S)
