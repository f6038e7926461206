"""The benchmark of TLS writes through both listeners with each client, and keeps only ratios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench import tls
from bench.contest import Arena
from bench.plan import Case
from tests.conftest import NEWEST
from tests.integration.test_bench import TINY
from tests.support.secured_kafka import SecuredKafka
from tools.kafka_security import SSL


@pytest.mark.slow  # of the benchmark itself; the clients without TLS are in test_bench.py
def test_each_client_writes_through_both_listeners(
    secured_kafka_of: Callable[[str], SecuredKafka], tmp_path: Path
) -> None:
    secured = secured_kafka_of(NEWEST)
    options = {**secured.options(SSL), "ssl.truststore.type": "PEM"}
    plan = replace(TINY, cases=(Case(100, "lz4"),))
    rates = tls.measure(Arena(secured.kafka, tmp_path), plan, {tls.PLAINTEXT: {}, SSL: options})
    assert sorted(rates) == sorted(
        ("100 B, lz4", client.name, each) for client in tls.CLIENTS for each in (tls.PLAINTEXT, SSL)
    )
    assert all(rate > 0 for found in rates.values() for rate in found)
    text = tls.markdown(rates, plan.cases, {"rounds": "1"})
    assert len([line for line in text.splitlines() if line.startswith("| 100 B, lz4 |")]) == len(tls.CLIENTS)


def test_a_ratio_is_that_of_each_round() -> None:
    case = Case(100, "none")
    rates = {(case.title, client.name, each): [100.0, 200.0] for client in tls.CLIENTS for each in (tls.PLAINTEXT, SSL)}
    rates[case.title, "send", SSL] = [50.0, 50.0]
    text = tls.markdown(rates, [case], {})
    assert "| 0.38 (0.25 to 0.50) | 1.00 (1.00 to 1.00) | 0.38 (0.25 to 0.50) |" in text
