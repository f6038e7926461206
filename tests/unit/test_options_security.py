"""Security options: valid combinations, refusals by name, notices about useless options, and what is shown."""

from __future__ import annotations

import pickle

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options

PACKAGE = "org.apache.kafka.common.security"
SCRAM = f'{PACKAGE}.scram.ScramLoginModule required username="alice" password="hunter2";'
BEARER = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
SERVICE = "sasl.kerberos.service.name"
KERBEROS = {"sasl.mechanism": "GSSAPI", SERVICE: "kafka"}
AWS_KEYS = {"sasl.aws.access.key.id": "a", "sasl.aws.secret.access.key": "hunter2"}
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
        ({}, "sasl.mechanism=GSSAPI (Kerberos) is the default and nothing is set for it: choose another one"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI needs sasl.kerberos.service.name"),
        ({"sasl.mechanism": "GSSAPI", SERVICE: "kafka@b"}, "without host and realm"),
        ({**KERBEROS, "sasl.kerberos.keytab": "f"}, "sasl.kerberos.keytab needs sasl.kerberos.principal"),
        ({**KERBEROS, "sasl.kerberos.principal": "a", "sasl.jaas.config": f"{KRB5} useTicketCache=true;"},
         "sasl.kerberos.principal and sasl.jaas.config contradict each other"),
        ({**KERBEROS, "sasl.jaas.config": f"{KRB5} useTicketCache=true serviceName=other;"}, "contradict each other"),
        ({**KERBEROS, "sasl.jaas.config": f"{KRB5};"}, "needs useKeyTab=true or useTicketCache=true"),
        ({**KERBEROS, "sasl.jaas.config": f'{KRB5} keyTab="f";'}, "keyTab needs useKeyTab=true"),
        ({**KERBEROS, "sasl.jaas.config": f'{KRB5} ticketCache="f";'}, "ticketCache needs useTicketCache=true"),
        ({**KERBEROS, "sasl.jaas.config": f'{KRB5} useKeyTab=true keyTab="f";'}, "useKeyTab=true needs principal"),
        ({**KERBEROS, "sasl.jaas.config": f'{KRB5} useKeyTab=true principal="a";'}, "useKeyTab=true needs keyTab"),
        ({**KERBEROS, "sasl.jaas.config": f"{KRB5} useTicketCache=true renewTGT=true;"}, "renewTGT=true is not supp"),
        ({**KERBEROS, "sasl.jaas.config": f"{KRB5} useTicketCache=true isInitiator=false;"}, "is for servers"),
        ({**KERBEROS, "sasl.kerberos.kinit.cmd": "/opt/kinit"}, "no program is run"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.access.key.id": "a"}, "belong together: set both or none"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.session.token": "hunter2"}, "belong together"),
        ({"sasl.mechanism": "AWS_MSK_IAM", **AWS_KEYS, "sasl.aws.profile": "p"}, "contradict each other: keep one"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.profile": "p", "sasl.jaas.config": f'{IAM} awsProfileName="q";'},
         "sasl.aws.profile and awsProfileName of sasl.jaas.config contradict each other"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f'{IAM} awsRoleSecretAccessKey="hunter2";'},
         "awsRoleAccessKeyId and awsRoleSecretAccessKey belong together: set both or none"),
        ({"sasl.mechanism": "AWS_MSK_IAM", **AWS_KEYS,
          "sasl.jaas.config": f'{IAM} awsRoleAccessKeyId="b" awsRoleSecretAccessKey="hunter2";'},
         "sasl.aws.access.key.id and awsRoleAccessKeyId of sasl.jaas.config contradict each other"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.region": "Ireland!"}, "expected a region of AWS such as"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": SCRAM}, "set it to SCRAM-SHA-256"),
        ({**PLAIN, "sasl.client.callback.handler.class": "com.example.Mine"}, "there is no JVM here"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class":
          "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"}, "sasl.mechanism=AWS_MSK_IAM does what"),
        ({"sasl.mechanism": "plain"}, "sasl.mechanism='plain' is not supported"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism=PLAIN needs sasl.username and sasl.password"),
        ({**PLAIN, "sasl.password": None}, "sasl.mechanism=PLAIN needs"),
        ({**PLAIN, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM}, "contradict each other: keep one"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM}, "set it to SCRAM-SHA-256 or SCRAM-SHA-512, or name"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "hunter2"}, "sasl.jaas.config is not valid"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PACKAGE}.plain.PlainLoginModule required;"},
         "PlainLoginModule needs username"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
         "set it to GSSAPI, or name the module that fits"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{IAM};"}, "set it to AWS_MSK_IAM, or name the module"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.example.Mine required;"},
         "Mine is not supported: known are PlainLoginModule"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs either sasl.oauthbearer.token.provider"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": "m:f", ENDPOINT: "https://x"},
         "needs either"),
        ({"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x"}, "credentials.client.id, or clientId"),
        ({"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x", "sasl.jaas.config": f'{BEARER} clientId="a";'},
         "credentials.client.secret, or clientSecret"),
        ({**PLAIN, "sasl.login.callback.handler.class": "com.example.Mine"}, "names a class of the JVM"),
        ({**PLAIN, "sasl.oauthbearer.assertion.private.key.file": "f"}, "this producer does not sign assertions"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": "m:f",
          "sasl.oauthbearer.assertion.file": "f"}, "needs sasl.oauthbearer.token.endpoint.url, where it is sent"),
        ({"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x", RETRIEVER: "x.JwtBearerJwtRetriever"},
         "JwtBearerJwtRetriever needs sasl.oauthbearer.assertion.file"),
        ({"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x", RETRIEVER: "com.example.Mine"}, "class of the JVM"),
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
        {"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x", "sasl.oauthbearer.assertion.file": "f",
         RETRIEVER: "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"},
        {"sasl.mechanism": "OAUTHBEARER", ENDPOINT: "https://x", "sasl.oauthbearer.assertion.file": "f"},
        {"sasl.mechanism": "AWS_MSK_IAM"},
        KERBEROS,
        {SERVICE: "kafka", "sasl.kerberos.keytab": "f", "sasl.kerberos.principal": "${env:NAME}"},
        {"sasl.mechanism": "GSSAPI", "sasl.kerberos.kinit.cmd": "/usr/bin/kinit", "sasl.jaas.config": f"{KRB5} "
         'useKeyTab=true storeKey=true useTicketCache=false keyTab="f" principal="a@R" serviceName="kafka";'},
        {**KERBEROS, "sasl.jaas.config": f'{KRB5} useTicketCache=true ticketCache="f" doNotPrompt=true;'},
        {**KERBEROS, "sasl.jaas.config": f'{KRB5} useTicketCache=true useKeyTab=true keyTab="f" principal="a@R";'},
        {**KERBEROS, "sasl.jaas.config": "${env:WHATEVER}"},
        {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": f'{KRB5} useTicketCache=true serviceName="${{env:NAME}}";'},
        {"sasl.mechanism": "AWS_MSK_IAM", "sasl.client.callback.handler.class":
         "software.amazon.msk.auth.iam.IAMClientCallbackHandler", "sasl.jaas.config": f'{IAM} awsRoleArn="a";'},
        {"sasl.mechanism": "AWS_MSK_IAM", **AWS_KEYS, "sasl.aws.session.token": "t", "sasl.aws.region": "eu-west-1"},
    ],
)  # fmt: skip
def test_what_can_authenticate_is_taken_without_a_word(settings: dict[str, object]) -> None:
    options = parse("SASL_SSL", settings)
    assert options.notices == () and options.has_sasl and options.has_tls


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({**PLAIN, SERVICE: "kafka"}, "sasl.kerberos.service.name has no effect with sasl.mechanism=PLAIN"),
        ({**KERBEROS, "sasl.username": "a"}, "sasl.username has no effect with sasl.mechanism=GSSAPI"),
        (
            {"sasl.mechanism": "AWS_MSK_IAM", "sasl.password": "b"},
            "sasl.password has no effect with sasl.mechanism=AWS_MSK_IAM",
        ),
        ({**KERBEROS, "sasl.kerberos.ticket.renew.jitter": "0.1"}, "each new session takes a valid one"),
        ({**KERBEROS, "sasl.kerberos.min.time.before.relogin": 1}, "no thread renews tickets"),
        ({**KERBEROS, "sasl.jaas.config": f"{KRB5} useTicketCache=true other=x;"}, "without effect on a client: other"),
    ],
)
def test_what_has_no_effect_on_kerberos_is_said(settings: dict[str, object], says: str) -> None:
    notices = parse("SASL_SSL", settings).notices
    assert len(notices) == 1 and says in notices[0]


