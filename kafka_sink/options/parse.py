"""`parse_producer_options`: the user's mapping -> `ProducerOptions`, or one `ConfigError` with all problems.

Steps: names and values one by one, then the rules over several values. These run only if the first step found nothing,
since their messages would be misleading. `parse_security_options` does the same for what is not a broker.

The rules are the Java producer's (4.4), which corrects a conflicting default silently and refuses a conflicting user
setting. A correction leaves a notice. If Java would accept something that cannot work, the texts say so. A TLS or SASL
option for a protocol that is not used is not an error, because Java accepts it, too; but there is a notice. The rules
for SASL are in `sasl_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import (
    CREDENTIALS_IN_CLEAR,
    OPTION_NOT_SUPPORTED,
    OPTION_UNKNOWN,
    OPTIONS_CONTRADICT,
)
from kafka_sink.options.engine import Draft, T, Table, check_alone, check_needs, fill, out_of_scope, read, suggest_name
from kafka_sink.options.foreign_table import ALIASES, CONSUMER_OPTIONS, FOREIGN_OPTIONS, canonical_name
from kafka_sink.options.option import Option
from kafka_sink.options.producer_options import INT_MAX, ProducerOptions
from kafka_sink.options.security_options import SecurityOptions
from kafka_sink.options.security_table import SECURITY_CHAPTERS, SECURITY_PREFIXES, UNKNOWN_SECURITY
from kafka_sink.options.table import OPTIONS
from kafka_sink.options.values import TLS_13_SUITES, contradiction_error, conversion_hint, missing_error
from kafka_sink.security.mechanisms import OAUTHBEARER
from kafka_sink.security.reference import AS_WRITTEN, is_like_reference
from kafka_sink.security.this_host import is_this_host

_KNOWN_NAMES = (*OPTIONS, *FOREIGN_OPTIONS, *ALIASES)
IN_FLIGHT_MAX_WITH_IDEMPOTENCE = 5


def parse_producer_options(settings: Mapping[str, object]) -> ProducerOptions:
    if not isinstance(settings, Mapping):
        raise ConfigError(f"options must be a mapping of names to values, not {type(settings).__name__}")
    draft = read(_PRODUCER, settings)
    is_named = "bootstrap.servers" in map(canonical_name, settings)
    if not is_named and not any("did you mean bootstrap.servers" in str(each) for each in draft.found):
        draft.found.append(missing_error("bootstrap.servers is missing: name at least one broker as host:port"))
    draft.raise_any()
    for rule in RULES:
        draft.attempt(rule, draft)
    draft.raise_any()
    return ProducerOptions(**fill(ProducerOptions, OPTIONS, draft), notices=tuple(draft.notices))


def parse_security_options(settings: Mapping[str, object]) -> tuple[SecurityOptions, tuple[str, ...]]:
    """For what is reached with the producer's options for TLS and logins: the options, and notices."""
    draft = read(_SECURITY, settings)
    draft.raise_any()
    draft.attempt(check_security, draft)
    draft.raise_any()
    return SecurityOptions(**fill(SecurityOptions, _SECURITY.options, draft)), tuple(draft.notices)


def check_producer_option(name: str, value: object) -> None:
    """Alone: what several options say together is not looked at."""
    check_alone(_PRODUCER, name, value)


def is_name_of_producer(name: str) -> bool:
    """Or one that only a producer's table can say something about: a consumer's, or of Java's security."""
    return name in _KNOWN_NAMES or name in CONSUMER_OPTIONS or name.startswith(SECURITY_PREFIXES)


def parse_for_edge(
    parse: Callable[[Mapping[str, object]], T], settings: Mapping[str, object], explain: Callable[[str], str]
) -> T:
    """For callers whose users write the options with other names: `explain` adds that to the text of each problem."""
    draft = Draft()
    options = draft.attempt(parse, settings)
    draft.found = [ConfigError(explain(str(each)), each.entry) for each in draft.found]
    draft.raise_any()
    assert options is not None, "what was not made has left a problem"
    return options


def _remark(name: str, value: object, option: Option) -> Iterator[str]:
    alias = ALIASES.get(name)
    if isinstance(value, str) and is_like_reference(value):
        yield f"{name} {AS_WRITTEN}"
    if alias and "this producer" not in alias.origin:
        yield f"{name} is a name of {alias.origin}: use {option.name}"
    if option.deprecation:
        yield f"{name} is a deprecated option of {option.origin}: {option.deprecation}"


