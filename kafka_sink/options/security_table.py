"""The security options: all of them are refused, because this version speaks PLAINTEXT only.

They are rows all the same, so that each is refused by its own name instead of as a misspelling, and so that the
reference tells a reader of a Java configuration what he would lose. Names with these prefixes that are not listed
(other clients have their own) are refused with the same text.
"""

from __future__ import annotations

from kafka_sink.options.option import Option, Treatment
from kafka_sink.options.values import Choice, Text

SECURITY_PREFIXES = ("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")
PLAINTEXT_ONLY = "this version speaks PLAINTEXT only"

# name, Java's type, default, meaning
_ROWS: tuple[tuple[str, str, object, str], ...] = (
    ("security.providers", "STRING", None, "JVM security providers."),
    ("ssl.protocol", "STRING", "TLSv1.3", "TLS version to begin with."),
    ("ssl.enabled.protocols", "LIST", ("TLSv1.2", "TLSv1.3"), "TLS versions that may be used."),
    ("ssl.provider", "STRING", None, "JVM provider of TLS."),
    ("ssl.cipher.suites", "LIST", (), "Ciphers that may be used; empty: all."),
    ("ssl.engine.factory.class", "CLASS", None, "JVM class that makes TLS engines."),
    ("ssl.secure.random.implementation", "STRING", None, "JVM source of randomness."),
    ("ssl.keystore.type", "STRING", "JKS", "File format of the own key."),
    ("ssl.keystore.location", "STRING", None, "File with the own key and certificate."),
    ("ssl.keystore.password", "PASSWORD", None, "Password of that file."),
    ("ssl.keystore.key", "PASSWORD", None, "The own key as PEM text."),
    ("ssl.keystore.certificate.chain", "PASSWORD", None, "The own certificates as PEM text."),
    ("ssl.key.password", "PASSWORD", None, "Password of the own key."),
    ("ssl.keymanager.algorithm", "STRING", "SunX509", "JVM algorithm for own keys."),
    ("ssl.truststore.type", "STRING", "JKS", "File format of the trusted certificates."),
    ("ssl.truststore.location", "STRING", None, "File with the trusted certificates."),
    ("ssl.truststore.password", "PASSWORD", None, "Password of that file."),
    ("ssl.truststore.certificates", "PASSWORD", None, "Trusted certificates as PEM text."),
    ("ssl.trustmanager.algorithm", "STRING", "PKIX", "JVM algorithm for trust."),
    ("ssl.endpoint.identification.algorithm", "STRING", "https", "Check of the broker's host name; empty: none."),
    ("sasl.mechanism", "STRING", "GSSAPI", "How the client proves who it is."),
    ("sasl.jaas.config", "PASSWORD", None, "Login module and its credentials."),
    ("sasl.client.callback.handler.class", "CLASS", None, "JVM class asked for credentials."),
    ("sasl.login.callback.handler.class", "CLASS", None, "JVM class asked at login."),
    ("sasl.login.class", "CLASS", None, "JVM class that logs in."),
    ("sasl.login.connect.timeout.ms", "INT", None, "Time for connecting to an identity provider."),
    ("sasl.login.read.timeout.ms", "INT", None, "Time for its answer."),
    ("sasl.login.retry.backoff.ms", "LONG", 100, "First wait before asking it again."),
    ("sasl.login.retry.backoff.max.ms", "LONG", 10_000, "Longest such wait."),
    ("sasl.login.refresh.window.factor", "DOUBLE", 0.8, "Share of a credential's life after which it is renewed."),
    ("sasl.login.refresh.window.jitter", "DOUBLE", 0.05, "Random part of that moment."),
    ("sasl.login.refresh.min.period.seconds", "SHORT", 60, "Least time between two renewals."),
    ("sasl.login.refresh.buffer.seconds", "SHORT", 300, "Time kept free before a credential expires."),
    ("sasl.kerberos.service.name", "STRING", None, "The brokers' Kerberos name."),
    ("sasl.kerberos.kinit.cmd", "STRING", "/usr/bin/kinit", "Program that gets tickets."),
    ("sasl.kerberos.min.time.before.relogin", "LONG", 60_000, "Least time between two Kerberos logins."),
    ("sasl.kerberos.ticket.renew.jitter", "DOUBLE", 0.05, "Random part of a ticket's renewal time."),
    ("sasl.kerberos.ticket.renew.window.factor", "DOUBLE", 0.8, "Share of a ticket's life after which it is renewed."),
    ("sasl.oauthbearer.token.endpoint.url", "STRING", None, "Where tokens are got."),
    ("sasl.oauthbearer.scope", "STRING", None, "Scope asked for with a token."),
    ("sasl.oauthbearer.client.credentials.client.id", "STRING", None, "Id of the client at the token endpoint."),
    ("sasl.oauthbearer.client.credentials.client.secret", "PASSWORD", None, "Its secret."),
    ("sasl.oauthbearer.header.urlencode", "BOOLEAN", False, "Encode id and secret as URL text."),
    ("sasl.oauthbearer.scope.claim.name", "STRING", "scope", "Claim that holds the scope."),
    ("sasl.oauthbearer.sub.claim.name", "STRING", "sub", "Claim that holds the subject."),
    ("sasl.oauthbearer.clock.skew.seconds", "INT", 30, "Allowed difference of clocks."),
    ("sasl.oauthbearer.expected.audience", "LIST", (), "Audiences a token may name."),
    ("sasl.oauthbearer.expected.issuer", "STRING", None, "Issuer a token must name."),
    ("sasl.oauthbearer.jwks.endpoint.url", "STRING", None, "Where the keys that sign tokens are found."),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "LONG", 3_600_000, "How often those keys are read again."),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "LONG", 100, "First wait before reading them again."),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "LONG", 10_000, "Longest such wait."),
    ("sasl.oauthbearer.jwt.retriever.class", "CLASS",
     "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", "JVM class that gets tokens."),
    ("sasl.oauthbearer.jwt.validator.class", "CLASS",
     "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", "JVM class that checks tokens."),
    ("sasl.oauthbearer.assertion.algorithm", "STRING", "RS256", "Algorithm that signs an assertion."),
    ("sasl.oauthbearer.assertion.claim.aud", "STRING", None, "Audience in an assertion."),
    ("sasl.oauthbearer.assertion.claim.iss", "STRING", None, "Issuer in an assertion."),
    ("sasl.oauthbearer.assertion.claim.sub", "STRING", None, "Subject in an assertion."),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", "INT", 300, "Life of an assertion."),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", "INT", 60, "How far back an assertion begins to be valid."),
    ("sasl.oauthbearer.assertion.claim.jti.include", "BOOLEAN", False, "Give each assertion an id."),
    ("sasl.oauthbearer.assertion.file", "STRING", None, "File with a finished assertion."),
    ("sasl.oauthbearer.assertion.private.key.file", "STRING", None, "File with the key that signs assertions."),
    ("sasl.oauthbearer.assertion.private.key.passphrase", "PASSWORD", None, "Passphrase of that key."),
    ("sasl.oauthbearer.assertion.template.file", "STRING", None, "File with further claims of assertions."),
)  # fmt: skip

SECURITY_OPTIONS: tuple[Option, ...] = (
    Option(
        name="security.protocol", kind="STRING", default="PLAINTEXT",
        rule=Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), any_case=True),
        meaning="Encryption and authentication of connections.", treatment=Treatment.REFUSED, same=("PLAINTEXT",),
        instead=PLAINTEXT_ONLY,
    ),
    *(
        Option(
            name=name, kind=kind, default=default, rule=Text(), meaning=meaning, treatment=Treatment.REFUSED,
            instead=PLAINTEXT_ONLY,
        )
        for name, kind, default, meaning in _ROWS
    ),
)  # fmt: skip
