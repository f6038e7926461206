"""The driver's side of exactly-once: asks Kafka at planning time, commits, aborts.

What decides is the pure machine in delivery/committer.py; here it gets its hands (a Client), and what it may keep from
one batch to the next (a DriverSession). Both are remembered per process. Nothing relies on that: Spark makes commit
processes when it likes, and moves the commits of a query from one to another and back. One that knows nothing, or whose
knowledge is old, fences, reads the ledger and goes on from there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from kafka_sink.delivery.committer import Committer
from kafka_sink.delivery.identity import sink_id_of_query
from kafka_sink.delivery.receipt import BatchKey, TaskReceipt
from kafka_sink.delivery.session import Conclusion, DeliverySettings, DriverSession, Job, Operation, Verdict
from kafka_sink.errors import BrokerError, ConfigError
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.runtime.client import Client
from kafka_sink.spark.files import look_in_spark_files

look_in_spark_files()
_LOGGER = logging.getLogger("kafka_sink")
UNKNOWN_TOPIC = 3
MAX_TIMEOUT, DEFAULT_REPLICATION = "transaction.max.timeout.ms", "default.replication.factor"
# Small segments, because only closed ones are compacted, and the ledger is read whole.
LEDGER_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
# Of a transaction's time, what has to be left at the decision, so that a restart can still carry it out.
MARGIN_MS_MAX, MARGIN_SHARE = 60_000, 4
DRIVERS_MAX = 32
# Of configurations: inside foreachBatch each batch may bring a new one.
CHECKS_MAX = 64
# A batch write without a name has no place in a ledger: it is all or nothing unless the driver dies in its commit.
UNNAMED_BATCH = BatchKey("", "")


class Driver:
    """One sink in one run of a query. Planning knows neither query nor run; a batch write has no query."""

    def __init__(self, options: SinkOptions, sink_id: str, run: str = "", query_id: str = "") -> None:
        self._options = options
        self._client = Client(options.producer)
        named = sink_id if query_id else ""
        self._session = DriverSession(sink_id_of_query(sink_id, query_id), run, named_sink_id=named)
        self._settings: DeliverySettings | None = None

    def commit(self, key: BatchKey, receipts: Sequence[TaskReceipt]) -> Verdict:
        operation = Operation.COMMIT_WITHOUT_LEDGER if key == UNNAMED_BATCH else Operation.COMMIT
        return self._run(Job(operation, key, receipts, _wall_ms()))

    def abort(self, key: BatchKey, receipts: Sequence[TaskReceipt]) -> Verdict:
        operation = Operation.ABORT_WITHOUT_LEDGER if key == UNNAMED_BATCH else Operation.ABORT
        return self._run(Job(operation, key, receipts, _wall_ms()))

    def recover(self) -> Verdict:
        """Finishes what an earlier run has decided, before any task of this one runs: its transactions have a time
        limit. Fences nobody."""
        return self._run(Job(Operation.RECOVER, wall_ms=_wall_ms()))

    def close(self) -> None:
        self._client.close()

    def _run(self, job: Job) -> Verdict:
        verdict = self._client.run(Committer(self._delivery_settings(), self._session, job, self._client.now_ms()))
        for note in verdict.notes:
            _LOGGER.warning("sink %s: %s", self._session.sink_id, note)
        if verdict.swept:
            _LOGGER.info("sink %s: aborted dangling transactions: %s", self._session.sink_id, ", ".join(verdict.swept))
        if verdict.error is not None:
            raise verdict.error
        return verdict

    def _delivery_settings(self) -> DeliverySettings:
        if self._settings is None:
            producer = self._options.producer
            self._settings = DeliverySettings(
                ledger_topic=self._options.ledger_topic,
                generation=self._client.transaction_generation(),
                margin_ms=min(MARGIN_MS_MAX, producer.transaction_timeout_ms // MARGIN_SHARE),
                request_timeout_ms=producer.request_timeout_ms,
                accept_unknown_sink=self._options.ledger_accepts_new_sink,
            )
        return self._settings

    # ---- at planning time ------------------------------------------------------------------------------------------

    def checked(self) -> SinkOptions:
        """Raises what a task or a commit would raise later; returns the options with what the brokers allow."""
        client, options = self._client, self._options
        client.reach()
        for topic in (options.topic, options.dead_letter_topic):
            if topic is not None:
                client.describe_topic(topic)
        if not options.is_exactly_once:
            return options
        return replace(options, producer=replace(options.producer, transaction_timeout_ms=self._timeout_ms()))

    def check_ledger(self) -> None:
        """Creates the ledger where there is none, and refuses one that would forget."""
        client, topic = self._client, self._options.ledger_topic
        try:
            configs = client.topic_configs(topic, ["cleanup.policy"])
        except BrokerError as error:
            if error.code != UNKNOWN_TOPIC:
                raise
            self._create_ledger()
            return
        if configs is None:  # we are not told; that it is there must do
            client.describe_topic(topic, create=False)
        elif configs.get("cleanup.policy") != "compact":
            raise ConfigError(
                f"the ledger topic {topic} has cleanup.policy={configs.get('cleanup.policy')}: decisions would be "
                "deleted with age, and batches delivered twice. Set cleanup.policy=compact, or choose another "
                "ledger.topic"
            )

    def _create_ledger(self) -> None:
        options = self._options
        factor = options.ledger_replication_factor
        if factor == -1:
            factor = self._broker_number(DEFAULT_REPLICATION) or -1
        configs = {**LEDGER_CONFIGS, "min.insync.replicas": "2"} if factor >= 3 else LEDGER_CONFIGS
        self._client.create_topic(options.ledger_topic, 1, factor, configs)
        _LOGGER.info("created the ledger topic %s (replication factor %d)", options.ledger_topic, factor)

    def _timeout_ms(self) -> int:
        timeout_ms = self._options.producer.transaction_timeout_ms
        allowed_ms = self._broker_number(MAX_TIMEOUT)
        if allowed_ms is None or timeout_ms <= allowed_ms:
            return timeout_ms
        if self._options.transaction_timeout_is_chosen:
            raise ConfigError(
                f"kafka.transaction.timeout.ms={timeout_ms} is more than the brokers allow "
                f"({MAX_TIMEOUT}={allowed_ms}): lower it, or raise {MAX_TIMEOUT} on the brokers"
            )
        return allowed_ms

    def _broker_number(self, name: str) -> int | None:
        configs = self._client.broker_configs([name]) or {}
        text = configs.get(name) or ""
        return int(text) if text.lstrip("-").isdigit() else None


def committed(
    options: SinkOptions, sink_id: str | None, run: str, key: BatchKey, receipts: Sequence[TaskReceipt]
) -> Conclusion:
    """How the batch ended; raises `CommitError` if it did not, or not entirely."""
    if sink_id is None or not (key.is_first or any(receipt.transaction is not None for receipt in receipts)):
        return Conclusion.DELIVERED
    verdict = _with_driver(options, sink_id, run, key.query_id, lambda driver: driver.commit(key, receipts))
    return verdict.conclusion


def aborted(
    options: SinkOptions, sink_id: str | None, run: str, key: BatchKey, receipts: Sequence[TaskReceipt]
) -> Conclusion | None:
    """None: there were no transactions to abort."""
    if sink_id is None or all(receipt.transaction is None for receipt in receipts):
        return None
    verdict = _with_driver(options, sink_id, run, key.query_id, lambda driver: driver.abort(key, receipts))
    return verdict.conclusion


@cache
def _drivers(pid: int) -> dict[tuple[SinkOptions, str, str, str], Driver]:
    """Per process: a forked child must not use its parent's connections."""
    return {}


def _with_driver(
    options: SinkOptions, sink_id: str, run: str, query_id: str, act: Callable[[Driver], Verdict]
) -> Verdict:
    """The driver of this sink and run, as this process remembers it; one that failed is forgotten."""
    drivers = _drivers(os.getpid())
    where = (options, sink_id, run, query_id)
    driver = drivers.pop(where, None) or Driver(options, sink_id, run, query_id)
    try:
        verdict = act(driver)
    except BaseException:
        driver.close()
        raise
    drivers[where] = driver
    while len(drivers) > DRIVERS_MAX:
        drivers.pop(next(iter(drivers))).close()
    return verdict


@lru_cache(maxsize=CHECKS_MAX)
def checked_with_kafka(options: SinkOptions, sink_id: str | None, pid: int) -> SinkOptions:
    """What planning asks Kafka, once per process and configuration: a stream is planned before every micro-batch.

    `sink_id` of None: no ledger is kept.
    """
    driver = Driver(options, sink_id or "")
    try:
        settled = driver.checked()
        if sink_id is not None:
            driver.check_ledger()
            driver.recover()
        return settled
    finally:
        driver.close()


def _wall_ms() -> int:
    return int(time.time() * 1000)