def _explain_unknown(name: str) -> ConfigError:
    if name.startswith(SECURITY_PREFIXES):
        hint = suggest_name(name, _KNOWN_NAMES, ", ")
        return ConfigError(f"{name} is not supported: {UNKNOWN_SECURITY}{hint}", OPTION_UNKNOWN)
    if name in CONSUMER_OPTIONS:
        return ConfigError(f"{name} is an option of consumers: leave it out", OPTION_UNKNOWN)
    # Underscores are Python's spelling, hyphens the command line's.
    dotted = name.strip().lower().replace("_", ".").replace("-", ".")
    hint = "" if dotted in CONSUMER_OPTIONS else suggest_name(dotted, _KNOWN_NAMES)
    return ConfigError(f"{name!r} is not a producer option{hint}", OPTION_UNKNOWN)


_PRODUCER = Table({**OPTIONS, **FOREIGN_OPTIONS}, _explain_unknown, ALIASES, _remark)
_OF_SECURITY = {row.name: OPTIONS[row.name] for rows in SECURITY_CHAPTERS.values() for row in rows}
_SECURITY = Table(
    _OF_SECURITY,
    _explain_unknown,
    {name: each for name, each in ALIASES.items() if each.target in _OF_SECURITY},
    _remark,
)


# ---- rules over several options -------------------------------------------------------------------------------------


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
        raise missing_error("transactional.id needs enable.idempotence=true, acks=all and retries above 0")


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
    servers, protocol = draft.values["bootstrap.servers"], draft.values["security.protocol"]
    distinct: dict[tuple[str, int], tuple[str, int]] = {}
    for scheme, host, port in servers:
        if scheme != protocol and (scheme == "SSL" or scheme.startswith("SASL_")):
            raise ConfigError(f"bootstrap.servers asks for {scheme}, but security.protocol={protocol}: make them agree")
        distinct.setdefault((host.lower(), port), (host, port))
    if len(distinct) < len(servers):
        draft.notices.append(f"{draft.spelling('bootstrap.servers')} names some servers more than once")
    draft.values["bootstrap.servers"] = tuple(distinct.values())


def check_rack(draft: Draft) -> None:
    values = draft.values
    values["partitioner.class"] = values["partitioner.class"] or "default"
    if values["client.rack"] and not values["partitioner.rack.aware"]:
        draft.notices.append("client.rack changes nothing without partitioner.rack.aware=true")
    elif values["partitioner.rack.aware"] and values["partitioner.class"] != "default":
        draft.notices.append("partitioner.rack.aware changes nothing: it is for the default partitioner only")


