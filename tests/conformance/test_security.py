"""Authentication and authorization: the same bytes to the embedded broker and to Apache Kafka 4.3.1 and 3.9.1.

Apache Kafka runs with a SASL_PLAINTEXT listener and its StandardAuthorizer. Each ACL user meets every API once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.testing import BrokerCluster, Settings
from tests.conformance import acl_scripts
from tests.conformance.conftest import ADMIN, FAILURE_DELAY_MS, PASSWORDS, Secured
from tests.conformance.peer import PROPERTIES
from tests.conformance.sasl_scripts import SASL_SCRIPTS, SESSION_MS, SHORT
from tests.conformance.script import Seen
from tests.conformance.wire import Asking, EmbeddedWire, KafkaWire, LoggedIn, Wire

VERSIONS = ("4.3.1", "3.9.1")
START_MS = 1_700_000_000_000


def embedded_core(release: str, **more: str) -> BrokerCluster:
    delay = {"connection.failed.authentication.delay.ms": str(FAILURE_DELAY_MS)}
    settings = Settings({**PROPERTIES, **delay, "super.users": f"User:{ADMIN}", **more}, release)
    acls = [acl for granted in acl_scripts.cases().values() for acl in granted]
    return BrokerCluster(1, users=PASSWORDS, acls=acls, settings=settings, now_ms=START_MS)


def differences(ours: Seen, theirs: Seen) -> str:
    assert [question for question, _ in ours.lines] == [question for question, _ in theirs.lines]
    return "\n".join(
        f"{question}: Kafka {their}, embedded {our}"
        for (question, our), (_, their) in zip(ours.lines, theirs.lines, strict=True)
        if our != their
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SASL_SCRIPTS)
def test_both_brokers_authenticate_alike(secured_of: Callable[[str], Secured], version: str, name: str) -> None:
    secured = secured_of(version)

    def seen_by(new_wire: Callable[[], Wire]) -> Seen:
        seen, wires = Seen(), []

        def open_one() -> Asking:
            wires.append(new_wire())
            return Asking(wires[-1])

        try:
            SASL_SCRIPTS[name](open_one, seen)
        finally:
            for wire in wires:
                wire.close()
        return seen

    # Apache Kafka is told so for one mechanism only, which is why the scripts of the others come without.
    lifetime = {"connections.max.reauth.ms": str(SESSION_MS)} if name == "sessions" else {}
    core = embedded_core(secured.release, **lifetime)
    ours = seen_by(lambda: EmbeddedWire(core))
    theirs = seen_by(lambda: KafkaWire(secured.address))
    if name != "sessions":
        theirs.lines = [(question, without_lifetime(question, answer)) for question, answer in theirs.lines]
    text = differences(ours, theirs)
    assert not text, text


def without_lifetime(question: str, answer: Any) -> Any:
    if question.startswith(SHORT) and isinstance(answer, tuple):
        return tuple(0 if part == SESSION_MS else part for part in answer)
    return answer


@pytest.mark.parametrize("version", VERSIONS)
def test_both_brokers_allow_and_forbid_alike(secured_of: Callable[[str], Secured], version: str) -> None:
    secured = secured_of(version)

    def seen_by(new_wire: Callable[[], Wire]) -> Seen:
        seen = Seen()
        admin = LoggedIn(new_wire(), ADMIN, PASSWORDS[ADMIN])
        admin.begin("warm-up")
        for user in acl_scripts.cases():
            peer = LoggedIn(new_wire(), user, PASSWORDS[user])
            try:
                acl_scripts.request_by_request(peer, admin, user, seen)
            finally:
                peer.close()
        admin.close()
        return seen

    core = embedded_core(secured.release)
    ours = seen_by(lambda: EmbeddedWire(core))
    text = differences(ours, seen_by(lambda: KafkaWire(secured.address)))
    assert not text, text
