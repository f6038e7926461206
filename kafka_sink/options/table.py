"""The producer's options: those of Java with their names, a few of other clients, and refused ones that need a JVM.

Defaults are in `ProducerOptions`; a row has its own only if a user would write it differently. Other names for the
same, and options of other clients that are refused: `foreign_table.py`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from kafka_sink.options.hooks import InterceptorsRule, PartitionerRule, SerializerRule
from kafka_sink.options.option import Option, Treatment
from kafka_sink.options.producer_options import LONG_MAX, ProducerOptions
from kafka_sink.options.values import (
    ANY_TEXT,
    HOST_CHECK,
    LONG_MIN,
    STORE_TYPE,
    TLS_VERSION,
    Acks,
    CallbackHandler,
    Choice,
    CipherSuites,
    Flag,
    Fraction,
    Mechanism,
    Names,
    Region,
    Retriever,
    Rule,
    Servers,
    Text,
    TlsVersions,
    TokenProvider,
    Whole,
)

# Unlisted names with these prefixes (other clients have their own) are refused, too.
SECURITY_PREFIXES = ("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")
UNKNOWN_SECURITY = "this producer has no such security option"

_RD, _OWN, _OLD = "librdkafka", "this producer", "Kafka 0.8"
_BOTH = f"{_OLD}, {_RD}"
_PEM_FILE = "a file of PEM"
_STORE_FILE = "a file of PEM, or of PKCS12 with the extra pykafka-sink[pkcs12],"
_STORE_TYPE = (
    "What the file is; which of the two that can be read is seen from it, whatever the default says. JKS is refused "
    "with the command that converts it."
)
_JVM = "there is no JVM here to load it"
_KERBEROS = "tickets are not renewed by a thread; each new session takes one that is good"
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
_BROKER_SIDE = "it is for brokers, which check tokens; leave it out"
_ASSERTION = (
    "assertions are not signed here; keep a finished one in the file of sasl.oauthbearer.assertion.file, or pass a "
    "function that gets the token as sasl.oauthbearer.token.provider"
)

_DEFAULTS = {each.name: None if each.default is MISSING else each.default for each in fields(ProducerOptions)}


def _row(name: str, rule: Rule, meaning: str, *, field: str | None = None, **more: Any) -> Option:
    """The field has the option's name unless given."""
    field = name.replace(".", "_") if field is None else field
    return Option(name, rule, meaning, **{"default": _DEFAULTS.get(field), "field": field, **more})


def _int(name: str, meaning: str, *, minimum: int = 0, **more: Any) -> Option:
    return _row(name, Whole(minimum), meaning, **more)


def _long(name: str, meaning: str, *, minimum: int = 0, **more: Any) -> Option:
    return _row(name, Whole(minimum, LONG_MAX), meaning, **more)


def _flag(name: str, meaning: str, **more: Any) -> Option:
    return _row(name, Flag(), meaning, **more)


def _text(name: str, meaning: str, **more: Any) -> Option:
    return _row(name, Text(empty_allowed=False), meaning, **more)


def _refusal(name: str, meaning: str, instead: str, *, rule: Rule = ANY_TEXT, **more: Any) -> Option:
    return Option(name, rule, meaning, treatment=Treatment.REFUSED, instead=instead, **more)


def _without_effect(name: str, meaning: str, instead: str, *, rule: Rule, **more: Any) -> Option:
    return Option(name, rule, meaning, treatment=Treatment.NO_EFFECT, instead=instead, **more)


