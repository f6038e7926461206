"""Clients that outlive the operation that used them, by their options.

A new client costs several round trips before its first request: a connection, with TLS and SASL perhaps, then the
brokers, then a connection to the one that is to be asked. Spark's Python processes on the driver plan or commit one
write after the other, so they keep theirs. Between two operations a client holds nothing but connections, metadata and
coordinators that it has found; each of them is looked for again when a broker says that it is wrong.

One thread uses a pool at a time. A forked child needs one of its own.
"""

from __future__ import annotations

from kafka_sink.admin.client import Client
from kafka_sink.options import ProducerOptions


class ClientPool:
    def __init__(self, clients_max: int) -> None:
        self._clients_max = clients_max
        self._clients: dict[ProducerOptions, Client] = {}  # least recently used first

    def get(self, options: ProducerOptions) -> Client:
        """Stays open until it is dropped, or until enough others were used after it: ask for it at each operation."""
        client = self._clients.pop(options, None) or Client(options)
        self._clients[options] = client
        while len(self._clients) > self._clients_max:
            self._clients.pop(next(iter(self._clients))).close()
        return client

    def drop(self, options: ProducerOptions) -> None:
        """After a failure, for which a connection may be the reason."""
        client = self._clients.pop(options, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
