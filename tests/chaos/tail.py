"""A read_committed reader that runs beside the writer through every outage, like a consumer in production."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tools.foreign_reader import TopicFollower, wait_until_settled


class Tail:
    def __init__(self, bootstrap_servers: str, topic: str, on_record: Callable[[int, bytes | None], None]) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._on_record = on_record
        self._targets: dict[int, int] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float = 120) -> None:
        """Reads what is stable by now, then ends. Raises any earlier error."""
        self._targets = wait_until_settled(self._servers, self._topic, timeout_s=timeout_s)
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise TimeoutError(f"not read to {self._targets}")

    def _run(self) -> None:
        try:
            with TopicFollower(self._servers, self._topic) as follower:
                deadline = time.monotonic() + 600
                while not self._is_done(follower) and time.monotonic() < deadline:
                    for record in follower.poll(0.1):
                        self._on_record(record.partition, record.value)
        except BaseException as error:
            self._error = error

    def _is_done(self, follower: TopicFollower) -> bool:
        targets = self._targets
        return targets is not None and all(follower.ends.get(number, -1) >= end for number, end in targets.items())
