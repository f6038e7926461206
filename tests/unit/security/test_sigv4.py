"""Signature Version 4 against the vectors that AWS publishes: its test suite, and the examples of the S3 reference."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_sink.security.sigv4 import AwsCredentials, CredentialScope, canonical_query, scope_at, signature

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SUITE = CredentialScope("20150830T123600Z", "us-east-1", "service")
HOST = {"host": "example.amazonaws.com", "x-amz-date": SUITE.time}
S3_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
S3 = CredentialScope("20130524T000000Z", "us-east-1", "s3")
S3_HOST = {
    "host": "examplebucket.s3.amazonaws.com",
    "x-amz-date": S3.time,
    "x-amz-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}


@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [
        ("get-vanilla", {}, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("get-vanilla-query-order-key-case", {"Param2": "value2", "Param1": "value1"},
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
        ("get-vanilla-query-order-key", {"Param1": "value1"},
         "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
    ],
)  # fmt: skip
def test_the_test_suite_of_aws_is_signed_alike(name: str, query: dict[str, str], expected: str) -> None:
    assert signature(SECRET, SUITE, query=query, headers=HOST) == expected, name


@pytest.mark.parametrize(
    ("path", "query", "more", "expected"),
    [
        ("/test.txt", {}, {"range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/", {"lifecycle": ""}, {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/", {"max-keys": "2", "prefix": "J"}, {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_the_examples_of_the_s3_reference_are_signed_alike(
    path: str, query: dict[str, str], more: dict[str, str], expected: str
) -> None:
    assert signature(S3_SECRET, S3, path=path, query=query, headers={**S3_HOST, **more}) == expected


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a host whose local time is 14 hours ahead."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "LINT-14")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_time_and_scope_are_those_of_utc_wherever_the_host_is() -> None:
    scope = scope_at(1_440_938_160.9, "us-east-1", "service")
    assert (scope, str(scope)) == (SUITE, "20150830/us-east-1/service/aws4_request")


def test_a_query_has_one_spelling() -> None:
    assert (
        canonical_query({"b": "a b/c~d+e$\u00e9", "A": ":=", "/": "/"}) == "%2F=%2F&A=%3A%3D&b=a%20b%2Fc~d%2Be%24%C3%A9"
    )


def test_credentials_show_nothing() -> None:
    assert repr(AwsCredentials("hunter1", "hunter2", "hunter3", 5.0)) == "AwsCredentials(end_s=5.0)"
