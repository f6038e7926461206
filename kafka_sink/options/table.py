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
    Option("bootstrap.servers", Servers(), "The brokers for the first connection. The client discovers the rest of the "
           "cluster from them. An address may start with a scheme such as PLAINTEXT://; a scheme with TLS or SASL must "
           "match security.protocol.", is_required=True, example="broker1:9092,broker2:9092"),
    Option("client.id", Text(bytes_max=ID_BYTES_MAX), "Name in the broker's logs, metrics and quotas. If empty, the "
           "name is producer- followed by the transactional id or a sequence number. In a sink it is sink.id, else the "
           "queryName of the stream, else the name that the ledger has for its checkpoint; for a write with none of "
           "these pykafka-sink. See docs/guides/quotas.md."),
    refuse("client.dns.lookup", "Which addresses of a host name are tried.", "canonical host names matter to Kerberos "
           "only; every address of a name is tried in turn",
           rule=Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")), default="use_all_dns_ips",
           same=("use_all_dns_ips",)),
    refuse("bootstrap.resolve.timeout.ms", "Since Java 4.4: how long the client retries to resolve host names before "
           "it fails; 0: it resolves them once, when it is created. Here a producer does not fail for that reason: "
           "names are resolved again at each connection attempt.", "a call retries names for up to max.block.ms and "
           "then fails with their errors; set max.block.ms", rule=LONG, default=0, same=(0,)),
    Option("reconnect.backoff.ms", LONG, "Wait before connecting again to a broker; it doubles with each failure."),
    Option("reconnect.backoff.max.ms", LONG, "Maximum wait before connecting again. If only reconnect.backoff.ms is "
           "set, the maximum is that value, and the wait does not grow."),
    Option("socket.connection.setup.timeout.ms", LONG, "Time limit for setting up a TCP connection. It doubles with "
           "each failure."),
    Option("socket.connection.setup.timeout.max.ms", LONG, "Maximum time for setting up a TCP connection."),
    Option("connections.max.idle.ms", Whole(LONG_MIN, LONG_MAX), "Close connections that were idle for this long; "
           "negative: never."),
    Option("metadata.max.age.ms", LONG, "Refresh the cluster's metadata after this long without a change."),
    Option("metadata.max.idle.ms", Whole(5_000, LONG_MAX), "Drop the metadata of a topic that was not written to for "
           "this long."),
    Option("metadata.recovery.strategy", Choice(("rebootstrap", "none"), any_case=True), "What to do when no known "
           "broker answers. rebootstrap: start again from bootstrap.servers. none: keep trying the known brokers."),
    Option("metadata.recovery.rebootstrap.trigger.ms", LONG, "Start again from bootstrap.servers after this long "
           "without metadata."),
    without_effect("metadata.cluster.check.enable", "Since Java 4.4: send the expected cluster and node ids to a "
                   "broker, so that it can reject the request.", "this client uses ApiVersions up to version 4, which "
                   "does not send them; a change of the cluster id is logged, and metadata is refreshed when a broker "
                   "is the wrong one", rule=FLAG, default=True, same=(False,)),
)  # fmt: skip

_TOPICS = (
    Option("allow.auto.create.topics", FLAG, "Allow metadata requests to create unknown topics, if the broker allows "
           "it. The Java producer always does.", origin="librdkafka, kafka-python"),
    Option("partitioner.class", PartitionerRule(), "How the partition of a record without an explicit partition is "
           "chosen. The default hashes keys as Java does (murmur2). Without a key it fills one partition after the "
           "other and prefers fast brokers. consistent_random is librdkafka's default (CRC32). In a sink also "
           "module:function, [your own function](migration.md#a-partitioner-of-your-own).", into="partitioner"),
    Option("partitioner.adaptive.partitioning.enable", FLAG, "Send fewer of the records without a key to partitions "
           "whose broker falls behind."),
    Option("partitioner.availability.timeout.ms", LONG, "Skip partitions whose broker has accepted nothing for this "
           "long; 0: never."),
    Option("partitioner.ignore.keys", FLAG, "Choose the partition as if no record had a key."),
    Option("partitioner.rack.aware", FLAG, "Send records without a key only to partitions with a leader in the rack "
           "of client.rack, if there are any. Only the default partitioner supports it. It needs client.rack.",
           needs=Needs(("client.rack",), "partitioner.rack.aware=true needs client.rack: without it the client's rack "
                       "is not known")),
    Option("client.rack", ANY_TEXT, "The rack of this client, with the same names as the brokers' broker.rack. "
           "partitioner.rack.aware uses it. Without that option it has no effect, and a notice says so."),
)  # fmt: skip

