"""A read_committed reader that runs beside the writer, as a consumer in production does, through every outage."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tools.foreign_reader import end_offsets, wait_until_settled

_LOGGER = logging.getLogger("tests.chaos.tail")
# It reconnects by itself.
_PASSING = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


class Tail:
    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, on_record: Callable[[int, bytes | None], None]
    ) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._on_record = on_record
        # How far each partition was read to its end.
        self._ends = dict.fromkeys(range(partitions), 0)
        self._targets: dict[int, int] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float = 60) -> None:
        """Reads what is stable by now, then ends. Raises what went wrong in between."""
        wait_until_settled(self._servers, self._topic, timeout_s=timeout_s)
        self._targets = end_offsets(self._servers, self._topic, "read_committed")
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise TimeoutError(f"read to {self._ends}, not to {self._targets}")

    def _run(self) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": f"tail-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
        }
        consumer = Consumer(settings, logger=_LOGGER)
        try:
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in self._ends])
            deadline = time.monotonic() + 600
            while not self._is_done() and time.monotonic() < deadline:
                for message in consumer.consume(2000, timeout=0.1):
                    self._take(message)
        except BaseException as error:
            self._error = error
        finally:
            consumer.close()

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            self._on_record(message.partition(), message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            self._ends[message.partition()] = message.offset()
        elif not error.retriable() and error.code() not in _PASSING:
            raise KafkaException(error)

    def _is_done(self) -> bool:
        targets = self._targets
        return targets is not None and all(self._ends[partition] >= end for partition, end in targets.items())
