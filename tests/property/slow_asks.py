"""What commit/asks.py and kafka/client/route.py do, looking at everything anew each time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.commit.asks import Asks
from kafka_sink.kafka.client.ask import Ask, Reply


class SlowAsks(Asks):
    def take_due(self, now_ms: int) -> list[Ask]:
        room = self._settings.parallel_requests - sum(ask.is_out for ask in self)
        due = [ask for ask in self if not ask.is_out and ask.due_ms <= now_ms][: max(room, 0)]
        for ask in due:
            ask.is_out = True
        return due

    def wake_at_ms(self) -> int | None:
        if self._settings.parallel_requests <= sum(ask.is_out for ask in self):
            return None
        return min((ask.due_ms for ask in self if not ask.is_out), default=None)

    def accept(self, reply: Reply) -> bool:
        if not self.is_out(reply.ask):
            return False
        reply.ask.is_out = False
        return True


def slowly_divided(body: Mapping[str, Any], leaders: Mapping[tuple[str, int], int]) -> dict[int, list[tuple[str, Any]]]:
    """What each leader is asked about, in order."""
    found = {}
    for leader in set(leaders.values()):
        own = []
        for topic in body["topics"]:
            for one in topic.get("partition_indexes", topic.get("partitions")):
                index = one if isinstance(one, int) else one["partition_index"]
                if leaders.get((topic["name"], index)) == leader:
                    own.append((topic["name"], one))
        found[leader] = own
    return found
