"""One request to a receiver of metrics or lineage, for which a commit waits."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields
from functools import partial

from kafka_sink.errors import TransportError
from kafka_sink.kafka.io.side_by_side import call_side_by_side
from kafka_sink.kafka.io.tls import endpoint_context
from kafka_sink.kafka.io.web import HttpAnswer, ask
from kafka_sink.options import SecurityOptions

ANSWER_BYTES_MAX = 64 * 1024
# Answers from here on are about the receiver, lower ones about a request and its key.
ILL_FROM = 500
TLS_NAMES = ("ssl_", "enable_ssl_")


def certificates_for(address: str, options: SecurityOptions) -> tuple[Hashable, ...]:
    """All options that make the TLS context of a request to this address."""
    if not address.lower().startswith("https://"):
        return ()
    names = (each.name for each in fields(SecurityOptions))
    return tuple(getattr(options, name) for name in names if name.startswith(TLS_NAMES))


def send_to_receiver(
    receiver: str, method: str, address: str, headers: Mapping[str, str], body: bytes, options: SecurityOptions,
    timeout_ms: int,
) -> HttpAnswer:  # fmt: skip
    """`receiver` names it in errors. The limit is that of connecting and that of the answer; looking its name up, which
    has none of its own, is within both."""
    request = partial(
        ask, receiver, partial(endpoint_context, options), address, method=method, headers=headers, body=body,
        bytes_max=ANSWER_BYTES_MAX, timeouts_ms=(timeout_ms, timeout_ms),
    )  # fmt: skip
    (answer,) = call_side_by_side([request], 2 * timeout_ms / 1000)
    if answer is None:
        raise TransportError(f"{receiver} did not answer within {2 * timeout_ms} ms, including the lookup of its name")
    if isinstance(answer, Exception):
        raise answer
    return answer
