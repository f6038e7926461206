"""What time it is for the brokers, who end transactions, whatever this machine's clock says.

The controller tells its time to whoever has Describe on the cluster, with KRaft. Where it does not, the transactions
themselves tell when this clock is behind: none began in the future.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.time_left import QUORUM, controllers_time
from kafka_sink.errors import KafkaSinkError
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.ask import Controller, Repeat
from kafka_sink.kafka.wire.apis import DESCRIBE_QUORUM

# A difference that matters to a reader of ages.
CLOCK_WARN_MS = 5_000


def difference_of(told_ms: int, before_ms: float, after_ms: float) -> int:
    """How far the clock that said so is ahead of this one. The time between request and response is uncertain and is
    not counted."""
    if before_ms <= told_ms <= after_ms:
        return 0
    return int(told_ms - (before_ms if told_ms < before_ms else after_ms))


def controller_difference(client: Client, timeout_ms: int | None = None) -> int | None:
    """How far the controller's clock is ahead of this one, in ms. None: no KRaft, no Describe on the cluster, or no
    answer."""
    before_ms = time.time() * 1000
    try:
        answer = client.ask(Controller(), DESCRIBE_QUORUM, QUORUM, timeout_ms=timeout_ms, repeat=Repeat.ALWAYS)
    except KafkaSinkError:
        return None
    after_ms = time.time() * 1000
    told_ms = controllers_time(answer)
    return None if told_ms is None else difference_of(told_ms, before_ms, after_ms)


@frozen
class BrokersTime:
    """`at_ms`: by the brokers' clocks, or as far as that is known. `is_told`: by the controller. `ahead_ms`: of this
    machine's clock; at least, if it is not told."""

    at_ms: int
    is_told: bool
    ahead_ms: int = 0

    @property
    def notes(self) -> list[str]:
        """What is not known because this clock is wrong."""
        if self.is_told or self.ahead_ms < CLOCK_WARN_MS:
            return []
        text = f"this machine's clock is at least {_seconds(self.ahead_ms)} s behind the brokers', which is not told"
        return [f"{text}: more time may have passed than is said here. Set it by NTP, or grant Describe on the cluster"]

    @property
    def limits(self) -> list[str]:
        """What is allowed for."""
        if not self.is_told or abs(self.ahead_ms) < CLOCK_WARN_MS:
            return []
        way = "behind" if self.ahead_ms > 0 else "ahead of"
        text = f"this machine's clock is {_seconds(self.ahead_ms)} s {way} the brokers'"
        return [f"{text}: ages and times here are by theirs"]


def _seconds(time_ms: int) -> int:
    return round(abs(time_ms) / 1000)


def brokers_time(told_ms: int | None, began_ms: Iterable[int], own_ms: int) -> BrokersTime:
    """`told_ms`: the difference that the controller has told. `began_ms`: of open transactions, by the brokers."""
    if told_ms is not None:
        return BrokersTime(own_ms + told_ms, True, told_ms)
    newest_ms = max(began_ms, default=own_ms)
    return BrokersTime(max(own_ms, newest_ms), False, max(0, newest_ms - own_ms))


def brokers_time_ms(client: Client) -> int:
    """This machine's, if they do not tell theirs."""
    return int(time.time() * 1000) + (controller_difference(client) or 0)
