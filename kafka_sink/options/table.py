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
    AWS_REGION,
    CODECS,
    HOST_CHECK,
    LONG_MIN,
    NOT_EMPTY,
    SECRET,
    STORE_TYPE,
    TLS_VERSION,
    Acks,
    CallbackHandler,
    Choice,
    CipherSuites,
    Converted,
    Flag,
    Fraction,
    Mechanism,
    Names,
    PemPath,
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
_PEM_FILE = "a PEM file"
_STORE_FILE = "a PEM file (or PKCS12 with the extra pykafka-sink[pkcs12])"
_STORE_TYPE = (
    "The format of the file. PEM and PKCS12 are detected from the file, whatever the default is. JKS is refused; "
    "the error shows the command that converts it."
)
_JVM = "there is no JVM here to load it"
_KERBEROS = "no thread renews tickets; each new session takes a valid one"
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
_BROKER_SIDE = "it is for brokers, which check tokens; do not set it"
_ASSERTION = (
    "this producer does not sign assertions; put a signed one into the file of sasl.oauthbearer.assertion.file, or "
    "pass a function that returns the token as sasl.oauthbearer.token.provider"
)

# Kafka's strings have at most 32,767 bytes, and a client's default id is made of its transactional id.
ID_BYTES_MAX = 32_000

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
    return _row(name, NOT_EMPTY, meaning, **more)


def _secret(name: str, meaning: str, **more: Any) -> Option:
    return _row(name, SECRET, meaning, **more)


def _refusal(name: str, meaning: str, instead: str, *, rule: Rule = ANY_TEXT, **more: Any) -> Option:
    return Option(name, rule, meaning, treatment=Treatment.REFUSED, instead=instead, **more)


def _without_effect(name: str, meaning: str, instead: str, *, rule: Rule, **more: Any) -> Option:
    return Option(name, rule, meaning, treatment=Treatment.NO_EFFECT, instead=instead, **more)


