"""The security options: TLS and SASL as the Java client names them, and librdkafka's names for files of PEM.

What only a JVM can do is refused by name. Names with these prefixes that are not listed (other clients have their own)
are refused, too.
"""

from __future__ import annotations

from kafka_sink.options.option import Alias, Option, Treatment
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from kafka_sink.options.security_values import (
    CallbackHandler,
    CipherSuites,
    Fraction,
    HostCheck,
    Mechanism,
    Region,
    Retriever,
    StoreType,
    TlsVersion,
    TlsVersions,
    TokenProvider,
)
from kafka_sink.options.values import Choice, Flag, Rule, Text, Whole

SECURITY_PREFIXES = ("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")
UNKNOWN_SECURITY = "this producer has no such security option"

_PEM_FILE, _PEM = "a file of PEM", "PEM text"
_STORE_FILE = "a file of PEM, or of PKCS12 with the extra pykafka-sink[pkcs12],"
_STORE_TYPE = (
    "What the file is; which of the two that can be read is seen from it, whatever the default says. JKS is refused "
    "with the command that converts it."
)
_JVM = "there is no JVM here to load it"
_KERBEROS = "tickets are not renewed by a thread; each new session takes one that is good"
_IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
_BROKER_SIDE = "it is for brokers, which check tokens; leave it out"
_ASSERTION = (
    "assertions are not signed here; keep a finished one in the file of sasl.oauthbearer.assertion.file, or pass a "
    "function that gets the token as sasl.oauthbearer.token.provider"
)


def _honoured(name: str, kind: str, default: object, rule: Rule, meaning: str, *, origin: str = "Java") -> Option:
    return Option(
        name=name, kind=kind, default=default, rule=rule, meaning=meaning, field=name.replace(".", "_"), origin=origin
    )


def _text(name: str, meaning: str, *, kind: str = "STRING", origin: str = "Java") -> Option:
    return _honoured(name, kind, None, Text(empty_allowed=False), meaning, origin=origin)


def _refused(
    name: str, kind: str, default: object, meaning: str, instead: str, same: tuple[object, ...] = ()
) -> Option:
    return Option(
        name=name, kind=kind, default=default, rule=Text(), meaning=meaning, treatment=Treatment.REFUSED,
        instead=instead, same=same,
    )  # fmt: skip


def _without_effect(name: str, kind: str, default: object, rule: Rule, meaning: str, instead: str) -> Option:
    return Option(
        name=name, kind=kind, default=default, rule=rule, meaning=meaning, treatment=Treatment.NO_EFFECT,
        instead=instead, same=(default,),
    )  # fmt: skip


_CONNECTIONS = (
    _honoured("security.protocol", "STRING", "PLAINTEXT",
              Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), any_case=True),
              "Encryption (SSL) and authentication (SASL) of connections. SASL_PLAINTEXT shows what is sent, with "
              "PLAIN even the password, to whoever can read the network."),
    _refused("security.providers", "STRING", None, "JVM security providers.", _JVM),
)  # fmt: skip

