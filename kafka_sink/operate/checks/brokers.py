"""Are the brokers reachable, is the login accepted, and is each broker reachable at its advertised address?"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial

from kafka_sink.commit.admin.broker_clock import CLOCK_WARN_MS, controller_difference
from kafka_sink.commit.admin.client import ABOUT_US, Client
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.io.side_by_side import call_side_by_side
from kafka_sink.kafka.wire.apis import API_VERSIONS
from kafka_sink.operate.checks.finding import FAIL, WARN, ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob

# Shares of the timeout, one after the other: a host that drops packets must not use it up.
CONNECT_SHARE, LOGIN_SHARE = 0.35, 0.6
CLOCK_FAIL_MS = 3_600_000
# Advice by error text; the texts are those of kafka/client/, kafka/io/ and security/.
LOGIN_ADVICE = (
    ("refused the credentials", "compare user, password and mechanism with what the brokers know"),
    ("does not take sasl.mechanism", "set kafka.sasl.mechanism to one that is offered"),
    ("does not want SASL", "set kafka.security.protocol=PLAINTEXT or SSL, or use the port of the SASL listener"),
    ("a TLS listener behind", "set kafka.security.protocol=SSL or SASL_SSL, or use the port of the plain listener"),
    ("does not speak TLS", "set kafka.security.protocol=PLAINTEXT or SASL_PLAINTEXT, or use the TLS listener's port"),
    ("does this listener want SASL", "set kafka.security.protocol=SASL_SSL or SASL_PLAINTEXT, and credentials"),
    ("demands", "set kafka.ssl.keystore.location to a certificate and its key"),
    ("not trusted here", "set kafka.ssl.truststore.location to the certificate of the brokers' authority"),
    ("for another", "use the name that the certificate is for in kafka.bootstrap.servers"),
    ("no Kafka broker", "compare host and port with the brokers' listeners"),
)  # fmt: skip
ANY_LOGIN_ADVICE = "see docs/security.md, what an error means"


def bootstrap(job: CheckedJob) -> Iterator[ProbeResult]:
    """Resolves names and opens ports, for each server; without login."""
    servers = job.options.producer.bootstrap_servers
    limit_s = job.timeout_s * CONNECT_SHARE
    told = call_side_by_side([partial(trouble_of, server, limit_s) for server in servers], limit_s)
    troubles = [
        _silence(server, limit_s) if each is None else str(each) for server, each in zip(servers, told, strict=True)
    ]
    dead = [trouble for trouble in troubles if trouble]
    for trouble in dead:
        verdict = FAIL if len(dead) == len(servers) else WARN
        yield ProbeResult("bootstrap", verdict, trouble, "compare kafka.bootstrap.servers with the brokers' listeners")
    if len(dead) < len(servers):
        yield ok("bootstrap", f"{len(servers) - len(dead)} of {len(servers)} servers accept connections")


def trouble_of(server: tuple[str, int], limit_s: float) -> str:
    """Empty: none."""
    title = f"{server[0]}:{server[1]}"
    try:
        socket.create_connection(server, limit_s).close()
    except socket.gaierror as error:
        return f"{title}: this host name is not known here ({error.strerror})"
    except UnicodeError:
        return f"{title}: this is no host name"
    except OSError as error:
        return f"{title}: {error.strerror}" if error.strerror else _silence(server, limit_s)
    return ""


def _silence(server: tuple[str, int], limit_s: float) -> str:
    return f"{server[0]}:{server[1]}: no answer within {limit_s:.1f} s"


def login(job: CheckedJob) -> Iterator[ProbeResult]:
    """Uses one connection, so that a wrong password is tried only once."""
    options = job.options.producer
    has_tls, has_sasl = options.security_protocol.endswith("SSL"), options.security_protocol.startswith("SASL")
    title = f"security.protocol={options.security_protocol}"
    title += f", sasl.mechanism={options.sasl_mechanism}" if has_sasl else ""
    try:
        with job.client(LOGIN_SHARE) as client:
            client.reach()
    except KafkaSinkError as error:
        yield fail("login", f"{title}: {error}", login_advice(str(error)))
        return
    if has_tls and not (options.enable_ssl_certificate_verification and options.ssl_endpoint_identification_algorithm):
        text = f"{title}: accepted, but whose certificate it is nobody looked at"
        advice = (
            "leave kafka.enable.ssl.certificate.verification and kafka.ssl.endpoint.identification.algorithm at their "
            "defaults"
        )
        yield warn("login", text, advice)
        return
    plain = "" if has_tls else ": accepted, not encrypted"
    yield ok("login", f"{title}{plain or ': accepted'}")


def login_advice(text: str) -> str:
    return next((advice for part, advice in LOGIN_ADVICE if part in text), ANY_LOGIN_ADVICE)


def listeners(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    """Connects to every broker at its advertised address: tasks write to all partition leaders."""
    answers = client.answers_by_broker(API_VERSIONS, ABOUT_US)
    dead = {node: answer for node, answer in answers.items() if isinstance(answer, KafkaSinkError)}
    for node, error in sorted(dead.items()):
        text = f"broker {node} is not reached by the address that it advertises: {error}"
        advice = "start it, or set its advertised.listeners to an address that this host and every executor can reach"
        yield fail("brokers", text, advice)
    alive = [answer for answer in answers.values() if not isinstance(answer, KafkaSinkError)]
    if len(alive) == len(answers):
        yield ok("brokers", f"{len(alive)} of {len(answers)} answer, of cluster {client.cluster_id() or '(unnamed)'}")
    offered = {tuple((row["api_key"], row["max_version"]) for row in answer["api_keys"]) for answer in alive}
    # Finalised ones, of the cluster; there are none before Kafka 2.7.
    rows = next((answer.get("finalized_features") or () for answer in alive), ())
    levels = ", ".join(sorted(f"{row['name']}={row['max_version_level']}" for row in rows)) or "none"
    if len(offered) > 1:
        text = f"brokers offer different versions of the protocol; features: {levels}"
        advice = "fine during a rolling upgrade; else bring all brokers to one release"
        yield warn("versions", text, advice)
    elif offered:
        yield ok("versions", f"{len(next(iter(offered)))} requests of the protocol; features: {levels}")


def clock(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    """Compares with the controller's time. No result without it: the job needs none."""
    difference_ms = controller_difference(client)
    if difference_ms is not None:
        yield clock_finding(difference_ms, "the controller's")


def clock_finding(difference_ms: int, whose: str) -> ProbeResult:
    if abs(difference_ms) < CLOCK_WARN_MS:
        return ok("clock", f"this clock and {whose} differ by less than {CLOCK_WARN_MS // 1000} s")
    way = "behind" if difference_ms > 0 else "ahead of"
    text = f"this clock is {abs(difference_ms) / 1000:.0f} s {way} {whose}"
    advice = "set both by NTP: tokens, signatures and timestamps of records are judged by it"
    return ProbeResult("clock", FAIL if abs(difference_ms) >= CLOCK_FAIL_MS else WARN, text, advice)