_DELIVERY = (
    Option("acks", Acks(), "When a request counts as complete: when all in-sync replicas have it (all, -1), when the "
           "leader has it (1), or as soon as it is sent (0).", default="all"),
    Option("enable.idempotence", FLAG, "Number the batches so that the broker drops duplicates caused by retries. It "
           "is turned off with a notice if it is not set and acks or retries do not allow it."),
    Option("transactional.id", Text(False, ID_BYTES_MAX), "Turns transactions on and fences older producers with the "
           "same id. Needs idempotence.", in_sink="each task has an id of its own, chosen by the sink"),
    Option("transaction.timeout.ms", Whole(1), "The coordinator aborts a transaction that is open for longer. The time "
           "starts with the first partition in the transaction. The broker refuses more than its "
           "transaction.max.timeout.ms."),
    refuse("transaction.two.phase.commit.enable", "Transactions that never expire and are ended by an external "
           "coordinator (KIP-939).", "no released broker can keep prepared transactions; set transaction.timeout.ms "
           "to the time that the external decision may take", rule=FLAG, default=False, same=(False,)),
)  # fmt: skip

_SPEED = (
    Option("batch.size", INT, "Bytes of one batch of one partition; a full batch is sent without lingering. The "
           "compressed size is estimated from earlier batches. It is also how much goes to one partition before "
           "records without a key use the next one. 0: each record is a batch."),
    Option("linger.ms", LONG, "How long a batch that is not full waits for more records."),
    Option("buffer.memory", LONG, "Bytes of records that may wait to be sent. When the buffer is full, send() waits up "
           "to max.block.ms."),
    without_effect("buffer.memory.allocation.strategy", "Internal option since Java 4.4: how much of buffer.memory a "
                   "new batch allocates.", "buffer.memory counts the bytes of records, as incremental does",
                   rule=Choice(("full", "incremental"), any_case=True), default="full", same=("incremental",)),
    Option("max.request.size", INT, "Largest request, and largest record before compression, in bytes."),
    Option("max.in.flight.requests.per.connection", Whole(1), "Maximum number of unanswered requests per broker. At "
           "most 5 with idempotence; without it, 1 keeps strict order."),
    Option("compression.type", Choice(CODECS), "Compression codec for batches.", example="zstd"),
    Option("compression.level", Whole(-1, 22), "Level for the codec of compression.type; -1: the codec's default.",
           into="", origin=_RD),
    Option("compression.gzip.level", Whole(1, 9, besides=-1), "Level for gzip; -1 is zlib's default."),
    Option("compression.lz4.level", Whole(1, 17), "Level for lz4."),
    Option("compression.zstd.level", Whole(-131_072, 22), "Level for zstd."),
    Option("compressed.topics", Names(), "The topics to compress; empty: all topics.", origin=_OLD, deprecation="it "
           "has no successor; use one producer for each compression.type"),
    Option("queue.buffering.max.messages", INT, "Maximum number of records that may wait to be sent, in addition to "
           "buffer.memory; 0: no limit.", origin=_BOTH),
    Option("batch.num.messages", Whole(1), "Maximum number of records in one batch, in addition to batch.size.",
           origin=_BOTH),
    Option("send.buffer.bytes", Whole(-1), "Socket send buffer (SO_SNDBUF); -1: the operating system's default."),
    Option("receive.buffer.bytes", Whole(-1), "Socket receive buffer (SO_RCVBUF); -1: the operating system's default."),
    Option("producer.type", Choice(("sync", "async")), "sync: send() returns when the record is acknowledged, and "
           "raises an error when it failed.", origin=_OLD,
           deprecation="call send(...).result() to wait for the result"),
)  # fmt: skip

_TIME = (
    Option("delivery.timeout.ms", INT, "Time limit from send() to success or failure of a record, including retries. "
           "It must be at least linger.ms + request.timeout.ms; if it is not set, it is raised to that sum with a "
           "notice."),
    Option("request.timeout.ms", INT, "How long to wait for the response to a request."),
    Option("max.block.ms", LONG, "How long a call may wait for metadata, for room in buffer.memory, or for a step of a "
           "transaction."),
    Option("retries", INT, "How often a batch is sent again after a retriable error. Prefer delivery.timeout.ms as the "
           "limit."),
    Option("retry.backoff.ms", LONG, "Wait before the first retry. It doubles with each retry, with 20 % jitter."),
    Option("retry.backoff.max.ms", LONG, "Maximum wait before a retry."),
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
    Option("key.serializer", SerializerRule(), "Function that converts a key into bytes or None. Java requires one. "
           "Here, without one, bytes are unchanged and text is encoded as UTF-8.",
           in_sink=f"the column key {_AS_IT_IS}"),
    Option("value.serializer", SerializerRule(), "The same for values.", in_sink=f"the column value {_AS_IT_IS}"),
    Option("interceptor.classes", InterceptorsRule(), "Python objects (not class names) that receive each record "
           "before it is sent and may replace it. They also receive each result.", default=(), into="interceptors",
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
