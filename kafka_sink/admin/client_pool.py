"""Keeps clients open between operations, one for each set of options.

A new client needs several round trips before its first request: a connection (with TLS and SASL), Metadata, and a
connection to the broker of the request. Spark's Python processes on the driver plan or commit one write after another,
so they reuse their clients. Between two operations a client keeps only connections, metadata and known coordinators;
each is looked up again when a broker reports that it is out of date.

A pool is used by one thread at a time. A forked child needs its own pool.
"""

from __future__ import annotations

from kafka_sink.admin.client import Client
from kafka_sink.options import ProducerOptions


class ClientPool:
    def __init__(self, clients_max: int) -> None:
        self._clients_max = clients_max
        self._clients: dict[ProducerOptions, Client] = {}  # least recently used first

    def get(self, options: ProducerOptions) -> Client:
        """For one operation: the client is closed when it is dropped, or when too many others were used since."""
        client = self._clients.pop(options, None) or Client(options)
        self._clients[options] = client
        while len(self._clients) > self._clients_max:
            self._clients.pop(next(iter(self._clients))).close()
        return client

    def drop(self, options: ProducerOptions) -> None:
        """Closes the client after a failure, because one of its connections may be broken."""
        client = self._clients.pop(options, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
