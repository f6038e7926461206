"""What is served reaches whoever asks, whatever names are in it."""

from __future__ import annotations

import io
from typing import Any

from kafka_sink.telemetry.metrics.exporter import Handler


class Answer(Handler):
    def __init__(self) -> None:
        """Without a connection."""
        self.wfile: Any = io.BytesIO()
        self.request_version, self.requestline, self.close_connection = "HTTP/1.1", "", True

    def date_time_string(self, timestamp: float | None = None) -> str:
        return "now"


def test_a_name_that_is_no_text_does_not_keep_the_other_figures_from_being_served() -> None:
    answer = Answer()
    answer._answer(200, "text/plain", 'sinks{sink="\ud800"} 1\nup 1\n')
    head, _, body = answer.wfile.getvalue().partition(b"\r\n\r\n")
    assert body == b'sinks{sink="\\ud800"} 1\nup 1\n'
    assert f"Content-Length: {len(body)}".encode() in head