_TLS = (
    _honoured("ssl.protocol", "STRING", "TLSv1.3", TlsVersion(), "The newest TLS version that may be used."),
    _honoured("ssl.enabled.protocols", "LIST", ("TLSv1.2", "TLSv1.3"), TlsVersions(), "TLS versions that may be used."),
    _honoured("ssl.cipher.suites", "LIST", (), CipherSuites(), "Ciphers that may be used, by Java's or OpenSSL's "
              "names; empty: what OpenSSL thinks safe. Those of TLS 1.3 cannot be chosen one by one: naming any allows "
              "all three."),
    _honoured("ssl.endpoint.identification.algorithm", "STRING", "https", HostCheck(), "Check that the certificate of "
              "a broker is for its host name; empty: no check, so that any holder of a trusted certificate can "
              "pretend to be a broker."),
    _text("ssl.truststore.location", f"{_STORE_FILE} with the certificates to trust, or a folder of them as OpenSSL's "
          "rehash makes it. Without it and ssl.truststore.certificates those that the system trusts."),
    _text("ssl.truststore.certificates", f"{_PEM} with the certificates to trust.", kind="PASSWORD"),
    _honoured("ssl.truststore.type", "STRING", "JKS", StoreType(), _STORE_TYPE),
    _text("ssl.truststore.password", "Password of that file, if it is PKCS12.", kind="PASSWORD"),
    _text("ssl.keystore.location", f"{_STORE_FILE} with the client's own key and certificates."),
    _text("ssl.keystore.certificate.chain", f"{_PEM} with the client's own certificates.", kind="PASSWORD"),
    _text("ssl.keystore.key", f"{_PEM} with the client's own key.", kind="PASSWORD"),
    _text("ssl.key.password", "Password of that key, if it is encrypted.", kind="PASSWORD"),
    _honoured("ssl.keystore.type", "STRING", "JKS", StoreType(), _STORE_TYPE),
    _text("ssl.keystore.password", "Password of that file and of the key in it, if it is PKCS12.", kind="PASSWORD"),
    _refused("ssl.provider", "STRING", None, "JVM provider of TLS.", _JVM),
    _refused("ssl.engine.factory.class", "CLASS", None, "JVM class that makes TLS engines.", _JVM),
    _refused("ssl.secure.random.implementation", "STRING", None, "JVM source of randomness.", _JVM),
    _refused("ssl.keymanager.algorithm", "STRING", "SunX509", "JVM algorithm for own keys.", _JVM),
    _refused("ssl.trustmanager.algorithm", "STRING", "PKIX", "JVM algorithm for trust.", _JVM),
    _text("ssl.certificate.location", f"{_PEM_FILE} with the client's own certificates.", origin="librdkafka"),
    _text("ssl.key.location", f"{_PEM_FILE} with the client's own key.", origin="librdkafka"),
    _text("ssl.crl.location", f"{_PEM_FILE} with lists of revoked certificates: one from each authority that signed a "
          "broker's certificate, or every connection fails.", origin="librdkafka"),
    _honoured("enable.ssl.certificate.verification", "BOOLEAN", True, Flag(), "false: take any certificate. Whoever is "
              "in between reads and changes everything, credentials included.", origin="librdkafka"),
)  # fmt: skip

_SASL = (
    _honoured("sasl.mechanism", "STRING", "GSSAPI", Mechanism(), "How the client proves who it is."),
    _text("sasl.jaas.config", "Login module and credentials as the Java client takes them: PlainLoginModule, "
          "ScramLoginModule (also with tokenauth), OAuthBearerLoginModule, IAMLoginModule or "
          "Krb5LoginModule.", kind="PASSWORD"),
    _text("sasl.username", "User name for PLAIN and SCRAM.", origin="librdkafka"),
    _text("sasl.password", "Password for PLAIN and SCRAM.", kind="PASSWORD", origin="librdkafka"),
    _refused("sasl.client.callback.handler.class", "CLASS", None, "JVM class asked for credentials. That of "
             "AWS_MSK_IAM is understood: it says what happens anyway.", _JVM, (_IAM_HANDLER,)),
    _honoured("sasl.login.callback.handler.class", "CLASS", None, CallbackHandler(), "Kafka's own handlers for "
              "OAUTHBEARER are understood: they say what happens anyway."),
    _refused("sasl.login.class", "CLASS", None, "JVM class that logs in.", _JVM),
)  # fmt: skip

_AWS = (
    _honoured("sasl.aws.region", "STRING", None, Region(), "AWS_MSK_IAM: region of the brokers. By default that of "
              "their host names, else AWS_REGION or AWS_DEFAULT_REGION.", origin="this producer"),
    _text("sasl.aws.access.key.id", "AWS_MSK_IAM: id of the key. Without it credentials are found as Amazon's "
          "libraries find them: environment, web identity, ~/.aws, container, instance.", origin="this producer"),
    _text("sasl.aws.secret.access.key", "Its secret.", kind="PASSWORD", origin="this producer"),
    _text("sasl.aws.session.token", "Its session token, if it has one.", kind="PASSWORD", origin="this producer"),
    _text("sasl.aws.profile", "AWS_MSK_IAM: profile of ~/.aws, as awsProfileName in sasl.jaas.config.",
          origin="this producer"),
    _text("sasl.aws.role.arn", "AWS_MSK_IAM: role to take on with those credentials, as awsRoleArn in "
          "sasl.jaas.config.", origin="this producer"),
)  # fmt: skip

