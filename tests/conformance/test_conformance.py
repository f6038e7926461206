"""The same scripted requests to the embedded broker and to Apache Kafka: every code, offset and epoch must be equal.

Kafka 4.3.1 with transaction.version 2, 1 and 0, and Kafka 3.9.1; the embedded cluster has the same settings. Intended
differences are listed in DOCUMENTED, with the reason; an entry there without a difference fails, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance import (
    end_scripts,
    exhaustion_scripts,
    group_scripts,
    init_scripts,
    produce_scripts,
    reader_scripts,
    topic_scripts,
)
from tests.conformance.conftest import Pair
from tests.conformance.peer import EmbeddedPeer, KafkaPeer, Peer
from tests.conformance.script import SCRIPTS, Seen

MODULES = (end_scripts, exhaustion_scripts, group_scripts, init_scripts, produce_scripts, reader_scripts, topic_scripts)

# (script, request): why the embedded broker answers differently.
DOCUMENTED: dict[tuple[str, str], str] = {}


def seen_by(peer: Peer, name: str) -> list[tuple[str, Any]]:
    seen = Seen()
    SCRIPTS[name].run(peer, seen)
    return seen.lines


# Kafka's version, and the finalized level of transaction.version.
CLUSTERS = (("4.3.1", 2), ("4.3.1", 1), ("4.3.1", 0), ("3.9.1", 0))


def is_slow(version: str, level: int, name: str) -> bool:
    """Scripts that use up 32,766 epochs take minutes, and ids expire after ten seconds at any level. Brokers of level 1
    treat older clients as at level 0, and newer ones as at level 2. Level 0 is in every run with the older version, and
    with the newer one what only that can be asked."""
    if name.endswith("_expires"):
        return (version, level) not in (CLUSTERS[0], CLUSTERS[-1])
    is_elsewhere = (version, level) == ("4.3.1", 0) and not SCRIPTS[name].needs_version_2
    return "last_epoch" in name or level == 1 or is_elsewhere


def cases() -> list[Any]:
    """Each script with each cluster for which it makes sense."""
    return [
        pytest.param(version, level, name, marks=[pytest.mark.slow] if is_slow(version, level, name) else [])
        for version, level in CLUSTERS
        for name, registered in SCRIPTS.items()
        if str(level) in registered.levels or (version == "3.9.1" and not registered.needs_version_2)
        if version != "3.9.1" or not registered.needs_version_2
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("version", "level", "name"), cases())
def test_both_brokers_answer_the_script_alike(
    pair_of: Callable[[str, int], Pair], version: str, level: int, name: str
) -> None:
    pair = pair_of(version, level)
    peer = KafkaPeer(pair.kafka.bootstrap_servers)
    try:
        theirs = seen_by(peer, name)
    finally:
        peer.close()
    ours = seen_by(EmbeddedPeer(pair.release, pair.transaction_version), name)
    assert [question for question, _ in ours] == [question for question, _ in theirs]
    differences = [
        f"{question}: Kafka {their}, embedded {our}"
        for (question, our), (_, their) in zip(ours, theirs, strict=True)
        if (our != their) != ((name, question) in DOCUMENTED)
    ]
    assert not differences, "\n".join(differences)
