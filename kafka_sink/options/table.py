"""The producer's options under their Java names, with Java's defaults, plus the few that Java does not have."""

from __future__ import annotations

from kafka_sink.options.hooks import InterceptorsRule, PartitionerRule, SerializerRule
from kafka_sink.options.option import Option, Treatment
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from kafka_sink.options.security_table import SECURITY_OPTIONS
from kafka_sink.options.values import LONG_MIN, Acks, Choice, Flag, Names, Rule, Servers, Text, Whole


def _option(
    name: str, kind: str, default: object, rule: Rule, meaning: str, *, field: str = "", origin: str = "Java",
    is_required: bool = False, deprecation: str = "",
) -> Option:  # fmt: skip
    return Option(
        name=name, kind=kind, default=default, rule=rule, meaning=meaning, origin=origin, is_required=is_required,
        field=field or name.replace(".", "_"), deprecation=deprecation,
    )  # fmt: skip


def _int(name: str, default: int, meaning: str, minimum: int = 0) -> Option:
    return _option(name, "INT", default, Whole(minimum), meaning)


def _long(name: str, default: int, meaning: str, minimum: int = 0) -> Option:
    return _option(name, "LONG", default, Whole(minimum, LONG_MAX), meaning)


def _flag(name: str, default: bool, meaning: str) -> Option:
    return _option(name, "BOOLEAN", default, Flag(), meaning)


def _fixed(
    name: str, kind: str, default: object, rule: Rule, meaning: str, *, same: tuple[object, ...], instead: str,
    treatment: Treatment = Treatment.REFUSED,
) -> Option:  # fmt: skip
    return Option(
        name=name, kind=kind, default=default, rule=rule, meaning=meaning, treatment=treatment, same=same,
        instead=instead,
    )  # fmt: skip


_SENDING = (
    _option("bootstrap.servers", "LIST", None, Servers(), "Brokers to ask first; the rest of the cluster is learnt "
            "from them. A scheme such as PLAINTEXT:// may stand in front; one that asks for TLS or SASL must "
            "agree with security.protocol.", is_required=True),
    _option("acks", "STRING", "all", Acks(), "When a request counts as written: once all in-sync replicas have it "
            "(all, -1), once the leader has it (1), or as soon as it is sent (0)."),
    _flag("enable.idempotence", True, "Number the batches so that the broker drops the copies a retry makes. Turned "
          "off with a notice when it is not named and acks or retries rule it out."),
    _int("retries", INT_MAX, "How often a batch may be sent again after an error that can pass. "
         "delivery.timeout.ms is the better limit."),
    _int("delivery.timeout.ms", 120_000, "From send() to the verdict on a record, retries included. At least "
         "linger.ms + request.timeout.ms; raised to that sum with a notice when it is not named."),
    _long("max.block.ms", 60_000, "How long a call may wait for metadata, for room in buffer.memory, or for a step of "
          "a transaction."),
    _option("transactional.id", "STRING", None, Text(empty_allowed=False), "Turns transactions on and fences older "
            "producers with the same id. Needs idempotence."),
    _int("transaction.timeout.ms", 60_000, "After this long the coordinator aborts an open transaction by itself. "
         "Counted from the first partition in it; the broker refuses more than its transaction.max.timeout.ms.", 1),
    _fixed("transaction.two.phase.commit.enable", "BOOLEAN", False, Flag(), "Transactions that never expire, ended "
           "by an outside coordinator (KIP-939).", same=(False,), instead="no released broker can keep prepared "
           "transactions; set transaction.timeout.ms to the time the outside decision may take"),
)  # fmt: skip

