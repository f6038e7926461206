"""How much time is left to the transactions of a batch, of the moment when its commit began.

It is told twice. By the driver's host: no transaction is older than its write, which was planned there before any task
began (`age_max_ms`). Only a host that does not know that it stood still tells too much, so if that leaves twice the
margin, it is believed. It says little of a write that was planned long before its tasks, as behind a long shuffle. Then
the coordinators tell when each transaction began, and what their time is now: when the driver's own transaction began,
that of the intent, which is appended for that. The larger result counts, because a coordinator whose clock is ahead
makes all transactions of the others look old, and Redpanda tells when the last partition was added. No two clocks of
different hosts are compared, except those of coordinators.

The receipts do not tell the time: the last one may be minutes old. Its task may have waited for one without rows, and
its driver for brokers. Where brokers do not describe transactions, the host alone is believed.

Who finishes the decision of an earlier driver has no such host, and may have no transaction of its own. There the
controller tells the time (`BrokersClock`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kafka_sink.commit.commit_step import MORE_TIME
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.receipt import TaskReceipt

# The host is believed if it leaves so many times what is needed.
AMPLE = 2
CLOCKS_DIFFER = (
    "Each of its tasks took less time: if the whole batch did, too, the clocks of brokers differ: compare them"
)

# The controller tells its time to whoever has Describe on the cluster, with KRaft.
QUORUM: Mapping[str, Any] = MappingProxyType(
    {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
)

# So long before its time-out, or when such a part of the margin is left: for looking once more, for the request itself,
# and for clocks that differ.
LAST_CALL_MS, LAST_CALL_SHARE = 5_000, 4

Described = Sequence[tuple[TransactionDescription, TaskReceipt]]


class TimeLeft:
    """Of the transaction that has the least. `age_max_ms` None: the host does not know."""

    def __init__(self, receipts: Sequence[TaskReceipt], margin_ms: int, age_max_ms: int | None) -> None:
        self._margin_ms = margin_ms
        timeout_ms = min((receipt.timeout_ms for receipt in receipts), default=0)
        self._by_host_ms = None if age_max_ms is None else timeout_ms - age_max_ms
        self._by_receipts_ms = min((receipt.remaining_ms for receipt in receipts), default=0)
        # The coordinators' time when the commit began, if they have told it. It may have been earlier, not later.
        self._brokers_began_ms: int | None = None

    def on_brokers_time(self, began_ms: int) -> None:
        self._brokers_began_ms = began_ms

    @property
    def undescribed_ms(self) -> int:
        return self._by_receipts_ms if self._by_host_ms is None else min(self._by_receipts_ms, self._by_host_ms)

    def is_in_doubt(self, described: Described) -> bool:
        """The host leaves too little to be believed; the coordinators may leave enough, and have not told their time
        yet."""
        is_ample = self._by_host_ms is not None and self._by_host_ms >= AMPLE * self._margin_ms
        return not is_ample and self._brokers_began_ms is None and self._by_brokers_ms(described) >= self._margin_ms

    def described_ms(self, described: Described, *, is_asked: bool) -> int:
        """`is_asked`: the coordinators are being asked for their time. What they may say counts until then."""
        by_brokers_ms = self._by_brokers_ms(described)
        if self._by_host_ms is None:
            return by_brokers_ms
        is_told = is_asked or self._brokers_began_ms is not None
        may_be_old = by_brokers_ms >= self._margin_ms and not is_told
        return self._by_host_ms if may_be_old else max(self._by_host_ms, by_brokers_ms)

    def _by_brokers_ms(self, described: Described) -> int:
        broker_now_ms = max(
            state.start_ms + max(receipt.timeout_ms - receipt.remaining_ms, 0) for state, receipt in described
        )
        broker_now_ms = max(broker_now_ms, self._brokers_began_ms or 0)
        return min(state.start_ms + state.timeout_ms - broker_now_ms for state, _ in described)

    def problem(self, described: Described, *, is_asked: bool) -> str | None:
        problem = time_problem(self.described_ms(described, is_asked=is_asked), self._margin_ms)
        if problem is not None and self._by_receipts_ms >= self._margin_ms:
            return f"{problem}. {CLOCKS_DIFFER}"
        return problem


def time_problem(left_ms: int, margin_ms: int) -> str | None:
    if left_ms >= margin_ms:
        return None
    what = f"the oldest transaction has {max(left_ms, 0)} ms left before it times out, and {margin_ms} ms are needed"
    return f"{what}. {MORE_TIME}"


def controllers_time(answer: Mapping[str, Any]) -> int | None:
    """Of the controller when it answered DescribeQuorum. None: it does not tell."""
    told = [
        each["last_caught_up_timestamp"]
        for topic in answer["topics"] for row in topic["partitions"] for each in row["current_voters"]
        if each["replica_id"] == row["leader_id"]
    ]  # fmt: skip
    return None if answer["error_code"] or not told or told[0] <= 0 else int(told[0])


class BrokersClock:
    """The brokers' time while a step runs: the step's own plus `ahead_ms`. By the controller's answer; if it does not
    tell, by this host's clock, which is behind if a transaction began in its future."""

    def __init__(self, host_ahead_ms: int) -> None:
        self._ahead_ms = host_ahead_ms
        self._is_told = False
        # The controller has answered, or could not be asked.
        self.is_known = False

    def on_told(self, asked_at_ms: int, told_ms: int | None) -> None:
        """As if the request had taken no time: it is later there, if anything, than is told here."""
        self.is_known = True
        if told_ms is not None:
            self._is_told, self._ahead_ms = True, told_ms - asked_at_ms

    def on_began(self, now_ms: int, start_ms: int) -> None:
        """A transaction began at that time of its coordinator."""
        if not self._is_told:
            self._ahead_ms = max(self._ahead_ms, start_ms - now_ms)

    def last_call_ms(self, times_out_ms: int | None, margin_ms: int) -> int | None:
        """When a decided transaction is committed though a partition has no leader, or it would time out. None: not
        known."""
        if times_out_ms is None or not self.is_known:
            return None
        return times_out_ms - self._ahead_ms - min(LAST_CALL_MS, margin_ms // LAST_CALL_SHARE)