_PLAIN_OPTIONS = (
    # Delivery guarantees.
    _row("bootstrap.servers", Servers(), "The brokers for the first connection. The client discovers the rest of the "
         "cluster from them. An address may start with a scheme such as PLAINTEXT://; a scheme with TLS or SASL must "
         "match security.protocol.", is_required=True),
    _row("acks", Acks(), "When a request counts as complete: when all in-sync replicas have it (all, -1), when the "
         "leader has it (1), or as soon as it is sent (0).", default="all"),
    _flag("enable.idempotence", "Number the batches so that the broker drops duplicates caused by retries. It is "
          "turned off with a notice if it is not set and acks or retries do not allow it."),
    _int("retries", "How often a batch is sent again after a retriable error. Prefer delivery.timeout.ms as the "
         "limit."),
    _int("delivery.timeout.ms", "Time limit from send() to success or failure of a record, including retries. It must "
         "be at least linger.ms + request.timeout.ms; if it is not set, it is raised to that sum with a notice."),
    _long("max.block.ms", "How long a call may wait for metadata, for room in buffer.memory, or for a step of a "
          "transaction."),
    _row("transactional.id", Text(False, ID_BYTES_MAX), "Turns transactions on and fences older producers with "
         "the same id. Needs idempotence."),
    _int("transaction.timeout.ms", "The coordinator aborts a transaction that is open for longer. The time starts with "
         "the first partition in the transaction. The broker refuses more than its transaction.max.timeout.ms.",
         minimum=1),
    _refusal("transaction.two.phase.commit.enable", "Transactions that never expire and are ended by an external "
             "coordinator (KIP-939).", "no released broker can keep prepared transactions; set transaction.timeout.ms "
             "to the time that the external decision may take", rule=Flag(), default=False, same=(False,)),
    # Batching and memory.
    _int("batch.size", "Bytes of one batch of one partition; a full batch is sent without lingering. The compressed "
         "size is estimated from earlier batches. It is also how much goes to one partition before records without a "
         "key use the next one. 0: each record is a batch."),
    _long("linger.ms", "How long a batch that is not full waits for more records."),
    _long("buffer.memory", "Bytes of records that may wait to be sent. When the buffer is full, send() waits up to "
          "max.block.ms."),
    _int("max.request.size", "Largest request, and largest record before compression, in bytes."),
    _row("compression.type", Choice(CODECS), "Compression codec for batches."),
    _row("compression.gzip.level", Whole(1, 9, besides=-1), "Level for gzip; -1 is zlib's default."),
    _row("compression.lz4.level", Whole(1, 17), "Level for lz4."),
    _row("compression.zstd.level", Whole(-131_072, 22), "Level for zstd."),
    _without_effect("buffer.memory.allocation.strategy", "Internal option since Java 4.4: how much of buffer.memory a "
                    "new batch allocates.", "buffer.memory counts the bytes of records, as incremental does",
                    rule=Choice(("full", "incremental"), any_case=True), default="full", same=("incremental",)),
    _int("queue.buffering.max.messages", "Maximum number of records that may wait to be sent, in addition to "
         "buffer.memory; 0: no limit.", field="buffer_records_max", origin=_BOTH),
    _int("batch.num.messages", "Maximum number of records in one batch, in addition to batch.size.", minimum=1,
         field="batch_records_max", origin=_BOTH),
    _row("compressed.topics", Names(), "The topics to compress; empty: all topics.", origin=_OLD, deprecation="it has "
         "no successor; use one producer for each compression.type"),
    _row("compression.level", Whole(-1, 22), "Level for the codec of compression.type; -1: the codec's default.",
         field="", origin=_RD),
    _row("producer.type", Converted("one of sync, async", {"sync": True, "async": False}.get), "sync: send() returns "
         "when the record is acknowledged, and raises an error when it failed.", default="async",
         field="send_is_synchronous", origin=_OLD, deprecation="call send(...).result() to wait for the result"),
    # Partitioning.
    _row("partitioner.class", PartitionerRule(), "How the partition of a record without an explicit partition is "
         "chosen. The default hashes keys as Java does (murmur2). Without a key it fills one partition after the other "
         "and prefers fast brokers. consistent_random is librdkafka's default (CRC32).", default=None,
         field="partitioner"),
    _flag("partitioner.adaptive.partitioning.enable", "Send fewer of the records without a key to partitions whose "
          "broker falls behind."),
    _long("partitioner.availability.timeout.ms", "Skip partitions whose broker has accepted nothing for this long; 0: "
          "never."),
    _flag("partitioner.ignore.keys", "Choose the partition as if no record had a key."),
    _flag("partitioner.rack.aware", "Send records without a key only to partitions with a leader in the rack of "
          "client.rack, if there are any. Only the default partitioner supports it. It needs client.rack."),
    _row("client.rack", ANY_TEXT, "The rack of this client, with the same names as the brokers' broker.rack. "
         "partitioner.rack.aware uses it. Without that option it has no effect, and a notice says so."),
    # Requests and connections.
    _row("client.id", Text(bytes_max=ID_BYTES_MAX), "Name in the broker's logs, metrics and quotas. If empty, the "
         "name is producer- followed by the transactional id or a sequence number."),
    _int("max.in.flight.requests.per.connection", "Maximum number of unanswered requests per broker. At most 5 with "
         "idempotence; without it, 1 keeps strict order.", minimum=1),
    _int("request.timeout.ms", "How long to wait for the response to a request."),
    _long("retry.backoff.ms", "Wait before the first retry. It doubles with each retry, with 20 % jitter."),
    _long("retry.backoff.max.ms", "Maximum wait before a retry."),
    _long("reconnect.backoff.ms", "Wait before connecting again to a broker; it doubles with each failure."),
    _long("reconnect.backoff.max.ms", "Maximum wait before connecting again. If only reconnect.backoff.ms is set, the "
          "maximum is that value, and the wait does not grow."),
    _long("socket.connection.setup.timeout.ms", "Time limit for setting up a TCP connection. It doubles with each "
          "failure."),
    _long("socket.connection.setup.timeout.max.ms", "Maximum time for setting up a TCP connection."),
    _long("connections.max.idle.ms", "Close connections that were idle for this long; negative: never.",
          minimum=LONG_MIN),
    _int("send.buffer.bytes", "Socket send buffer (SO_SNDBUF); -1: the operating system's default.", minimum=-1),
    _int("receive.buffer.bytes", "Socket receive buffer (SO_RCVBUF); -1: the operating system's default.", minimum=-1),
    _refusal("client.dns.lookup", "Which addresses of a host name are tried.",
             "canonical host names matter to Kerberos only; every address of a name is tried in turn",
             rule=Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")), default="use_all_dns_ips",
             same=("use_all_dns_ips",)),
    _refusal("bootstrap.resolve.timeout.ms", "Since Java 4.4: how long the client retries to resolve host names before "
             "it fails; 0: it resolves them once, when it is created. Here a producer does not fail for that reason: "
             "names are resolved again at each connection attempt.", "a call retries names for up to max.block.ms and "
             "then fails with their errors; set max.block.ms", rule=Whole(0, LONG_MAX), default=0, same=(0,)),
    # Metadata.
    _long("metadata.max.age.ms", "Refresh the cluster's metadata after this long without a change."),
    _long("metadata.max.idle.ms", "Drop the metadata of a topic that was not written to for this long.", minimum=5_000),
    _row("metadata.recovery.strategy", Choice(("rebootstrap", "none"), any_case=True), "What to do when no known "
         "broker answers. rebootstrap: start again from bootstrap.servers. none: keep trying the known brokers."),
    _long("metadata.recovery.rebootstrap.trigger.ms", "Start again from bootstrap.servers after this long without "
          "metadata."),
    _without_effect("metadata.cluster.check.enable", "Since Java 4.4: send the expected cluster and node ids to a "
                    "broker, so that it can reject the request.", "this client uses ApiVersions up to version 4, which "
                    "does not send them; a change of the cluster id is logged, and metadata is refreshed when a broker "
                    "is the wrong one", rule=Flag(), default=True, same=(False,)),
    _flag("allow.auto.create.topics", "Allow metadata requests to create unknown topics, if the broker allows it. The "
          "Java producer always does.", origin="librdkafka, kafka-python"),
    # Code of the user's.
    _row("key.serializer", SerializerRule(), "Function that converts a key into bytes or None. Java requires one. "
         "Here, without one, bytes are unchanged and text is encoded as UTF-8."),
    _row("value.serializer", SerializerRule(), "The same for values."),
    _row("interceptor.classes", InterceptorsRule(), "Python objects (not class names) that receive each record before "
         "it is sent and may replace it. They also receive each result.", field="interceptors"),
    _refusal("config.providers", "Names of JVM classes that look secrets up.",
             "look the values up in Python and pass the results", rule=Names(), default=(), same=((),)),
    # Metrics.
    _int("metrics.num.samples", "Number of time windows for rates and averages.", minimum=1),
    _long("metrics.sample.window.ms", "Length of one window.", minimum=1),
    _without_effect("metrics.recording.level", "Level of detail of metrics.", "the producer has no metrics beyond INFO",
                    rule=Choice(("INFO", "DEBUG", "TRACE")), default="INFO", same=("INFO",)),
    _refusal("metric.reporters", "JVM classes that publish metrics.", "read Producer.metrics() and publish its values",
             rule=Names(), default=("org.apache.kafka.common.metrics.JmxReporter",),
             same=((), ("org.apache.kafka.common.metrics.JmxReporter",))),
    _without_effect("enable.metrics.push", "Let the broker ask for the client's metrics (KIP-714).", "this client "
                    "sends no metrics to brokers; read Producer.metrics()", rule=Flag(), default=True, same=(False,)),
)  # fmt: skip

