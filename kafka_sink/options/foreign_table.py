"""Names of other producers: Kafka 0.8's Scala producer, librdkafka, and options that Java has dropped since.

An alias sets an option of `table.py`. Only names and values are translated, never another client's defaults: without
acks it is today's `all`, not 0.8's 0. An option without a counterpart is refused with a text that says what to use
instead, since a setting that silently stops working is worse than an error.
"""

from __future__ import annotations

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import OPTION_NOT_SUPPORTED
from kafka_sink.options.option import Alias, Option, Treatment
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from kafka_sink.options.values import ANY_TEXT, CODECS, LONG_MIN, Flag, Rule, Whole, invalid_value_error

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


def _row(name: str, origin: str, meaning: str, instead: str, rule: Rule = ANY_TEXT, *same: object,
         treatment: Treatment = Treatment.REFUSED) -> Option:  # fmt: skip
    default = same[0] if same else None
    return Option(name, rule, meaning, default, origin, treatment, same=same, instead=instead)


_ANY = Whole(LONG_MIN, LONG_MAX)
_ENCODING = "text is always written as UTF-8; pass a Python callable as serializer for another encoding"
_CALLBACK = "pass on_delivery to send(), or read its future"
_LOGGING = "configure the Python logger kafka_sink"

_ROWS = (
    # Java, in the past or for the shipped serializers.
    _row("block.on.buffer.full", "Java before 0.10", "What to do when the buffer is full.", "use max.block.ms: "
         "0 fails at once"),
    _row("metadata.fetch.timeout.ms", "Java before 0.10", "Wait for metadata.", "use max.block.ms"),
    _row("timeout.ms", "Java before 0.11", "Wait for replicas.", "use request.timeout.ms"),
    _row("auto.include.jmx.reporter", "Java before 4.0", "Publish metrics by JMX.", "there is no JVM to publish them "
         "in; read Producer.metrics()", Flag(), False, treatment=Treatment.NO_EFFECT),
    _row("serializer.encoding", "Java", "Encoding of Java's StringSerializer.", _ENCODING, ANY_TEXT, "UTF-8", "UTF8"),
    _row("key.serializer.encoding", "Java", "The same for keys.", _ENCODING, ANY_TEXT, "UTF-8", "UTF8"),
    _row("value.serializer.encoding", "Java", "The same for values.", _ENCODING, ANY_TEXT, "UTF-8", "UTF8"),
    # librdkafka: behaviour that is fixed here.
    _row("socket.keepalive.enable", _RD, "TCP keep-alive.", "keep-alive is always on, as in Java", Flag(), True),
    _row("socket.nagle.disable", _RD, "TCP_NODELAY.", "Nagle's algorithm is always off, as in Java", Flag(), True),
    _row("api.version.request", _RD, "Ask brokers for their API versions.", "versions are always negotiated", Flag(),
         True),
    _row("topic.metadata.refresh.sparse", _RD, "Ask only for topics in use.", "only topics in use are asked for",
         Flag(), True),
    _row("enable.gapless.guarantee", _RD, "Stop at the first record that cannot be delivered.", "wait for each "
         "future and stop at the first error, or use a transaction", Flag(), False),
    _row("delivery.report.only.error", _RD, "Report failures only.", "ignore the results in on_delivery", Flag(),
         False),
    _row("broker.address.family", _RD, "IPv4 or IPv6 only.", "every address of a name is tried; write the wanted "
         "address into bootstrap.servers", ANY_TEXT, "any"),
    _row("queuing.strategy", _RD, "Order of the queue.", "records of a partition are sent in the order of send()",
         ANY_TEXT, "fifo"),
    _row("statistics.interval.ms", _RD, "Statistics callback.", "read Producer.metrics()", _ANY, 0),
    # librdkafka: other means to the same end.
    _row("sticky.partitioning.linger.ms", _RD, "How long records without a key keep their partition.", "a partition "
         "is kept for batch.size bytes; set batch.size"),
    _row("socket.timeout.ms", _RD, "Wait for any answer.", "use request.timeout.ms"),
    _row("socket.max.fails", _RD, "Number of failed requests before a connection is closed.", "a request that exceeds "
         "request.timeout.ms closes its connection"),
    _row("topic.metadata.refresh.fast.interval.ms", _RD, "Wait between urgent metadata requests.", "use "
         "retry.backoff.ms"),
    _row("topic.metadata.propagation.max.ms", _RD, "Wait for a new topic to appear.", "use max.block.ms"),
    _row("broker.address.ttl", _RD, "How long resolved addresses are kept.", "names are resolved again when all "
         "addresses have been tried"),
    _row("api.version.request.timeout.ms", _RD, "Wait for API versions.", "use request.timeout.ms"),
    _row("api.version.fallback.ms", _RD, "How long an old version is assumed.", "versions are always negotiated"),
    _row("broker.version.fallback", _RD, "Version of old brokers.", "versions are always negotiated"),
    _row("message.copy.max.bytes", _RD, "Size from which a message is not copied.", "batches are always passed by "
         "reference"),
    _row("receive.message.max.bytes", _RD, "Largest answer of a broker.", "answers are limited to about 100 MB"),
    _row("queue.buffering.backpressure.threshold", _RD, "Unsent requests before batches grow.", "use linger.ms and "
         "batch.size"),
    _row("plugin.library.paths", _RD, "Plug-ins in C.", "pass Python objects as `interceptors`"),
    _row("default.topic.config", _RD, "Options of topics.", "put its entries among the producer's options"),
    _row("log_level", _RD, "Log level.", _LOGGING),
    _row("debug", _RD, "Parts to log in detail.", _LOGGING),
    _row("logger", _RD, "Where to log.", _LOGGING),
    _row("error_cb", _RD, "Callback for errors.", _CALLBACK),
    _row("stats_cb", _RD, "Callback for statistics.", "read Producer.metrics()"),
    _row("throttle_cb", _RD, "Callback for throttling.", "read produce-throttle-time-avg in Producer.metrics()"),
    _row("on_delivery", _RD, "Callback for every record.", _CALLBACK),
    _row("dr_cb", _RD, "Callback for every record.", _CALLBACK),
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
