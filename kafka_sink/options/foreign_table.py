"""Names of other producers: Kafka 0.8's Scala producer, librdkafka, and options that Java has dropped since.

An alias sets an option of `table.py`. Only names and values are translated, never another client's defaults: without
acks it is today's `all`, not 0.8's 0. An option without a counterpart is refused with a text that says what to use
instead, since a setting that silently stops working is worse than an error.
"""

from __future__ import annotations

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import OPTION_NOT_SUPPORTED
from kafka_sink.options.option import Alias, Option, refuse, without_effect
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from kafka_sink.options.values import CODECS, FLAG, LONG_MIN, Whole, invalid_value_error

_OLD = "Kafka 0.8"
_RD = "librdkafka"
_BOTH = "Kafka 0.8, librdkafka"


def _unlimited_if_negative(name: str, value: object) -> int:
    wait_ms = Whole(LONG_MIN, LONG_MAX).parse(name, value)
    return LONG_MAX if wait_ms < 0 else wait_ms


def _refresh_interval(name: str, value: object) -> object:
    interval_ms = _unlimited_if_negative(name, value)
    # 0.8's 0 refreshes after every message, which would overload a cluster.
    if interval_ms == 0:
        raise ConfigError(
            f"{name}=0 is not supported: it would ask for metadata after every record; "
            "use metadata.max.age.ms with a number above 0, or a negative number for only on failure",
            OPTION_NOT_SUPPORTED,
        )
    return interval_ms


def _socket_buffer(name: str, value: object) -> object:
    return Whole(0, 100_000_000).parse(name, value) or -1


def _codec(name: str, value: object) -> object:
    text = str(value).strip().lower() if isinstance(value, (str, int)) and not isinstance(value, bool) else "?"
    text = {str(number): codec for number, codec in enumerate(CODECS)}.get(text, text)
    if text not in CODECS:
        known = ", ".join(f"{codec} ({number})" for number, codec in enumerate(CODECS))
        raise invalid_value_error(name, value, f"one of {known}")
    return text


_ALIASES = (
    Alias("metadata.broker.list", "bootstrap.servers", _BOTH),
    Alias("request.required.acks", "acks", _BOTH, "The same; 0.8's default was 0."),
    Alias("message.send.max.retries", "retries", _BOTH),
    Alias("queue.buffering.max.ms", "linger.ms", _BOTH, "The same; 0.8's default was 5000."),
    Alias("queue.enqueue.timeout.ms", "max.block.ms", _OLD, "0: fail immediately when the buffer is full; negative: "
          "wait without limit; otherwise the wait in milliseconds.", convert=_unlimited_if_negative),
    Alias("compression.codec", "compression.type", _BOTH, "Names, or numbers from 0 (none) to 4 (zstd).",
          convert=_codec),
    Alias("topic.metadata.refresh.interval.ms", "metadata.max.age.ms", _BOTH, "Negative: only on failure; 0 is "
          "refused.", convert=_refresh_interval),
    Alias("serializer.class", "value.serializer", _OLD, "For values, and for keys unless key.serializer is set.",
          fallback_for="key.serializer"),
    Alias("key.serializer.class", "key.serializer", _OLD),
    Alias("queue.buffering.max.kbytes", "buffer.memory", _RD, "In units of 1024 bytes.",
          convert=lambda name, value: Whole(1).parse(name, value) * 1024),
    Alias("message.timeout.ms", "delivery.timeout.ms", _RD, "0: the longest possible time.",
          convert=lambda name, value: Whole(0).parse(name, value) or INT_MAX),
    Alias("message.max.bytes", "max.request.size", _RD),
    Alias("max.in.flight", "max.in.flight.requests.per.connection", _RD),
    Alias("socket.send.buffer.bytes", "send.buffer.bytes", _RD, "0: the system's choice.", convert=_socket_buffer),
    Alias("socket.receive.buffer.bytes", "receive.buffer.bytes", _RD, "0: the system's choice.",
          convert=_socket_buffer),
    Alias("partitioner", "partitioner.class", "librdkafka, this producer", "The same names and callables."),
    Alias("interceptors", "interceptor.classes", "this producer", "Python objects."),
    Alias("ssl.ca.location", "ssl.truststore.location", _RD),
    Alias("ssl.ca.pem", "ssl.truststore.certificates", _RD),
    Alias("ssl.certificate.pem", "ssl.keystore.certificate.chain", _RD),
    Alias("ssl.key.pem", "ssl.keystore.key", _RD),
    Alias("sasl.mechanisms", "sasl.mechanism", _RD),
    Alias("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id", _RD),
    Alias("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret", _RD),
)  # fmt: skip
ALIASES: dict[str, Alias] = {alias.name: alias for alias in _ALIASES}


def canonical_name(name: str) -> str:
    return ALIASES[name].target if name in ALIASES else name


_ANY = Whole(LONG_MIN, LONG_MAX)
_ENCODING = "text is always written as UTF-8; pass a Python callable as serializer for another encoding"
_CALLBACK = "pass on_delivery to send(), or read its future"
_LOGGING = "configure the Python logger kafka_sink"

