"""Requirements and limits of Kafka-compatible services, as options set by `preset=NAME`.

A preset contains defaults: explicit options take precedence. Whether a service lacks a feature is not decided here; the
brokers are asked when a write is planned. The facts are from the services' documentation, listed in `sources`; nothing
here was run against a service itself, only against the embedded broker with the same quirk (docs/services.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.frozen import frozen
from kafka_sink.options.foreign_table import canonical_name

PRESET, PREFIX = "preset", "kafka."


@frozen
class Preset:
    """`needs` and `cannot` are sentences for people."""

    title: str
    settings: Mapping[str, str]
    needs: tuple[str, ...] = ()
    cannot: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


_OLDER_TRANSACTIONS = "transaction.version 2 (KIP-890): version 1 is used."
UNVERIFIED = "Verified transactions: those of killed tasks end at their time-out."
_NO_BROKER_CONFIGS = "The brokers' configuration: limits on transactions are not compared before a write."
_IAM_LOGINS = (
    "More logins by IAM than 100 in a second at a broker, or 4 on kafka.t3.small: the sink waits and logs in again."
)

PRESETS: Mapping[str, Preset] = {
    "confluent-cloud": Preset(
        "Confluent Cloud",
        {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "topic.replication.factor": "3",
            "ledger.replication.factor": "3",
            "ledger.config.segment.bytes": "52428800",
        },
        needs=(
            "An API key as kafka.sasl.username and its secret as kafka.sasl.password.",
            "Existing topics, or topic.create=true: none is created on demand.",
        ),
        cannot=(
            "Replication factors other than 3.",
            "Segments below 52,428,800 bytes: the ledger uses that size.",
        ),
        sources=(
            "https://docs.confluent.io/cloud/current/topics/manage.html",
            "https://github.com/thingsboard/thingsboard/pull/10757",
        ),
    ),
    "msk": Preset(
        "Amazon MSK",
        {},
        needs=(
            (
                "kafka.security.protocol=SSL, or SASL_SSL with kafka.sasl.mechanism=SCRAM-SHA-512 or AWS_MSK_IAM "
                "(port 9098)."
            ),
            "Existing topics, or topic.create=true: by default none is created on demand.",
        ),
        cannot=(
            _IAM_LOGINS,
            (
                "segment.bytes and min.insync.replicas of topics on Express brokers: the ledger is created with "
                "cleanup.policy=compact alone there."
            ),
        ),
        sources=(
            "https://docs.aws.amazon.com/msk/latest/developerguide/msk-default-configuration.html",
            "https://docs.aws.amazon.com/msk/latest/developerguide/limits.html",
            "https://docs.aws.amazon.com/msk/latest/developerguide/msk-configuration-express-read-only.html",
            "https://github.com/crossplane-contrib/provider-kafka/issues/192",
        ),
    ),
    "msk-serverless": Preset(
        "Amazon MSK Serverless",
        {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "AWS_MSK_IAM",
            "topic.replication.factor": "3",
            "ledger.replication.factor": "3",
            "ledger.config.min.insync.replicas": "",
            "ledger.config.segment.bytes": "",
            "ledger.config.min.compaction.lag.ms": "",
        },
        needs=(
            "AWS credentials: IAM is its only way to log in.",
            "Existing topics, or topic.create=true: none is created on demand.",
        ),
        cannot=(
            (
                "Topic configurations beyond cleanup.policy, compression.type, max.message.bytes, "
                "message.timestamp.type, message.timestamp.difference.max.ms, retention.bytes and retention.ms: the "
                "ledger is created with cleanup.policy alone."
            ),
            _NO_BROKER_CONFIGS,
        ),
        sources=(
            "https://docs.aws.amazon.com/msk/latest/developerguide/serverless-config.html",
            "https://github.com/provectus/kafka-ui/issues/2185",
        ),
    ),
    "event-hubs": Preset(
        "Azure Event Hubs",
        {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.compression.type": "none",
            "kafka.connections.max.idle.ms": "180000",
            "kafka.metadata.max.age.ms": "180000",
            "kafka.max.request.size": "1000000",
            "kafka.request.timeout.ms": "60000",
            "ledger.create": "false",
        },
        needs=(
            "kafka.sasl.username=$ConnectionString and the connection string as kafka.sasl.password.",
            (
                "For exactly-once, the Premium or Dedicated tier (transactions are in preview there), and a compacted "
                "event hub for the ledger, created in the portal or with the Azure CLI."
            ),
        ),
        cannot=(
            "Transactions in the other tiers.",
            "The same compression in every tier (none, or only gzip: its pages disagree).",
            "Requests above 1,046,528 bytes; connections that are idle for 240 seconds.",
            "Topic configurations through Kafka's protocol.",
            _NO_BROKER_CONFIGS,
        ),
        sources=(
            "https://learn.microsoft.com/azure/event-hubs/apache-kafka-configurations",
            "https://github.com/Azure/azure-event-hubs-for-kafka/issues/209",
            "https://github.com/Azure/azure-event-hubs-for-kafka/issues/252",
            "https://github.com/provectus/kafka-ui/issues/2441",
        ),
    ),
    "redpanda": Preset(
        "Redpanda",
        {},
        needs=(
            "Redpanda 23.3 or newer: with earlier ones each batch is refused.",
            "max_concurrent_producer_ids large enough for all tasks that run at once.",
            "Odd replication factors: with two brokers, ledger.replication.factor=1.",
            "A time-out longer than a batch's partitions are idle: it counts from their last write.",
        ),
        cannot=(
            _OLDER_TRANSACTIONS,
            UNVERIFIED,
        ),
        sources=(
            "https://github.com/redpanda-data/docs/issues/1614",
            "https://github.com/redpanda-data/redpanda/issues/12424",
            "https://github.com/redpanda-data/redpanda/pull/15257",
            "https://github.com/redpanda-data/redpanda/blob/dev/src/v/cluster/rm_stm.cc",
        ),
    ),
    "warpstream": Preset(
        "WarpStream",
        {"kafka.batch.size": "1000000"},
        needs=("Large batches: each produce request waits for the object store.",),
        cannot=(
            "Exactly-once is not known to work: markers are not known to be written. Run check --probe-write.",
            "DescribeProducers: some aborts by other clients are not seen before a commit.",
            _OLDER_TRANSACTIONS,
            UNVERIFIED,
        ),
        sources=("https://docs.warpstream.com/warpstream/reference/protocol-and-feature-support",),
    ),
    "bufstream": Preset(
        "Bufstream",
        {},
        cannot=(
            _OLDER_TRANSACTIONS,
            UNVERIFIED,
        ),
        sources=("https://buf.build/docs/bufstream/kafka-compatibility/conformance",),
    ),
    "automq": Preset(
        "AutoMQ",
        {},
        sources=("https://github.com/AutoMQ/automq",),
    ),
    "strimzi": Preset(
        "Strimzi",
        {},
        needs=(
            (
                "The certificate of the cluster's CA as kafka.ssl.truststore.location (secret "
                "CLUSTER-cluster-ca-cert), and a KafkaUser: its certificate, or SASL_SSL with SCRAM-SHA-512."
            ),
        ),
        cannot=(
            (
                "Management of topics that the sink creates: the Topic Operator ignores them, unless you declare topic "
                "and ledger as KafkaTopic."
            ),
        ),
        sources=("https://strimzi.io/docs/operators/latest/deploying",),
    ),
}


def apply_preset(given: Mapping[str, str]) -> Mapping[str, str]:
    """The given options, with those of their preset as defaults. An unknown preset is left to the rule of the option
    `preset`."""
    named = {name.lower(): value for name, value in given.items()}
    chosen = named.get(PRESET)
    preset = PRESETS.get(chosen.strip()) if isinstance(chosen, str) else None
    return given if preset is None else {**unset_preset_settings(preset, named), **given}


def unset_preset_settings(preset: Preset, named: Mapping[str, str]) -> Mapping[str, str]:
    """The preset's settings that are not given already, under any alias."""
    taken = {_canonical_name(name) for name in named}
    return {name: value for name, value in preset.settings.items() if name not in taken}


def _canonical_name(name: str) -> str:
    """Of an option of the producer, as it is called in Spark: other clients have names of their own for some."""
    return PREFIX + canonical_name(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else name