SECURITY_OPTIONS = (
    _row("security.protocol", Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), any_case=True), "Encryption "
         "(SSL) and authentication (SASL) of connections. With SASL_PLAINTEXT anyone who can read the network traffic "
         "sees the data, and with PLAIN also the password."),
    _flag("allow.plaintext.credentials", "Allow credentials to be sent to other hosts over connections without TLS: "
          "with SASL_PLAINTEXT the password of PLAIN, a token of OAUTHBEARER, a signed request of AWS_MSK_IAM. false: "
          "they are refused, and so are credentials with security.protocol=PLAINTEXT. SCRAM and GSSAPI send no secret "
          "and do not need it.", origin=_OWN),
    _refusal("security.providers", "JVM security providers.", _JVM),
    # Encryption.
    _row("ssl.protocol", TLS_VERSION, "The newest TLS version that may be used."),
    _row("ssl.enabled.protocols", TlsVersions(), "TLS versions that may be used."),
    _row("ssl.cipher.suites", CipherSuites(), "Allowed ciphers, by Java's or OpenSSL's names; empty: OpenSSL's "
         "defaults. TLS 1.3 ciphers cannot be selected individually: one name allows all three."),
    _row("ssl.endpoint.identification.algorithm", HOST_CHECK, "Check that the certificate of a broker is for its host "
         "name. Empty: no check, so that the owner of any trusted certificate can impersonate a broker."),
    _row("ssl.truststore.location", PemPath(), f"{_STORE_FILE} with the certificates to trust, or a folder of them as "
         "OpenSSL's rehash makes it. Without this and ssl.truststore.certificates, the system's trusted certificates "
         "are used."),
    _text("ssl.truststore.certificates", "PEM text with the certificates to trust."),
    _row("ssl.truststore.type", STORE_TYPE, _STORE_TYPE),
    _secret("ssl.truststore.password", "Password of that file, if it is PKCS12."),
    _row("ssl.keystore.location", PemPath(), f"{_STORE_FILE} with the client's own key and certificates."),
    _text("ssl.keystore.certificate.chain", "PEM text with the client's own certificates."),
    _secret("ssl.keystore.key", "PEM text with the client's own key."),
    _secret("ssl.key.password", "Password of that key, if it is encrypted."),
    _row("ssl.keystore.type", STORE_TYPE, _STORE_TYPE),
    _secret("ssl.keystore.password", "Password of that file and of the key in it, if it is PKCS12."),
    _refusal("ssl.provider", "JVM provider of TLS.", _JVM),
    _refusal("ssl.engine.factory.class", "JVM class that creates TLS engines.", _JVM),
    _refusal("ssl.secure.random.implementation", "JVM source of randomness.", _JVM),
    _refusal("ssl.keymanager.algorithm", "JVM algorithm for the client's keys.", _JVM, default="SunX509"),
    _refusal("ssl.trustmanager.algorithm", "JVM algorithm for trust.", _JVM, default="PKIX"),
    _row("ssl.certificate.location", PemPath(), f"{_PEM_FILE} with the client's own certificates.", origin=_RD),
    _row("ssl.key.location", PemPath(), f"{_PEM_FILE} with the client's own key.", origin=_RD),
    _row("ssl.crl.location", PemPath(), f"{_PEM_FILE} with lists of revoked certificates, one of each "
         "authority in the chain of a broker's certificate, the root included; without one of them every connection "
         "fails.", origin=_RD),
    _flag("enable.ssl.certificate.verification", "false: accept any certificate. An attacker on the network can then "
          "read and change all data, including credentials.", origin=_RD),
    # Authentication.
    _row("sasl.mechanism", Mechanism(), "How the client authenticates."),
    _secret("sasl.jaas.config", "Login module and credentials as the Java client takes them: PlainLoginModule, "
            "ScramLoginModule (also with tokenauth), OAuthBearerLoginModule, IAMLoginModule or Krb5LoginModule."),
    _text("sasl.username", "User name for PLAIN and SCRAM.", origin=_RD),
    _secret("sasl.password", "Password for PLAIN and SCRAM.", origin=_RD),
    _refusal("sasl.client.callback.handler.class", "JVM class that provides credentials. The class for AWS_MSK_IAM is "
             "accepted: this producer does the same anyway.", _JVM,
             same=("software.amazon.msk.auth.iam.IAMClientCallbackHandler",)),
    _row("sasl.login.callback.handler.class", CallbackHandler(), "Kafka's own handlers for OAUTHBEARER are accepted: "
         "this producer does the same anyway."),
    _refusal("sasl.login.class", "JVM class that logs in.", _JVM),
    # AWS_MSK_IAM.
    _row("sasl.aws.region", AWS_REGION, "AWS_MSK_IAM: region of the brokers. The default is the region in their host "
         "names, then AWS_REGION or AWS_DEFAULT_REGION.", origin=_OWN),
    _text("sasl.aws.access.key.id", "AWS_MSK_IAM: access key id. If it is not set, botocore finds credentials: "
          "environment, web identity, ~/.aws, container, instance.", origin=_OWN),
    _secret("sasl.aws.secret.access.key", "Its secret.", origin=_OWN),
    _secret("sasl.aws.session.token", "Its session token, if it has one.", origin=_OWN),
    _text("sasl.aws.profile", "AWS_MSK_IAM: profile of ~/.aws, as awsProfileName in sasl.jaas.config.", origin=_OWN),
    _text("sasl.aws.role.arn", "AWS_MSK_IAM: role to assume with those credentials, as awsRoleArn in sasl.jaas.config.",
          origin=_OWN),
    # OAUTHBEARER.
    _row("sasl.oauthbearer.token.provider", TokenProvider(), "OAUTHBEARER: a function without arguments that returns "
         "the token as text, by import name or as a Python callable. It is called wherever connections are opened, "
         "also on executors.", origin=_OWN),
    _text("sasl.oauthbearer.token.endpoint.url", "OAUTHBEARER: URL of the token endpoint for client id and secret "
          "(OIDC client credentials). https, or http for an address of this host."),
    _text("sasl.oauthbearer.client.credentials.client.id", "Client id for the token endpoint."),
    _secret("sasl.oauthbearer.client.credentials.client.secret", "Its secret."),
    _text("sasl.oauthbearer.assertion.file", "A file with a signed assertion (RFC 7523), in place of the secret. It is "
          "read again for each token."),
    _row("sasl.oauthbearer.jwt.retriever.class", Retriever(), "How a token is requested. JwtBearerJwtRetriever: the "
         "assertion is the grant. The others: the assertion authenticates the client.",
         default=f"{_OAUTHBEARER}.DefaultJwtRetriever"),
    _text("sasl.oauthbearer.scope", "Scope to request with a token."),
    _flag("sasl.oauthbearer.header.urlencode", "Encode id and secret as URL text."),
    _int("sasl.login.connect.timeout.ms", "Time limit for connecting to the token endpoint, 10 seconds by default. It "
         "also applies to AWS endpoints; for containers and instances the default is 2 seconds.", minimum=1),
    _int("sasl.login.read.timeout.ms", "Time limit for the response of the token endpoint, 10 seconds by default.",
         minimum=1),
    _long("sasl.login.retry.backoff.ms", "Wait before the first retry at the token endpoint."),
    _long("sasl.login.retry.backoff.max.ms", "Longest such wait."),
    _row("sasl.login.refresh.window.factor", Fraction(0.5, 1.0), "Share of the lifetime of a token, or of AWS "
         "credentials, after which it is renewed."),
    _row("sasl.login.refresh.window.jitter", Fraction(0.0, 0.25), "Random part added to that share."),
    _row("sasl.login.refresh.min.period.seconds", Whole(0, 900), "Minimum time between two renewals."),
    _row("sasl.login.refresh.buffer.seconds", Whole(0, 3_600), "Minimum time between a renewal and the expiry of a "
         "token."),
    # GSSAPI.
    _text("sasl.kerberos.service.name", "GSSAPI: the first part of the brokers' Kerberos name, as serviceName in "
          "sasl.jaas.config. The rest is the host name that a broker advertises."),
    _text("sasl.kerberos.principal", "GSSAPI: the client's Kerberos name. The default is the principal of the ticket "
          "cache.", origin=_RD),
    _text("sasl.kerberos.keytab", "GSSAPI: file with the key of that principal. Without it the ticket cache of the "
          "process (KRB5CCNAME) is used.", origin=_RD),
    _refusal("sasl.kerberos.kinit.cmd", "Program that obtains tickets.", "no program is run; the Kerberos library "
             "obtains tickets with a keytab, or uses those of a cache", default="/usr/bin/kinit",
             same=("/usr/bin/kinit",)),
    _without_effect("sasl.kerberos.min.time.before.relogin", "Minimum time between two Kerberos logins.", _KERBEROS,
                    rule=Whole(0, LONG_MAX), default=60_000, same=(60_000,)),
    _without_effect("sasl.kerberos.ticket.renew.jitter", "Random part of a ticket's renewal time.", _KERBEROS,
                    rule=Fraction(0.0, 1.0), default=0.05, same=(0.05,)),
    _without_effect("sasl.kerberos.ticket.renew.window.factor", "Share of a ticket's lifetime after which it is "
                    "renewed.", _KERBEROS, rule=Fraction(0.0, 1.0), default=0.8, same=(0.8,)),
    *(_refusal(name, meaning, _BROKER_SIDE, default=default) for name, default, meaning in (
        ("sasl.oauthbearer.scope.claim.name", "scope", "Claim that holds the scope."),
        ("sasl.oauthbearer.sub.claim.name", "sub", "Claim that holds the subject."),
        ("sasl.oauthbearer.clock.skew.seconds", 30, "Allowed difference of clocks."),
        ("sasl.oauthbearer.expected.audience", (), "Audiences that a token may name."),
        ("sasl.oauthbearer.expected.issuer", None, "Issuer that a token must name."),
        ("sasl.oauthbearer.allow.unverified.audience", False, "Accept tokens whose audience was not checked."),
        ("sasl.oauthbearer.allow.unverified.issuer", False, "Accept tokens whose issuer was not checked."),
        ("sasl.oauthbearer.jwks.endpoint.url", None, "URL of the keys that verify tokens."),
        ("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "How often those keys are read again."),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, "Wait before the first retry."),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, "Maximum wait before a retry."),
        ("sasl.oauthbearer.jwt.validator.class", f"{_OAUTHBEARER}.DefaultJwtValidator",
         "JVM class that checks tokens."),
    )),
    *(_refusal(name, meaning, _ASSERTION, default=default) for name, default, meaning in (
        ("sasl.oauthbearer.assertion.algorithm", "RS256", "Algorithm that signs an assertion."),
        ("sasl.oauthbearer.assertion.claim.aud", None, "Audience in an assertion."),
        ("sasl.oauthbearer.assertion.claim.iss", None, "Issuer in an assertion."),
        ("sasl.oauthbearer.assertion.claim.sub", None, "Subject in an assertion."),
        ("sasl.oauthbearer.assertion.claim.exp.seconds", 300, "Lifetime of an assertion."),
        ("sasl.oauthbearer.assertion.claim.nbf.seconds", 60, "How far in the past an assertion starts to be valid."),
        ("sasl.oauthbearer.assertion.claim.jti.include", False, "Give each assertion an id."),
        ("sasl.oauthbearer.assertion.private.key.file", None, "File with the key that signs assertions."),
        ("sasl.oauthbearer.assertion.template.file", None, "File with additional claims for assertions."),
    )),
    _refusal("sasl.oauthbearer.assertion.private.key.passphrase", "Passphrase of that key.", _ASSERTION, rule=SECRET),
)  # fmt: skip

OPTIONS: dict[str, Option] = {row.name: row for row in (*_PLAIN_OPTIONS, *SECURITY_OPTIONS)}
