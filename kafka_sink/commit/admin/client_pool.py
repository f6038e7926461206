"""Keeps clients open between operations.

A new client needs several round trips before its first request: a connection (with TLS and SASL), Metadata, and a
connection to the broker of the request. Planning and commits come one after another, so they reuse their clients.
Between two operations a client keeps only connections, metadata and known coordinators; each is looked up again when a
broker reports that it is out of date.

A client is borrowed for one operation, because it serves one thread at a time. Operations of several threads have a
client each and wait for nobody; afterwards as many stay connected as the pool keeps. A forked child needs a pool of its
own (kafka/io/per_process.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kafka_sink.commit.admin.client import Client
from kafka_sink.kafka.io.shelf import Shelf
from kafka_sink.options import ProducerOptions


def driver_client_id(client_id: str) -> str:
    """A quota on the job's name holds back its tasks. Its planning and commits have another name; empty: none that
    somebody chose."""
    return client_id and f"{client_id}-driver"


class ClientPool:
    def __init__(self, idle_max: int) -> None:
        self._idle: Shelf[ProducerOptions, Client] = Shelf(idle_max)

    @contextmanager
    def borrow(self, options: ProducerOptions) -> Iterator[Client]:
        """For one operation. After an exception in it, Ctrl-C included, the client is closed: one of its connections
        may be broken. So are the idle ones: what they know of the cluster may be as old, and each would fail once."""
        client = self._idle.take(options) or Client(replace(options, client_id=driver_client_id(options.client_id)))
        try:
            yield client
        except BaseException:
            for each in (client, *self._idle.take_all(options)):
                each.close()
            raise
        for surplus in self._idle.put(options, client):
            surplus.close()

    def close(self) -> None:
        """Those that nobody has borrowed."""
        for client in self._idle.clear():
            client.close()
