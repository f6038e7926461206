"""AWS_MSK_IAM: what is sent, which answer counts, the region of a host name; and credentials in hostile wrappings."""

from __future__ import annotations

import json

import pytest

from kafka_sink.errors import AuthenticationError, ConfigError
from kafka_sink.security import aws_answers
from kafka_sink.security.aws_msk_iam import AwsMskIamExchange, region_of
from kafka_sink.security.sigv4 import AwsCredentials
from kafka_sink.testing.aws import AwsMskIamServer as ServerExchange
from kafka_sink.testing.errors import AuthenticationFailed
from kafka_sink.version import VERSION

NOW_S = 1_800_000_000.0
HOST = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"
KEYS = AwsCredentials("AKIDEXAMPLE", "hunter2", "FwoGZ+/=token")


def exchange(credentials: AwsCredentials = KEYS, host: str = HOST, now_s: float = NOW_S) -> AwsMskIamExchange:
    return AwsMskIamExchange(credentials, host, "eu-west-1", now_s)


def test_the_message_has_the_fields_of_the_mechanism_and_not_the_secret() -> None:
    message = json.loads(exchange().first())
    assert len(message.pop("x-amz-signature")) == 64
    assert message == {
        "version": "2020_10_22",
        "host": HOST,
        "user-agent": f"pykafka-sink/{VERSION}",
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": "AKIDEXAMPLE/20270115/eu-west-1/kafka-cluster/aws4_request",
        "x-amz-date": "20270115T080000Z",
        "x-amz-expires": "900",
        "x-amz-signedheaders": "host",
        "x-amz-security-token": "FwoGZ+/=token",
    }
    assert b"hunter2" not in exchange().first()
    assert "x-amz-security-token" not in json.loads(exchange(AwsCredentials("A", "B")).first())


@pytest.mark.parametrize("credentials", [KEYS, AwsCredentials("AKIDEXAMPLE", "hunter2")])
def test_an_independent_server_verifies_the_signature(credentials: AwsCredentials) -> None:
    client, server = exchange(credentials), ServerExchange({"AKIDEXAMPLE": "hunter2"}, HOST, int(NOW_S * 1000))
    assert client.step(server.step(client.first())) is None
    assert server.user == "AKIDEXAMPLE"


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (exchange(AwsCredentials("AKIDEXAMPLE", "hunter3")), (HOST, NOW_S)),
        (exchange(AwsCredentials("AKIDOTHER", "hunter2")), (HOST, NOW_S)),
        (exchange(AwsCredentials("AKIDOTHER", "")), (HOST, NOW_S)),
        (exchange(), ("b-2.orders.abc123.c2.kafka.eu-west-1.amazonaws.com", NOW_S)),
        (exchange(), (HOST, NOW_S + 901)),
        (exchange(now_s=NOW_S + 600), (HOST, NOW_S)),
    ],
)
def test_a_wrong_key_host_or_time_is_denied(client: AwsMskIamExchange, server: tuple[str, float]) -> None:
    with pytest.raises(AuthenticationFailed, match="Access denied"):
        ServerExchange({"AKIDEXAMPLE": "hunter2"}, server[0], int(server[1] * 1000)).step(client.first())


@pytest.mark.parametrize("name", ["action", "x-amz-date", "x-amz-expires", "x-amz-credential", "x-amz-security-token"])
def test_a_message_that_was_changed_is_denied(name: str) -> None:
    message = json.loads(exchange().first())
    message[name] = message[name].replace("0", "1").replace("t", "u")
    with pytest.raises(AuthenticationFailed):
        ServerExchange({"AKIDEXAMPLE": "hunter2"}, HOST, int(NOW_S * 1000)).step(json.dumps(message).encode())


@pytest.mark.parametrize("token", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"version": {}}'])
def test_the_embedded_server_refuses_any_other_bytes(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        ServerExchange({"AKIDEXAMPLE": "hunter2"}, HOST, 0).step(token)


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 4000, b'{"version": "2020_10_22"}' + b" " * 5000]
)
def test_an_answer_that_is_none_ends_the_conversation(answer: bytes) -> None:
    with pytest.raises(AuthenticationError, match="its answer is not one of this mechanism"):
        exchange().step(answer)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "eu-west-1"),
        ("boot-abc.c1.kafka-serverless.us-gov-east-1.amazonaws.com", "us-gov-east-1"),
        ("b-1.x.c3.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("vpce-0a.kafka.ap-southeast-2.vpce.amazonaws.com", "ap-southeast-2"),
        ("B-1.X.KAFKA.EU-WEST-1.AMAZONAWS.COM.", "eu-west-1"),
        ("localhost", None),
        ("kafka.eu-west-1.example.org", None),
        ("b-1.kafka.eu-west-1.amazonaws.com.example.org", None),
    ],
)
def test_the_region_stands_in_the_host_name(host: str, region: str | None) -> None:
    assert region_of(host) == region


