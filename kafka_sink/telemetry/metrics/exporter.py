"""The process that serves the metrics of one application: `python -m kafka_sink.telemetry.metrics.exporter FOLDER
SOCKET JVM`.

It is stateless: each request is answered from the files written by commits. It exits when its application ends, which
it checks twice a second: Spark has removed the folder, or the JVM is gone, perhaps killed.

Assumption: the application's folder is on this host, and the JVM is an ancestor of the process that started this one
(if it is not found, only the folder is checked).
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kafka_sink.telemetry.metrics.process import facts_of
from kafka_sink.telemetry.metrics.prometheus_text import CONTENT_TYPE, prometheus_text
from kafka_sink.telemetry.metrics.store import read_streams
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures, to_json

LOOK_S = 0.5
# For a client that sends nothing, and for everything that one sends and takes: it may send a byte at a time.
REQUEST_TIMEOUT_S, CLIENT_S = 10.0, 30.0
CLIENTS_MAX = 16


class Handler(BaseHTTPRequestHandler):
    """/metrics for Prometheus, /metrics.json for `sink_metrics` and `pykafka-sink watch`."""

    application_folder = ""
    timeout = REQUEST_TIMEOUT_S
    server_version, sys_version = "pykafka-sink", ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE, prometheus_text(read_streams(self.application_folder)))
        elif path == "/metrics.json":
            self._answer(200, "application/json", json_of(read_streams(self.application_folder)))
        else:
            self._answer(404, "text/plain; charset=utf-8", "figures are at /metrics and /metrics.json\n")

    def _answer(self, status: int, content_type: str, text: str) -> None:
        # Names may come from bytes that are no text. One of them must not keep all figures from being served.
        body = text.encode(errors="backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """No log line per scrape."""


class Server(ThreadingHTTPServer):
    """Limits concurrent clients; further ones wait in the kernel's queue."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, handler: type[Handler]) -> None:
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._free_clients = threading.Semaphore(CLIENTS_MAX)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """No page of the log per client that goes away."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        patience = threading.Timer(CLIENT_S, _hang_up, (request,))
        patience.daemon = True
        try:
            patience.start()
            super().process_request_thread(request, client_address)
        finally:
            patience.cancel()
            self._free_clients.release()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free_clients.acquire()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started now
            self._free_clients.release()
            raise


def _hang_up(client: socket.socket) -> None:
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


def json_of(streams: list[StreamFigures]) -> str:
    return f'{{"streams":[{",".join(to_json(stream) for stream in streams)}]}}'


def serve(application_folder: str, listener: socket.socket, jvm: int) -> None:
    """Returns without a shutdown of the server, which would wait for clients; the process ends, and its threads."""
    handler = type("ApplicationHandler", (Handler,), {"application_folder": application_folder})
    server = Server(listener, handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    known = facts_of(jvm)
    # Also ends if the JVM is gone before the first check.
    while os.path.isdir(application_folder) and (not jvm or (known is not None and facts_of(jvm) == known)):
        time.sleep(LOOK_S)


def main(words: list[str]) -> None:
    application_folder, listener, jvm = words
    with socket.socket(fileno=int(listener)) as given:
        serve(application_folder, given, int(jvm))


if __name__ == "__main__":
    main(sys.argv[1:])