_BATCHING = (
    _int("batch.size", 16_384, "Bytes of one batch of one partition before it is sent without lingering, compressed as "
         "the batches before it let expect; also how much goes to one partition before records without a key move on. "
         "0: each record is a batch."),
    _long("linger.ms", 5, "How long a batch that is not full waits for more records."),
    _long("buffer.memory", 33_554_432, "Bytes of records that may wait to be sent; when they are used up, send() "
          "waits up to max.block.ms."),
    _int("max.request.size", 1_048_576, "Largest request, and largest record before compression, in bytes."),
    _option("compression.type", "STRING", "none", Choice(("none", "gzip", "snappy", "lz4", "zstd")),
            "Codec of whole batches."),
    _option("compression.gzip.level", "INT", -1, Whole(1, 9, besides=-1), "Level for gzip; -1 is zlib's own choice."),
    _option("compression.lz4.level", "INT", 9, Whole(1, 17), "Level for lz4."),
    _option("compression.zstd.level", "INT", 3, Whole(-131_072, 22), "Level for zstd."),
    _fixed("buffer.memory.allocation.strategy", "STRING", "full", Choice(("full", "incremental"), any_case=True),
           "Since Java 4.4, internal there: what a batch takes from buffer.memory when it is begun.",
           same=("incremental",), treatment=Treatment.NO_EFFECT, instead="buffer.memory counts the bytes of records, "
           "as incremental does"),
    _option("queue.buffering.max.messages", "INT", None, Whole(0), "Most records that may wait to be sent, besides "
            "the limit of buffer.memory; 0: no limit.", origin="Kafka 0.8, librdkafka", field="buffer_records_max"),
    _option("batch.num.messages", "INT", None, Whole(1), "Most records in one batch, besides the limit of batch.size.",
            origin="Kafka 0.8, librdkafka", field="batch_records_max"),
    _option("compressed.topics", "LIST", None, Names(), "Only these topics are compressed; empty: all.",
            origin="Kafka 0.8", deprecation="it has no successor; use one producer for each compression.type"),
    _option("compression.level", "INT", None, Whole(-1, 22), "Level for whatever compression.type says; -1: the "
            "codec's default.", origin="librdkafka", field="-"),
    _option("producer.type", "STRING", "async", Choice(("sync", "async")), "sync: send() returns when the record has "
            "been answered for, and raises when it failed.", origin="Kafka 0.8", field="send_is_synchronous",
            deprecation="call send(...).result() where an answer is awaited"),
)  # fmt: skip

_PARTITIONING = (
    _option("partitioner.class", "CLASS", None, PartitionerRule(), "How a record without an explicit partition gets "
            "one. The default hashes keys as Java does (murmur2) and fills one partition after the other, favouring "
            "quick brokers, where there is no key. consistent_random is librdkafka's default (CRC32).",
            field="partitioner"),
    _flag("partitioner.adaptive.partitioning.enable", True, "Send fewer of the records without a key to partitions "
          "whose broker falls behind."),
    _long("partitioner.availability.timeout.ms", 0, "Leave out partitions whose broker has taken nothing for this "
          "long; 0: never."),
    _flag("partitioner.ignore.keys", False, "Choose the partition as if no record had a key."),
    _flag("partitioner.rack.aware", False, "Send records without a key only to partitions that are led in the rack of "
          "client.rack, as long as there are any. The default partitioner does it, no other; it needs client.rack."),
    _option("client.rack", "STRING", "", Text(), "Where this client runs, in the words of the brokers' broker.rack: "
            "what partitioner.rack.aware goes by. Without that option it changes nothing, and a notice says so."),
)  # fmt: skip

_NETWORK = (
    _option("client.id", "STRING", "", Text(), "Name in the broker's logs, metrics and quotas. When empty it is "
            "producer- and the transactional id or a running number."),
    _int("max.in.flight.requests.per.connection", 5, "Unanswered requests per broker. At most 5 with idempotence; 1 "
         "keeps strict order without it.", 1),
    _int("request.timeout.ms", 30_000, "How long one answer of a broker is awaited."),
    _long("retry.backoff.ms", 100, "Wait before the first retry; it doubles, with 20 % jitter, with each further."),
    _long("retry.backoff.max.ms", 1_000, "Longest wait before a retry."),
    _long("reconnect.backoff.ms", 50, "Wait before connecting again to a broker; it doubles with each failure."),
    _long("reconnect.backoff.max.ms", 1_000, "Longest wait before connecting again. When only reconnect.backoff.ms is "
          "named, that value: the wait then does not grow."),
    _long("socket.connection.setup.timeout.ms", 10_000, "How long setting up a TCP connection may take at first; it "
          "doubles with each failure."),
    _long("socket.connection.setup.timeout.max.ms", 30_000, "Longest time for setting up a TCP connection."),
    _long("connections.max.idle.ms", 540_000, "Close connections unused for this long; negative: never.", LONG_MIN),
    _int("send.buffer.bytes", 131_072, "Socket send buffer (SO_SNDBUF); -1: the system's choice.", -1),
    _int("receive.buffer.bytes", 32_768, "Socket receive buffer (SO_RCVBUF); -1: the system's choice.", -1),
    _fixed("client.dns.lookup", "STRING", "use_all_dns_ips", Choice(("use_all_dns_ips",
           "resolve_canonical_bootstrap_servers_only")), "Which addresses of a host name are tried.",
           same=("use_all_dns_ips",), instead="canonical host names matter to Kerberos only; every address of a "
           "name is tried in turn"),
    _fixed("bootstrap.resolve.timeout.ms", "LONG", 0, Whole(0, LONG_MAX), "Since Java 4.4: how long names that cannot "
           "be resolved are tried again before the client is given up; 0: resolved once, while it is made. Here no "
           "producer is given up for that: names are resolved when a connection is wanted, at each attempt anew.",
           same=(0,), instead="a call waits for names up to max.block.ms, and fails with their errors; set that"),
)  # fmt: skip

