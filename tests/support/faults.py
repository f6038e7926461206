"""What a KafkaProxy can do to a request, and which request it chooses."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS, END_TXN, METADATA, Api
from kafka_sink.kafka.wire.frames import decode_request_header
from tools.waiting import PATIENCE_S

PREAMBLES = (API_VERSIONS.key, METADATA.key)
_OPEN = 1  # TCP_ESTABLISHED, the first byte of TCP_INFO


class Harm(Enum):
    LOSE_REQUEST = "the request does not arrive, the connection is closed"
    LOSE_ANSWER = "the request is carried out, the answer does not arrive, the connection is closed"
    CUT_REQUEST = "half of the request arrives, then the connection is closed"
    CUT_ANSWER = "the request is carried out, half of the answer arrives, then the connection is closed"
    HOLD_REQUEST = "the client's connection is closed; the request arrives when the test releases it"
    DUPLICATE_REQUEST = "the request arrives twice, the second time on a connection of its own"
    DELAY_REQUEST = "the request arrives late"
    SILENCE = "from this request on nothing passes in either direction, the connection stays open"
    SILENT_ANSWER = "the request is carried out, from its answer on nothing passes, the connection stays open"
    SILENT_HOLD = "as HOLD_REQUEST, but the client has to find out by itself that nobody answers"
    REFUSE = "the request is not carried out and answered by the proxy, with what the fault says"


# Where an exact request is cut off, by the name of the case.
SIDES = {"before-it-arrives": Harm.LOSE_REQUEST, "after-it-was-carried-out": Harm.LOSE_ANSWER}


class Request:
    def __init__(self, frame: bytes, client: socket.socket | None = None) -> None:
        self.frame = frame
        self._client = client
        self.api_key, self.version, self.correlation_id, self.client_id, self._body_offset = decode_request_header(
            frame
        )

    @cached_property
    def body(self) -> Mapping[str, Any]:
        return APIS[self.api_key].decode_request(self.version, self.frame, self._body_offset, ignore_rest=True)

    @property
    def is_of_the_living(self) -> bool:
        """The kernel closes the sockets of a process that ends: what is read from such a one was sent before."""
        return self._client is not None and self._client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _OPEN


def is_drivers(transactional_id: str) -> bool:
    """Of a stream's driver, or of a label's."""
    return re.search(r"-driver(-[0-9a-f]{8})?$", transactional_id) is not None


def of_the_driver(request: Request) -> bool:
    """Also true for requests that belong to no transaction."""
    body = request.body
    owner = body.get("transactional_id") or body.get("v3_and_below_transactional_id") or "-driver"
    return is_drivers(str(owner))


def of_a_task(request: Request) -> bool:
    return not of_the_driver(request)


def of_the_driver_alone(request: Request) -> bool:
    """Of its own transaction, or a commit of a task's: no task sends it, however long it lives."""
    body = request.body
    owner = str(body.get("transactional_id") or body.get("v3_and_below_transactional_id") or "")
    return is_drivers(owner) or (request.api_key == END_TXN.key and bool(body["committed"]))


@dataclass(eq=False)
class Fault:
    """One planned harm to the `nth` request of an API, and its result.

    With `api` None it hits any request, apart from those that every connection begins with.
    """

    api: Api | None
    harm: Harm
    nth: int = 1
    delay_s: float = 0.0
    # Which requests count.
    where: Callable[[Request], bool] = lambda _: True
    # Called at the moment of the harm, before any peer can notice it.
    before: Callable[[], None] = lambda: None
    # The body of the answer to a request that is refused.
    refusal: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}
    # Whether all requests after the nth are hit as well, until `stop`.
    lasts: bool = False
    # What was hit: the API's name and the request's body.
    hit: tuple[str, Mapping[str, Any]] | None = None
    # The broker's answer to the copy of a duplicate and to a held request, for tests that need it.
    answer: dict[str, Any] | None = None
    _seen: int = 0
    _is_stopped: bool = False
    _acted: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)

    @property
    def has_acted(self) -> bool:
        return self._acted.is_set()

    def act(self) -> None:
        self.before()
        self._acted.set()

    def stop(self) -> None:
        """From now on nothing is harmed, whether or not anything was."""
        self._is_stopped = True

    def counts(self, request: Request) -> bool:
        """Whether this request must be harmed."""
        is_over = self._is_stopped or (self._seen >= self.nth and not self.lasts)
        is_meant = request.api_key not in PREAMBLES if self.api is None else request.api_key == self.api.key
        if is_over or not is_meant or not self.where(request):
            return False
        self._seen += 1
        if self._seen < self.nth:
            return False
        self.hit = self.hit or (APIS[request.api_key].name, request.body)
        return True

    def wait_until_acted(self, timeout_s: float = PATIENCE_S) -> bool:
        return self._acted.wait(timeout_s)

    def release(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Forwards a held request to the broker; returns its answer, which the client never sees."""
        self._released.set()
        return self.wait_for_answer(timeout_s)

    def wait_for_answer(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        if not self._answered.wait(timeout_s) or self.answer is None:
            raise TimeoutError(f"the broker did not answer the request that was {self.harm.name}")
        return self.answer


def whose(fault: Fault) -> str:
    """The API of the request that was hit, and whose transaction it is about."""
    assert fault.hit is not None
    name, body = fault.hit
    owner = body.get("transactional_id") or body.get("v3_and_below_transactional_id") or ""
    return f"{name} of {'the driver' if is_drivers(owner) else 'a task'}" if owner else name