_PLAIN_OPTIONS = (
    # Delivery guarantees.
    _row("bootstrap.servers", Servers(), "Brokers to ask first; the rest of the cluster is learnt from them. A scheme "
         "such as PLAINTEXT:// may stand in front; one that asks for TLS or SASL must agree with "
         "security.protocol.", is_required=True),
    _row("acks", Acks(), "When a request counts as written: once all in-sync replicas have it (all, -1), once the "
         "leader has it (1), or as soon as it is sent (0).", default="all"),
    _flag("enable.idempotence", "Number the batches so that the broker drops the copies a retry makes. Turned off with "
          "a notice when it is not named and acks or retries rule it out."),
    _int("retries", "How often a batch may be sent again after an error that can pass. delivery.timeout.ms is the "
         "better limit."),
    _int("delivery.timeout.ms", "From send() to the verdict on a record, retries included. At least linger.ms + "
         "request.timeout.ms; raised to that sum with a notice when it is not named."),
    _long("max.block.ms", "How long a call may wait for metadata, for room in buffer.memory, or for a step of a "
          "transaction."),
    _text("transactional.id", "Turns transactions on and fences older producers with the same id. Needs idempotence."),
    _int("transaction.timeout.ms", "After this long the coordinator aborts an open transaction by itself. Counted from "
         "the first partition in it; the broker refuses more than its transaction.max.timeout.ms.", minimum=1),
    _refusal("transaction.two.phase.commit.enable", "Transactions that never expire, ended by an outside coordinator "
             "(KIP-939).",
             "no released broker can keep prepared transactions; set transaction.timeout.ms to the time the outside "
             "decision may take", rule=Flag(), default=False, same=(False,)),
    # Batching and memory.
    _int("batch.size", "Bytes of one batch of one partition before it is sent without lingering, compressed as the "
         "batches before it let expect; also how much goes to one partition before records without a key move on. 0: "
         "each record is a batch."),
    _long("linger.ms", "How long a batch that is not full waits for more records."),
    _long("buffer.memory", "Bytes of records that may wait to be sent; when they are used up, send() waits up to "
          "max.block.ms."),
    _int("max.request.size", "Largest request, and largest record before compression, in bytes."),
    _row("compression.type", Choice(("none", "gzip", "snappy", "lz4", "zstd")), "Codec of whole batches."),
    _row("compression.gzip.level", Whole(1, 9, besides=-1), "Level for gzip; -1 is zlib's own choice."),
    _row("compression.lz4.level", Whole(1, 17), "Level for lz4."),
    _row("compression.zstd.level", Whole(-131_072, 22), "Level for zstd."),
    _without_effect("buffer.memory.allocation.strategy", "Since Java 4.4, internal there: what a batch takes from "
                    "buffer.memory when it is begun.", "buffer.memory counts the bytes of records, as incremental does",
                    rule=Choice(("full", "incremental"), any_case=True), default="full", same=("incremental",)),
    _int("queue.buffering.max.messages", "Most records that may wait to be sent, besides the limit of buffer.memory; "
         "0: no limit.", field="buffer_records_max", origin=_BOTH),
    _int("batch.num.messages", "Most records in one batch, besides the limit of batch.size.", minimum=1,
         field="batch_records_max", origin=_BOTH),
    _row("compressed.topics", Names(), "Only these topics are compressed; empty: all.", origin=_OLD,
         deprecation="it has no successor; use one producer for each compression.type"),
    _row("compression.level", Whole(-1, 22), "Level for whatever compression.type says; -1: the codec's "
         "default.", field="", origin=_RD),
    _row("producer.type", Choice(("sync", "async")), "sync: send() returns when the record has been answered for, and "
         "raises when it failed.", default="async", field="send_is_synchronous", origin=_OLD,
         deprecation="call send(...).result() where an answer is awaited"),
    # Partitioning.
    _row("partitioner.class", PartitionerRule(), "How a record without an explicit partition gets one. The default "
         "hashes keys as Java does (murmur2) and fills one partition after the other, favouring quick brokers, where "
         "there is no key. consistent_random is librdkafka's default (CRC32).", default=None, field="partitioner"),
    _flag("partitioner.adaptive.partitioning.enable", "Send fewer of the records without a key to partitions whose "
          "broker falls behind."),
    _long("partitioner.availability.timeout.ms", "Leave out partitions whose broker has taken nothing for this long; "
          "0: never."),
    _flag("partitioner.ignore.keys", "Choose the partition as if no record had a key."),
    _flag("partitioner.rack.aware", "Send records without a key only to partitions that are led in the rack of "
          "client.rack, as long as there are any. The default partitioner does it, no other; it needs client.rack."),
    _row("client.rack", ANY_TEXT, "Where this client runs, in the words of the brokers' broker.rack: what "
         "partitioner.rack.aware goes by. Without that option it changes nothing, and a notice says so."),
    # Requests and connections.
    _row("client.id", ANY_TEXT, "Name in the broker's logs, metrics and quotas. When empty it is producer- and the "
         "transactional id or a running number."),
    _int("max.in.flight.requests.per.connection", "Unanswered requests per broker. At most 5 with idempotence; 1 keeps "
         "strict order without it.", minimum=1),
    _int("request.timeout.ms", "How long one answer of a broker is awaited."),
    _long("retry.backoff.ms", "Wait before the first retry; it doubles, with 20 % jitter, with each further."),
    _long("retry.backoff.max.ms", "Longest wait before a retry."),
    _long("reconnect.backoff.ms", "Wait before connecting again to a broker; it doubles with each failure."),
    _long("reconnect.backoff.max.ms", "Longest wait before connecting again. When only reconnect.backoff.ms is named, "
          "that value: the wait then does not grow."),
    _long("socket.connection.setup.timeout.ms", "How long setting up a TCP connection may take at first; it doubles "
          "with each failure."),
    _long("socket.connection.setup.timeout.max.ms", "Longest time for setting up a TCP connection."),
    _long("connections.max.idle.ms", "Close connections unused for this long; negative: never.", minimum=LONG_MIN),
    _int("send.buffer.bytes", "Socket send buffer (SO_SNDBUF); -1: the system's choice.", minimum=-1),
    _int("receive.buffer.bytes", "Socket receive buffer (SO_RCVBUF); -1: the system's choice.", minimum=-1),
    _refusal("client.dns.lookup", "Which addresses of a host name are tried.",
             "canonical host names matter to Kerberos only; every address of a name is tried in turn",
             rule=Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")), default="use_all_dns_ips",
             same=("use_all_dns_ips",)),
    _refusal("bootstrap.resolve.timeout.ms", "Since Java 4.4: how long names that cannot be resolved are tried again "
             "before the client is given up; 0: resolved once, while it is made. Here no producer is given up for "
             "that: names are resolved when a connection is wanted, at each attempt anew.",
             "a call waits for names up to max.block.ms, and fails with their errors; set that",
             rule=Whole(0, LONG_MAX), default=0, same=(0,)),
    # Metadata.
    _long("metadata.max.age.ms", "Ask for the cluster's metadata again after this long without a change."),
    _long("metadata.max.idle.ms", "Forget a topic that has not been written to for this long.", minimum=5_000),
    _row("metadata.recovery.strategy", Choice(("rebootstrap", "none"), any_case=True), "What to do when no known "
         "broker answers: start again from bootstrap.servers, or keep trying."),
    _long("metadata.recovery.rebootstrap.trigger.ms", "Start again from bootstrap.servers after this long without "
          "metadata."),
    _without_effect("metadata.cluster.check.enable", "Since Java 4.4: tell a broker which cluster and node the client "
                    "takes it for, so that it can object.",
                    "ApiVersions is spoken up to version 4, which does not tell; a cluster id that changes is in the "
                    "log, and metadata are asked for again when a broker is the wrong one", rule=Flag(), default=True,
                    same=(False,)),
    _flag("allow.auto.create.topics", "Let metadata requests create unknown topics, if the broker allows it. The Java "
          "producer always does.", origin="librdkafka, kafka-python"),
    # User code.
    _row("key.serializer", SerializerRule(), "Turns a key into bytes or None. Java demands one; when none is named "
         "here, bytes pass as they are and text becomes UTF-8."),
    _row("value.serializer", SerializerRule(), "The same for values."),
    _row("interceptor.classes", InterceptorsRule(), "Objects that see and may replace each record before it is sent, "
         "and see each outcome. Python objects, not class names.", field="interceptors"),
    _refusal("config.providers", "Names of JVM classes that look secrets up.",
             "look the values up in Python and pass the results", rule=Names(), default=(), same=((),)),
    # Metrics.
    _int("metrics.num.samples", "Windows over which rates and averages reach.", minimum=1),
    _long("metrics.sample.window.ms", "Length of one such window.", minimum=1),
    _without_effect("metrics.recording.level", "How many metrics are kept.", "the producer has no metrics beyond INFO",
                    rule=Choice(("INFO", "DEBUG", "TRACE")), default="INFO", same=("INFO",)),
    _refusal("metric.reporters", "JVM classes that publish metrics.", "read Producer.metrics() and publish its values",
             rule=Names(), default=("org.apache.kafka.common.metrics.JmxReporter",),
             same=((), ("org.apache.kafka.common.metrics.JmxReporter",))),
    _without_effect("enable.metrics.push", "Let the broker ask for the client's metrics (KIP-714).",
                    "this client offers no metrics to brokers, as if none had asked; read Producer.metrics()",
                    rule=Flag(), default=True, same=(False,)),
)  # fmt: skip

