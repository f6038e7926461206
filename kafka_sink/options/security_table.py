"""Options for encryption and logins: of the producer, and of everything else that is reached over TLS.

Java's names, librdkafka's, and a few of this project. What needs a JVM is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.options.option import Chapter, Option, refuse, without_effect
from kafka_sink.options.values import (
    AWS_REGION,
    FLAG,
    HOST_CHECK,
    LONG,
    NOT_EMPTY,
    SECRET,
    STORE_TYPE,
    TLS_VERSION,
    CallbackHandler,
    Choice,
    CipherSuites,
    Fraction,
    Mechanism,
    Names,
    PemPath,
    Retriever,
    TlsVersions,
    TokenProvider,
    Whole,
)
from kafka_sink.security.mechanisms import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, WITH_PASSWORD

# Unlisted names with these prefixes (other clients have their own) are refused, too.
SECURITY_PREFIXES = ("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")
UNKNOWN_SECURITY = "this producer has no such security option"

_RD, _OWN = "librdkafka", "this producer"
_PEM_FILE = "A PEM file"
_STORE_FILE = "A PEM file (or PKCS12 with the extra pykafka-sink[pkcs12])"
_STORE_TYPE = (
    "The format of the file. PEM and PKCS12 are detected from the file, whatever the default is. JKS is refused; "
    "the error shows the command that converts it."
)
_JVM = "there is no JVM here to load it"
_NO_TICKETS = "no thread renews tickets; each new session takes a valid one"
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
_BROKER_SIDE = "it is for brokers, which check tokens; do not set it"
_ASSERTION = (
    "this producer does not sign assertions; put a signed one into the file of sasl.oauthbearer.assertion.file, or "
    "pass a function that returns the token as sasl.oauthbearer.token.provider"
)
# The mechanisms that an option is for.
_PASSWORD = tuple(f"sasl.mechanism={each}" for each in WITH_PASSWORD)
_AWS, _TOKENS, _KERBEROS = ((f"sasl.mechanism={each}",) for each in (AWS_MSK_IAM, OAUTHBEARER, GSSAPI))

_ENCRYPT = (
    Option("security.protocol", Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), any_case=True), ""
           "Encryption (SSL) and login (SASL). With SASL_PLAINTEXT whoever reads the network sees the data, and "
           "with PLAIN the password.", example="SASL_SSL"),
    Option("allow.plaintext.credentials", FLAG, "true: send the credentials of PLAIN, OAUTHBEARER and AWS_MSK_IAM to "
           "other hosts without TLS, and take credentials with security.protocol=PLAINTEXT.", origin=_OWN),
    Option("ssl.truststore.location", PemPath(), f"{_STORE_FILE} with the certificates to trust, or a folder of them "
           "as OpenSSL's rehash makes it. Without this and ssl.truststore.certificates, the system's trusted "
           "certificates are used.", example="/etc/kafka/ca.pem"),
    Option("ssl.truststore.certificates", NOT_EMPTY, "PEM text with the certificates to trust."),
    Option("ssl.truststore.type", STORE_TYPE, _STORE_TYPE, default="JKS", into=""),
    Option("ssl.truststore.password", SECRET, "Password of that file, if it is PKCS12."),
    Option("ssl.keystore.location", PemPath(), f"{_STORE_FILE} with the client's own key and certificates.",
           example="/etc/kafka/client.pem"),
    Option("ssl.keystore.certificate.chain", NOT_EMPTY, "PEM text with the client's own certificates."),
    Option("ssl.keystore.key", SECRET, "PEM text with the client's own key."),
    Option("ssl.key.password", SECRET, "Password of that key, if it is encrypted."),
    Option("ssl.keystore.type", STORE_TYPE, "As ssl.truststore.type, for that file.", default="JKS", into=""),
    Option("ssl.keystore.password", SECRET, "Password of that file and of the key in it, if it is PKCS12."),
    Option("ssl.certificate.location", PemPath(), f"{_PEM_FILE} with the client's own certificates.", origin=_RD),
    Option("ssl.key.location", PemPath(), f"{_PEM_FILE} with the client's own key.", origin=_RD),
    Option("ssl.crl.location", PemPath(), f"{_PEM_FILE} with lists of revoked certificates, one of each authority in "
           "the chain of a broker's certificate, the root included; without one of them every connection fails.",
           origin=_RD),
    Option("enable.ssl.certificate.verification", FLAG, "false: accept any certificate; an attacker on the network "
           "can then read and change everything.", origin=_RD),
    Option("ssl.endpoint.identification.algorithm", HOST_CHECK, "Compare a broker's certificate with its hostname. "
           "Empty: no, so that the owner of any trusted certificate can pose as a broker."),
    Option("ssl.protocol", TLS_VERSION, "The newest TLS version to use."),
    Option("ssl.enabled.protocols", TlsVersions(), "TLS versions to use."),
    Option("ssl.cipher.suites", CipherSuites(), "Allowed ciphers; empty: OpenSSL's choice. Naming one TLS 1.3 suite "
           "allows all three."),
    refuse("security.providers", "JVM security providers.", _JVM),
    refuse("ssl.provider", "JVM provider of TLS.", _JVM),
    refuse("ssl.engine.factory.class", "JVM class that creates TLS engines.", _JVM),
    refuse("ssl.secure.random.implementation", "JVM source of randomness.", _JVM),
    refuse("ssl.keymanager.algorithm", "JVM algorithm for the client's keys.", _JVM, default="SunX509"),
    refuse("ssl.trustmanager.algorithm", "JVM algorithm for trust.", _JVM, default="PKIX"),
)  # fmt: skip

_LOG_IN = (
    Option("sasl.mechanism", Mechanism(), "How the client logs in.", example="SCRAM-SHA-512"),
    Option("sasl.jaas.config", SECRET, "Login as the Java client takes it: PlainLoginModule, ScramLoginModule (also "
           "with tokenauth), OAuthBearerLoginModule, IAMLoginModule or Krb5LoginModule.",
           example="${file:/run/secrets/kafka.properties:jaas}"),
    Option("sasl.username", NOT_EMPTY, "User name for PLAIN and SCRAM.", scope=_PASSWORD, origin=_RD),
    Option("sasl.password", SECRET, "Password for PLAIN and SCRAM.", scope=_PASSWORD, origin=_RD,
           example="${env:KAFKA_PASSWORD}"),
    refuse("sasl.client.callback.handler.class", "JVM class that provides credentials. The class for AWS_MSK_IAM is "
           "accepted: this producer does the same anyway.", _JVM,
           same=("software.amazon.msk.auth.iam.IAMClientCallbackHandler",)),
    Option("sasl.login.callback.handler.class", CallbackHandler(), "Kafka's own handlers for OAUTHBEARER, for which "
           "this producer needs no class.", into=""),
    refuse("sasl.login.class", "JVM class that logs in.", _JVM),
    Option("sasl.aws.region", AWS_REGION, "Region of the brokers; if not set, that of their hostnames, then "
           "AWS_REGION or AWS_DEFAULT_REGION.", scope=_AWS, origin=_OWN),
    Option("sasl.aws.access.key.id", NOT_EMPTY, "Access key id. If not set, botocore looks in environment, web "
           "identity, ~/.aws, container and instance.", scope=_AWS, origin=_OWN),
    Option("sasl.aws.secret.access.key", SECRET, "Its secret.", scope=_AWS, origin=_OWN),
    Option("sasl.aws.session.token", SECRET, "Its session token, if it has one.", scope=_AWS, origin=_OWN),
    Option("sasl.aws.profile", NOT_EMPTY, "Profile of ~/.aws, as awsProfileName in sasl.jaas.config.",
           scope=_AWS, origin=_OWN),
    Option("sasl.aws.role.arn", NOT_EMPTY, "Role to assume with those credentials, as awsRoleArn in "
           "sasl.jaas.config.", scope=_AWS, origin=_OWN),
    Option("sasl.oauthbearer.token.provider", TokenProvider(), "A function without arguments that returns the token "
           "as text, called where connections are opened, also on executors. A JSON web token is kept until its exp is "
           "near, another token for 10 seconds.", scope=_TOKENS, origin=_OWN,
           example="my_package.login:token"),
    Option("sasl.oauthbearer.token.endpoint.url", NOT_EMPTY, "Token endpoint for client id and secret (OIDC). "
           "https, or http on this host.", scope=_TOKENS),
    Option("sasl.oauthbearer.client.credentials.client.id", NOT_EMPTY, "Client id for the token endpoint.",
           scope=_TOKENS),
    Option("sasl.oauthbearer.client.credentials.client.secret", SECRET, "Its secret.", scope=_TOKENS),
    Option("sasl.oauthbearer.assertion.file", NOT_EMPTY, "A signed assertion (RFC 7523) in place of the secret, "
           "read again for each token.", scope=_TOKENS),
    Option("sasl.oauthbearer.jwt.retriever.class", Retriever(), "JwtBearerJwtRetriever: the assertion is the grant. "
           "The others: it authenticates the client.",
           default=f"{_OAUTHBEARER}.DefaultJwtRetriever", scope=_TOKENS),
    Option("sasl.oauthbearer.scope", NOT_EMPTY, "Scope to request with a token.", scope=_TOKENS),
    Option("sasl.oauthbearer.header.urlencode", FLAG, "Encode id and secret as URL text.", scope=_TOKENS),
    Option("sasl.login.connect.timeout.ms", Whole(1), "Limit for connecting to the token endpoint, 10 seconds if "
           "not set; also to AWS endpoints, of containers and instances 2 seconds."),
    Option("sasl.login.read.timeout.ms", Whole(1), "Limit for the answer of the token endpoint, 10 seconds if not "
           "set."),
    Option("sasl.login.retry.backoff.ms", LONG, "Wait before the first retry at the token endpoint."),
    Option("sasl.login.retry.backoff.max.ms", LONG, "Longest such wait."),
    Option("sasl.login.refresh.window.factor", Fraction(0.5, 1.0), "Share of the lifetime of a token or of AWS "
           "credentials after which they are renewed."),
    Option("sasl.login.refresh.window.jitter", Fraction(0.0, 0.25), "Random part added to that share."),
    Option("sasl.login.refresh.min.period.seconds", Whole(0, 900), "Shortest time between two renewals."),
    Option("sasl.login.refresh.buffer.seconds", Whole(0, 3_600), "Shortest time between a renewal and a token's end."),
    Option("sasl.kerberos.service.name", NOT_EMPTY, "The first part of the brokers' Kerberos name (serviceName); "
           "the rest is the hostname that a broker advertises.", scope=_KERBEROS),
    Option("sasl.kerberos.principal", NOT_EMPTY, "The client's Kerberos name; if not set, that of the ticket cache.",
           scope=_KERBEROS, origin=_RD),
    Option("sasl.kerberos.keytab", NOT_EMPTY, "File with the key of that principal. Without it the ticket cache of "
           "the process is used (KRB5CCNAME).", scope=_KERBEROS, origin=_RD),
    refuse("sasl.kerberos.kinit.cmd", "Program that obtains tickets.", "no program is run; the Kerberos library "
           "obtains tickets with a keytab, or uses those of a cache", default="/usr/bin/kinit",
           same=("/usr/bin/kinit",)),
    without_effect("sasl.kerberos.min.time.before.relogin", "Minimum time between two Kerberos logins.", _NO_TICKETS,
                   rule=LONG, default=60_000, same=(60_000,)),
    without_effect("sasl.kerberos.ticket.renew.jitter", "Random part of a ticket's renewal time.", _NO_TICKETS,
                   rule=Fraction(0.0, 1.0), default=0.05, same=(0.05,)),
    without_effect("sasl.kerberos.ticket.renew.window.factor",
                   "Share of a ticket's lifetime after which it is renewed.", _NO_TICKETS, rule=Fraction(0.0, 1.0),
                   default=0.8, same=(0.8,)),
    refuse("sasl.oauthbearer.assertion.private.key.passphrase", "Passphrase of that key.", _ASSERTION, rule=SECRET),
    refuse("config.providers", "Names of JVM classes that look secrets up.", "look the values up in Python and pass "
           "the results", rule=Names(), default=(), same=((),)),
    *(refuse(name, meaning, _BROKER_SIDE, default=default) for name, default, meaning in (
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
    *(refuse(name, meaning, _ASSERTION, default=default) for name, default, meaning in (
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
)  # fmt: skip

SECURITY_CHAPTERS: Mapping[Chapter, tuple[Option, ...]] = {Chapter.ENCRYPT: _ENCRYPT, Chapter.LOG_IN: _LOG_IN}
