"""Two drivers of one sink; a checkpoint or a ledger that is gone, or older than it should be.

Where the sink cannot know what was delivered, it stops and says so: nothing becomes visible, nothing is skipped.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_sink import Producer
from kafka_sink.errors import CommitAborted, ConfigError
from tests.chaos.bare_spark import (
    PARTITIONS,
    ROWS,
    BareQuery,
    Checkpoint,
    open_transactions,
    problems,
    run_on,
    settings_of,
    sink_id_of,
)
from tests.chaos.kafka_proxy import KafkaProxy
from tests.chaos.test_driver_crashes import kill_after_the_decision
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def times_seen(kafka: KafkaCluster, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in read_topic(kafka.bootstrap_servers, topic))


# ---- two drivers ----


def test_of_two_drivers_with_the_same_batch_one_delivers_it_and_the_other_finds_it_delivered(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    settings = settings_of(kafka.bootstrap_servers, topic_name)
    first, second = Checkpoint(), Checkpoint()
    second.query_id = first.query_id
    with BareQuery(first, settings) as one, BareQuery(second, settings) as other:
        prepared = []
        for query in (one, other):
            query.plan()
            prepared.append(query.write_tasks())
        other.commit(prepared[1])
        one.commit(prepared[0])
        assert problems(kafka.bootstrap_servers, topic_name, 1) == []
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []


@pytest.mark.parametrize(
    ("is_late", "reason"),
    [
        (True, r"another driver of sink .* has taken over"),
        (False, r"is CompleteAbort instead of Ongoing: .* aborted by another driver of this sink"),
    ],
    ids=["prepared-after-the-takeover", "prepared-before-it"],
)
def test_of_the_older_of_two_drivers_nothing_is_seen_and_its_error_names_the_other(
    kafka: KafkaCluster, topic_name: str, is_late: bool, reason: str
) -> None:
    """What it had prepared before the newer one began is aborted by that one's sweep, and the check before the
    decision finds that first. What it prepares later is left alone, and then the decision itself is fenced."""
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    settings = settings_of(kafka.bootstrap_servers, topic_name)
    checkpoint = Checkpoint()
    with BareQuery(checkpoint, settings) as old:
        old.run_batch()
        old.checkpoint = checkpoint.copy()
        old.plan()
        messages = [] if is_late else old.write_tasks()
        run_on(checkpoint, settings, 2)  # somebody starts the same query again
        messages = messages or old.write_tasks()
        with pytest.raises(CommitAborted, match=reason) as caught:
            old.commit(messages)
        assert "a sink.id of its own" in str(caught.value)
        old.abort(messages)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
        # Spark would stop here. To go on as the same run does not help it either.
        for batch in (1, 2, 3):
            old.checkpoint.committed = batch - 1
            if batch == 2:
                old.run_batch()  # what the other one delivered last is skipped
            else:
                with pytest.raises(CommitAborted, match="a newer run of sink"):
                    old.run_batch()
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 3) == []


# ---- the checkpoint ----


def test_with_a_new_checkpoint_the_open_decision_is_finished_and_no_new_row_is_skipped(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """A query that starts from nothing reads its source from the start: what it had delivered comes again."""
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        kill_after_the_decision(Checkpoint(), settings, proxy)
        run_on(Checkpoint(), settings, 2)
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    seen = times_seen(kafka, topic_name)
    assert sorted(Counter(seen.values()).items()) == [(1, ROWS), (2, ROWS)]


def test_a_checkpoint_that_was_set_back_is_refused_and_nothing_is_written_twice(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    settings = settings_of(kafka.bootstrap_servers, topic_name)
    checkpoint = Checkpoint()
    run_on(checkpoint, settings)
    copy = checkpoint.copy()
    run_on(checkpoint, settings, 2)
    for _ in range(2):
        with pytest.raises(CommitAborted, match="the checkpoint has been rolled back"):
            run_on(copy, settings)
        assert problems(kafka.bootstrap_servers, topic_name, 3) == []
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    run_on(checkpoint, settings)  # the newer checkpoint, put back
    assert problems(kafka.bootstrap_servers, topic_name, 4) == []


# ---- the ledger ----


def test_a_ledger_that_was_deleted_is_not_taken_for_an_empty_one(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    ledger = f"ledger-{topic_name}"
    settings = settings_of(kafka.bootstrap_servers, topic_name, ledger__topic=ledger)
    checkpoint = Checkpoint()
    run_on(checkpoint, settings, 2)
    kafka.delete_topic(ledger)
    for _ in range(2):
        with pytest.raises(CommitAborted, match=f"ledger topic '{ledger}' has no record of sink"):
            run_on(checkpoint, settings)
        assert problems(kafka.bootstrap_servers, topic_name, 2) == []
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    run_on(checkpoint, {**settings, "ledger.accept.new.sink": "true"}, 2)
    assert problems(kafka.bootstrap_servers, topic_name, 4) == []


@pytest.mark.slow
def test_a_ledger_that_is_deleted_while_the_query_runs_stops_it_with_nothing_visible(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    ledger = f"ledger-{topic_name}"
    settings = settings_of(
        kafka.bootstrap_servers, topic_name, ledger__topic=ledger, kafka__transaction__timeout__ms=20_000
    )
    checkpoint = Checkpoint()
    with BareQuery(checkpoint, settings) as query:
        query.run_batch()
        kafka.delete_topic(ledger)
        with pytest.raises(CommitAborted):
            query.run_batch()
    assert problems(kafka.bootstrap_servers, topic_name, 1) == []


def test_a_ledger_that_forgets_with_age_is_refused_at_planning(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    ledger = kafka.create_topic(f"ledger-{topic_name}", config={"cleanup.policy": "delete"})
    settings = settings_of(kafka.bootstrap_servers, topic_name, ledger__topic=ledger)
    with BareQuery(Checkpoint(), settings) as query, pytest.raises(ConfigError, match=r"cleanup\.policy=delete"):
        query.plan()
    assert read_topic(kafka.bootstrap_servers, topic_name) == []


def test_an_open_transaction_of_somebody_else_in_the_ledger_hides_no_decision(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """It holds the last stable offset back; a reader of committed records would see nothing behind it."""
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    ledger = kafka.create_topic(f"ledger-{topic_name}", config={"cleanup.policy": "compact"})
    checkpoint = Checkpoint()
    with (
        KafkaProxy(kafka.bootstrap_servers) as proxy,
        Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"other-{topic_name}"}) as other,
    ):
        other.init_transactions()
        other.begin_transaction()
        other.send(ledger, key=b"other-sink", value=b"{}")
        other.flush()
        settings = settings_of(proxy.bootstrap_servers, topic_name, ledger__topic=ledger)
        kill_after_the_decision(checkpoint, settings, proxy)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            assert problems(kafka.bootstrap_servers, topic_name, 1) == []
        run_on(checkpoint, settings, 3)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
        other.abort_transaction()
    assert problems(kafka.bootstrap_servers, topic_name, 3) == []