def test_names_of_librdkafka_mean_the_same() -> None:
    theirs = {"sasl.mechanisms": "PLAIN", "ssl.ca.location": "ca.pem", "sasl.username": "a", "sasl.password": "b"}
    ours = {"sasl.mechanism": "PLAIN", "ssl.truststore.location": "ca.pem", "sasl.username": "a", "sasl.password": "b"}
    one, other = parse("sasl_ssl", theirs), parse("SASL_SSL", ours)
    assert one.notices == (
        "sasl.mechanisms is a name of librdkafka: use sasl.mechanism",
        "ssl.ca.location is a name of librdkafka: use ssl.truststore.location",
    )
    assert (one.sasl_mechanism, one.ssl_truststore_location) == (other.sasl_mechanism, other.ssl_truststore_location)


TOKENS = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": "m:f"}
IN_CLEAR = {"PLAIN": PLAIN, "OAUTHBEARER": TOKENS, "AWS_MSK_IAM": {"sasl.mechanism": "AWS_MSK_IAM", **AWS_KEYS}}
ALLOWED = {"allow.plaintext.credentials": "true"}


@pytest.mark.parametrize("mechanism", IN_CLEAR)
@pytest.mark.parametrize("servers", ["b:1", "localhost:1,b:2", "127.0.0.1.example.org:1", "[::2]:1", "localhost.x:1"])
def test_credentials_that_others_could_read_are_refused(mechanism: str, servers: str) -> None:
    with pytest.raises(ConfigError, match="would cross the network in clear") as caught:
        parse("SASL_PLAINTEXT", {"bootstrap.servers": servers, **IN_CLEAR[mechanism]})
    assert caught.value.name == "PKS-1016" and "hunter2" not in str(caught.value)
    assert "allow.plaintext.credentials=true" in str(caught.value)


