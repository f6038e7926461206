"""What planning does with Kafka: open decisions of an earlier run are finished, what tasks and commits would fail of is
looked for, and topics are created. In this order: a decision must be finished before its transactions time out, and a
start that is refused for another reason may not come again in time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.configs import MAX_TIMEOUT, ConfigAnswer, number_of
from kafka_sink.commit.admin.ledger_topic import CHECKED, check_found_ledger, create_ledger_if_missing
from kafka_sink.commit.admin.marks import remove_marks
from kafka_sink.commit.admin.support import TransactionSupport
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.brokers import NO_TRANSACTIONS, TRANSACTION_TOO_LONG
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options.sink_options import AT_LEAST_ONCE, SinkOptions
from kafka_sink.spark.closings import CLOSINGS
from kafka_sink.spark.driver import ANSWERS, CLIENTS, Driver, marks_of

_LOGGER = logging.getLogger("kafka_sink")


def create_topics(options: SinkOptions) -> int:
    """Creates the topics of `topic.create`. The brokers are asked at each planning: a topic may have been deleted since
    the last one, and this process may live as long as the application. Returns how many partitions `topic` has; 0 if
    they were not asked."""
    plan = options.topic_plan
    if plan is None or options.topic is None:
        return 0
    from kafka_sink.commit.admin.topics import LETTER_CONFIGS, create_where_missing  # most writes create none

    # The topic's configuration may not suit dead letters: a compacted topic rejects records without a key. Brokers that
    # let nothing be configured make a plainer one.
    letters, plainer = replace(plan, configs=LETTER_CONFIGS), replace(plan, configs=())
    plans = [(options.topic, plan, plan), (options.dead_letter_topic, letters, plainer)]
    count = 0
    with CLIENTS.value.borrow(options.producer) as client:
        for topic, wanted, otherwise in plans:
            if topic is None:
                continue
            try:
                found = create_where_missing(client, topic, wanted)
            except ConfigError:
                if wanted == otherwise:
                    raise
                found = create_where_missing(client, topic, otherwise)
            count = found.partition_count if topic == options.topic else count
            if found.differences is None:
                _LOGGER.info("created topic %s", topic)
            elif found.differences:
                warn_once(f"topic {topic} was there before, and stays as it is: {'; '.join(found.differences)}")
    return count


def check_with_kafka(options: SinkOptions, sink_id: str | None, label: BatchKey | None = None) -> SinkOptions:
    """The checks of planning with Kafka, once per process and configuration: a stream is planned before every
    micro-batch. Repeated after a failed commit, since a restarted query must not wait for its first commit, and after
    an abort.

    `sink_id` None: there is no ledger. `label`: the key of a batch write; None: a stream.
    """
    marks = [] if sink_id is None else marks_of(options, sink_id, label).find_unfinished()
    settled = ANSWERS.value.get(
        (options, sink_id, label), lambda: _ask_kafka(options, sink_id, label), frozenset(marks)
    )
    remove_marks(marks)
    return settled


def _ask_kafka(options: SinkOptions, sink_id: str | None, label: BatchKey | None) -> SinkOptions:
    with CLIENTS.value.borrow(options.producer) as client:
        found = _look_at_cluster(client, options, has_ledger=sink_id is not None)
        if sink_id is not None and found.options.is_exactly_once:
            # Before any task of this run: transactions of an earlier run's decision have a timeout. Does not fence.
            CLOSINGS.value.wait(sink_id)
            Driver(found.options, sink_id, key=label, support=found.support).recover(client)
        found.check(client)
        topic = found.options.topic
        count = None if topic is None else client.look_at_cluster().partition_count(topic)
    return replace(found.options, partition_count=count or 0)


class _Cluster(NamedTuple):
    """`options`: with what the brokers allow. `wanted`: as they were given. `missing`: topics. `ledger`: of one that
    was there."""

    options: SinkOptions
    wanted: SinkOptions
    missing: Sequence[str] = ()
    support: TransactionSupport | None = None
    ledger: tuple[str, ConfigAnswer] | None = None

    def check(self, client: Client) -> None:
        """Raises what a task or a commit would raise later."""
        for topic in self.missing:
            count = len(client.describe_topic(topic))
            warn_once(
                f"topic {topic} was not there, and the brokers have created it with their defaults ({count} "
                "partitions). If its name is mistyped, the rows go to the wrong place: with "
                "kafka.allow.auto.create.topics=false a missing topic is an error. With topic.create=true it is "
                "created as the options topic.* say"
            )
        if not self.options.is_exactly_once:
            return
        if self.ledger is not None:
            check_found_ledger(client, *self.ledger)
        if self.options.manifest_topic is not None:
            from kafka_sink.commit.admin.manifests import check_manifest_topic  # most writes have none

            check_manifest_topic(client, self.options.manifest_topic)
        _check_timeout(self.wanted, self.options.producer.transaction_timeout_ms)


def _look_at_cluster(client: Client, options: SinkOptions, *, has_ledger: bool) -> _Cluster:
    """Raises only what would keep an open decision from being finished: it does not wait until another topic is there,
    or an option of this run is mended."""
    named = [] if options.topic_plan is not None else [options.topic, options.dead_letter_topic]
    topics = [topic for topic in named if topic is not None]
    ledger = options.ledger_topic if options.is_exactly_once and has_ledger else None
    manifests = options.manifest_topic if options.is_exactly_once else None
    wanted = [*topics, *(topic for topic in (ledger, manifests) if topic is not None)]
    client.forget_topics(wanted)
    client.reach(topics=wanted)
    missing = [topic for topic in topics if not client.look_for_topic(topic)]
    if not options.is_exactly_once:
        return _Cluster(options, options, missing)
    # Planning sweeps nothing.
    support = client.transaction_support(is_sweeping=False)
    settled = _check_transactions(options, support)
    if not settled.is_exactly_once:
        return _Cluster(settled, options, missing)
    limits, ledger_configs = client.configs_of_broker_and_topic([MAX_TIMEOUT], ledger, CHECKED)
    found = None
    if ledger is not None and not create_ledger_if_missing(client, settled, ledger_configs):
        found = (ledger, ledger_configs)
    allowed_ms = number_of(limits, MAX_TIMEOUT)
    if allowed_ms is not None and allowed_ms < options.producer.transaction_timeout_ms:
        settled = replace(settled, producer=replace(options.producer, transaction_timeout_ms=allowed_ms))
    return _Cluster(settled, options, missing, support, found)


def _check_transactions(options: SinkOptions, support: TransactionSupport) -> SinkOptions:
    """Falls back to at-least-once if the brokers have no transactions and the user allows it."""
    if not support.missing:
        return options
    lack = f"these brokers offer no transactions ({', '.join(support.missing)} missing)"
    if options.delivery_fallback != AT_LEAST_ONCE:
        raise ConfigError(
            f"{lack}, so delivery.guarantee=exactly-once is not possible. Choose "
            "delivery.guarantee=at-least-once, or delivery.fallback=at-least-once",
            NO_TRANSACTIONS,
        )
    _LOGGER.warning("%s: by delivery.fallback rows are written at least once, and may appear twice", lack)
    return replace(options, delivery_guarantee=AT_LEAST_ONCE)


def _check_timeout(options: SinkOptions, allowed_ms: int) -> None:
    timeout_ms = options.producer.transaction_timeout_ms
    if options.transaction_timeout_is_chosen and timeout_ms > allowed_ms:
        raise ConfigError(
            f"kafka.transaction.timeout.ms={timeout_ms} is more than the brokers allow "
            f"({MAX_TIMEOUT}={allowed_ms}): lower it, or raise {MAX_TIMEOUT} on the brokers",
            TRANSACTION_TOO_LONG,
        )
