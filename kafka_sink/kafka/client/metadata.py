"""Keeps the cluster view up to date: which topics are needed, when to request, and what a response changes.

Topics are requested by name only. A full refresh requests every topic in use, a partial one only new topics, so that a
first record does not wait for a thousand known topics. One request is in flight at a time.

Full refreshes are numbered, since a response says how things were when it was requested. Whoever doubts the view gets
the number of the first refresh that counts (`request_news`): a response to an earlier one may be from before the doubt,
even if it comes later. It may have waited in a socket since the caller's last operation. And a response about other
topics makes the view newer, but says nothing about the leaders of those that it does not name.

There is always a wait between two requests; it grows after a failure, and after a response with nothing new (a topic
that does not exist yet is requested repeatedly). A new topic does not wait.

Rebootstrapping (KIP-899, KIP-1102) happens when all known brokers have just failed, when none answered for too long, or
when a broker requires it. Topic metadata is kept; only the addresses are dropped.

It must not know who waits for a topic or how long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import AuthorizationError, BrokerError, KafkaSinkError, RemoteProtocolError
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.cluster import (
    ClusterView,
    merge,
    with_deleted,
    with_leader_hints,
    without_brokers,
    without_topics,
)
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.apis import METADATA
from kafka_sink.kafka.wire.codes import (
    INVALID_TOPIC_EXCEPTION,
    REBOOTSTRAP_REQUIRED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    code,
)
from kafka_sink.options import ProducerOptions

# A retry does not help before the cause is fixed: waiters for the topic fail at once.
FINAL_TOPIC_ERRORS = frozenset((INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED))
# More is not the way of an answer, but the time that it waited to be read.
ROUND_TRIP_MS_MAX = 1_000
# Brokers learn of a topic one after the other: one of which they do not know for so long was deleted.
DELETED_MS = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class MetadataRequest:
    """The purpose of a Metadata request."""

    topics: tuple[str, ...]
    is_partial: bool
    # Of a full refresh.
    number: int = 0
    asked_ms: int = 0


class Metadata:
    def __init__(self, options: ProducerOptions, nodes: NodeSet, *, jitter: Callable[[], float]) -> None:
        self._options = options
        self._nodes = nodes
        self._backoff = Backoff(options.retry_backoff_ms, options.retry_backoff_max_ms, jitter)
        self.view = ClusterView()
        self.last_failure: KafkaSinkError | None = None
        self._last_used_ms: dict[str, int] = {}
        self._new_topics: set[str] = set()
        # Since when every answer has been that there is no such topic.
        self._unknown_since_ms: dict[str, int] = {}
        self._is_full_wanted = True
        self._in_flight: MetadataRequest | None = None
        self._succeeded_ms: int | None = None
        # Full refreshes: the last one that was sent, the newest one that was answered, and the first one wanted.
        self._asked_number = self._answered_number = self._wanted_number = 0
        self._answered_asked_ms = 0
        self._allowed_at_ms = 0
        self._failures = 0
        self._unchanged_answers = 0
        # Since when a response is outstanding; None: the last request was answered.
        self._wanting_since_ms: int | None = None
        self._losses_seen = 0

    # ---- topics in use ---------------------------------------------------------------------------------------------

    def want_topic(self, topic: str, now_ms: int) -> None:
        """Call it at every use: an unused topic is forgotten."""
        is_new = topic not in self._last_used_ms
        self._last_used_ms[topic] = now_ms
        if is_new:
            self._new_topics.add(topic)
            self._allowed_at_ms = now_ms
        elif topic in self.view.topics and self.view.topics[topic].error_code in FINAL_TOPIC_ERRORS:
            self._new_topics.add(topic)  # perhaps the permission has been granted meanwhile

    def forget_topics(self, kept: Collection[str]) -> None:
        """Forgets all topics except `kept`, when an operation begins that uses only these. Topics of earlier operations
        may be deleted by now, and a missing topic would be requested repeatedly."""
        forgotten = self._last_used_ms.keys() - set(kept)
        if not forgotten:
            return
        for topic in forgotten:
            del self._last_used_ms[topic]
            self._unknown_since_ms.pop(topic, None)
        self._new_topics -= forgotten
        self.view = without_topics(self.view, forgotten)

    @property
    def next_number(self) -> int:
        """Of the next refresh, the first whose response is about now."""
        return self._asked_number + 1

    def has_answered(self, number: int) -> bool:
        """Whether this refresh or a later one was answered."""
        return self._answered_number >= number

    def request_update(self) -> None:
        """Something is missing in the view. The response to a refresh in flight may have it, otherwise call again. The
        request is sent as soon as the back-off allows."""
        self._is_full_wanted = True

    def request_news(self) -> int:
        """The view is in doubt, or its age unknown: returns the number of the refresh that will tell. An unchanged
        response does not increase the wait."""
        self._wanted_number = self.next_number
        self._unchanged_answers = 0
        return self._wanted_number

    def is_just_asked(self, now_ms: int) -> bool:
        """Nothing contradicts the view, and it was asked for within the shortest wait between two requests: a new
        request would only cost time."""
        return not self._is_doubted and now_ms < self._answered_asked_ms + self._options.retry_backoff_ms

    def is_just_answered(self, now_ms: int) -> bool:
        """The same by the time of the answer, for what may be a second old: with brokers far away an answer is older
        than that wait when it arrives. One that waited in a socket meanwhile is not meant."""
        round_trip_ms = (self._succeeded_ms or 0) - self._answered_asked_ms
        learnt_ms = self._answered_asked_ms + min(round_trip_ms, ROUND_TRIP_MS_MAX)
        return not self._is_doubted and now_ms < learnt_ms + self._options.retry_backoff_ms

    @property
    def _is_doubted(self) -> bool:
        return not self._answered_number or self._wants_full or self._nodes.losses != self._losses_seen

    def topic_error(self, topic: str) -> KafkaSinkError | None:
        """An error that makes waiting for the topic pointless. None if unknown: it may be created."""
        topic_view = self.view.topics.get(topic)
        if topic_view is None or topic_view.error_code not in FINAL_TOPIC_ERRORS:
            return None
        if topic_view.error_code == TOPIC_AUTHORIZATION_FAILED:
            return AuthorizationError(
                f"not authorized to describe topic {topic} (operation Describe, which Read and Write imply)"
            )
        text = f"{topic!a} is no valid topic name, or is reserved for the broker"
        return BrokerError(text, TOPIC_UNKNOWN, code=topic_view.error_code, api=METADATA.name, topic=topic)

    def is_unknown(self, topic: str, partition: int) -> bool:
        """The broker that was asked last knows no such topic, or no such partition of it: the topic was created again
        with fewer. Or it has not heard of them yet."""
        topic_view = self.view.topics.get(topic)
        if topic_view is None:
            return False
        is_missing = not topic_view.error_code and partition not in topic_view.partitions
        return is_missing or topic_view.error_code == UNKNOWN_TOPIC_OR_PARTITION

    def topic_trouble(self, topic: str) -> str:
        """Why the topic cannot be written to now, for the text of a timeout error. Empty: no known problem."""
        topic_view = self.view.topics.get(topic)
        if topic_view is not None and topic_view.error_code:
            row = code(topic_view.error_code)
            return f"the brokers say {row.name} ({row.number}): {row.text}"
        failure = self.last_failure or self._nodes.last_failure
        return "" if failure is None else str(failure)

    # ---- requests --------------------------------------------------------------------------------------------------

    @property
    def _wants_full(self) -> bool:
        return self._is_full_wanted or self._answered_number < self._wanted_number

    def ask(self, now_ms: int) -> None:
        """Sends a request if one is due and a node can take it. Without any node: back to the bootstrap servers."""
        if self._nodes.losses != self._losses_seen:
            self._losses_seen = self._nodes.losses
            self._is_full_wanted = True  # a broker was lost: its partitions have a new leader, or soon will
        if not self._is_due(now_ms):
            return
        if self._wanting_since_ms is None:
            self._wanting_since_ms = now_ms
        reason = self._reason_to_rebootstrap(now_ms, self._wanting_since_ms)
        if reason:
            self._rebootstrap(now_ms, reason)
        node_id = self._nodes.prepare_any(now_ms)
        if node_id is not None:
            self._send(node_id, now_ms)

    def _is_due(self, now_ms: int) -> bool:
        if self._in_flight is not None or now_ms < self._allowed_at_ms:
            return False
        return self._wants_full or bool(self._new_topics) or self._is_expired(now_ms)

    def _reason_to_rebootstrap(self, now_ms: int, wanting_since_ms: int) -> str:
        overdue_ms = now_ms - wanting_since_ms
        if overdue_ms >= self._options.metadata_recovery_rebootstrap_trigger_ms:
            return f"no broker answered for {overdue_ms} ms"
        return "" if self._nodes.is_any_reachable(now_ms) else "no known broker can be reached"

    def _send(self, node_id: int, now_ms: int) -> None:
        is_partial = not self._wants_full and not self._is_expired(now_ms)
        topics = tuple(sorted(self._new_topics if is_partial else self._last_used_ms))
        if not is_partial:
            self._asked_number += 1
        self._in_flight = MetadataRequest(topics, is_partial, self._asked_number, now_ms)
        body = {
            "topics": [{"name": topic} for topic in topics],
            "allow_auto_topic_creation": self._options.allow_auto_create_topics,
        }
        request = Request(METADATA, body, self._in_flight, self._options.request_timeout_ms)
        self._nodes.send(node_id, request, now_ms)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When to call again without an event. While a request is in flight its timeout counts."""
        if self._in_flight is not None:
            return None
        if self._wants_full or self._new_topics or self._succeeded_ms is None:
            due_ms = self._allowed_at_ms
        else:
            due_ms = max(self._allowed_at_ms, self._succeeded_ms + self._options.metadata_max_age_ms)
        if due_ms > now_ms:
            return due_ms
        moments = [self._nodes.retry_at_ms()]
        if self._wanting_since_ms is not None:
            moments.append(self._wanting_since_ms + self._options.metadata_recovery_rebootstrap_trigger_ms)
        return min((moment for moment in moments if moment is not None and moment > now_ms), default=None)

    def _is_expired(self, now_ms: int) -> bool:
        return self._succeeded_ms is None or now_ms >= self._succeeded_ms + self._options.metadata_max_age_ms

    # ---- responses -------------------------------------------------------------------------------------------------

    def on_answer(self, now_ms: int, answer: Answer) -> None:
        asked: MetadataRequest = answer.request.purpose
        if asked is not self._in_flight:
            return
        self._in_flight = None
        body = answer.body
        if body is None:
            self._on_failure(now_ms, answer.failure)
        elif body.get("error_code", 0):
            row = code(body["error_code"])
            text = f"Metadata was refused: {row.name} ({row.number})"
            self._on_failure(now_ms, BrokerError(text, code=row.number, api=METADATA.name))
            if row.number == REBOOTSTRAP_REQUIRED:
                self._rebootstrap(now_ms, "a broker asked for it")
        elif not body["brokers"]:
            # A broker that has just started and knows no brokers yet, not even itself.
            self._on_failure(now_ms, RemoteProtocolError("a Metadata answer names no broker"))
        else:
            self._on_body(now_ms, asked, body, answer.request.version)

    def on_leader_hints(self, produce_body: Mapping[str, Any], now_ms: int) -> None:
        """Takes over the leaders that a Produce response names and that were not known yet (KIP-951)."""
        try:
            view = with_leader_hints(self.view, produce_body)
        except RemoteProtocolError as error:
            self._nodes.log("warning", f"leader hints are ignored: {error}")
            return
        if view is not self.view:
            self.view = view
            self._nodes.set_brokers(now_ms, view.brokers)

    def _on_body(self, now_ms: int, asked: MetadataRequest, body: Mapping[str, Any], version: int) -> None:
        # An expired refresh is not a failure: the back-off starts short again.
        if self._is_expired(now_ms):
            self._unchanged_answers = 0
        try:
            view = merge(
                self.view, body, asked=asked.topics, has_reliable_epochs=version >= METADATA.reliable_epochs_since
            )
        except RemoteProtocolError as error:
            self._on_failure(now_ms, error)
            self._nodes.log("warning", f"a Metadata answer is ignored: {error}")
            return
        self._report(self.view, view)
        view = with_deleted(view, self._note_unknown_topics(now_ms, view, asked))
        if view.cluster_id != self.view.cluster_id:
            self._is_full_wanted = True  # nothing of what was known before holds in another cluster
        self._unchanged_answers = self._unchanged_answers + 1 if view == self.view else 0
        self._failures = 0
        self.last_failure = None
        self._wanting_since_ms = None
        self._allowed_at_ms = now_ms + self._backoff.delay_ms(max(1, self._unchanged_answers))
        if not asked.is_partial:
            self._is_full_wanted = False
            self._succeeded_ms = now_ms
            self._answered_number, self._answered_asked_ms = asked.number, asked.asked_ms
        self._is_full_wanted = self._is_full_wanted or _is_incomplete(body, view, asked)
        self.view = self._drop_unused(view, now_ms)
        self._new_topics.difference_update(asked.topics)
        self._nodes.set_brokers(now_ms, self.view.brokers)

    def _on_failure(self, now_ms: int, failure: KafkaSinkError | None) -> None:
        self.last_failure = failure
        self._failures += 1
        self._allowed_at_ms = now_ms + self._backoff.delay_ms(self._failures)

    def _note_unknown_topics(self, now_ms: int, view: ClusterView, asked: MetadataRequest) -> set[str]:
        """Returns those that count as deleted: what was told of their leaders before does not count for ever."""
        deleted = set()
        for topic in asked.topics:
            if view.topics[topic].error_code != UNKNOWN_TOPIC_OR_PARTITION:
                self._unknown_since_ms.pop(topic, None)
            elif now_ms - self._unknown_since_ms.setdefault(topic, now_ms) >= DELETED_MS:
                deleted.add(topic)
        return deleted

    def _drop_unused(self, view: ClusterView, now_ms: int) -> ClusterView:
        idle_ms = self._options.metadata_max_idle_ms
        for topic, used_ms in list(self._last_used_ms.items()):
            # Not before it was answered once: a caller may wait for it longer than that.
            if now_ms - used_ms >= idle_ms and topic not in self._new_topics:
                del self._last_used_ms[topic]
                self._unknown_since_ms.pop(topic, None)
        unused = view.topics.keys() - self._last_used_ms.keys()
        return without_topics(view, unused) if unused else view

    def _rebootstrap(self, now_ms: int, reason: str) -> None:
        if self._options.metadata_recovery_strategy != "rebootstrap":
            return
        self._wanting_since_ms = now_ms
        if not self.view.brokers:
            return  # there already
        self._nodes.log("info", f"back to the bootstrap servers: {reason}")
        self.view = without_brokers(self.view)
        self._nodes.rebootstrap(now_ms)
        self._is_full_wanted = True

    def _report(self, old: ClusterView, new: ClusterView) -> None:
        if new.cluster_id != old.cluster_id and old.cluster_id is not None:
            text = f"the brokers now belong to cluster {new.cluster_id}, before it was {old.cluster_id}"
            self._nodes.log("warning", text)
        for topic, topic_view in new.topics.items():
            known = old.topics.get(topic)
            if topic_view.error_code and (known is None or known.error_code != topic_view.error_code):
                row = code(topic_view.error_code)
                level = "info" if row.number == UNKNOWN_TOPIC_OR_PARTITION else "warning"
                self._nodes.log(level, f"topic {topic}: {row.name} ({row.number}), {row.text}")


def _is_incomplete(body: Mapping[str, Any], view: ClusterView, asked: MetadataRequest) -> bool:
    """Whether to request again soon, because a topic or a leader is missing that may appear."""
    for topic in asked.topics:
        error_code = view.topics[topic].error_code
        if error_code and error_code not in FINAL_TOPIC_ERRORS:
            return True
    return any(
        code(partition["error_code"]).stale_metadata for topic in body["topics"] for partition in topic["partitions"]
    )