_TOKENS = (
    _honoured("sasl.oauthbearer.token.provider", "STRING", None, TokenProvider(), "OAUTHBEARER: a function without "
              "arguments that returns the token as text, by import name or as a Python callable. It is called where "
              "connections are made, also on executors.", origin="this producer"),
    _text("sasl.oauthbearer.token.endpoint.url", "OAUTHBEARER: where tokens are got with client id and secret (OIDC "
          "client credentials). https, or http for an address of this host."),
    _text("sasl.oauthbearer.client.credentials.client.id", "Id of the client at the token endpoint."),
    _text("sasl.oauthbearer.client.credentials.client.secret", "Its secret.", kind="PASSWORD"),
    _text("sasl.oauthbearer.assertion.file", "A file with a finished, signed assertion (RFC 7523), in place of the "
          "secret. It is read anew for each token."),
    _honoured("sasl.oauthbearer.jwt.retriever.class", "CLASS", f"{_OAUTHBEARER}.DefaultJwtRetriever", Retriever(),
              "How a token is got. JwtBearerJwtRetriever: the assertion is the grant; the others: it says who the "
              "client is."),
    _text("sasl.oauthbearer.scope", "Scope asked for with a token."),
    _honoured("sasl.oauthbearer.header.urlencode", "BOOLEAN", False, Flag(), "Encode id and secret as URL text."),
    _honoured("sasl.login.connect.timeout.ms", "INT", None, Whole(1, INT_MAX), "Time for connecting to the token "
              "endpoint; 10 seconds by default. Also for endpoints of AWS; 2 seconds for containers and instances."),
    _honoured("sasl.login.read.timeout.ms", "INT", None, Whole(1, INT_MAX), "Time for its answer; 10 seconds by "
              "default."),
    _honoured("sasl.login.retry.backoff.ms", "LONG", 100, Whole(0, LONG_MAX), "First wait before asking it again."),
    _honoured("sasl.login.retry.backoff.max.ms", "LONG", 10_000, Whole(0, LONG_MAX), "Longest such wait."),
    _honoured("sasl.login.refresh.window.factor", "DOUBLE", 0.8, Fraction(0.5, 1.0), "Share of the life of a token, or "
              "of credentials of AWS, after which it is renewed."),
    _honoured("sasl.login.refresh.window.jitter", "DOUBLE", 0.05, Fraction(0.0, 0.25), "Random part of that moment."),
    _honoured("sasl.login.refresh.min.period.seconds", "SHORT", 60, Whole(0, 900), "Least time between two renewals."),
    _honoured("sasl.login.refresh.buffer.seconds", "SHORT", 300, Whole(0, 3600), "Time kept free before a token "
              "expires."),
)  # fmt: skip

_KERBEROS_OPTIONS = (
    _text("sasl.kerberos.service.name", "GSSAPI: the first part of the brokers' Kerberos name, as serviceName in "
          "sasl.jaas.config. The rest is the host name that a broker advertises."),
    _text("sasl.kerberos.principal", "GSSAPI: the client's Kerberos name. Without it that of the ticket cache.",
          origin="librdkafka"),
    _text("sasl.kerberos.keytab", "GSSAPI: file with the key of that principal. Without it the ticket cache of the "
          "process (KRB5CCNAME) is used.", origin="librdkafka"),
    _refused("sasl.kerberos.kinit.cmd", "STRING", "/usr/bin/kinit", "Program that gets tickets.", "no program is run; "
             "the Kerberos library gets tickets from a keytab, or takes those of a cache", ("/usr/bin/kinit",)),
    _without_effect("sasl.kerberos.min.time.before.relogin", "LONG", 60_000, Whole(0, LONG_MAX),
                    "Least time between two Kerberos logins.", _KERBEROS),
    _without_effect("sasl.kerberos.ticket.renew.jitter", "DOUBLE", 0.05, Fraction(0.0, 1.0),
                    "Random part of a ticket's renewal time.", _KERBEROS),
    _without_effect("sasl.kerberos.ticket.renew.window.factor", "DOUBLE", 0.8, Fraction(0.0, 1.0),
                    "Share of a ticket's life after which it is renewed.", _KERBEROS),
)  # fmt: skip

