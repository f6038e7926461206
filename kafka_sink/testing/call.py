"""One request in the broker, and the only way to answer it, now or later.

A handler gets a `Call` and returns the answer; or it returns None and calls `answer` once, later, unless the API has no
answer (`finish`) or the connection is to be closed. Injected faults are applied here, so that handlers only need to
call `check_fault` where they could fail and pass their codes through `code_to_report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.kafka.wire import frames
from kafka_sink.kafka.wire.apis import Api
from kafka_sink.testing import acl
from kafka_sink.testing.core import BrokerCore
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.faults import Fault
from kafka_sink.testing.session import Session


@dataclass(slots=True, eq=False)
class Call:
    core: BrokerCore
    broker_id: int
    connection_id: int
    api: Api
    version: int
    correlation_id: int
    client_id: str
    body: dict[str, Any]
    session: Session = field(default_factory=Session)
    fault: Fault | None = None
    is_answered: bool = False

    @property
    def now_ms(self) -> int:
        return self.core.schedule.now_ms

    # ---- the response ----

    def answer(self, body: Mapping[str, Any], *, version: int | None = None) -> None:
        body = dict(body)
        if "error_code" in body:
            body["error_code"] = self.code_to_report("", -1, body["error_code"])
        throttle_time_ms = self.core.throttle_times_ms.get(self.api.name)
        if throttle_time_ms and any(row.name == "throttle_time_ms" for row in self.api.response):
            body["throttle_time_ms"] = throttle_time_ms
        version = self.version if version is None else version
        self._end(frames.encode_response(self.api, version, self.correlation_id, body))

    def finish(self) -> None:
        """The request has no response (Produce with acks=0)."""
        self._end(b"")

    def _end(self, data: bytes) -> None:
        assert not self.is_answered, f"{self.api.name} was answered twice"
        self.is_answered = True
        fault = self.fault
        if fault is not None and fault.disconnect:
            self.core.close(self.connection_id)
        else:
            delay_ms = fault.delay_after_ms if fault is not None else 0
            self.core.schedule.after(delay_ms, lambda: self.core.send(self.connection_id, data))

    def hang_up(self) -> None:
        self.is_answered = True
        self.core.close(self.connection_id)

    def fail_authentication(self, body: Mapping[str, Any] | None) -> None:
        """Sends the last response, if any, and closes the connection, both after the delay."""
        self.is_answered = True
        data = frames.encode_response(self.api, self.version, self.correlation_id, body) if body is not None else b""
        self.core.fail_authentication(self.connection_id, data)

    # ---- permission ----

    def is_allowed(self, operation: str, resource_type: str, name: str = acl.CLUSTER_NAME) -> bool:
        authorizer = self.core.authorizer
        return authorizer is None or authorizer.is_allowed(self.session.principal, operation, resource_type, name)

    def is_allowed_somewhere(self, operation: str, resource_type: str) -> bool:
        authorizer = self.core.authorizer
        return authorizer is None or authorizer.is_allowed_somewhere(self.session.principal, operation, resource_type)

    def check_allowed(self, operation: str, resource_type: str, name: str = acl.CLUSTER_NAME) -> None:
        if not self.is_allowed(operation, resource_type, name):
            raise Refused(acl.REFUSALS[resource_type])

    # ---- faults ----

    def check_fault(self, topic: str = "", partition: int = -1) -> None:
        """Raises the injected error, if there is one for this part of the request that prevents the work."""
        fault = self.fault
        if fault is None or fault.error_code is None or fault.after_apply:
            return
        if not topic or fault.concerns(topic, partition):
            raise Refused(Code(fault.error_code), "injected")

    def code_to_report(self, topic: str, partition: int, code: int) -> int:
        """The code to report for work that was done with the outcome `code`."""
        fault = self.fault
        if fault is None or fault.error_code is None or not fault.after_apply or not fault.concerns(topic, partition):
            return int(code)
        return fault.error_code
