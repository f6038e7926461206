"""Security options: what fits together, what is refused by name, what is said to be useless, and what is shown."""

from __future__ import annotations

import pickle

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options import ProducerOptions, parse_producer_options

PACKAGE = "org.apache.kafka.common.security"
SCRAM = f'{PACKAGE}.scram.ScramLoginModule required username="alice" password="hunter2";'
BEARER = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "hunter2"}


def parse(protocol: str, settings: dict[str, object]) -> ProducerOptions:
    return parse_producer_options({"bootstrap.servers": "b:1", "security.protocol": protocol, **settings})


def refusal(protocol: str, settings: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(protocol, settings)
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


# ---- SASL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "sasl.mechanism=GSSAPI is the default and not supported: set it to one of PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not supported"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "sign in with OAUTHBEARER and a token provider instead"),
        ({"sasl.mechanism": "plain"}, "sasl.mechanism='plain' is not supported"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism=PLAIN needs sasl.username and sasl.password"),
        ({**PLAIN, "sasl.password": None}, "sasl.mechanism=PLAIN needs"),
        ({**PLAIN, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM}, "contradict each other: keep one"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM}, "set it to SCRAM-SHA-256 or SCRAM-SHA-512, or name"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "hunter2"}, "sasl.jaas.config is not valid"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PACKAGE}.plain.PlainLoginModule required;"},
         "PlainLoginModule needs username"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
         "the login module Krb5LoginModule is not supported: Kerberos"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
         "IAMLoginModule is not supported: AWS_MSK_IAM is not built in"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.example.Mine required;"},
         "Mine is not supported: known are PlainLoginModule"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs either sasl.oauthbearer.token.provider"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": "m:f", ENDPOINT: "https://x"},
         "needs either"),
        ({"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x"}, "credentials.client.id, or clientId"),
        ({"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x", "sasl.jaas.config": f'{BEARER} clientId="a";'},
         "credentials.client.secret, or clientSecret"),
        ({**PLAIN, "sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name is not supported: GSSAPI"),
        ({**PLAIN, "sasl.login.callback.handler.class": "com.example.Mine"}, "names a class of the JVM"),
        ({**PLAIN, "sasl.oauthbearer.assertion.file": "f"}, "signed assertions are not built in"),
        ({**PLAIN, "sasl.pasword": "hunter2"}, "no such security option, did you mean sasl.password?"),
    ],
)  # fmt: skip
def test_what_cannot_authenticate_is_refused_by_name(settings: dict[str, object], says: str) -> None:
    assert says in refusal("SASL_SSL", settings)


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM},
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM.replace("alice\"", 'alice" tokenauth="true"')},
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "${env:WHATEVER}"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": len},
        {"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x", "sasl.jaas.config":
         f'{BEARER} clientId="a" clientSecret="b" scope="c" extension_x="y";'},
    ],
)  # fmt: skip
def test_what_can_authenticate_is_taken_without_a_word(settings: dict[str, object]) -> None:
    options = parse("SASL_SSL", settings)
    assert options.notices == () and options.has_sasl and options.has_tls


def test_names_of_librdkafka_mean_the_same() -> None:
    theirs = {"sasl.mechanisms": "PLAIN", "ssl.ca.location": "ca.pem", "sasl.username": "a", "sasl.password": "b"}
    ours = {"sasl.mechanism": "PLAIN", "ssl.truststore.location": "ca.pem", "sasl.username": "a", "sasl.password": "b"}
    one, other = parse("sasl_ssl", theirs), parse("SASL_SSL", ours)
    assert one.notices == (
        "sasl.mechanisms is a name of librdkafka: use sasl.mechanism",
        "ssl.ca.location is a name of librdkafka: use ssl.truststore.location",
    )
    assert (one.sasl_mechanism, one.ssl_truststore_location) == (other.sasl_mechanism, other.ssl_truststore_location)


