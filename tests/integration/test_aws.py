"""AWS_MSK_IAM: credentials from each place where they may stand, and signatures that brokers verify."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink import AuthenticationError, ConfigError, KafkaSinkError, Producer, TransportError
from kafka_sink.auth.secured import authenticator
from kafka_sink.client.authentication import Authenticator
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.testing import EmbeddedBroker
from tests.conftest import NEWEST, without_kafka
from tests.integration.aws_endpoints import CONTAINER_TOKEN, ROLES, AwsEndpoints
from tools.java import PRODUCER_PERFORMANCE, run_class
from tools.kafka_jars import KafkaUnavailable, msk_iam_jars

WAIT_S = 90
HOST = "b-1.orders.c2.kafka.eu-west-1.amazonaws.com"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"
HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
ROLE = "arn:aws:iam::123456789012:role/orders"


@pytest.fixture
def endpoints() -> Iterator[AwsEndpoints]:
    with AwsEndpoints() as endpoints:
        yield endpoints


@pytest.fixture(autouse=True)
def nothing_of_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine knows of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def options(**more: Any) -> ProducerOptions:
    chosen: dict[str, Any] = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.login.retry.backoff.max.ms": 100,
    }
    return parse_producer_options(chosen | {name.replace("_", "."): value for name, value in more.items()})


def made(chosen: ProducerOptions) -> Authenticator:
    found = authenticator(chosen)
    assert found is not None
    return found


def message(host: str = HOST, **more: Any) -> dict[str, str]:
    found: dict[str, str] = json.loads(made(options(**more))(host).first())
    return found


def who(**more: Any) -> tuple[str, str | None]:
    """Id of the key and session token."""
    found = message(**more)
    return found["x-amz-credential"].split("/")[0], found.get("x-amz-security-token")


def refusal(**more: Any) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as caught:
        message(**more)
    assert "hunter2" not in str(caught.value)
    return caught.value


# ---- where credentials stand -----------------------------------------------------------------------------------


def test_keys_of_the_options_are_used_by_reference_too(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"sasl_aws_access_key_id": "AKIDOPTION", "sasl_aws_secret_access_key": "${env:MY_SECRET}"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("MY_SECRET", "hunter2")
    assert who(**keys) == ("AKIDOPTION", None)
    assert who(**keys, sasl_aws_session_token="t") == ("AKIDOPTION", "t")


def test_keys_of_the_environment_are_read_anew_for_each_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    new_exchange = made(options(sasl_jaas_config=f"{IAM};", sasl_client_callback_handler_class=HANDLER))
    assert b"AKIDENV" in new_exchange(HOST).first()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEXT")
    assert b"AKIDNEXT" in new_exchange(HOST).first()


def test_profiles_are_found_by_option_jaas_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def profile(name: str) -> str:
        return f"[{name}]\naws_access_key_id = AKID{name.upper()}\naws_secret_access_key = hunter2\n"

    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(profile("default") + profile("dev"))
    (tmp_path / "config").write_text("[profile far]\naws_access_key_id = AKIDFAR\naws_secret_access_key = x\n")
    assert who() == ("AKIDDEFAULT", None)
    assert who(sasl_aws_profile="dev") == ("AKIDDEV", None)
    assert who(sasl_jaas_config=f'{IAM} awsProfileName="dev";') == ("AKIDDEV", None)
    monkeypatch.setenv("AWS_PROFILE", "far")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert who() == ("AKIDFAR", None)
    assert "there is no AWS profile 'none' in ~/.aws" in str(refusal(sasl_aws_profile="none"))


def test_a_web_identity_is_exchanged_for_credentials(
    endpoints: AwsEndpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("hunter2.jwt\n")
    for name, value in (("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token")), ("AWS_ROLE_ARN", ROLE)):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    assert who() == ("AKIDGIVEN", "session")
    ((path, _, headers, form),) = endpoints.requests
    assert (path, "authorization" in headers) == ("/", False)
    assert form == {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": ROLE,
                    "RoleSessionName": "pykafka-sink", "WebIdentityToken": "hunter2.jwt"}  # fmt: skip


def test_a_role_is_taken_on_with_the_credentials_at_hand(
    endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    keys = {"sasl_aws_access_key_id": "AKIDOWN", "sasl_aws_secret_access_key": "hunter2"}
    jaas = f'{IAM} awsRoleArn="{ROLE}" awsRoleSessionName="me" awsRoleExternalId="e" awsStsRegion="eu-north-1";'
    assert who(**keys, sasl_jaas_config=jaas) == ("AKIDGIVEN", "session")
    assert who(**keys, sasl_aws_role_arn=ROLE) == ("AKIDGIVEN", "session")
    (_, _, headers, form), (_, _, later, plain) = endpoints.requests
    assert "/eu-north-1/sts/aws4_request" in headers["authorization"] and "AKIDOWN/" in headers["authorization"]
    assert "/eu-west-1/sts/aws4_request" in later["authorization"] and plain["RoleSessionName"] == "pykafka-sink"
    assert (form["Action"], form["RoleSessionName"], form["ExternalId"]) == ("AssumeRole", "me", "e")
    assert "hunter2" not in str(endpoints.requests)


def test_a_profile_may_take_on_a_role(endpoints: AwsEndpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        f"[profile a]\nrole_arn = {ROLE}\nsource_profile = b\n[profile c]\nrole_arn = {ROLE}\nsource_profile = d\n"
        f"[profile d]\nrole_arn = {ROLE}\nsource_profile = c\n[profile e]\nsso_session = x\n"
        f"[profile f]\nrole_arn = {ROLE}\ncredential_source = Ec2InstanceMetadata\n[profile g]\nrole_arn = {ROLE}\n"
    )
    (tmp_path / ".aws" / "credentials").write_text(
        "[b]\naws_access_key_id = AKIDB\naws_secret_access_key = hunter2\naws_session_token = t\n"
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints.url)
    assert who(sasl_aws_profile="a") == who(sasl_aws_profile="f") == ("AKIDGIVEN", "session")
    assert "AKIDB/" in endpoints.requests[0][2]["authorization"]
    assert endpoints.requests[0][2]["x-amz-security-token"] == "t"
    assert "is its own source_profile" in str(refusal(sasl_aws_profile="c"))
    assert "uses sso_session, which is not built in" in str(refusal(sasl_aws_profile="e"))
    assert "neither source_profile" in str(refusal(sasl_aws_profile="g"))


def test_a_container_and_an_instance_are_asked_last(endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal()
    assert error.name == "PKS-4009" and "no AWS credentials in options, environment" in str(error)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{endpoints.url}/")
    assert who() == ("AKIDGIVEN", "session")
    assert endpoints.paths == ["/latest/api/token", ROLES, f"{ROLES}my-role"]
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoints.url}/container")
    assert "answered 401: is a role attached?" in str(refusal())
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", CONTAINER_TOKEN)
    assert who() == ("AKIDGIVEN", "session")
    assert endpoints.paths[3:] == ["/container", "/container"]


@pytest.mark.parametrize("url", ["http://example.org/c", "http://localhost/c", "file:///etc/passwd"])
def test_the_authorization_token_of_a_container_goes_to_its_host_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
    assert "AWS_CONTAINER_CREDENTIALS_FULL_URI must begin with https://" in str(refusal())


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ((403, b"<Error><Code>AccessDenied</Code><Message>hunter2</Message></Error>"), AuthenticationError,
         "answered 403 (AccessDenied): check the role"),
        ((200, b"x" * 1_000_000), AuthenticationError, "answered without credentials"),
        ((200, b"<AccessKeyId>A</AccessKeyId>hunter2"), AuthenticationError, "answered without credentials"),
        ((302, b""), AuthenticationError, "answered 302"),
        ((503, b"hunter2"), TransportError, "answered 503; it is asked again"),
    ],
)  # fmt: skip
def test_an_answer_of_sts_without_credentials_is_told_without_its_content(
    endpoints: AwsEndpoints,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, bytes],
    kind: type[KafkaSinkError],
    says: str,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    endpoints.answers += [answer] * 5
    keys = {"sasl_aws_access_key_id": "AKIDOWN", "sasl_aws_secret_access_key": "hunter2"}
    error = refusal(**keys, sasl_aws_role_arn=ROLE)
    assert isinstance(error, kind) and says in str(error), error


@pytest.mark.parametrize("answer", [b"", b"\n", b"\xff\xfe", b"x" * 500_000, b"\x01\r\nX-Injected: 1"])
def test_hostile_metadata_is_told(endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints.url)
    endpoints.answers.append((200, answer))
    assert "answered without credentials" in str(refusal())


def test_no_answer_of_an_instance_says_where_was_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    with AwsEndpoints() as endpoints:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints.url)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    error = refusal()
    assert isinstance(error, TransportError)
    assert "no AWS credentials in options, environment and ~/.aws, and the instance metadata at" in str(error)


def test_credentials_are_renewed_behind_the_scenes(endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints.url)
    endpoints.life_s = 5
    window = {"sasl_login_refresh_window_factor": 0.5, "sasl_login_refresh_window_jitter": 0}
    new_exchange = made(options(**window))
    assert b"AKIDGIVEN" in new_exchange(HOST).first() and len(endpoints.requests) == 3
    endpoints.keys = {"AKIDLATER": "x"}
    deadline_s = time.monotonic() + WAIT_S
    while b"AKIDLATER" not in new_exchange(HOST).first():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert len(endpoints.requests) == 6


def test_the_region_is_that_of_the_option_the_host_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"sasl_aws_access_key_id": "A123", "sasl_aws_secret_access_key": "x"}
    error = refusal(host="broker", **keys)
    assert isinstance(error, ConfigError) and "the host name broker says no region of AWS" in str(error)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-2")
    for more, host, region in (
        ({}, "broker", "us-east-2"),
        ({}, HOST, "eu-west-1"),
        ({"sasl_aws_region": "me-south-1"}, HOST, "me-south-1"),
    ):
        assert message(host, **keys, **more)["x-amz-credential"].split("/")[2] == region


# ---- brokers ---------------------------------------------------------------------------------------------------

KEYS = {"AKIDEXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
ENABLED = {"sasl.enabled.mechanisms": "AWS_MSK_IAM"}


def settings(kafka: EmbeddedBroker, secret: str = KEYS["AKIDEXAMPLE"]) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{IAM};",
        "sasl.client.callback.handler.class": HANDLER,
        "sasl.aws.region": "eu-west-1",
        "sasl.aws.access.key.id": "AKIDEXAMPLE",
        "sasl.aws.secret.access.key": secret,
    }


def test_a_broker_that_verifies_signatures_is_written_to_over_several_sessions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {**ENABLED, "connections.max.reauth.ms": "1500"}
    with EmbeddedBroker(2, topics={"events": 2}, access_keys=KEYS, properties=properties) as kafka:
        chosen = {**settings(kafka), "transactional.id": "t"}
        with caplog.at_level(logging.DEBUG, "kafka_sink"), Producer(chosen) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(20):
                producer.send("events", value=b"%d" % number).result(WAIT_S)
                time.sleep(0.15)
            producer.commit_transaction()
        ends = kafka.do(lambda core: [each.log.end_offset for each in core.cluster.topics["events"].partitions])
    assert sum(ends) >= 20 and "new session with" in caplog.text
    assert KEYS["AKIDEXAMPLE"] not in caplog.text


def test_a_wrong_secret_is_refused_at_once_with_what_to_check() -> None:
    with (
        EmbeddedBroker(topics={"events": 1}, access_keys=KEYS, properties=ENABLED) as kafka,
        Producer(settings(kafka, "hunter2")) as producer,
        pytest.raises(AuthenticationError) as caught,
    ):
        producer.send("events", value=b"never").result(WAIT_S)
    text = str(caught.value)
    assert "refused the credentials for AWS_MSK_IAM: SASL_AUTHENTICATION_FAILED (58)" in text
    assert "Access denied" in text and "kafka-cluster:Connect" in text and "hunter2" not in text


@pytest.mark.kafka
@pytest.mark.parametrize("secret", [KEYS["AKIDEXAMPLE"], "wrong"])
def test_amazons_own_library_for_java_gets_in_by_the_same_check(secret: str) -> None:
    """It judges the judge: what lets our client in is what lets Amazon's in, and refuses both alike."""
    try:
        jars = msk_iam_jars()
    except KafkaUnavailable as missing:
        without_kafka(str(missing))
    # Java asks for the name of an address and signs for that: by name from the start.
    with EmbeddedBroker(topics={"events": 1}, access_keys=KEYS, properties=ENABLED, host="localhost") as kafka:
        theirs = {name: value for name, value in settings(kafka).items() if not name.startswith("sasl.aws.")}
        theirs |= {"delivery.timeout.ms": "9000", "request.timeout.ms": "8000", "linger.ms": "0"}
        arguments = ["--topic", "events", "--num-records", "10", "--record-size", "10", "--throughput", "-1"]
        arguments += ["--producer-props", *(f"{name}={value}" for name, value in theirs.items())]
        environment = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "eu-west-1"}
        run_class(NEWEST, PRODUCER_PERFORMANCE, arguments, more_jars=jars, environment=environment)
        count = kafka.do(lambda core: core.cluster.topics["events"].partitions[0].log.end_offset)
    assert count == (0 if secret == "wrong" else 10)
