"""The benchmark measures what it reports: every contestant's records are in the log; its own report does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.contest import Arena, ContestantFailed, Result
from bench.plan import CONTESTANTS, Case, Contestant, Plan
from bench.report import rows_of, table
from bench.transactional_ids import TASKS, TOPIC, Query, time_listing
from kafka_sink.commit.admin.client import Client
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.testing import EmbeddedBroker
from tools.kafka_cluster import KafkaCluster

TINY = Plan(repetitions=1, run_s=0.001, warm_up_s=0.001, java_warm_up_s=0.001)


@pytest.mark.parametrize("name", ["send_arrow", "send", "java"])
def test_a_contestant_sends_its_records_and_is_measured(kafka_4: KafkaCluster, tmp_path: Path, name: str) -> None:
    contestant = next(each for each in CONTESTANTS if each.name == name)
    result = Arena(kafka_4, tmp_path).run(contestant, Case(100, "lz4"), TINY)
    assert result.records >= 1000
    assert result.seconds > 0 and result.cpu_seconds > 0
    assert result.peak_rss_bytes > 2**20
    assert 10 < result.log_bytes_per_record < 100  # compressed


def test_a_contestant_that_sends_less_than_it_says_is_refused(kafka_4: KafkaCluster, tmp_path: Path) -> None:
    cheat = Contestant("cheat", "cheat", "tests.integration.bench_cheat", (1_000_000, 1_000_000))
    with pytest.raises(ContestantFailed, match="should have sent 2000 records; the log has 0"):
        Arena(kafka_4, tmp_path).run(cheat, Case(100, "none"), TINY)


def test_ratios_are_those_of_medians_and_the_spread_is_shown() -> None:
    def result(name: str, seconds: float) -> Result:
        return Result(name, "100B-none", 1000, seconds, seconds / 2, 2**20, 110.0)

    results = [result("java", 1), result("java", 4), result("java", 2), result("send", 1)]
    java, send = sorted(rows_of(Case(100, "none"), CONTESTANTS, results), key=lambda row: row.rate)
    assert (java.rate, java.rate_min, java.rate_max, java.cpu_us) == (500, 250, 1000, 1000)
    assert (send.to_java, send.to_kafka_python) == (2.0, None)
    assert "| 1 k" in table([send])


def test_the_tasks_of_a_batch_leave_an_id_each() -> None:
    with EmbeddedBroker(topics={TOPIC: TASKS}) as broker:
        query = Query(broker.bootstrap_servers, is_fresh=True)
        try:
            query.batch(0)
        finally:
            query.close()
        with Client(parse_producer_options({"bootstrap.servers": broker.bootstrap_servers})) as client:
            assert time_listing(client)[0] == TASKS
