"""Records that close a stream's decisions, written while Spark goes on (`kafka_sink.spark.closings`).

The process that committed the batch writes the record in another host, with the same session. The next operation with
this session waits for it, for a while; then it begins without state, and fences what is still being written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_sink.commit.ledger import LedgerRecord
from kafka_sink.commit.ledger_write import LedgerWrite, WriteState
from kafka_sink.commit.session import DeliverySettings, DriverSession
from kafka_sink.spark.closings import WAIT_S
from tests.sim.delivery.driver_host import DriverHost
from tests.support.closing import Closing

if TYPE_CHECKING:
    from tests.sim.delivery.query import Query


class Closings:
    def __init__(self, query: Query) -> None:
        self._query = query
        self._running: list[tuple[DriverSession, DriverHost]] = []
        self._waiting: list[Callable[[], None]] = []

    def begin(self, settings: DeliverySettings, session: DriverSession, record: LedgerRecord, host: DriverHost) -> None:
        self._running.append((session, host))
        machine = Closing(settings, session, record, self._query.stage.loop.now_ms)
        host.run(machine, lambda step: self._end(session, host, step))

    def _end(self, session: DriverSession, host: DriverHost, write: LedgerWrite) -> None:
        is_closed = write.state is WriteState.WRITTEN
        self._query.stage.count("closed after the commit" if is_closed else "not closed after the commit")
        self._running.remove((session, host))
        host.kill(is_silent=False)
        if not is_closed:
            self._query.processes.forget(session)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one()

    def is_running(self, session: DriverSession) -> bool:
        return any(known is session for known, _ in self._running)

    def wait(self, session: DriverSession, then: Callable[[DriverSession], None]) -> None:
        """`then` gets a session that nothing else uses."""
        if not self.is_running(session):
            then(session)
            return
        self._query.stage.count("commit waits for the record of the last one")
        until_ms = self._query.stage.loop.now_ms + int(WAIT_S * 1000)
        is_over = False

        def look() -> None:
            nonlocal is_over
            if is_over:
                return
            if not self.is_running(session):
                is_over = True
                then(_fresh(session) if session.identity is None else session)
            elif self._query.stage.loop.now_ms >= until_ms:
                is_over = True
                self._query.processes.forget(session)
                then(_fresh(session))
            else:
                self._waiting.append(look)

        self._waiting.append(look)
        self._query.stage.loop.after(int(WAIT_S * 1000), look)

    def wait_for_all(self, resume: Callable[[object], None]) -> None:
        def look() -> None:
            if self._running:
                self._waiting.append(look)
            else:
                resume(None)

        look()

    def end_with_processes(self) -> None:
        """Of processes that were ended."""
        for session, host in list(self._running):
            if not self._query.processes.has(session):
                self._query.stage.count("process ended before it had closed its decision")
                self._running.remove((session, host))
                host.kill(is_silent=False)

    def forget_all(self) -> None:
        self._running, self._waiting = [], []


def _fresh(session: DriverSession) -> DriverSession:
    return DriverSession(
        session.sink_id, session.run, named_sink_id=session.named_sink_id, is_only_sink=session.is_only_sink,
        code=session.code,
    )  # fmt: skip
