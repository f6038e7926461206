"""Which broker coordinates which transactional id: a cache, and the lookups for the rest.

Pending ids are looked up together, in one FindCoordinator if the broker supports many keys (KIP-699), else one request
each. A lookup changes nothing, so a lost one is sent again, to any reachable broker. The result for an id goes to its
waiters, success or error: they decide whether to retry. If an id is forgotten while its lookup is in flight, that
result does not count: it may be what was just found to be wrong.

It must not know the waiters, nor send anything.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafka_sink.errors import AuthorizationError, BrokerError, KafkaSinkError, RemoteProtocolError, TransportError
from kafka_sink.kafka.client.cluster import FoundCoordinator
from kafka_sink.kafka.client.outcome import CoordinatorOutcome, coordinator_outcome, describe
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.apis import FIND_COORDINATOR, TRANSACTION_KEY

# An id has at most some hundred bytes; a thousand stay far below what a broker accepts as one request.
KEYS_MAX = 1_000
# More coordinators than these are not kept from one operation to the next.
FOUND_MAX = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class LookupRequest:
    """The purpose of a FindCoordinator request."""

    transactional_ids: tuple[str, ...]


class CoordinatorLookup:
    def __init__(self, *, request_timeout_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._found: dict[str, FoundCoordinator] = {}
        # Keys only, in the order in which they were enqueued.
        self.queued: dict[str, None] = {}
        # The lookup in flight whose result counts, by key.
        self._asked: dict[str, LookupRequest] = {}

    def get(self, transactional_id: str) -> FoundCoordinator | None:
        return self._found.get(transactional_id)

    def enqueue(self, transactional_id: str) -> None:
        if transactional_id not in self._asked:
            self.queued[transactional_id] = None

    def forget(self, transactional_id: str) -> None:
        self._found.pop(transactional_id, None)
        self._asked.pop(transactional_id, None)

    def forget_others(self, transactional_ids: Collection[str]) -> None:
        """Call when an operation with these ids begins. Most writes have ids of their own, which never come again."""
        if len(self._found) > FOUND_MAX:
            self._found = {key: self._found[key] for key in transactional_ids if key in self._found}

    def forget_node(self, node_id: int) -> None:
        self._found = {key: found for key, found in self._found.items() if found.node_id != node_id}

    def next_request(self, version: int | None) -> Request:
        """`version`: the common version with the chosen broker; None: the connection will refuse the request."""
        since = FIND_COORDINATOR.batched_since
        is_batched = version is None or version >= since
        ids = tuple(self.queued)[: KEYS_MAX if is_batched else 1]
        for transactional_id in ids:
            del self.queued[transactional_id]
        question = LookupRequest(ids)
        self._asked.update(dict.fromkeys(ids, question))
        keys = {"coordinator_keys": list(ids)} if is_batched else {"key": ids[0]}
        body = {"key_type": TRANSACTION_KEY, **keys}
        versions = (since, FIND_COORDINATOR.version_max) if is_batched else (1, FIND_COORDINATOR.last_single)
        return Request(FIND_COORDINATOR, body, question, self._request_timeout_ms, *versions)

    def on_answer(self, answer: Answer, first_refresh: int) -> dict[str, KafkaSinkError | None]:
        """Results for the requested ids: None if found, else the error. Missing ids are looked up again."""
        question: LookupRequest = answer.request.purpose
        ids = [each for each in question.transactional_ids if self._asked.get(each) is question]
        for each in ids:
            del self._asked[each]
        failure = answer.failure
        if isinstance(failure, (TransportError, RemoteProtocolError)):
            self.queued.update(dict.fromkeys(ids))
            return {}
        if failure is not None:
            return dict.fromkeys(ids, failure)
        assert answer.body is not None
        is_batched = answer.request.version >= FIND_COORDINATOR.batched_since
        rows = answer.body["coordinators"] if is_batched else [{**answer.body, "key": question.transactional_ids[0]}]
        results: dict[str, KafkaSinkError | None] = dict.fromkeys(
            ids, RemoteProtocolError("an answer to FindCoordinator leaves out what was asked")
        )
        for row in rows:
            if row["key"] not in results:
                continue
            results[row["key"]] = _refusal_error(row["key"], row["error_code"])
            if not row["error_code"]:
                self._found[row["key"]] = FoundCoordinator(row["node_id"], first_refresh)
        return results


def _refusal_error(transactional_id: str, error_code: int) -> KafkaSinkError | None:
    outcome = coordinator_outcome(FIND_COORDINATOR.key, error_code)
    if outcome is CoordinatorOutcome.DONE:
        return None
    if outcome is CoordinatorOutcome.UNAUTHORIZED:
        return AuthorizationError(
            f"{describe(error_code)}. The principal needs Describe or Write on transactional id {transactional_id!r}"
        )
    text = f"the coordinator of transactional id {transactional_id!r} is not to be found: {describe(error_code)}"
    return BrokerError(text, code=error_code, api=FIND_COORDINATOR.name)
