"""Receivers of metrics and lineage that fail: a commit waits for each only as long as it may, and nothing is half told.

A full disk is a limit on the size of files, for a process of its own: like a full disk, it lets the first part of a
write pass.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_sink import sink_metrics
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import ConfigError, KafkaSinkError, TransportError
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import SinkOptions, TelemetryOptions
from kafka_sink.telemetry.lineage.send import append_line, send
from kafka_sink.telemetry.metrics import breaker, exporter, launch, notebook
from kafka_sink.telemetry.metrics.exporter import CLIENTS_MAX
from kafka_sink.telemetry.metrics.figures import DELIVERED, BatchReport
from kafka_sink.telemetry.metrics.launch import LOG, ensure_exporter
from kafka_sink.telemetry.metrics.otlp import export
from kafka_sink.telemetry.metrics.push import push
from kafka_sink.telemetry.metrics.receiver import certificates_for
from kafka_sink.telemetry.metrics.store import figures_folder, note, read_streams
from kafka_sink.telemetry.metrics.stream_figures import stream_of
from tests.integration.hostile_peer import HostilePeer, web_drips
from tests.support.producing import replace_start
from tests.support.served_figures import answers
from tools.kafka_node import free_port
from tools.waiting import wait_until

REPORT = BatchReport("s", "", BatchKey("", "a"), "run", "c", DELIVERED, (), (), 0, 10, 5.0)
TIMEOUT_MS = 500
AN_HOUR_MS = "3600000"
FULL_DISK = """
import json, resource, signal, sys
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.telemetry.lineage.send import append_line
from kafka_sink.telemetry.metrics.figures import DELIVERED, BatchReport
from kafka_sink.telemetry.metrics.store import note

def noted(label):
    note(sys.argv[1], BatchReport("s", "", BatchKey("", label), "run", "c", DELIVERED, (), (), 0, 10, 5.0))

def told(number):
    append_line(sys.argv[2], json.dumps({"number": number, "more": "x" * 80}))

def refused(call, *given):
    try:
        call(*given)
    except OSError:
        return
    sys.exit(f"{call.__name__} takes half a write for a whole one")

for label in "abc":
    noted(label)
told(1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (150, limits[1]))
for number in range(3):
    refused(noted, f"full {number}")
refused(told, 2)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
told(3)
"""


def options(**more: str) -> SinkOptions:
    named = {name.replace("_", "."): value for name, value in more.items()}
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "sink.id": "s", "metrics.timeout.ms": str(TIMEOUT_MS)}
    return parse_sink_options({**given, **named})


def telemetry_of(given: SinkOptions) -> TelemetryOptions:
    assert given.telemetry is not None
    return given.telemetry


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    breaker.PAUSES.renew()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener
    gc.collect()  # the exporter's abandoned sockets, which have no owner


@pytest.fixture
def silent(listener: socket.socket) -> str:
    """Accepts connections and says nothing."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def connection_count(listener: socket.socket) -> int:
    listener.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def _push(url: str) -> None:
    given = options(metrics_pushgateway_url=url, kafka_sasl_login_read_timeout_ms=AN_HOUR_MS)
    push(url, stream_of(REPORT), given.producer, TIMEOUT_MS)


def _lineage(url: str) -> None:
    given = options(lineage_url=url, kafka_sasl_login_read_timeout_ms=AN_HOUR_MS)
    send(telemetry_of(given), REPORT, "START", given.producer)


def _export(url: str) -> None:
    export(url, stream_of(REPORT), REPORT, options(metrics_otlp_endpoint=url).producer, TIMEOUT_MS, "i-1")


def test_a_receiver_is_waited_for_as_long_as_the_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []

    def answered(*_: object, timeouts_ms: tuple[int, int], **__: object) -> SimpleNamespace:
        limits.append(timeouts_ms)
        return SimpleNamespace(is_good=True)

    monkeypatch.setattr("kafka_sink.telemetry.metrics.receiver.ask", answered)
    _lineage("http://127.0.0.1:9")
    assert limits == [(TIMEOUT_MS, TIMEOUT_MS)]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
