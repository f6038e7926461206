"""Faults on demand: an error, a delay or a disconnect at a named API, at its n-th request, at one partition.

Faults are looked up before a request is handled. Tests use a list of planned faults; a simulation uses a function,
which draws faults per request from its own random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_TOPICS = ("topic_data", "topics", "topic_names", "v3_and_below_topics")
_PARTITIONS = ("partition_data", "partitions", "partition_indexes")
_INDEXES = ("index", "partition", "partition_index")


@dataclass(slots=True)
class Fault:
    """A fault for requests of `api` (its name, such as "Produce"; None: any).

    `error_code` answers with that error instead of doing the work; with `after_apply` the work is done first, so that
    the client gets an error although it succeeded. With a topic, or a topic and a partition, only these parts of the
    request are affected. `disconnect` loses the request, with `after_apply` it loses the response. Delays hold the
    request before it is handled, or the response after that; later requests on the connection wait, as in Kafka.
    `skip` leaves the first n matching requests alone, `times` ends the fault after n (None: never).
    """

    api: str | None = None
    error_code: int | None = None
    after_apply: bool = False
    disconnect: bool = False
    delay_before_ms: int = 0
    delay_after_ms: int = 0
    broker_id: int | None = None
    topic: str | None = None
    partition: int | None = None
    skip: int = 0
    times: int | None = 1

    def concerns(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)


Interceptor = Callable[[str, int, int, Mapping[str, Any]], Fault | None]


@dataclass(slots=True)
class Faults:
    """`interceptor(api name, version, broker id, body)` is called when no planned fault matches."""

    planned: list[Fault] = field(default_factory=list)
    interceptor: Interceptor | None = None
    fired: int = 0

    def add(self, fault: Fault) -> Fault:
        self.planned.append(fault)
        return fault

    def clear(self) -> None:
        self.planned.clear()
        self.interceptor = None

    def next_for(self, api: str, version: int, broker_id: int, body: Mapping[str, Any]) -> Fault | None:
        found = None
        for fault in self.planned:
            if fault.api not in (None, api) or fault.broker_id not in (None, broker_id):
                continue
            if not any(fault.concerns(*place) for place in _places(body)):
                continue
            if fault.skip > 0:
                fault.skip -= 1
            elif fault.times is None or fault.times > 0:
                found = fault
                break
        if found is not None and found.times is not None:
            found.times -= 1
        if found is None and self.interceptor is not None:
            found = self.interceptor(api, version, broker_id, body)
        if found is not None:
            self.fired += 1
        return found


def _places(body: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The request as a whole, its topics (both with partition -1) and partitions, by any of the names in the APIs."""
    yield "", -1
    for entry in (entry for key in _TOPICS for entry in body.get(key) or ()):
        if isinstance(entry, str):
            yield entry, -1
            continue
        topic = entry.get("name") or entry.get("topic") or ""
        yield topic, -1
        for each in (each for key in _PARTITIONS for each in entry.get(key) or ()):
            yield topic, each if isinstance(each, int) else next(each[key] for key in _INDEXES if key in each)
