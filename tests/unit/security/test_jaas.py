"""sasl.jaas.config strings as existing jobs contain them."""

from __future__ import annotations

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.security.jaas import parse_jaas

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{SCRAM} required username="alice" password="secret";', {"username": "alice", "password": "secret"}),
        (f"{SCRAM} REQUIRED username='alice' password='sec\"ret';", {"username": "alice", "password": 'sec"ret'}),
        (f'{SCRAM} required\n  username="a"\n  // a comment\n  password="b" /* another;\n one */;\n', None),
        (f'kafkashaded.{SCRAM} required username="a" password="b";', None),
        (f"{SCRAM} sufficient username=a password=b;", None),
        (f'{SCRAM} required password="a\\"b\\\\c\\td\\101\\47";', {"password": "a\"b\\c\tdA'"}),
        (f'{SCRAM} required password="\\X\\8\\400\\0";', {"password": "X8 0\0"}),
        (f'{SCRAM} required password="${{env:KAFKA_PASSWORD}}";', {"password": "${env:KAFKA_PASSWORD}"}),
        (f'{SCRAM} required password="a;b=c # /* not a comment */";', {"password": "a;b=c # /* not a comment */"}),
        (f"{SCRAM} required password='a\\'b\\\\\\t';", {"password": "a'b\\\t"}),
        (f"{SCRAM} required password=1234;", {"password": "1234"}),
        (f"{SCRAM} required;", {}),
    ],
)
def test_a_login_module_is_read_as_java_reads_it(text: str, options: dict[str, str] | None) -> None:
    module = parse_jaas(text)
    assert module.name == "ScramLoginModule"
    assert module.options == ({"username": "a", "password": "b"} if options is None else options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with a login module"),
        (f"{SCRAM}", "begins with a login module"),
        (f'{SCRAM} username="a";', "control flag is missing"),
        (f'{SCRAM} required password="hunter2"', "does not end with a semicolon"),
        (f'{SCRAM} required password="hunter2;', "fits nowhere"),
        (f'{SCRAM} required password="hun\nter2";', "fits nowhere"),
        (f"{SCRAM} required password=hunter2!;", "fits nowhere"),
        (f"{SCRAM} required password=hun hunter2;", "pairs"),
        (f'{SCRAM} required "password"="hunter2";', "pairs"),
        (f'{SCRAM} required password=;"hunter2"', "pairs"),
        (f"{SCRAM} required password==;", "pairs"),
        (f"{SCRAM} required password hunter2 hunter2;", "pairs"),
        (f"{SCRAM} required password=a; hunter2", "more than one"),
        (f'{SCRAM} required password="hunter2"; {SCRAM} required;', "more than one"),
        (f"= {SCRAM} required;", "begins with a login module"),
        ('"hunter2" "x";', "begins with a login module"),
    ],
)
def test_a_string_that_cannot_be_meant_is_refused_without_repeating_it(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_jaas(text)
    assert "hunter2" not in str(caught.value)


def test_options_are_not_shown() -> None:
    assert "secret" not in repr(parse_jaas(f'{SCRAM} required password="secret";'))
