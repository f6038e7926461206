"""AWS_MSK_IAM: the message that is sent, the answers that are accepted, and the region of a host name."""

from __future__ import annotations

import json

import pytest

from kafka_sink.errors import AuthenticationError
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