@pytest.mark.parametrize(("mechanism", "what"), [("PLAIN", "the password is"), ("SCRAM-SHA-256", "records are")])
def test_authentication_without_encryption_is_warned_of(mechanism: str, what: str) -> None:
    (notice,) = parse("SASL_PLAINTEXT", {**PLAIN, "sasl.mechanism": mechanism}).notices
    assert notice.startswith(f"{what} readable on the network")


def test_an_option_of_another_protocol_is_said_to_be_useless() -> None:
    options = parse("PLAINTEXT", {"ssl.ca.location": "ca.pem", **PLAIN})
    useless = ["ssl.ca.location", "sasl.mechanism", "sasl.username", "sasl.password"]
    for name in useless:
        assert f"{name} has no effect with security.protocol=PLAINTEXT" in options.notices


def test_options_of_a_login_module_that_a_client_has_no_use_for_are_named() -> None:
    jaas = SCRAM.replace("required", 'required user_bob="hunter2"')
    (notice,) = parse("SASL_SSL", {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}).notices
    assert notice == "sasl.jaas.config: options without effect on a client: user_bob"


# ---- TLS -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ssl.truststore.type": "JKS", "ssl.truststore.location": "x.jks"}, "keytool -importkeystore -srckeystore"),
        ({"ssl.keystore.type": "pkcs12"}, "ssl.keystore.type=PKCS12 is not supported: convert it to PEM with `openssl"),
        ({"ssl.truststore.type": "BKS"}, "expected PEM"),
        ({"ssl.truststore.password": "hunter2"}, "ssl.truststore.password is not supported: files of PEM"),
        ({"ssl.truststore.location": "a", "ssl.truststore.certificates": "b"}, "contradict each other"),
        ({"ssl.ca.location": "a", "ssl.ca.pem": "b"}, "ssl.ca.pem and ssl.ca.location contradict each other"),
        ({"ssl.keystore.location": "a", "ssl.key.location": "b"}, "contradict each other"),
        ({"ssl.keystore.key": "hunter2"}, "belong together: only one of them is set"),
        ({"ssl.certificate.location": "a"}, "belong together"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol='SSLv3' is not valid: expected TLSv1.2 or TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv1,TLSv1.2"}, "older versions are not safe"),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "leave no version of TLS"),
        ({"ssl.cipher.suites": "TLS AES"}, "expected cipher suites"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "expected https, or empty for no check"),
        ({"ssl.provider": "BC"}, "ssl.provider is not supported: there is no JVM here"),
    ],
)
def test_what_cannot_be_tls_is_refused_by_name(settings: dict[str, object], says: str) -> None:
    assert says in refusal("SSL", settings)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ],
)
def test_a_cipher_suite_is_known_by_the_names_of_java_and_openssl(java: str, openssl: str) -> None:
    assert parse("SSL", {"ssl.cipher.suites": java}).ssl_cipher_suites == (openssl,)


def test_one_suite_of_tls_1_3_stands_for_all() -> None:
    (notice,) = parse("SSL", {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}).notices
    assert "all three of them may be used" in notice


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"ssl.endpoint.identification.algorithm": ""}, "the host names of brokers are not checked"),
        ({"ssl.endpoint.identification.algorithm": "none"}, "the host names of brokers are not checked"),
        ({"enable.ssl.certificate.verification": "false"}, "certificates of brokers are not checked"),
    ],
)
def test_a_check_that_is_off_is_warned_of(settings: dict[str, object], what: str) -> None:
    (notice,) = parse("SSL", settings).notices
    assert notice.startswith(what)


# ---- what is shown ---------------------------------------------------------------------------------------------


def test_no_secret_is_in_what_options_show_of_themselves() -> None:
    key = {"ssl.keystore.key": "hunter3", "ssl.keystore.certificate.chain": "hunter4", "ssl.key.password": "hunter5"}
    options = parse("SASL_SSL", {**PLAIN, **key, "sasl.username": "hunter1", "ssl.truststore.certificates": "hunter6"})
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options and "hunter" not in repr(options) + repr(copy)
    assert "security_protocol='SASL_SSL'" in repr(options) and "sasl_password=[hidden]" in repr(options)
