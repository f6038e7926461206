"""The same scripted requests to the embedded broker and to Apache Kafka: every code, offset and epoch must be equal.

Kafka 4.3.1 with transaction.version 2, 1 and 0, and Kafka 3.9.1; the embedded cluster is given the same. Differences
that are meant are listed in DOCUMENTED, with the reason; a row there that is no difference any more fails too.
"""

from __future__ import annotations

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

MODULES = (
    end_scripts, exhaustion_scripts, group_scripts, init_scripts, produce_scripts, reader_scripts, topic_scripts
)

# (script, question): why the embedded broker answers otherwise.
DOCUMENTED: dict[tuple[str, str], str] = {}


def seen_by(peer: Peer, name: str) -> list[tuple[str, Any]]:
    seen = Seen()
    SCRIPTS[name].run(peer, seen)
    return seen.lines


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCRIPTS)
def test_both_brokers_answer_the_script_alike(pair: Pair, name: str) -> None:
    if pair.transaction_version not in SCRIPTS[name].levels:
        pytest.skip(f"does not make sense with transaction.version {pair.transaction_version}")
    if SCRIPTS[name].needs_version_2 and pair.release == "3.9":
        pytest.skip("Kafka 3.9 does not speak transactions of version 2")
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