@pytest.mark.parametrize("mechanism", IN_CLEAR)
@pytest.mark.parametrize("more", [ALLOWED, {"bootstrap.servers": "LOCALHOST:1,127.0.0.9:2,[::1]:3"}])
def test_credentials_that_are_allowed_in_clear_or_stay_on_this_host_are_warned_of(
    mechanism: str, more: dict[str, str]
) -> None:
    (notice,) = parse("SASL_PLAINTEXT", {**IN_CLEAR[mechanism], **more}).notices
    assert "readable on the network" in notice


@pytest.mark.parametrize("settings", [{**PLAIN, "sasl.mechanism": "SCRAM-SHA-256"}, KERBEROS])
def test_a_login_that_sends_no_secret_needs_no_encryption_and_is_warned_of(settings: dict[str, object]) -> None:
    (notice,) = parse("SASL_PLAINTEXT", settings).notices
    assert notice.startswith("records are readable on the network")


@pytest.mark.parametrize("protocol", [{}, {"security.protocol": "PLAINTEXT"}])
@pytest.mark.parametrize(
    "settings", [PLAIN, {"sasl.jaas.config": SCRAM}, AWS_KEYS, {"sasl.oauthbearer.client.secret": "hunter2"}]
)
def test_credentials_for_a_connection_that_has_no_login_are_refused(
    settings: dict[str, object], protocol: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match="neither encrypts nor logs in") as caught:
        parse_producer_options({"bootstrap.servers": "b:1", **protocol, **settings})
    assert caught.value.name == "PKS-1016" and "hunter2" not in str(caught.value)


