"""Counts the decisions about a topic in the ledger, with an ordinary consumer."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.ledger_codec import decode_record
from kafka_sink.errors import RemoteProtocolError
from tools.foreign_reader import TopicFollower


class Decisions:
    def __init__(self, servers: str, ledger: str, topic: str) -> None:
        self._servers = servers
        self._ledger = ledger
        self._topic = topic
        self._stack = ExitStack()
        self._follower: TopicFollower | None = None
        self.count = 0

    def __enter__(self) -> Decisions:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self, *, is_there: bool) -> None:
        """The sink creates its ledger while it plans the first micro-batch."""
        if self._follower is None:
            if not is_there:
                return
            self._follower = self._stack.enter_context(TopicFollower(self._servers, self._ledger))
        for record in self._follower.poll(0):
            with suppress(RemoteProtocolError):
                # The value of a driver's claim is not a decision.
                decided = decode_record(record.value or b"")
                self.count += decided.kind is Kind.INTENT and self._topic in decided.topics
