"""tests/mistakes/wiring.py names a test for each option, and the tests are there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest

from kafka_sink.options.option import Treatment
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.table import OPTIONS
from tests.mistakes import wiring


def test_each_field_of_the_options_has_a_test_that_shows_its_effect_or_a_reason() -> None:
    named = Counter([name for name, _ in wiring.named_tests()] + list(wiring.NOT_SHOWN))
    assert set(named) == set(wiring.names())
    assert max(named.values()) == 1


def test_no_object_that_options_are_parsed_into_is_left_out() -> None:
    assert set(kinds_in(*wiring._defaults().values())) == set(wiring.KINDS)


def kinds_in(*objects: object) -> Iterator[type]:
    """Of these, and of all objects in their fields."""
    for one in objects:
        if is_dataclass(one):
            yield type(one)
            yield from kinds_in(*(getattr(one, field.name) for field in fields(one)))


def test_each_option_of_the_producer_has_a_field() -> None:
    fields = {
        name.partition(".")[2] for name in wiring.names() if name.startswith(("ProducerOptions.", "SecurityOptions."))
    }
    honoured = {row.field for row in OPTIONS.values() if row.treatment is Treatment.HONOURED and row.field}
    assert honoured <= fields


@pytest.mark.parametrize("file", wiring.SHOWN_BY)
def test_the_named_tests_are_there(file: str) -> None:
    there = set(re.findall(r"^def (test_\w+)\(", (wiring.ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))
    assert set(wiring.SHOWN_BY[file].values()) <= there


def test_whoever_reads_a_planted_field_finds_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerOptions, "linger_ms", ProducerOptions.__dict__["linger_ms"])
    wiring.plant("ProducerOptions.linger_ms")
    assert ProducerOptions(bootstrap_servers=(), linger_ms=70).linger_ms == 5
    monkeypatch.undo()
    assert ProducerOptions(bootstrap_servers=(), linger_ms=70).linger_ms == 70