# ---- answers ---------------------------------------------------------------------------------------------------

GOOD = {"AccessKeyId": "AKID", "SecretAccessKey": "hunter2", "Token": "t", "Expiration": "2015-08-30T12:36:00Z"}


@pytest.mark.parametrize("end", ["2015-08-30T12:36:00Z", "2015-08-30T12:36:00.123Z", "2015-08-30T14:36:00+02:00"])
def test_credentials_of_json_end_when_they_say(end: str) -> None:
    found = aws_answers.credentials_from_json(json.dumps({**GOOD, "Expiration": end, "Code": "Success"}).encode(), "it")
    assert found == AwsCredentials("AKID", "hunter2", "t", 1_440_938_160.0)


def test_credentials_of_xml_are_found_whatever_stands_around_them() -> None:
    body = b"""<?xml version="1.0"?><AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
      <Credentials><AccessKeyId>AKID</AccessKeyId><SecretAccessKey>hunter2</SecretAccessKey>
      <SessionToken> t </SessionToken><Expiration>2015-08-30T12:36:00Z</Expiration></Credentials>
    </AssumeRoleResponse>"""
    assert aws_answers.credentials_from_xml(body, "it") == AwsCredentials("AKID", "hunter2", "t", 1_440_938_160.0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hunter2",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b" " * 300_000,
        json.dumps({**GOOD, "Code": "Failed"}).encode(),
        json.dumps({**GOOD, "AccessKeyId": 7}).encode(),
        json.dumps({**GOOD, "SecretAccessKey": "hunter2 \n"}).encode(),
        json.dumps({**GOOD, "Token": ["hunter2"]}).encode(),
        json.dumps({**GOOD, "Token": "x" * 70_000}).encode(),
        json.dumps({**GOOD, "Expiration": "hunter2"}).encode(),
        json.dumps({**GOOD, "Expiration": 5}).encode(),
        json.dumps({**GOOD, "Expiration": "0001-01-01T00:00:00+23:59"}).encode(),
        b"<AccessKeyId>AKID</AccessKeyId><SecretAccessKey>hunter2",
        b"<AccessKeyId>&a;</AccessKeyId><SecretAccessKey>hunter2</SecretAccessKey>",
    ],
)
def test_an_answer_without_credentials_is_told_without_its_content(body: bytes) -> None:
    for read in (aws_answers.credentials_from_json, aws_answers.credentials_from_xml):
        with pytest.raises(AuthenticationError, match=r"^it answered without credentials$"):
            read(body, "it")


def test_only_the_code_of_an_error_of_sts_is_told() -> None:
    assert aws_answers.error_from_xml(b"<Error><Code>AccessDenied</Code><Message>hunter2</Message>") == "AccessDenied"
    assert aws_answers.error_from_xml(b"<Code>hunter 2</Code>") == ""


def test_profiles_of_both_files_have_their_names() -> None:
    text = "[default]\na = 1\n; comment\n[profile dev]\nrole_arn = r\ns3 =\n  nested = x\n[services local]\nb = 2\n"
    assert aws_answers.parse_profiles("f", text, is_config=True) == {
        "default": {"a": "1"},
        "dev": {"role_arn": "r", "s3": "\nnested = x"},
    }
    assert list(aws_answers.parse_profiles("f", "[dev]\nk = a%b=c\n", is_config=False)["dev"].values()) == ["a%b=c"]


@pytest.mark.parametrize("text", ["hunter2", "[a\nb", "[a]\nhunter2", "\0"])
def test_a_file_that_holds_no_profiles_is_named_without_its_content(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f is no file of AWS profiles") as caught:
        aws_answers.parse_profiles("f", text, is_config=False)
    assert "hunter2" not in str(caught.value)
