"""Authentication and authorization: the same bytes to the embedded broker and to Apache Kafka 4.3.1 and 3.9.1.

Apache Kafka runs with a SASL_PLAINTEXT listener and its StandardAuthorizer. Each ACL user calls every API once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kafka_sink.testing import BrokerCluster, Settings
from tests.conformance import acl_scripts
from tests.conformance.conftest import ADMIN, FAILURE_DELAY_MS, PASSWORDS, Secured
from tests.conformance.peer import PROPERTIES
from tests.conformance.sasl_scripts import SASL_SCRIPTS, SESSION_MS, SHORT
from tests.conformance.script import Seen
from tests.conformance.wire import Asking, EmbeddedWire, KafkaWire, LoggedIn, Wire

VERSIONS = ("4.3.1", pytest.param("3.9.1", marks=pytest.mark.slow))
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


def together(tasks: Iterable[Callable[[], Seen]]) -> list[Seen]:
    """In parallel, since Apache Kafka takes up to 0.3 s to close a connection; the scripts are independent."""
    with ThreadPoolExecutor(8) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


def authentication(name: str, new_wire: Callable[[], Wire]) -> Seen:
    seen = Seen()
    wires = []

    def open_one() -> Asking:
        wires.append(new_wire())
        return Asking(wires[-1])

    try:
        SASL_SCRIPTS[name](open_one, seen)
    finally:
        for wire in wires:
            wire.close()
    return seen


@pytest.mark.parametrize("version", VERSIONS)
def test_both_brokers_authenticate_alike(secured_of: Callable[[str], Secured], version: str) -> None:
    secured = secured_of(version)
    all_theirs = together(partial(authentication, name, lambda: KafkaWire(secured.address)) for name in SASL_SCRIPTS)
    for name, theirs in zip(SASL_SCRIPTS, all_theirs, strict=True):
        # In Apache Kafka the session lifetime is set for one mechanism only, in the embedded broker for all.
        lifetime = {"connections.max.reauth.ms": str(SESSION_MS)} if name == "sessions" else {}
        core = embedded_core(secured.release, **lifetime)
        if name != "sessions":
            theirs.lines = [(question, without_lifetime(question, answer)) for question, answer in theirs.lines]
        text = differences(authentication(name, partial(EmbeddedWire, core)), theirs)
        assert not text, f"{name}\n{text}"


def without_lifetime(question: str, answer: Any) -> Any:
    if question.startswith(SHORT) and isinstance(answer, tuple):
        return tuple(0 if part == SESSION_MS else part for part in answer)
    return answer


def permissions(user: str, new_wire: Callable[[], Wire]) -> Seen:
    seen = Seen()
    peer, admin = (LoggedIn(new_wire(), name, PASSWORDS[name]) for name in (user, ADMIN))
    try:
        acl_scripts.request_by_request(peer, admin, user, seen)
    finally:
        peer.close()
        admin.close()
    return seen


@pytest.mark.parametrize("version", VERSIONS)
def test_both_brokers_allow_and_forbid_alike(secured_of: Callable[[str], Secured], version: str) -> None:
    secured = secured_of(version)
    users = acl_scripts.cases()
    core = embedded_core(secured.release)
    for wire in (KafkaWire(secured.address), EmbeddedWire(core)):
        admin = LoggedIn(wire, ADMIN, PASSWORDS[ADMIN])
        acl_scripts.create_topics(admin)
        admin.close()
    all_theirs = together(partial(permissions, user, lambda: KafkaWire(secured.address)) for user in users)
    for user, theirs in zip(users, all_theirs, strict=True):
        text = differences(permissions(user, partial(EmbeddedWire, core)), theirs)
        assert not text, text