# A collector gets spans and metrics in a request each, within one time limit.
@pytest.mark.parametrize(("tell", "requests"), [(_push, 1), (_lineage, 1), (_export, 2)])
def test_a_receiver_that_is_silent_is_waited_for_once_whatever_the_time_limit_of_a_login(
    listener: socket.socket, silent: str, tell: Callable[[str], None], requests: int
) -> None:
    with pytest.raises(TransportError):
        tell(silent)
    assert 1 <= connection_count(listener) <= requests


def _lineage_with_key(url: str, key: Path) -> None:
    given = options(lineage_url=url, lineage_api_key_file=str(key))
    send(telemetry_of(given), REPORT, "START", given.producer)


def _refuse(connection: socket.socket, _: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 401 no\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("tell", [_push, _lineage])
def test_a_refusal_is_an_answer_and_silences_nobody(tell: Callable[[str], None]) -> None:
    breaker.PAUSES.renew()
    with HostilePeer(_refuse) as peer:
        for _ in range(2):
            with pytest.raises(TransportError, match="answered 401"):
                tell(f"http://{peer.address}")


def test_a_key_that_cannot_be_read_silences_nobody(tmp_path: Path) -> None:
    breaker.PAUSES.renew()
    with HostilePeer(_refuse) as peer:
        with pytest.raises(ConfigError):
            _lineage_with_key(f"http://{peer.address}", tmp_path / "missing")
        with pytest.raises(TransportError, match="answered 401"):
            _lineage(f"http://{peer.address}")


def test_a_silent_receiver_is_skipped_by_those_who_send_the_same_key(
    listener: socket.socket, silent: str, tmp_path: Path
) -> None:
    """A firewall may drop what comes with a wrong one."""
    (tmp_path / "a").write_text("key-a")
    (tmp_path / "b").write_text("key-b")
    for name, is_asked in (("a", True), ("a", False), ("b", True)):
        with pytest.raises(TransportError) if is_asked else nullcontext():
            _lineage_with_key(silent, tmp_path / name)
        assert bool(connection_count(listener)) is is_asked


def test_a_silent_receiver_is_skipped_by_those_with_the_same_certificates() -> None:
    brokers = (("b", 1),)
    own = ProducerOptions(bootstrap_servers=brokers, ssl_truststore_location="/a")
    alike, other = replace(own, client_id="another"), replace(own, ssl_truststore_location="/b")
    told = [certificates_for("https://receiver", each) for each in (own, alike, other)]
    assert told[0] == told[1] != told[2]
    assert certificates_for("http://receiver", own) == certificates_for("http://receiver", other)


@pytest.mark.parametrize(
    "content", ["top-secret\nof two lines", "top-secret key", "top-sécret", " \n", "top-secret\x00"]
)
def test_what_is_no_key_is_refused_without_being_printed(tmp_path: Path, silent: str, content: str) -> None:
    key = tmp_path / "key"
    key.write_text(content)
    given = options(lineage_url=silent, lineage_api_key_file=str(key))
    with pytest.raises(ConfigError, match=r"lineage.api.key.file=.*holds no key") as caught:
        send(telemetry_of(given), REPORT, "START", given.producer)
    assert "top-s" not in str(caught.value)


@pytest.mark.parametrize("is_proxy", [False, True])
def test_what_a_receiver_or_a_proxy_says_is_one_line_of_the_log(
    is_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 502 \x1b[2Jno\r\nContent-Length: 30\r\n\r\n\x1b[2Jno\nINFO all is well again!!!!")

    breaker.PAUSES.renew()
    with HostilePeer(refuse) as peer:
        if is_proxy:
            monkeypatch.setenv("https_proxy", f"http://me:top-secret@{peer.address}")
        with pytest.raises(TransportError, match=r"502.*2Jno") as caught:
            _push("https://gateway.invalid" if is_proxy else f"http://{peer.address}")
    assert str(caught.value).isprintable() and "top-s" not in str(caught.value)


def test_a_full_disk_leaves_neither_half_a_note_nor_half_an_event(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path), str(events)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    (stream,) = read_streams(str(tmp_path))
    assert stream.value("batches") == 3
    assert [json.loads(line)["number"] for line in events.read_text().splitlines()] == [1, 3]


def test_notes_that_cannot_be_opened_keep_no_file_open(tmp_path: Path) -> None:
    """As on a disk that has no room for the second file."""
    note(str(tmp_path), REPORT)
    (second,) = figures_folder(str(tmp_path)).glob("*.1")
    second.unlink()
    second.mkdir()
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        with pytest.raises(OSError):
            note(str(tmp_path), REPORT)
    assert len(os.listdir("/dev/fd")) < before + 10


# ---- the exporter ----------------------------------------------------------------------------------------------------


def test_clients_that_go_away_fill_no_log(tmp_path: Path) -> None:
    """As scrapes that time out, and probes of load balancers."""
    port = free_port()
    assert ensure_exporter(str(tmp_path / "application"), "127.0.0.1", port) == ""
    exporter = launch.STARTED.value[-1]
    try:
        wait_until(lambda: answers(port), "the exporter to answer")
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes by a reset
                client.sendall(b"G")
        assert answers(port)
    finally:
        exporter.terminate()
        exporter.wait(30)
    assert (figures_folder(str(tmp_path / "application")) / LOG).read_text() == ""


@pytest.mark.parametrize(
    ("first", "second", "is_served"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "::1", False),
    ],
)
def test_a_query_whose_address_is_not_served_is_told(tmp_path: Path, first: str, second: str, is_served: bool) -> None:
    """Each application has one exporter per port: the first query decides."""
    port = free_port()
    assert ensure_exporter(str(tmp_path), first, port) == ""
    exporter = launch.STARTED.value[-1]
    try:
        told = [ensure_exporter(str(tmp_path), second, port) for _ in range(2)]
    finally:
        exporter.terminate()
        exporter.wait(30)
    assert told[0] == told[1]
    if is_served:
        assert told[0] == ""
    else:
        assert f"{second}:{port} is not listened at" in told[0] and f"serves all figures at {first}:{port}" in told[0]
    # The next one decides anew.
    assert ensure_exporter(str(tmp_path), second, port) == "" or second == "::1"
    if launch.STARTED.value[-1] is not exporter:
        launch.STARTED.value[-1].terminate()
        launch.STARTED.value[-1].wait(30)


def test_clients_that_never_come_to_an_end_keep_no_exporter_from_ending(tmp_path: Path) -> None:
    port, application = free_port(), tmp_path / "application"
    assert ensure_exporter(str(application), "127.0.0.1", port) == ""
    exporter = launch.STARTED.value[-1]
    wait_until(lambda: answers(port), "the exporter to answer")
    with ExitStack() as stack:
        stack.callback(exporter.kill)
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(CLIENTS_MAX + 2)]

        def has_ended() -> bool:
            with suppress(OSError):
                for client in clients:
                    client.sendall(b"G")
            return exporter.poll() is not None

        for _ in range(5):
            assert not has_ended()
            time.sleep(0.2)
        shutil.rmtree(application)
        wait_until(has_ended, "the exporter to end")


def test_clients_for_whom_there_was_no_thread_take_no_place_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    listener = socket.create_server(("127.0.0.1", 0))
    handler = type("NoFigures", (exporter.Handler,), {"application_folder": str(tmp_path)})
    with exporter.Server(listener, handler) as server:
        monkeypatch.setattr(server, "handle_error", lambda *_: None)
        with monkeypatch.context() as without_threads:
            replace_start(without_threads, refuse)
            for _ in range(CLIENTS_MAX):
                with socket.create_connection(listener.getsockname()):
                    server.handle_request()
        address = "http://{}:{}/metrics".format(*listener.getsockname())
        scraper = threading.Thread(target=server.handle_request, daemon=True)
        scraper.start()
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert answer.status == 200


def test_clients_that_send_a_byte_at_a_time_do_not_keep_others_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "CLIENT_S", 1.0, raising=False)
    listener = socket.create_server(("127.0.0.1", 0))
    handler = type("NoFigures", (exporter.Handler,), {"application_folder": str(tmp_path)})
    is_over = threading.Event()

    def drip(client: socket.socket) -> None:
        with client, suppress(OSError):
            while not is_over.wait(0.1):
                client.sendall(b"G")

    with exporter.Server(listener, handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        drips = [
            threading.Thread(target=drip, args=(socket.create_connection(listener.getsockname()),))
            for _ in range(CLIENTS_MAX)
        ]
        for each in drips:
            each.start()
        try:
            time.sleep(0.5)
            with urllib.request.urlopen("http://{}:{}/metrics".format(*listener.getsockname()), timeout=20) as answer:
                assert answer.status == 200
        finally:
            is_over.set()
            for each in drips:
                each.join()
            server.shutdown()
            serving.join()


def test_an_exporter_that_cannot_be_started_says_nothing_about_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no such python")
    with pytest.raises(FileNotFoundError, match="no such python"):
        ensure_exporter(str(tmp_path), "127.0.0.1", free_port())


# ---- sink_metrics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["http://driver:94oo", "http://dri ver:9400", "http://[::1", "http://", "http://me:secret@driver:9400",
     "http://driver:9400?token=secret"],
)  # fmt: skip
def test_what_is_no_address_is_an_error_of_this_package_and_not_shown(url: str) -> None:
    with pytest.raises(KafkaSinkError, match="the address is not valid: expected http://<the driver's host>") as raised:
        sink_metrics(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("drips", ["status", "header", "chunk"])
def test_an_endpoint_that_never_comes_to_an_end_is_given_up(drips: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "TIMEOUTS_MS", (300, 300))
    with HostilePeer(web_drips[drips]) as peer, pytest.raises(TransportError, match="did not answer: timed out"):
        sink_metrics(f"http://{peer.address}")


NO_FIGURES = '{"format": 1, "sink": "s", "query": "", "query_id": "", "client_id": "", "began_ms": 0, "histograms": []}'


@pytest.mark.parametrize(
    "answer",
    ["no HTTP\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "HTTP/1.1 200 OK\r\n\r\n[]",
     f'HTTP/1.1 200 OK\r\n\r\n{{"streams": [{NO_FIGURES}]}}', "HTTP/1.1 200 OK\r\n\r\n" + "[" * 100_000],
    ids=["no-http", "cut-off", "list", "no-histograms", "nested"],
)  # fmt: skip
def test_what_answers_without_figures_is_an_error_of_this_package(answer: str) -> None:
    def behave(client: socket.socket, _: threading.Event) -> None:
        client.recv(10_000)
        client.sendall(answer.encode())

    with HostilePeer(behave) as peer, pytest.raises(TransportError, match="no figures at"):
        sink_metrics(f"http://{peer.address}")


def test_half_a_line_is_cut_off_and_never_the_line_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full in the middle of a line. Another process appends before the half is cut off: it has to wait."""
    path, write = str(tmp_path / "events"), os.write
    other = threading.Thread(target=append_line, args=(path, "the other line"))

    def half(opened: int, data: bytes) -> int:
        if threading.current_thread() is other:
            return write(opened, data)
        if other.ident is not None:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(opened, data[:5])
        other.start()
        other.join(0.5)  # without a lock it has ended then
        return written

    monkeypatch.setattr("kafka_sink.telemetry.lineage.send.os", SimpleNamespace(**{**vars(os), "write": half}))
    with pytest.raises(OSError, match="No space left"):
        append_line(path, "this line is longer")
    other.join()
    assert Path(path).read_text() == "the other line\n"
