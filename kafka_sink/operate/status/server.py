"""`pykafka-sink status --serve`: looks at the cluster at intervals, and answers /metrics and /status.json with what it
saw last. It does not live in a job, so it tells of a job that died.

A look that fails is a figure of its own and changes nothing else: what was seen before stays, with the time of that
look. The client is made anew after a failure, so that files with passwords and certificates are read again; after
minutes, if they were refused.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.auth.refused import RefusedLogin
from kafka_sink.operate.status.collect import ClusterLook, examine
from kafka_sink.operate.status.facts import ClusterFacts
from kafka_sink.operate.status.figures import OwnFigures, age_text, status_text
from kafka_sink.operate.status.findings import Finding, Limits
from kafka_sink.telemetry.metrics.exporter import Handler, Server
from kafka_sink.telemetry.metrics.prometheus_text import CONTENT_TYPE

INCOMPLETE = "Incomplete"


class Watcher:
    """`connect` makes a cluster with its client. `tell` gets a line for people when something changes, and must not
    raise. `describe` makes the object of /status.json. `interval_s`: how often it looks, for those who wonder whether
    it still does."""

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[ClusterLook]],
        limits: Limits,
        tell: Callable[[str], None],
        describe: Callable[[ClusterFacts, list[Finding]], dict[str, Any]],
        interval_s: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._limits = limits
        self._tell = tell
        self._describe = describe
        self._interval_s = interval_s
        self._refused = RefusedLogin(now_s)
        self._open = ExitStack()
        self._cluster: ClusterLook | None = None
        self._failures = Counter[str]()
        self._look_count = 0
        self._problem = ""
        self._last: tuple[float, ClusterFacts, list[Finding]] | None = None
        self._now_s = now_s
        self._seen_s: float | None = None
        self._text = status_text(OwnFigures(False, 0, 0, {}, interval_s), None, [])
        self.json = "{}"

    @property
    def text(self) -> str:
        """The figures of the newest look, with their age now. It is told by the clock that goes on evenly: Prometheus
        may be on a host with another time."""
        return self._text + age_text(None if self._seen_s is None else self._now_s() - self._seen_s)

    def look(self) -> None:
        began_s = time.monotonic()
        problem, error = self._try()
        self._look_count += 1
        if error:
            self._failures[error] += 1
        if problem != self._problem:
            self._problem = problem
            self._tell(problem or "the cluster is seen again")
        last_s, facts, found = self._last or (None, None, [])
        took_s = time.monotonic() - began_s
        own = OwnFigures(not problem, self._look_count, took_s, self._failures, self._interval_s, last_s)
        self._text = status_text(own, facts, found)
        if facts is not None:
            self.json = json.dumps({**self._describe(facts, found), "problem": problem})

    def _try(self) -> tuple[str, str]:
        """Why the look failed, and the class of the error; both empty if it did not."""
        try:
            facts, found = self._refused.try_once(self._examine)
        except Exception as error:  # a mistake of this program must not end the watch either
            self.close()
            if not isinstance(error, KafkaSinkError):
                with suppress(OSError):  # as for the lines to people: nobody may read it
                    traceback.print_exc()
            return str(error) or type(error).__name__, type(error).__name__
        self._last, self._seen_s = (time.time(), facts, found), self._now_s()
        missing = [*facts.notes, *(each.problem for each in facts.ledgers if each.problem)]
        return "; ".join(missing), INCOMPLETE if missing else ""

    def _examine(self) -> tuple[ClusterFacts, list[Finding]]:
        if self._cluster is None:
            self._cluster = self._open.enter_context(self._connect())
        return examine(self._cluster, self._limits)

    def close(self) -> None:
        self._cluster = None
        self._open.close()


class StatusHandler(Handler):
    watcher: Watcher

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE, self.watcher.text)
        elif path == "/status.json":
            self._answer(200, "application/json", self.watcher.json)
        else:
            self._answer(404, "text/plain; charset=utf-8", "see /metrics and /status.json\n")


def serve(watcher: Watcher, listener: socket.socket, pauses: Iterable[float]) -> None:
    """Looks, and waits for the next of `pauses`, until they end."""
    handler = type("OneStatusHandler", (StatusHandler,), {"watcher": watcher})
    server = Server(listener, handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        watcher.look()
        for pause_s in pauses:
            time.sleep(pause_s)
            watcher.look()
    finally:
        watcher.close()
        server.shutdown()
        server.server_close()
