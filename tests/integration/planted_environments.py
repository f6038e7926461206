"""Clusters on which something will fail: what is planted on Apache Kafka, and which line of `check` names it.

A place has one job, and several mistakes at once, so that few brokers and few checks are needed. Each expectation is a
line of its own; lines that are not expected are fine. `amend` is what the advices about options say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.receipt import BatchKey
from tests.support.commanding import Sink
from tools.java import run_class
from tools.kafka_cluster import KafkaCluster

FAIL, WARN, OK = "fail", "warn", "ok"
ROWS = StructType().add("value", StringType())
KEYED = StructType().add("key", StringType(), nullable=False).add("value", StringType())
MAYBE_KEYED = StructType().add("key", StringType()).add("value", StringType())
COMPACT = {"cleanup.policy": "compact"}
# One broker with the defaults of Apache Kafka, which are made for three, and a low limit of transactions.
ALONE = {
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.replication.factor": 3,
    "default.replication.factor": 3,
    "auto.create.topics.enable": "true",
    "transaction.max.timeout.ms": 30_000,
}


@dataclass(frozen=True)
class Expected:
    title: str
    line: str
    verdict: str
    said: str


@dataclass(frozen=True)
class Job:
    """Options and arguments of a check."""

    options: Mapping[str, str]
    schema: Any = ROWS
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """`plant` breaks the cluster for names that begin with a word of its own, and returns the job. `amend`: the job
    after the advices about it were followed."""

    title: str
    plant: Callable[[KafkaCluster, str], Job]
    expected: tuple[Expected, ...]
    amend: Callable[[Job, str], Job] = lambda job, _: job

    def __str__(self) -> str:
        return self.title


def job(kafka: KafkaCluster, topic: str, own: str, schema: Any = ROWS, **more: Any) -> Job:
    named = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, "sink.id": own}
    return Job({**named, "ledger.topic": f"{own}-ledger"}, schema, more)


def with_options(one: Job, **options: str) -> Job:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return Job({**one.options, **named}, one.schema, one.more)


def without(one: Job, *names: str) -> Job:
    return Job({name: value for name, value in one.options.items() if name not in names}, one.schema, one.more)


# ---- one broker with defaults for three ------------------------------------------------------------------------------


def _first_write(kafka: KafkaCluster, own: str) -> Job:
    made = kafka.create_topic(f"{own}-rows", 1, 1)
    one = job(kafka, made, own, probe_write=True, batch_minutes=10)
    return with_options(one, ledger__replication__factor="3")


def _missing_and_too_long(kafka: KafkaCluster, own: str) -> Job:
    return with_options(job(kafka, f"{own}-missing", own), kafka__transaction__timeout__ms="3600000")


def _made_by_the_sink(kafka: KafkaCluster, own: str) -> Job:
    return with_options(job(kafka, f"{own}-made", own), topic__create="true")


def _topics_in_rows(kafka: KafkaCluster, own: str) -> Job:
    schema = StructType().add("topic", StringType()).add("value", StringType())
    return without(job(kafka, "", own, schema), "topic")


PLACES_ALONE = (
    Place(
        "first write", _first_write,
        (
            Expected(
                "transaction log cannot be made", "transaction log", FAIL,
                "cannot be made: transaction.state.log.replication.factor=3, and there is 1 broker",
            ),
            Expected(
                "consumer groups", "consumer groups", WARN,
                "cannot be made: offsets.topic.replication.factor=3, and there is 1 broker",
            ),
            Expected("default.replication.factor", "new topics", WARN, "default.replication.factor=3, and there is 1"),
            Expected("batch longer than transactions", "time limits", FAIL, "a batch takes 600 s"),
            Expected("ledger with too many replicas", "ledger", FAIL, "INVALID_REPLICATION_FACTOR"),
            Expected(
                "first transaction", "write", FAIL,
                "not possible to begin the transaction: no broker can coordinate transactions",
            ),
        ),
        lambda one, _: with_options(
            one, ledger__replication__factor="1", kafka__transaction__timeout__ms="1260000"
        ),
    ),
    Place(
        "topic on demand", _missing_and_too_long,
        (
            Expected(
                "topic that brokers cannot make", "topic", FAIL, "brokers cannot make it with their defaults: INVALID"
            ),
            Expected(
                "transactions above the limit", "time limits", FAIL,
                "kafka.transaction.timeout.ms=3600000 is above transaction.max.timeout.ms=30000",
            ),
        ),
    ),
    Place(
        "topic.create", _made_by_the_sink,
        (
            Expected("topic that the sink cannot make", "topic", FAIL, "cannot be made: INVALID_REPLICATION_FACTOR"),
            Expected("short transactions", "time limits", WARN, "has to be back within that time"),
        ),
        lambda one, _: with_options(one, topic__replication__factor="1"),
    ),
    Place(
        "topics in rows", _topics_in_rows,
        (Expected("topics made for mistyped names", "topic", WARN, "a mistyped name goes to a new topic"),),
        lambda one, _: with_options(one, kafka__allow__auto__create__topics="false"),
    ),
)  # fmt: skip


# ---- one broker that is fine -----------------------------------------------------------------------------------------


def limit_client(kafka: KafkaCluster, client_id: str, *quotas: str) -> None:
    who = ["--entity-type", "clients", "--entity-name", client_id]
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--alter", *who, "--add-config", ",".join(quotas)]
    run_class(kafka.version, "kafka.admin.ConfigCommand", arguments)


def _narrow(kafka: KafkaCluster, own: str) -> Job:
    made = kafka.create_topic(f"{own}-rows", 1, 1, {**COMPACT, "min.insync.replicas": 2, "max.message.bytes": 65_536})
    kafka.create_topic(f"{own}-ledger", 1, 1)
    limit_client(kafka, own, "producer_byte_rate=1000", "request_percentage=0.1")
    return with_options(job(kafka, made, own), sink__id=own)


def _unlike_the_plan(kafka: KafkaCluster, own: str) -> Job:
    made = kafka.create_topic(f"{own}-rows", 1, 1, COMPACT)
    configs = {**COMPACT, "min.insync.replicas": 2, "max.message.bytes": 100_000}
    kafka.create_topic(f"{own}-ledger", 1, 1, configs)
    other = kafka.create_topic(f"{own}-other", 3, 1)  # without keys
    Sink(kafka.bootstrap_servers, other, own, f"{own}-ledger").decide_and_die(BatchKey("query-1", 0))
    one = job(kafka, made, own, MAYBE_KEYED, batch_minutes=14.5)
    return with_options(one, kafka__max__request__size="10485760", topic__create="true", topic__partitions="6")


def _mistyped(kafka: KafkaCluster, own: str) -> Job:
    kafka.create_topic(f"{own}-rows", 1, 1)
    one = with_options(job(kafka, f"{own}-row", own), ledger__create="false")
    return with_options(one, kafka__bootstrap__servers=f"{kafka.bootstrap_servers},broker.invalid:9092")


def _tiny(kafka: KafkaCluster, own: str) -> Job:
    """Large enough for the marker that ends a transaction: where that is refused, a transaction never ends."""
    made = kafka.create_topic(f"{own}-rows", 1, 1, {"max.message.bytes": 100})
    return job(kafka, made, own, probe_write=True)


PLACES = (
    Place(
        "narrow topic and client", _narrow,
        (
            Expected("min.insync.replicas above replicas", "replicas", WARN, "has 1 replica and min.insync.replicas=2"),
            Expected("no key for a compacted topic", "columns", FAIL, "is compacted and the DataFrame has no"),
            Expected("small messages", "sizes", WARN, "max.message.bytes=65536, below batch.size=131072"),
            Expected("quota of bytes", "quotas", WARN, "producer_byte_rate=1000 bytes/s"),
            Expected("quota of time", "quotas", WARN, "request_percentage=0.1"),
            Expected("ledger that forgets", "ledger", FAIL, "cleanup.policy=delete"),
        ),
    ),
    Place(
        "decided, and unlike the plan", _unlike_the_plan,
        (
            Expected("key that may be null", "columns", WARN, "the column key may be null"),
            Expected("requests above max.message.bytes", "sizes", WARN, "below max.request.size=10485760"),
            Expected("topic unlike the plan", "topic", WARN, "partitions=1 instead of 6"),
            Expected("ledger of small messages", "ledger", WARN, "max.message.bytes=100000"),
            Expected("ledger, replicas in sync", "ledger", WARN, "has 1 replica and min.insync.replicas=2"),
            Expected("open decision", "decisions", WARN, "is decided and not known to be finished"),
            Expected("no time to restart", "time limits", WARN, "30 s are left to start again"),
        ),
        lambda one, _: Job(
            without(one, "topic.create", "topic.partitions", "kafka.max.request.size").options,
            KEYED,
            {"batch_minutes": 5},
        ),
    ),
    Place(
        "mistyped", _mistyped,
        (
            Expected("mistyped topic", "topic", FAIL, "is not there (is "),
            Expected("no ledger", "ledger", FAIL, "there is no ledger topic"),
            Expected("one server unknown", "bootstrap", WARN, "broker.invalid:9092: this host name is not known here"),
        ),
        lambda one, own: with_options(
            one, ledger__create="true", topic=f"{own}-rows",
            kafka__bootstrap__servers=one.options["kafka.bootstrap.servers"].partition(",broker.invalid")[0],
        ),
    ),
    Place(
        "record refused", _tiny,
        (
            Expected("record refused", "write", FAIL, "not possible to write the record: the topic takes no record of"),
            Expected("smaller than any batch", "sizes", WARN, "max.message.bytes=100, below batch.size=131072"),
        ),
    ),
)  # fmt: skip


# ---- three brokers ---------------------------------------------------------------------------------------------------


def _loose(kafka: KafkaCluster, own: str) -> Job:
    made = kafka.create_topic(f"{own}-rows", 2, 1)
    kafka.create_topic(f"{own}-ledger", 1, 1, COMPACT)
    return job(kafka, made, own)


def _unsafe(kafka: KafkaCluster, own: str) -> Job:
    made = kafka.create_topic(f"{own}-rows", 1, 3, {"unclean.leader.election.enable": "true"})
    kafka.create_topic(f"{own}-ledger", 1, 3, {**COMPACT, "unclean.leader.election.enable": "true"})
    return job(kafka, made, own)


def _strict(kafka: KafkaCluster, own: str) -> Job:
    made = kafka.create_topic(f"{own}-rows", 1, 3, {"min.insync.replicas": 3})
    kafka.create_topic(f"{own}-ledger", 1, 3, {**COMPACT, "min.insync.replicas": 3})
    return job(kafka, made, own)


PLACES_OF_THREE = (
    Place(
        "one replica", _loose,
        (
            Expected("one replica", "replicas", WARN, "has 1 replica, and there are 3 brokers"),
            Expected("ledger on one broker", "ledger", WARN, "has 1 replica, and there are 3 brokers"),
        ),
    ),
    Place(
        "unsafe", _unsafe,
        (
            Expected("one acknowledges", "replicas", WARN, "acknowledged by one broker alone"),
            Expected("unclean election", "replicas", WARN, "unclean.leader.election.enable=true"),
            Expected("one acknowledges a decision", "ledger", WARN, "acknowledged by one broker alone"),
            Expected("unclean election of the ledger", "ledger", WARN, "unclean.leader.election.enable=true"),
        ),
    ),
    Place(
        "strict", _strict,
        (
            Expected("all must be in sync", "replicas", WARN, "has 3 replicas and min.insync.replicas=3: with one"),
            Expected("all must be in sync for a decision", "ledger", WARN, "has 3 replicas and min.insync.replicas=3"),
        ),
    ),
)  # fmt: skip