# name, Java's type, default, meaning
_BROKER_ROWS: tuple[tuple[str, str, object, str], ...] = (
    ("sasl.oauthbearer.scope.claim.name", "STRING", "scope", "Claim that holds the scope."),
    ("sasl.oauthbearer.sub.claim.name", "STRING", "sub", "Claim that holds the subject."),
    ("sasl.oauthbearer.clock.skew.seconds", "INT", 30, "Allowed difference of clocks."),
    ("sasl.oauthbearer.expected.audience", "LIST", (), "Audiences a token may name."),
    ("sasl.oauthbearer.expected.issuer", "STRING", None, "Issuer a token must name."),
    ("sasl.oauthbearer.allow.unverified.audience", "BOOLEAN", False, "Take tokens whose audience was not checked."),
    ("sasl.oauthbearer.allow.unverified.issuer", "BOOLEAN", False, "Take tokens whose issuer was not checked."),
    ("sasl.oauthbearer.jwks.endpoint.url", "STRING", None, "Where the keys that sign tokens are found."),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "LONG", 3_600_000, "How often those keys are read again."),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "LONG", 100, "First wait before reading them again."),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "LONG", 10_000, "Longest such wait."),
    ("sasl.oauthbearer.jwt.validator.class", "CLASS",
     f"{_OAUTHBEARER}.DefaultJwtValidator", "JVM class that checks tokens."),
)  # fmt: skip
_ASSERTION_ROWS: tuple[tuple[str, str, object, str], ...] = (
    ("sasl.oauthbearer.assertion.algorithm", "STRING", "RS256", "Algorithm that signs an assertion."),
    ("sasl.oauthbearer.assertion.claim.aud", "STRING", None, "Audience in an assertion."),
    ("sasl.oauthbearer.assertion.claim.iss", "STRING", None, "Issuer in an assertion."),
    ("sasl.oauthbearer.assertion.claim.sub", "STRING", None, "Subject in an assertion."),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", "INT", 300, "Life of an assertion."),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", "INT", 60, "How far back an assertion begins to be valid."),
    ("sasl.oauthbearer.assertion.claim.jti.include", "BOOLEAN", False, "Give each assertion an id."),
    ("sasl.oauthbearer.assertion.private.key.file", "STRING", None, "File with the key that signs assertions."),
    ("sasl.oauthbearer.assertion.private.key.passphrase", "PASSWORD", None, "Passphrase of that key."),
    ("sasl.oauthbearer.assertion.template.file", "STRING", None, "File with further claims of assertions."),
)

SECURITY_OPTIONS: tuple[Option, ...] = (
    *_CONNECTIONS,
    *_TLS,
    *_SASL,
    *_AWS,
    *_TOKENS,
    *_KERBEROS_OPTIONS,
    *(_refused(*row, instead=_BROKER_SIDE) for row in _BROKER_ROWS),
    *(_refused(*row, instead=_ASSERTION) for row in _ASSERTION_ROWS),
)


def _alias(name: str, target: str) -> Alias:
    return Alias(name=name, target=target, origin="librdkafka", meaning="The same.")


SECURITY_ALIASES = (
    _alias("ssl.ca.location", "ssl.truststore.location"),
    _alias("ssl.ca.pem", "ssl.truststore.certificates"),
    _alias("ssl.certificate.pem", "ssl.keystore.certificate.chain"),
    _alias("ssl.key.pem", "ssl.keystore.key"),
    _alias("sasl.mechanisms", "sasl.mechanism"),
    _alias("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
    _alias("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
)
