"""A streaming query without Spark: its topic, its checkpoint, a proxy between it and the brokers, and the checks.

def test_...(stream: BareStream) -> None:
    fault = stream.proxy.on(END_TXN, Harm.LOSE_ANSWER, where=of_a_task)
    stream.run(2)
    assert fault.has_acted
    stream.check(2)
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.kafka.wire.apis import END_TXN
from tests.chaos.bare_spark import (
    PARTITIONS,
    BareQuery,
    Checkpoint,
    Killed,
    Worker,
    problems,
    run_on,
    settings_of,
    sink_id_of,
)
from tests.support.faults import Harm, is_drivers, of_a_task
from tests.support.kafka_proxy import KafkaProxy
from tests.support.open_transactions import open_transactions
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster


class BareStream:
    """A context manager, because of the proxy. `options` are the sink's, with two underscores in place of a dot."""

    def __init__(
        self,
        kafka: KafkaCluster,
        topic: str,
        *,
        is_direct: bool = False,
        config: dict[str, object] | None = None,
        replication_factor: int | None = None,
        **options: object,
    ) -> None:
        self.kafka = kafka
        self.topic = topic
        self.checkpoint = Checkpoint()
        self.proxy = KafkaProxy(kafka.bootstrap_servers)
        kafka.create_topic(topic, PARTITIONS, replication_factor, config)
        servers = kafka.bootstrap_servers if is_direct else self.proxy.bootstrap_servers
        self.settings = settings_of(servers, topic, **options)

    def __enter__(self) -> BareStream:
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.__exit__(None, None, None)

    @property
    def sink_id(self) -> str:
        return sink_id_of(self.settings)

    def query(self, checkpoint: Checkpoint | None = None, **more: Any) -> BareQuery:
        """One run of the query; a restart is another one."""
        return BareQuery(checkpoint or self.checkpoint, self.settings, **more)

    def run(self, batches: int = 1, checkpoint: Checkpoint | None = None, **more: Any) -> None:
        """Starts the query, lets it run some batches, and stops it."""
        run_on(checkpoint or self.checkpoint, self.settings, batches, **more)

    def kill_after_the_decision(self, checkpoint: Checkpoint | None = None, nth: int = 2) -> None:
        """Kills the driver at the nth EndTxn of the tasks."""
        with self.query(checkpoint) as query:
            query.plan()
            messages = query.write_tasks()
            self.proxy.on(END_TXN, Harm.LOSE_REQUEST, nth=nth, where=of_a_task, before=query.strike)
            with pytest.raises(Killed):
                query.commit(messages)

    # ---- the checks ----

    def problems(self, batches: int) -> list[str]:
        return problems(self.kafka.bootstrap_servers, self.topic, batches)

    def open(self, patience_s: float = 10) -> list[str]:
        return open_transactions(self.kafka.bootstrap_servers, self.sink_id, patience_s)

    def open_of_tasks(self) -> list[str]:
        """A driver's own transaction may stay open: no reader of rows waits for it, and the next driver ends it."""
        return [one for one in self.open(patience_s=2) if not is_drivers(one.split()[0])]

    def check(self, batches: int | None = None) -> None:
        """Each row of the batches, by default of those that Spark has committed, is there once; nothing is open."""
        assert self.open() == []
        assert self.problems(self.checkpoint.committed + 1 if batches is None else batches) == []

    def times_seen(self) -> Counter[bytes | None]:
        return Counter(record.value for record in read_topic(self.kafka.bootstrap_servers, self.topic))


def freezer(worker: Worker) -> Callable[[], None]:
    """For a fault's `before`: sends SIGSTOP to this process."""
    return lambda: os.kill(worker.process_id, signal.SIGSTOP)
