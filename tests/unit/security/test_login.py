"""PLAIN and OAUTHBEARER messages, the content of tokens, references, and that no secret is shown."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kafka_sink.errors import AuthenticationError, ConfigError
from kafka_sink.kafka.auth.renewal import renewal_wait_s
from kafka_sink.kafka.client.commands import Send
from kafka_sink.options import ProducerOptions
from kafka_sink.security.oauthbearer import OAuthBearerExchange, expiry_s, parse_error_answer, parse_token_answer
from kafka_sink.security.passwords import password_exchange
from kafka_sink.security.reference import is_reference, replace_references

HOUR_S = 3600.0


def json_web_token(**claims: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)]
    return ".".join([*parts, "sig"])


def test_plain_is_name_and_password_in_one_message() -> None:
    exchange = password_exchange("PLAIN", {"username": "\u00e4", "password": "p"}, "")
    assert exchange.first() == "\0\u00e4\0p".encode()
    assert exchange.step(b"") is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("login", [("", "p"), ("u", ""), ("u\0", "p"), ("u", "p\0q")])
def test_a_missing_or_impossible_credential_is_named_and_not_shown(mechanism: str, login: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"for sasl.mechanism={mechanism} (is missing|contains a NUL)"):
        password_exchange(mechanism, {"username": login[0], "password": login[1]}, "n")


def test_oauthbearer_sends_the_token_and_extensions_in_one_message() -> None:
    exchange = OAuthBearerExchange("a.b.c", {"logicalCluster": "lkc-1", "pool": "p 2"})
    assert exchange.first() == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01pool=p 2\x01\x01"
    assert exchange.step(b"") is None


@pytest.mark.parametrize(("of_module", "sent"), [({}, b""), ({"tokenauth": "True"}, b",tokenauth=true")])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_sends_the_given_nonce_and_says_when_the_login_is_a_delegation_token(
    mechanism: str, of_module: dict[str, str], sent: bytes
) -> None:
    login = {"username": "u", "password": "p", **of_module}
    exchange = password_exchange(mechanism, login, "nonce")
    assert exchange.first() == b"n,,n=u,r=nonce" + sent and exchange.mechanism == mechanism


@pytest.mark.parametrize("after", [b"", b"more"])
def test_a_token_that_was_refused_is_not_talked_about_any_longer(after: bytes) -> None:
    exchange = OAuthBearerExchange("a.b.c", {})
    assert exchange.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="refused the token but did not end the login"):
        exchange.step(after)


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "a\n", "\u00e4", "x" * 200_000])
def test_what_is_no_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(AuthenticationError) as caught:
        OAuthBearerExchange(token, {})
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("extension", [("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "x\x01")])
def test_an_extension_that_could_end_the_message_is_refused(extension: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="SASL extension"):
        OAuthBearerExchange("t", dict([extension]))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_an_exchange_shows_no_secret(mechanism: str) -> None:
    login = {"username": "hunter1", "password": "hunter2"}
    assert "hunter" not in repr(password_exchange(mechanism, login, "n"))
    assert "hunter" not in repr(OAuthBearerExchange("hunter3", {"a": "hunter"}))


# ---- tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a", "ab", "abc", "abcd", "abcde"])
def test_a_token_of_any_length_says_when_it_ends(name: str) -> None:
    assert expiry_s(json_web_token(exp=1_800_000_000, sub=name)) == 1_800_000_000


@pytest.mark.parametrize("exp", [None, "1", True, -1, 0, 1e300, float("nan"), [1]])
def test_an_end_that_is_none_is_not_believed(exp: Any) -> None:
    assert expiry_s(json_web_token(exp=exp)) is None


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "..", "a.W10.c", "a." + "W" * 100_000 + ".c"])
def test_a_token_that_cannot_be_read_has_no_end(token: str) -> None:
    assert expiry_s(token) is None


@pytest.mark.parametrize(
    ("life_s", "least_s", "buffer_s", "expected_s"),
    [(HOUR_S, 60, 300, 2880), (HOUR_S, 60, 1200, 2400), (HOUR_S, 3000, 300, 3000), (100, 60, 300, 80), (0, 60, 300, 0)],
)
def test_a_token_is_renewed_when_java_would(life_s: float, least_s: int, buffer_s: int, expected_s: float) -> None:
    options = ProducerOptions(
        bootstrap_servers=(),
        sasl_login_refresh_min_period_seconds=least_s,
        sasl_login_refresh_buffer_seconds=buffer_s,
    )
    assert renewal_wait_s(options, life_s, 0) == expected_s


def test_a_token_is_renewed_in_the_window_of_the_options() -> None:
    window = {"sasl_login_refresh_window_factor": 0.5, "sasl_login_refresh_window_jitter": 0.2}
    options = ProducerOptions(bootstrap_servers=(), **window)  # type: ignore[arg-type]
    assert [round(renewal_wait_s(options, HOUR_S, dice)) for dice in (0, 0.5)] == [1_800, 2_160]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"access_token": 5}', b'{"access_token": " "}', b"[" * 100_000, b"x" * 300_000],
)
def test_an_answer_without_a_token_is_refused_and_not_shown(body: bytes) -> None:
    with pytest.raises(AuthenticationError, match=r"^the endpoint (answered|did not)") as caught:
        parse_token_answer(body, "the endpoint", 0)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("expires_in", "end_s"),
    [(60, 1060), ("60", 1060), (0.5, 1000.5), (None, None), (0, None), (-1, None), (True, None), ("soon", None),
     ("\u0661", None), ("9" * 5_000, None), (1e300, None), (float("nan"), None), ([60], None)],
)  # fmt: skip
def test_a_token_without_an_end_of_its_own_ends_when_the_endpoint_says(expires_in: Any, end_s: float | None) -> None:
    body = json.dumps({"access_token": "opaque", "expires_in": expires_in}).encode()
    found = parse_token_answer(body, "the endpoint", 1000)
    assert (found.text, found.end_s) == ("opaque", end_s)


def test_the_end_that_a_token_names_goes_before_what_the_endpoint_says() -> None:
    body = json.dumps({"access_token": json_web_token(exp=1_800_000_000), "expires_in": 60}).encode()
    found = parse_token_answer(body, "the endpoint", 1000)
    assert found.end_s == 1_800_000_000 and found.text not in repr(found)


def test_only_the_word_of_an_error_answer_is_told() -> None:
    assert parse_error_answer(b'{"error": "invalid_client", "error_description": "hunter2"}') == "invalid_client"
    assert parse_error_answer(b'{"error": "new\\nline"}') == ""


# ---- references ------------------------------------------------------------------------------------------------


def test_references_are_replaced_once_and_by_provider() -> None:
    known = {("env", "A"): "${env:B}", ("file", "/p:k"): "v"}
    look_up = lambda provider, place: known.get((provider, place))  # noqa: E731
    assert replace_references("o", "x${env:A}-${file:/p:k}", look_up) == "x${env:B}-v"
    assert replace_references("o", "${vault:x} $env", look_up) == "${vault:x} $env"


def test_a_reference_to_nothing_names_the_option_and_the_reference() -> None:
    with pytest.raises(ConfigError, match=r"^sasl.password refers to \$\{env:NOPE\}, which is not there"):
        replace_references("sasl.password", "hunter2${env:NOPE}", lambda _provider, _place: None)


def test_a_reference_with_a_line_break_does_not_break_the_line_of_the_error() -> None:
    with pytest.raises(ConfigError, match=r"^o refers to \$\{env:A\?B\}, which"):
        replace_references("o", "${env:A\nB}", lambda _provider, _place: None)


def test_a_value_that_is_no_text_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"^o refers to a value that is not UTF-8") as caught:
        replace_references("o", "${env:A}", lambda _provider, _place: "hunter2\udcff")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("text", "expected"), [("${env:A}", True), (" ${file:/a:b} ", True), ("a${env:A}", False)])
def test_a_reference_is_one_when_it_is_the_whole_value(text: str, expected: bool) -> None:
    assert is_reference(text) is expected


def test_what_is_sent_is_not_shown_with_the_command_that_sends_it() -> None:
    exchange = password_exchange("PLAIN", {"username": "me", "password": "hunter2"}, "")
    assert repr(Send(3, [exchange.first()])) == "Send(connection_id=3, tells_written=False)"