_METADATA = (
    _long("metadata.max.age.ms", 300_000, "Ask for the cluster's metadata again after this long without a change."),
    _long("metadata.max.idle.ms", 300_000, "Forget a topic that has not been written to for this long.", 5_000),
    _option("metadata.recovery.strategy", "STRING", "rebootstrap", Choice(("rebootstrap", "none"), any_case=True),
            "What to do when no known broker answers: start again from bootstrap.servers, or keep trying."),
    _long("metadata.recovery.rebootstrap.trigger.ms", 300_000, "Start again from bootstrap.servers after this long "
          "without metadata."),
    _fixed("metadata.cluster.check.enable", "BOOLEAN", True, Flag(), "Since Java 4.4: tell a broker which cluster and "
           "node the client takes it for, so that it can object.", same=(False,), treatment=Treatment.NO_EFFECT,
           instead="ApiVersions is spoken up to version 4, which does not tell; a cluster id that changes is in the "
           "log, and metadata are asked for again when a broker is the wrong one"),
    _option("allow.auto.create.topics", "BOOLEAN", True, Flag(), "Let metadata requests create unknown topics, if the "
            "broker allows it. The Java producer always does.", origin="librdkafka, kafka-python"),
)  # fmt: skip

_HOOKS = (
    _option("key.serializer", "CLASS", None, SerializerRule(), "Turns a key into bytes or None. Java demands one; "
            "when none is named here, bytes pass as they are and text becomes UTF-8."),
    _option("value.serializer", "CLASS", None, SerializerRule(), "The same for values."),
    _option("interceptor.classes", "LIST", (), InterceptorsRule(), "Objects that see and may replace each record "
            "before it is sent, and see each outcome. Python objects, not class names.", field="interceptors"),
    _fixed("config.providers", "LIST", (), Names(), "Names of JVM classes that look secrets up.", same=((),),
           instead="look the values up in Python and pass the results"),
)  # fmt: skip

_METRICS = (
    _int("metrics.num.samples", 2, "Windows over which rates and averages reach.", 1),
    _long("metrics.sample.window.ms", 30_000, "Length of one such window.", 1),
    _fixed("metrics.recording.level", "STRING", "INFO", Choice(("INFO", "DEBUG", "TRACE")), "How many metrics are "
           "kept.", same=("INFO",), treatment=Treatment.NO_EFFECT, instead="the producer has no metrics beyond INFO"),
    _fixed("metric.reporters", "LIST", ("org.apache.kafka.common.metrics.JmxReporter",), Names(), "JVM classes that "
           "publish metrics.", same=((), ("org.apache.kafka.common.metrics.JmxReporter",)), instead="read "
           "Producer.metrics() and publish its values"),
    _fixed("enable.metrics.push", "BOOLEAN", True, Flag(), "Let the broker ask for the client's metrics (KIP-714).",
           same=(False,), treatment=Treatment.NO_EFFECT, instead="this client offers no metrics to brokers, as if "
           "none had asked; read Producer.metrics()"),
)  # fmt: skip

OPTIONS: dict[str, Option] = {
    row.name: row
    for row in (*_SENDING, *_BATCHING, *_PARTITIONING, *_NETWORK, *_METADATA, *_HOOKS, *_METRICS, *SECURITY_OPTIONS)
}
