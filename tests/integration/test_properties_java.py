"""Texts of properties are read as java.util.Properties reads them: thousands of random ones, in one Java process."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.properties import parse_properties
from tests.conftest import without_kafka
from tools.kafka_jars import KafkaUnavailable, java_command

READER = Path(__file__).parent / "java" / "ReadProperties.java"
SEED, TEXT_COUNT, PIECES_MAX = 1, 20_000, 24
TIMEOUT_S = 120
ENDS_WITH_NOTHING = re.compile(r"(^|[\n\r])[ \t\f]*\\[\n\r]?$")
# What the grammar knows, and what it must not stumble over.
PIECES = (
    *("a", "b", "key", "=", ":", " ", "\t", "\f", "\v", "\n", "\r", "\r\n", "\\", "\\\\", "\\\n", "\\\r\n", "#", "!"),
    *("\\u0041", "\\u00e4", "\\ud83d\\ude00", "\\ud83d", "\\u12", "\\u", "\\U0041", "\\t", "\\n", "\\r", "\\f", "\\q"),
    *("\\=", "\\:", "\\ ", "\\#", "ä", "€", "😀", "\x00", "\x1c", "\x85", "\u2028", "\xa0", "${env:A}", "'", '"', "u"),
)


def random_texts() -> Iterator[str]:
    pick = random.Random(SEED)
    for _ in range(TEXT_COUNT):
        yield "".join(pick.choices(PIECES, k=pick.randint(0, PIECES_MAX)))


def read_by_java(texts: list[str]) -> list[dict[str, str] | None]:
    """None: refused."""
    try:
        java = java_command()
    except KafkaUnavailable as error:
        without_kafka(str(error))
    encoded = [text.encode() for text in texts]
    given = b"".join(struct.pack(">i", len(each)) + each for each in encoded)
    command = [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", str(READER)]
    answer = subprocess.run(command, input=given, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True).stdout
    at = 0

    def number() -> int:
        nonlocal at
        (found,) = struct.unpack_from(">i", answer, at)
        at += 4
        return int(found)

    def word() -> str:
        nonlocal at
        end = number() * 2 + at
        found, at = answer[at:end], end
        return found.decode("utf-16-be", "surrogatepass")

    def entries() -> dict[str, str] | None:
        count = number()
        return None if count < 0 else {word(): word() for _ in range(count)}

    found = [entries() for _ in texts]
    assert at == len(answer)
    return found


def without_nothing(text: str, found: dict[str, str] | None) -> dict[str, str] | None:
    """Java makes an entry without a name of a backslash alone in the last line."""
    if found is None or not ENDS_WITH_NOTHING.search(text):
        return found
    return {name: value for name, value in found.items() if name}


def read_here(text: str) -> dict[str, str] | None:
    try:
        return {name: each.value for name, each in parse_properties(text).items()}
    except ConfigError:
        return None


@pytest.mark.timeout(TIMEOUT_S)
def test_random_texts_mean_what_they_mean_to_java() -> None:
    texts = list(random_texts())
    expected = read_by_java(texts)
    assert sum(each is None for each in expected) > TEXT_COUNT // 10
    assert sum(len(each or ()) > 1 for each in expected) > TEXT_COUNT // 10
    wrong = [
        (text, java, here)
        for text, java in zip(texts, expected, strict=True)
        if without_nothing(text, here := read_here(text)) != without_nothing(text, java)
    ]
    assert not wrong, (len(wrong), min(wrong, key=lambda each: len(each[0])))