def check_record_limits(draft: Draft) -> None:
    values = draft.values
    # In librdkafka 0 means "no limit".
    values["queue.buffering.max.messages"] = values["queue.buffering.max.messages"] or None
    queue, batch = values["queue.buffering.max.messages"], values["batch.num.messages"]
    if queue is not None and batch is not None and batch > queue:
        raise ConfigError(
            f"batch.num.messages={batch} is more than queue.buffering.max.messages={queue} allows", OPTIONS_CONTRADICT
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
        raise missing_error("compressed.topics names topics, but compression.type=none: set compression.type")
    if codec != "none":
        # A missing optional package must be reported here, not when the first batch is full. Imported only if needed,
        # because it imports the codecs.
        from kafka_sink.formats.records.compression import make_compressor

        make_compressor(codec, None if values.get(level_name) == -1 else values.get(level_name))


def fill_client_id(draft: Draft) -> None:
    if "client.id" not in draft.named and draft.values["transactional.id"] is not None:
        draft.values["client.id"] = f"producer-{draft.values['transactional.id']}"


def check_security(draft: Draft) -> None:
    protocol = draft.values["security.protocol"]
    mechanism = draft.values["sasl.mechanism"]
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
    # A token endpoint has TLS whatever the brokers have, and is verified by ssl.truststore.*.
    is_endpoint_asked = (
        has_sasl and mechanism == OAUTHBEARER and draft.values["sasl.oauthbearer.token.endpoint.url"] is not None
    )
    useless = (() if has_tls else ("ssl.", "enable.ssl.")) + (() if has_sasl else ("sasl.",))
    for name, spelling in draft.named.items():
        if name.startswith(useless) and not (is_endpoint_asked and name.startswith("ssl.truststore.")):
            login = "; to log in, set it to SASL_SSL or SASL_PLAINTEXT" if name.startswith("sasl.") else ""
            draft.notices.append(f"{spelling} has no effect with security.protocol={protocol}{login}")
    if has_tls:
        _check_tls(draft)
    elif not has_sasl:
        _check_unused_credentials(draft)
    if has_sasl:
        from kafka_sink.options.sasl_rules import check_sasl

        check_sasl(draft, out_of_scope(OPTIONS, draft), has_tls, may_send_credentials(draft))


def _check_unused_credentials(draft: Draft) -> None:
    """They would not be sent, but whoever set them did not mean a connection that everybody can read and use."""
    given = [name for name in draft.named if name.startswith("sasl.") and OPTIONS[name].is_secret]
    if given and not may_send_credentials(draft):
        raise ConfigError(
            f"{draft.spelling(given[0])} is set, but security.protocol=PLAINTEXT neither encrypts nor logs in: set "
            "security.protocol=SASL_SSL, or leave the credentials out",
            CREDENTIALS_IN_CLEAR,
        )


def may_send_credentials(draft: Draft) -> bool:
    """Over connections without TLS."""
    is_allowed: bool = draft.values["allow.plaintext.credentials"]
    return is_allowed or all(is_this_host(host) for *_, host, _ in draft.values.get("bootstrap.servers", ()))


def _check_tls(draft: Draft) -> None:
    values, named = draft.values, draft.named
    for name, other in (
        ("ssl.truststore.certificates", "ssl.truststore.location"),
        ("ssl.keystore.key", "ssl.keystore.location"),
        ("ssl.keystore.certificate.chain", "ssl.keystore.location"),
        ("ssl.key.location", "ssl.keystore.location"),
        ("ssl.certificate.location", "ssl.keystore.location"),
        ("ssl.keystore.key", "ssl.key.location"),
        ("ssl.keystore.certificate.chain", "ssl.certificate.location"),
    ):
        if values[name] is not None and values[other] is not None:
            raise contradiction_error(named[name], named[other])
    has_key = values["ssl.keystore.key"] is not None or values["ssl.key.location"] is not None
    has_chain = values["ssl.keystore.certificate.chain"] is not None or values["ssl.certificate.location"] is not None
    if has_key != has_chain:
        raise missing_error("the client's own key and its certificates belong together: only one of them is set")
    for side in ("truststore", "keystore"):
        kind = values[f"ssl.{side}.type"]
        if f"ssl.{side}.type" in named and kind == "JKS":
            raise ConfigError(
                f"ssl.{side}.type={kind} is not supported: {conversion_hint(kind, f'<your {side}>', side)}",
                OPTION_NOT_SUPPORTED,
            )
        if values[f"ssl.{side}.password"] is not None and values[f"ssl.{side}.location"] is None:
            raise ConfigError(
                f"{named[f'ssl.{side}.password']} is for a file, and ssl.{side}.location names none", OPTIONS_CONTRADICT
            )
    if values["ssl.protocol"] == "TLSv1.2" and values["ssl.enabled.protocols"] == ("TLSv1.3",):
        raise ConfigError("ssl.protocol=TLSv1.2 and ssl.enabled.protocols=TLSv1.3 leave no version of TLS")
    chosen_of_13 = set(TLS_13_SUITES).intersection(values["ssl.cipher.suites"])
    if chosen_of_13 and len(chosen_of_13) < len(TLS_13_SUITES):
        draft.notices.append("ssl.cipher.suites names some suites of TLS 1.3: all three of them may be used")
    if not values["ssl.endpoint.identification.algorithm"]:
        draft.notices.append(
            "the host names of brokers are not checked (ssl.endpoint.identification.algorithm is empty): any holder of "
            "a trusted certificate can pretend to be a broker"
        )
    if not values["enable.ssl.certificate.verification"]:
        draft.notices.append(
            "certificates of brokers are not checked (enable.ssl.certificate.verification=false): anybody can pretend "
            "to be a broker and read everything, credentials included"
        )


RULES: tuple[Callable[[Draft], None], ...] = (
    check_bootstrap, check_idempotence, check_timeouts, partial(check_needs, OPTIONS), check_rack, check_record_limits,
    check_compression, check_security, fill_client_id,
)  # fmt: skip
