"""Files of properties: the expected values are what java.util.Properties reads from the same text."""

from __future__ import annotations

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("\n  \n# a=b\n ! c=d\n", {}),
        ("a=b", {"a": "b"}),
        ("a = b \n", {"a": "b "}),
        ("a:b\nc d\ne\tf=g", {"a": "b", "c": "d", "e": "f=g"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b\nc=:d\ne : =f", {"a": "=b", "c": ":d", "e": "=f"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=b\\\n   c\\\r\n  d\re=f", {"a": "bcd", "e": "f"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\t\\n\\u0041\\q\\\\", {"a": "\t\nAq\\"}),
        ("a=\\ud83d\\ude00 \\ud83d", {"a": "\U0001f600 \ud83d"}),
        ("a=b\\", {"a": "b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=b # no comment", {"a": "b # no comment"}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert {name: each.value for name, each in parse_properties(text).items()} == found


def test_an_unfinished_escape_is_refused_without_its_line() -> None:
    with pytest.raises(ConfigError, match="hexadecimal") as refused:
        parse_properties("a=b\\\nc\n\nsasl.password=hush\\u00g0", "FILE")
    assert str(refused.value).startswith("FILE, line 4: the value of sasl.password has") and "hush" not in str(
        refused.value
    )
    with pytest.raises(ConfigError, match=r"^line 1: the name has"):
        parse_properties("hush\\u00g0")


def test_a_property_knows_its_line_and_whether_it_was_a_name_alone() -> None:
    found = parse_properties("# no\na=1\\\n  2\nb\n\\\n!\nc :")
    assert [(each.name, each.line, each.has_separator) for each in found.values()] == [
        ("a", 2, True),
        ("b", 4, False),
        ("c", 7, True),
    ]