SECURITY_OPTIONS = (
    _row("security.protocol", Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), any_case=True), "Encryption "
         "(SSL) and authentication (SASL) of connections. SASL_PLAINTEXT shows what is sent, with PLAIN even the "
         "password, to whoever can read the network."),
    _refusal("security.providers", "JVM security providers.", _JVM),
    # Encryption.
    _row("ssl.protocol", TLS_VERSION, "The newest TLS version that may be used."),
    _row("ssl.enabled.protocols", TlsVersions(), "TLS versions that may be used."),
    _row("ssl.cipher.suites", CipherSuites(), "Ciphers that may be used, by Java's or OpenSSL's names; empty: what "
         "OpenSSL thinks safe. Those of TLS 1.3 cannot be chosen one by one: naming any allows all three."),
    _row("ssl.endpoint.identification.algorithm", HOST_CHECK, "Check that the certificate of a broker is for its host "
         "name; empty: no check, so that any holder of a trusted certificate can pretend to be a broker."),
    _text("ssl.truststore.location", f"{_STORE_FILE} with the certificates to trust, or a folder of them as OpenSSL's "
          "rehash makes it. Without it and ssl.truststore.certificates those that the system trusts."),
    _text("ssl.truststore.certificates", "PEM text with the certificates to trust."),
    _row("ssl.truststore.type", STORE_TYPE, _STORE_TYPE),
    _text("ssl.truststore.password", "Password of that file, if it is PKCS12."),
    _text("ssl.keystore.location", f"{_STORE_FILE} with the client's own key and certificates."),
    _text("ssl.keystore.certificate.chain", "PEM text with the client's own certificates."),
    _text("ssl.keystore.key", "PEM text with the client's own key."),
    _text("ssl.key.password", "Password of that key, if it is encrypted."),
    _row("ssl.keystore.type", STORE_TYPE, _STORE_TYPE),
    _text("ssl.keystore.password", "Password of that file and of the key in it, if it is PKCS12."),
    _refusal("ssl.provider", "JVM provider of TLS.", _JVM),
    _refusal("ssl.engine.factory.class", "JVM class that makes TLS engines.", _JVM),
    _refusal("ssl.secure.random.implementation", "JVM source of randomness.", _JVM),
    _refusal("ssl.keymanager.algorithm", "JVM algorithm for own keys.", _JVM, default="SunX509"),
    _refusal("ssl.trustmanager.algorithm", "JVM algorithm for trust.", _JVM, default="PKIX"),
    _text("ssl.certificate.location", f"{_PEM_FILE} with the client's own certificates.", origin=_RD),
    _text("ssl.key.location", f"{_PEM_FILE} with the client's own key.", origin=_RD),
    _text("ssl.crl.location", f"{_PEM_FILE} with lists of revoked certificates: one from each authority that signed a "
          "broker's certificate, or every connection fails.", origin=_RD),
    _flag("enable.ssl.certificate.verification", "false: take any certificate. Whoever is in between reads and changes "
          "everything, credentials included.", origin=_RD),
    # Authentication.
    _row("sasl.mechanism", Mechanism(), "How the client proves who it is."),
    _text("sasl.jaas.config", "Login module and credentials as the Java client takes them: PlainLoginModule, "
          "ScramLoginModule (also with tokenauth), OAuthBearerLoginModule, IAMLoginModule or Krb5LoginModule."),
    _text("sasl.username", "User name for PLAIN and SCRAM.", origin=_RD),
    _text("sasl.password", "Password for PLAIN and SCRAM.", origin=_RD),
    _refusal("sasl.client.callback.handler.class", "JVM class asked for credentials. That of AWS_MSK_IAM is "
             "understood: it says what happens anyway.", _JVM,
             same=("software.amazon.msk.auth.iam.IAMClientCallbackHandler",)),
    _row("sasl.login.callback.handler.class", CallbackHandler(), "Kafka's own handlers for OAUTHBEARER are understood: "
         "they say what happens anyway."),
    _refusal("sasl.login.class", "JVM class that logs in.", _JVM),
    # AWS_MSK_IAM.
    _row("sasl.aws.region", Region(), "AWS_MSK_IAM: region of the brokers. By default that of their host names, else "
         "AWS_REGION or AWS_DEFAULT_REGION.", origin=_OWN),
    _text("sasl.aws.access.key.id", "AWS_MSK_IAM: id of the key. Without it botocore finds credentials: "
          "environment, web identity, ~/.aws, container, instance.", origin=_OWN),
    _text("sasl.aws.secret.access.key", "Its secret.", origin=_OWN),
    _text("sasl.aws.session.token", "Its session token, if it has one.", origin=_OWN),
    _text("sasl.aws.profile", "AWS_MSK_IAM: profile of ~/.aws, as awsProfileName in sasl.jaas.config.", origin=_OWN),
    _text("sasl.aws.role.arn", "AWS_MSK_IAM: role to assume with those credentials, as awsRoleArn in "
          "sasl.jaas.config.", origin=_OWN),
    # OAUTHBEARER.
    _row("sasl.oauthbearer.token.provider", TokenProvider(), "OAUTHBEARER: a function without arguments that returns "
         "the token as text, by import name or as a Python callable. It is called where connections are made, also on "
         "executors.", origin=_OWN),
    _text("sasl.oauthbearer.token.endpoint.url", "OAUTHBEARER: where tokens are got with client id and secret (OIDC "
          "client credentials). https, or http for an address of this host."),
    _text("sasl.oauthbearer.client.credentials.client.id", "Id of the client at the token endpoint."),
    _text("sasl.oauthbearer.client.credentials.client.secret", "Its secret."),
    _text("sasl.oauthbearer.assertion.file", "A file with a finished, signed assertion (RFC 7523), in place of the "
          "secret. It is read anew for each token."),
    _row("sasl.oauthbearer.jwt.retriever.class", Retriever(), "How a token is got. JwtBearerJwtRetriever: the "
         "assertion is the grant; the others: it says who the client is.",
         default=f"{_OAUTHBEARER}.DefaultJwtRetriever"),
    _text("sasl.oauthbearer.scope", "Scope asked for with a token."),
    _flag("sasl.oauthbearer.header.urlencode", "Encode id and secret as URL text."),
    _int("sasl.login.connect.timeout.ms", "Time for connecting to the token endpoint; 10 seconds by default. Also for "
         "STS and SSO of AWS.", minimum=1),
    _int("sasl.login.read.timeout.ms", "Time for its answer; 10 seconds by default.", minimum=1),
    _long("sasl.login.retry.backoff.ms", "First wait before asking it again."),
    _long("sasl.login.retry.backoff.max.ms", "Longest such wait."),
    _row("sasl.login.refresh.window.factor", Fraction(0.5, 1.0), "Share of the life of a token, or of credentials of "
         "AWS, after which it is renewed."),
    _row("sasl.login.refresh.window.jitter", Fraction(0.0, 0.25), "Random part of that moment."),
    _row("sasl.login.refresh.min.period.seconds", Whole(0, 900), "Least time between two renewals."),
    _row("sasl.login.refresh.buffer.seconds", Whole(0, 3_600), "Time kept free before a token expires."),
    # GSSAPI.
    _text("sasl.kerberos.service.name", "GSSAPI: the first part of the brokers' Kerberos name, as serviceName in "
          "sasl.jaas.config. The rest is the host name that a broker advertises."),
    _text("sasl.kerberos.principal", "GSSAPI: the client's Kerberos name. Without it that of the ticket "
          "cache.", origin=_RD),
    _text("sasl.kerberos.keytab", "GSSAPI: file with the key of that principal. Without it the ticket cache of the "
          "process (KRB5CCNAME) is used.", origin=_RD),
    _refusal("sasl.kerberos.kinit.cmd", "Program that gets tickets.",
             "no program is run; the Kerberos library gets tickets from a keytab, or takes those of a cache",
             default="/usr/bin/kinit", same=("/usr/bin/kinit",)),
    _without_effect("sasl.kerberos.min.time.before.relogin", "Least time between two Kerberos logins.", _KERBEROS,
                    rule=Whole(0, LONG_MAX), default=60_000, same=(60_000,)),
    _without_effect("sasl.kerberos.ticket.renew.jitter", "Random part of a ticket's renewal time.", _KERBEROS,
                    rule=Fraction(0.0, 1.0), default=0.05, same=(0.05,)),
    _without_effect("sasl.kerberos.ticket.renew.window.factor", "Share of a ticket's life after which it is renewed.",
                    _KERBEROS, rule=Fraction(0.0, 1.0), default=0.8, same=(0.8,)),
    *(_refusal(name, meaning, _BROKER_SIDE, default=default) for name, default, meaning in (
        ("sasl.oauthbearer.scope.claim.name", "scope", "Claim that holds the scope."),
        ("sasl.oauthbearer.sub.claim.name", "sub", "Claim that holds the subject."),
        ("sasl.oauthbearer.clock.skew.seconds", 30, "Allowed difference of clocks."),
        ("sasl.oauthbearer.expected.audience", (), "Audiences a token may name."),
        ("sasl.oauthbearer.expected.issuer", None, "Issuer a token must name."),
        ("sasl.oauthbearer.allow.unverified.audience", False, "Take tokens whose audience was not checked."),
        ("sasl.oauthbearer.allow.unverified.issuer", False, "Take tokens whose issuer was not checked."),
        ("sasl.oauthbearer.jwks.endpoint.url", None, "Where the keys that sign tokens are found."),
        ("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "How often those keys are read again."),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, "First wait before reading them again."),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, "Longest such wait."),
        ("sasl.oauthbearer.jwt.validator.class", f"{_OAUTHBEARER}.DefaultJwtValidator",
         "JVM class that checks tokens."),
    )),
    *(_refusal(name, meaning, _ASSERTION, default=default) for name, default, meaning in (
        ("sasl.oauthbearer.assertion.algorithm", "RS256", "Algorithm that signs an assertion."),
        ("sasl.oauthbearer.assertion.claim.aud", None, "Audience in an assertion."),
        ("sasl.oauthbearer.assertion.claim.iss", None, "Issuer in an assertion."),
        ("sasl.oauthbearer.assertion.claim.sub", None, "Subject in an assertion."),
        ("sasl.oauthbearer.assertion.claim.exp.seconds", 300, "Life of an assertion."),
        ("sasl.oauthbearer.assertion.claim.nbf.seconds", 60, "How far back an assertion begins to be valid."),
        ("sasl.oauthbearer.assertion.claim.jti.include", False, "Give each assertion an id."),
        ("sasl.oauthbearer.assertion.private.key.file", None, "File with the key that signs assertions."),
        ("sasl.oauthbearer.assertion.private.key.passphrase", None, "Passphrase of that key."),
        ("sasl.oauthbearer.assertion.template.file", None, "File with further claims of assertions."),
    )),
)  # fmt: skip

OPTIONS: dict[str, Option] = {row.name: row for row in (*_PLAIN_OPTIONS, *SECURITY_OPTIONS)}
