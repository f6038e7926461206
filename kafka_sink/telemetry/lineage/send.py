"""Sends lineage events: as a line of a file, a request to a URL, or both."""

from __future__ import annotations

import fcntl
import json
import os
import time
from urllib.parse import urlsplit

from kafka_sink.errors import ConfigError, TransportError
from kafka_sink.kafka.io.web import redact_url
from kafka_sink.options import ProducerOptions, SecurityOptions
from kafka_sink.options.host.files import read_file
from kafka_sink.options.sink_options import TelemetryOptions
from kafka_sink.telemetry.lineage.events import run_event
from kafka_sink.telemetry.metrics.breaker import circuit_breaker
from kafka_sink.telemetry.metrics.figures import BatchReport
from kafka_sink.telemetry.metrics.receiver import ILL_FROM, certificates_for, send_to_receiver

PATH = "/api/v1/lineage"
LOCK_S, PAUSE_S = 2.0, 0.005
_KEY_FILE = "lineage.api.key.file"


def send(telemetry: TelemetryOptions, report: BatchReport, event_type: str, options: ProducerOptions) -> None:
    text = json.dumps(run_event(event_type, report, telemetry, options), separators=(",", ":"))
    if telemetry.lineage_file is not None:
        append_line(telemetry.lineage_file, text)
    if telemetry.lineage_url is not None:
        _post(telemetry.lineage_url, text, telemetry, options)


def append_line(path: str, text: str) -> None:
    """Appends under a lock, so that lines of several processes do not mix. A full disk takes a part of the line, which
    must not stay: the next event would continue it. The lock is held until it is cut off; without it the cut would be
    in a line that another process has appended since."""
    line, written = text.encode() + b"\n", 0
    opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        _lock(opened)
        try:
            while written < len(line):
                written += os.write(opened, line[written:])
        except OSError:
            if written:
                os.ftruncate(opened, os.fstat(opened).st_size - written)
            raise
    finally:
        os.close(opened)


def _lock(opened: int) -> None:
    """Until the file is closed. A holder needs microseconds, unless it was stopped, and a commit must go on."""
    deadline_s = time.monotonic() + LOCK_S
    while True:
        try:
            return fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(PAUSE_S)


def _post(url: str, text: str, telemetry: TelemetryOptions, options: SecurityOptions) -> None:
    address = url if urlsplit(url).path else url + PATH
    headers = {"Content-Type": "application/json"}
    key_file, certificates = telemetry.lineage_api_key_file, certificates_for(address, options)
    with circuit_breaker(address, key_file, certificates) as is_wanted:
        if not is_wanted:
            return
        if key_file is not None:
            headers["Authorization"] = f"Bearer {_read_key(key_file)}"
        receiver = f"lineage.url {redact_url(address)}"
        answer = send_to_receiver(receiver, "POST", address, headers, text.encode(), options, telemetry.timeout_ms)
        refusal = None if answer.is_good else TransportError(f"{receiver} answered {answer.status}")
        if refusal is not None and answer.status >= ILL_FROM:
            raise refusal
    if refusal is not None:
        raise refusal


def _read_key(name: str) -> str:
    """Checked here: the error of an invalid header would contain it."""
    key = read_file(_KEY_FILE, name).strip()
    if not key or any(not 32 < byte < 127 for byte in key):
        raise ConfigError(
            f"{_KEY_FILE}={name} holds no key: it is empty, or has several lines or other characters that a key cannot "
            "have"
        )
    return key.decode()