@pytest.mark.parametrize("more", [ALLOWED, {"bootstrap.servers": "127.0.0.1:1"}])
def test_an_option_of_another_protocol_is_said_to_be_useless(more: dict[str, str]) -> None:
    options = parse("PLAINTEXT", {"ssl.ca.location": "ca.pem", **PLAIN, **more})
    useless = ["ssl.ca.location", "sasl.mechanism", "sasl.username", "sasl.password"]
    for name in useless:
        way_out = "; to log in, set it to SASL_SSL or SASL_PLAINTEXT" if name.startswith("sasl.") else ""
        assert f"{name} has no effect with security.protocol=PLAINTEXT{way_out}" in options.notices


def test_trust_for_a_token_endpoint_is_of_use_without_encryption_of_the_brokers() -> None:
    credentials = "sasl.oauthbearer.client.credentials.client"
    of_endpoint = {ENDPOINT: "https://x", f"{credentials}.id": "a", f"{credentials}.secret": "hunter2"}
    named = {"sasl.mechanism": "OAUTHBEARER", "ssl.ca.location": "ca.pem", "ssl.key.location": "key.pem"}
    notices = parse("SASL_PLAINTEXT", {**named, **of_endpoint, **ALLOWED}).notices
    useless = [notice for notice in notices if "has no effect" in notice]
    assert useless == ["ssl.key.location has no effect with security.protocol=SASL_PLAINTEXT"]


def test_an_option_of_another_mechanism_is_said_to_be_useless() -> None:
    options = parse("SASL_SSL", {**PLAIN, **AWS_KEYS, ENDPOINT: "https://x"})
    assert options.notices == tuple(f"{name} has no effect with sasl.mechanism=PLAIN" for name in (*AWS_KEYS, ENDPOINT))


def test_options_of_a_login_module_that_a_client_has_no_use_for_are_named() -> None:
    jaas = SCRAM.replace("required", 'required user_bob="hunter2"')
    (notice,) = parse("SASL_SSL", {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}).notices
    assert notice == "sasl.jaas.config: options without effect on a client: user_bob"


# ---- TLS -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ssl.truststore.type": "JKS", "ssl.truststore.location": "x.jks"}, "keytool -importkeystore -srckeystore"),
        ({"ssl.truststore.type": "BKS"}, "expected PEM or PKCS12"),
        ({"ssl.truststore.password": "hunter2"}, "is for a file, and ssl.truststore.location names none"),
        ({"ssl.truststore.location": "a", "ssl.truststore.certificates": "b"}, "contradict each other"),
        ({"ssl.ca.location": "a", "ssl.ca.pem": "b"}, "ssl.ca.pem and ssl.ca.location contradict each other"),
        ({"ssl.keystore.location": "a", "ssl.key.location": "b"}, "contradict each other"),
        ({"ssl.keystore.key": "hunter2"}, "belong together: only one of them is set"),
        ({"ssl.certificate.location": "a"}, "belong together"),
        ({"ssl.keystore.location": "-----BEGIN PRIVATE KEY-----\nhunter2"}, "ssl.keystore.location is the content of"),
        ({"ssl.ca.location": "-----BEGIN CERTIFICATE-----"}, "or the text in ssl.truststore.certificates"),
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
    keys = {**AWS_KEYS, "sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.access.key.id": "hunter1"}
    assert "hunter" not in repr(parse("SASL_SSL", keys))
