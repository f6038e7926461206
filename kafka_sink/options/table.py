"""The producer's options: those of Java with their names, a few of other clients, and refused ones that need a JVM.

Defaults are in `ProducerOptions`; a row has its own only if a user would write it differently. Encryption and logins
are in `security_table.py`; other names for the same, and options of other clients that are refused, in
`foreign_table.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.options.hooks import InterceptorsRule, PartitionerRule, SerializerRule
from kafka_sink.options.option import Chapter, Needs, Option, by_name, refuse, without_effect
from kafka_sink.options.producer_options import LONG_MAX, ProducerOptions
from kafka_sink.options.security_table import SECURITY_CHAPTERS
from kafka_sink.options.values import (
    ANY_TEXT,
    CODECS,
    FLAG,
    INT,
    LONG,
    LONG_MIN,
    Acks,
    Choice,
    Names,
    Servers,
    Text,
    Whole,
)

_RD, _OLD = "librdkafka", "Kafka 0.8"
_BOTH = f"{_OLD}, {_RD}"
# Why a sink refuses what concerns single records.
_AS_IT_IS = "is written as it is, binary as bytes and string as UTF-8; use DataFrame operations to serialize it"
_NO_RECORDS = (
    "columns are written whole, no code sees single records; change rows with DataFrame operations, watch batches with "
    "summary.listener"
)

# Kafka's strings have at most 32,767 bytes, and a client's default id is made of its transactional id.
ID_BYTES_MAX = 32_000

_CONNECT = (
    Option("bootstrap.servers", Servers(), "The brokers for the first connection, from which the client learns "
           "about the others. With Docker: the address that a broker advertises must be valid here, too. A scheme "
           "such as SSL:// must match security.protocol.", is_required=True, example="broker1:9092,broker2:9092"),
    Option("client.id", Text(bytes_max=ID_BYTES_MAX), "Name in the broker's logs, metrics and quotas. If empty: in "
           "a sink its sink.id, the queryName of the stream or the ledger's name for its checkpoint, else pykafka-sink "
           "([quotas](guides/quotas.md)); otherwise producer- and the transactional id or a number."),
    refuse("client.dns.lookup", "Which addresses of a host name are tried.", "canonical host names matter to Kerberos "
           "only; every address of a name is tried in turn",
           rule=Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")), default="use_all_dns_ips",
           same=("use_all_dns_ips",)),
    refuse("bootstrap.resolve.timeout.ms", "Since Java 4.4: how long the client retries to resolve host names before "
           "it fails; 0: it resolves them once, when it is created. Here a producer does not fail for that reason: "
           "names are resolved again at each connection attempt.", "a call retries names for up to max.block.ms and "
           "then fails with their errors; set max.block.ms", rule=LONG, default=0, same=(0,)),
    Option("reconnect.backoff.ms", LONG, "Wait before connecting again to a broker; it doubles with each failure."),
    Option("reconnect.backoff.max.ms", LONG, "Longest such wait. If only reconnect.backoff.ms is set, the wait does "
           "not grow."),
    Option("socket.connection.setup.timeout.ms", LONG, "Time limit for setting up a TCP connection. It doubles with "
           "each failure."),
    Option("socket.connection.setup.timeout.max.ms", LONG, "Longest such time."),
    Option("connections.max.idle.ms", Whole(LONG_MIN, LONG_MAX), "Close connections that were idle for so long; "
           "negative: never."),
    Option("metadata.max.age.ms", LONG, "Read the cluster's metadata again after so long without a change."),
    Option("metadata.max.idle.ms", Whole(5_000, LONG_MAX), "Forget a topic that was not written to for so long."),
    Option("metadata.recovery.strategy", Choice(("rebootstrap", "none"), any_case=True), "If no known broker "
           "answers. rebootstrap: start again from bootstrap.servers. none: keep trying."),
    Option("metadata.recovery.rebootstrap.trigger.ms", LONG, "Start again from bootstrap.servers after so long "
           "without metadata."),
    without_effect("metadata.cluster.check.enable", "Since Java 4.4: send the expected cluster and node ids to a "
                   "broker, so that it can reject the request.", "brokers are "
                   "not told which cluster is expected; a change of its id is logged, and metadata is read again when "
                   "a broker is the wrong one", rule=FLAG, default=True, same=(False,)),
)  # fmt: skip

_TOPICS = (
    Option("allow.auto.create.topics", FLAG, "Let the broker create unknown topics, if it does so. The Java "
           "producer always lets it.", origin="librdkafka, kafka-python"),
    Option("partitioner.class", PartitionerRule(), "How the partition of a record without one is chosen. default: "
           "by the key's hash as in Java (murmur2); without a key one partition after the other, fast brokers "
           "first. consistent_random: as librdkafka (CRC32). In a sink also module:function, [your own "
           "function](migration.md#a-partitioner-of-your-own).", into="partitioner"),
    Option("partitioner.adaptive.partitioning.enable", FLAG, "Send fewer records without a key to partitions whose "
           "broker falls behind."),
    Option("partitioner.availability.timeout.ms", LONG, "Skip partitions whose broker has accepted nothing for so "
           "long; 0: never."),
    Option("partitioner.ignore.keys", FLAG, "Choose the partition as if no record had a key."),
    Option("partitioner.rack.aware", FLAG, "Records without a key go only to partitions with a leader in the rack "
           "of client.rack, if there is one. Only with the default partitioner.",
           needs=Needs(("client.rack",), "partitioner.rack.aware=true needs client.rack: without it the client's rack "
                       "is not known")),
    Option("client.rack", ANY_TEXT, "The rack of this client, in the words of the brokers' broker.rack. Only "
           "partitioner.rack.aware uses it."),
)  # fmt: skip

_DELIVERY = (
    Option("acks", Acks(), "When a request counts as complete: all in-sync replicas have it (all, -1), the leader "
           "has it (1), it was sent (0).", default="all"),
    Option("enable.idempotence", FLAG, "Number the batches, so that brokers drop repetitions. If it is not set, and "
           "acks or retries do not allow it, it is turned off with a notice."),
    Option("transactional.id", Text(False, ID_BYTES_MAX), "Turns transactions on and fences older producers with the "
           "same id. Needs idempotence.", in_sink="each task has an id of its own, chosen by the sink"),
    Option("transaction.timeout.ms", Whole(1), "The broker aborts a transaction that is open for longer, counted "
           "from its first row; then rows fail with INVALID_PRODUCER_EPOCH or PRODUCER_FENCED. A whole batch, "
           "its commit and a restart after a crash must fit. Brokers refuse more than their "
           "transaction.max.timeout.ms."),
    refuse("transaction.two.phase.commit.enable", "Transactions that never expire and are ended by an external "
           "coordinator (KIP-939).", "no released broker can keep prepared transactions; set transaction.timeout.ms "
           "to the time that the external decision may take", rule=FLAG, default=False, same=(False,)),
)  # fmt: skip

_SPEED = (
    Option("batch.size", INT, "Bytes of a batch of one partition, compressed by estimation; a full batch does not "
           "linger. Records without a key stay in a partition for so many bytes. 0: each record is a batch."),
    Option("linger.ms", LONG, "How long a batch that is not full waits for more records."),
    Option("buffer.memory", LONG, "Bytes of records that may wait to be sent; then send() waits up to max.block.ms."),
    without_effect("buffer.memory.allocation.strategy", "Internal option since Java 4.4: how much of buffer.memory a "
                   "new batch allocates.", "buffer.memory counts the bytes of records, as incremental does",
                   rule=Choice(("full", "incremental"), any_case=True), default="full", same=("incremental",)),
    Option("max.request.size", INT, "Largest request, and largest record before compression. The topic's "
           "max.message.bytes must allow it."),
    Option("max.in.flight.requests.per.connection", Whole(1), "Unanswered requests per broker: at most 5 with "
           "idempotence; without it, 1 keeps the order."),
    Option("compression.type", Choice(CODECS), "Compression codec for batches.", example="zstd"),
    Option("compression.level", Whole(-1, 22), "Level for the codec of compression.type; -1: the codec's default.",
           into="", origin=_RD),
    Option("compression.gzip.level", Whole(1, 9, besides=-1), "Level for gzip; -1 is zlib's default."),
    Option("compression.lz4.level", Whole(1, 17), "Level for lz4."),
    Option("compression.zstd.level", Whole(-131_072, 22), "Level for zstd."),
    Option("compressed.topics", Names(), "The topics to compress; empty: all topics.", origin=_OLD, deprecation="it "
           "has no successor; use one producer for each compression.type"),
    Option("queue.buffering.max.messages", INT, "How many records may wait to be sent, besides buffer.memory; 0: no "
           "limit.", origin=_BOTH),
    Option("batch.num.messages", Whole(1), "How many records one batch may have, besides batch.size.",
           origin=_BOTH),
    Option("send.buffer.bytes", Whole(-1), "Socket send buffer; -1: the system's choice."),
    Option("receive.buffer.bytes", Whole(-1), "Socket receive buffer; -1: the system's choice."),
    Option("producer.type", Choice(("sync", "async")), "sync: send() returns when the record is acknowledged, or "
           "raises.", origin=_OLD,
           deprecation="call send(...).result() to wait for the result"),
)  # fmt: skip

_TIME = (
    Option("delivery.timeout.ms", INT, "From send() to success or failure of a record, with all retries. At least "
           "linger.ms + request.timeout.ms; if it is not set, it is raised to that sum with a notice."),
    Option("request.timeout.ms", INT, "How long to wait for an answer of a broker."),
    Option("max.block.ms", LONG, "How long a call may wait for metadata, for room in buffer.memory, or for a step "
           "of a transaction."),
    Option("retries", INT, "How often a batch is sent again. Prefer delivery.timeout.ms as the limit."),
    Option("retry.backoff.ms", LONG, "Wait before the first retry; it doubles each time, with 20 % jitter."),
    Option("retry.backoff.max.ms", LONG, "Longest such wait."),
)  # fmt: skip

_METRICS = (
    Option("metrics.num.samples", Whole(1), "Number of time windows for rates and averages."),
    Option("metrics.sample.window.ms", Whole(1, LONG_MAX), "Length of one window."),
    without_effect("metrics.recording.level", "Level of detail of metrics.", "the producer has no metrics beyond INFO",
                   rule=Choice(("INFO", "DEBUG", "TRACE")), default="INFO", same=("INFO",)),
    refuse("metric.reporters", "JVM classes that publish metrics.", "read Producer.metrics() and publish its values",
           rule=Names(), default=("org.apache.kafka.common.metrics.JmxReporter",),
           same=((), ("org.apache.kafka.common.metrics.JmxReporter",))),
    without_effect("enable.metrics.push", "Let the broker ask for the client's metrics (KIP-714).", "this client sends "
                   "no metrics to brokers; read Producer.metrics()", rule=FLAG, default=True, same=(False,)),
)  # fmt: skip

_CODE = (
    Option("key.serializer", SerializerRule(), "A function that makes bytes or None of a key. Without one, bytes "
           "stay as they are and text becomes UTF-8.",
           in_sink=f"the column key {_AS_IT_IS}"),
    Option("value.serializer", SerializerRule(), "The same for values.", in_sink=f"the column value {_AS_IT_IS}"),
    Option("interceptor.classes", InterceptorsRule(), "Python objects that get each record before it is sent, and "
           "may replace it, and each result.", default=(), into="interceptors",
           in_sink=_NO_RECORDS),
)  # fmt: skip

PRODUCER_CHAPTERS: Mapping[Chapter, tuple[Option, ...]] = {
    Chapter.CONNECT: _CONNECT,
    **SECURITY_CHAPTERS,
    Chapter.TOPICS: _TOPICS,
    Chapter.DELIVERY: _DELIVERY,
    Chapter.SPEED: _SPEED,
    Chapter.TIME: _TIME,
    Chapter.METRICS: _METRICS,
    Chapter.CODE: _CODE,
}
OPTIONS = by_name(PRODUCER_CHAPTERS, ProducerOptions)
