"""What options mean together: the checks and corrections that need more than one value.

They are the Java producer's (4.4), including where it corrects quietly what the user did not name and refuses what he
did. A correction leaves a notice. Where Java would accept something that cannot work, the texts say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.error_table.writes import OPTION_MISSING, OPTIONS_CONTRADICT
from kafka_sink.errors import ConfigError
from kafka_sink.options.producer_options import INT_MAX
from kafka_sink.options.security_rules import check_security
from kafka_sink.options.table import OPTIONS

IN_FLIGHT_MAX_WITH_IDEMPOTENCE = 5


@dataclass(slots=True)
class Draft:
    """Parsed values by canonical option name; the user may have named some of them under another name.

    `raw` holds what he wrote."""

    values: dict[str, Any]
    named: dict[str, str]
    raw: dict[str, object]
    notices: list[str] = field(default_factory=list)

    def spelling(self, name: str) -> str:
        return self.named.get(name, name)


def check_idempotence(draft: Draft) -> None:
    values = draft.values
    if values["enable.idempotence"]:
        in_flight = values["max.in.flight.requests.per.connection"]
        if in_flight > IN_FLIGHT_MAX_WITH_IDEMPOTENCE:
            raise ConfigError(
                f"max.in.flight.requests.per.connection={in_flight} is too many for enable.idempotence=true: "
                f"at most {IN_FLIGHT_MAX_WITH_IDEMPOTENCE}, or set enable.idempotence=false",
                OPTIONS_CONTRADICT,
            )
        for name, clashes in (("retries", values["retries"] == 0), ("acks", values["acks"] != -1)):
            if not clashes:
                continue
            said = f"{draft.spelling(name)}={values[name]}"
            wanted = "retries above 0" if name == "retries" else "acks=all"
            if "enable.idempotence" in draft.named:
                raise ConfigError(f"{said} contradicts enable.idempotence=true: it needs {wanted}", OPTIONS_CONTRADICT)
            values["enable.idempotence"] = False
            draft.notices.append(f"enable.idempotence is off, because {said}; it needs {wanted}")
    if values["transactional.id"] is not None and not values["enable.idempotence"]:
        raise ConfigError(
            "transactional.id needs enable.idempotence=true, acks=all and retries above 0", OPTION_MISSING
        )


def check_timeouts(draft: Draft) -> None:
    values = draft.values
    least_ms = min(min(values["linger.ms"], INT_MAX) + values["request.timeout.ms"], INT_MAX)
    if values["delivery.timeout.ms"] < least_ms:
        text = f"linger.ms + request.timeout.ms, which is {least_ms}"
        if "delivery.timeout.ms" in draft.named:
            spelling = draft.spelling("delivery.timeout.ms")
            raise ConfigError(f"{spelling}={values['delivery.timeout.ms']} is too short: it must be at least {text}")
        values["delivery.timeout.ms"] = least_ms
        draft.notices.append(f"delivery.timeout.ms is raised to {text}")
    if "reconnect.backoff.ms" in draft.named and "reconnect.backoff.max.ms" not in draft.named:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
        draft.notices.append("the reconnect back-off does not grow, because reconnect.backoff.max.ms is not set")
    for first, largest in (
        ("retry.backoff.ms", "retry.backoff.max.ms"),
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    ):
        if values[first] > values[largest]:
            values[first] = values[largest]
            draft.notices.append(f"{first} is lowered to {largest}={values[largest]}: the time does not grow")
    if values["connections.max.idle.ms"] == 0:
        raise ConfigError(
            "connections.max.idle.ms=0 is not valid: Java would close every connection at once, librdkafka none; "
            "use a negative number for never"
        )


def check_bootstrap(draft: Draft) -> None:
    servers = draft.values["bootstrap.servers"]
    distinct: dict[tuple[str, int], tuple[str, int]] = {}
    for host, port in servers:
        distinct.setdefault((host.lower(), port), (host, port))
    if len(distinct) < len(servers):
        draft.notices.append(f"{draft.spelling('bootstrap.servers')} names some servers more than once")
        draft.values["bootstrap.servers"] = tuple(distinct.values())


def check_rack(draft: Draft) -> None:
    values = draft.values
    if values["partitioner.rack.aware"] and not values["client.rack"]:
        raise ConfigError(
            "partitioner.rack.aware=true needs client.rack: without it no partition is a near one", OPTION_MISSING
        )
    if values["client.rack"] and not values["partitioner.rack.aware"]:
        draft.notices.append("client.rack changes nothing without partitioner.rack.aware=true")
    elif values["partitioner.rack.aware"] and values["partitioner.class"] not in (None, "default"):
        draft.notices.append("partitioner.rack.aware changes nothing: it is for the default partitioner only")


def check_record_limits(draft: Draft) -> None:
    values = draft.values
    # 0 is how librdkafka spells "no limit".
    values["queue.buffering.max.messages"] = values["queue.buffering.max.messages"] or None
    queue, batch = values["queue.buffering.max.messages"], values["batch.num.messages"]
    if queue is not None and batch is not None and batch > queue:
        raise ConfigError(
            f"batch.num.messages={batch} is more than queue.buffering.max.messages={queue} may wait", OPTIONS_CONTRADICT
        )


def check_compression(draft: Draft) -> None:
    values = draft.values
    codec = values["compression.type"]
    level = values["compression.level"]
    level_name = f"compression.{codec}.level"
    if level is not None and level != -1:
        if level_name not in OPTIONS:
            raise ConfigError(
                f"compression.level={level} has no meaning with compression.type={codec}: leave it out",
                OPTIONS_CONTRADICT,
            )
        parsed = OPTIONS[level_name].rule.parse("compression.level", level)
        if level_name in draft.named and values[level_name] != parsed:
            raise ConfigError(
                f"compression.level={level} and {level_name}={values[level_name]} contradict each other",
                OPTIONS_CONTRADICT,
            )
        values[level_name] = parsed
    values["compressed.topics"] = frozenset(values["compressed.topics"] or ()) or None
    if values["compressed.topics"] and codec == "none":
        raise ConfigError(
            "compressed.topics names topics, but compression.type=none: set compression.type", OPTION_MISSING
        )
    if codec != "none":
        # An optional package that is missing must show up here, not when the first batch is full. Imported only
        # then, because it pulls the codecs in.
        from kafka_sink.records.compression import compressor

        compressor(codec, None if values.get(level_name) == -1 else values.get(level_name))


def fill_client_id(draft: Draft) -> None:
    if "client.id" not in draft.named and draft.values["transactional.id"] is not None:
        draft.values["client.id"] = f"producer-{draft.values['transactional.id']}"


RULES: tuple[Callable[[Draft], None], ...] = (
    check_bootstrap, check_idempotence, check_timeouts, check_rack, check_record_limits, check_compression,
    check_security, fill_client_id,
)  # fmt: skip