_ROWS = (
    # Java, in the past or for the shipped serializers.
    refuse("block.on.buffer.full", "What to do when the buffer is full.", "use max.block.ms: 0 fails at once",
           origin="Java before 0.10"),
    refuse("metadata.fetch.timeout.ms", "Wait for metadata.", "use max.block.ms", origin="Java before 0.10"),
    refuse("timeout.ms", "Wait for replicas.", "use request.timeout.ms", origin="Java before 0.11"),
    without_effect("auto.include.jmx.reporter", "Publish metrics by JMX.", "there is no JVM to publish them in; read "
                   "Producer.metrics()", FLAG, default=False, origin="Java before 4.0", same=(False,)),
    refuse("serializer.encoding", "Encoding of Java's StringSerializer.", _ENCODING, default="UTF-8", origin="Java",
           same=("UTF-8", "UTF8")),
    refuse("key.serializer.encoding", "The same for keys.", _ENCODING, default="UTF-8", origin="Java",
           same=("UTF-8", "UTF8")),
    refuse("value.serializer.encoding", "The same for values.", _ENCODING, default="UTF-8", origin="Java",
           same=("UTF-8", "UTF8")),
    # librdkafka: behaviour that is fixed here.
    refuse("socket.keepalive.enable", "TCP keep-alive.", "keep-alive is always on, as in Java", FLAG, default=True,
           origin=_RD, same=(True,)),
    refuse("socket.nagle.disable", "TCP_NODELAY.", "Nagle's algorithm is always off, as in Java", FLAG, default=True,
           origin=_RD, same=(True,)),
    refuse("api.version.request", "Ask brokers for their API versions.", "versions are always negotiated", FLAG,
           default=True, origin=_RD, same=(True,)),
    refuse("topic.metadata.refresh.sparse", "Ask only for topics in use.", "only topics in use are asked for", FLAG,
           default=True, origin=_RD, same=(True,)),
    refuse("enable.gapless.guarantee", "Stop at the first record that cannot be delivered.", "wait for each future "
           "and stop at the first error, or use a transaction", FLAG, default=False, origin=_RD, same=(False,)),
    refuse("delivery.report.only.error", "Report failures only.", "ignore the results in on_delivery", FLAG,
           default=False, origin=_RD, same=(False,)),
    refuse("broker.address.family", "IPv4 or IPv6 only.", "every address of a name is tried; write the wanted address "
           "into bootstrap.servers", default="any", origin=_RD, same=("any",)),
    refuse("queuing.strategy", "Order of the queue.", "records of a partition are sent in the order of send()",
           default="fifo", origin=_RD, same=("fifo",)),
    refuse("statistics.interval.ms", "Statistics callback.", "read Producer.metrics()", _ANY, default=0, origin=_RD,
           same=(0,)),
    # librdkafka: other means to the same end.
    refuse("sticky.partitioning.linger.ms", "How long records without a key keep their partition.", "a partition is "
           "kept for batch.size bytes; set batch.size", origin=_RD),
    refuse("socket.timeout.ms", "Wait for any answer.", "use request.timeout.ms", origin=_RD),
    refuse("socket.max.fails", "Number of failed requests before a connection is closed.", "a request that exceeds "
           "request.timeout.ms closes its connection", origin=_RD),
    refuse("topic.metadata.refresh.fast.interval.ms", "Wait between urgent metadata requests.", "use retry.backoff.ms",
           origin=_RD),
    refuse("topic.metadata.propagation.max.ms", "Wait for a new topic to appear.", "use max.block.ms", origin=_RD),
    refuse("broker.address.ttl", "How long resolved addresses are kept.", "names are resolved again when all "
           "addresses have been tried", origin=_RD),
    refuse("api.version.request.timeout.ms", "Wait for API versions.", "use request.timeout.ms", origin=_RD),
    refuse("api.version.fallback.ms", "How long an old version is assumed.", "versions are always negotiated",
           origin=_RD),
    refuse("broker.version.fallback", "Version of old brokers.", "versions are always negotiated", origin=_RD),
    refuse("message.copy.max.bytes", "Size from which a message is not copied.", "batches are always passed by "
           "reference", origin=_RD),
    refuse("receive.message.max.bytes", "Largest answer of a broker.", "answers are limited to about 100 MB",
           origin=_RD),
    refuse("queue.buffering.backpressure.threshold", "Unsent requests before batches grow.", "use linger.ms and "
           "batch.size", origin=_RD),
    refuse("plugin.library.paths", "Plug-ins in C.", "pass Python objects as `interceptors`", origin=_RD),
    refuse("default.topic.config", "Options of topics.", "put its entries among the producer's options", origin=_RD),
    refuse("log_level", "Log level.", _LOGGING, origin=_RD),
    refuse("debug", "Parts to log in detail.", _LOGGING, origin=_RD),
    refuse("logger", "Where to log.", _LOGGING, origin=_RD),
    refuse("error_cb", "Callback for errors.", _CALLBACK, origin=_RD),
    refuse("stats_cb", "Callback for statistics.", "read Producer.metrics()", origin=_RD),
    refuse("throttle_cb", "Callback for throttling.", "read produce-throttle-time-avg in Producer.metrics()",
           origin=_RD),
    refuse("on_delivery", "Callback for every record.", _CALLBACK, origin=_RD),
    refuse("dr_cb", "Callback for every record.", _CALLBACK, origin=_RD),
)  # fmt: skip
FOREIGN_OPTIONS: dict[str, Option] = {row.name: row for row in _ROWS}

# Consumer options that often are in a configuration shared with producers.
CONSUMER_OPTIONS = frozenset((
    "group.id", "group.instance.id", "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms",
    "session.timeout.ms", "heartbeat.interval.ms", "max.poll.records", "max.poll.interval.ms", "fetch.min.bytes",
    "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "isolation.level", "key.deserializer",
    "value.deserializer", "group.protocol", "check.crcs", "partition.assignment.strategy",
    "exclude.internal.topics", "default.api.timeout.ms",
))  # fmt: skip
