"""docs/schemas.md matches the code: its recipes give no warning, and it names each framing and login."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_sink.formats.registry.framing import FRAMINGS
from kafka_sink.options.format_options import CUSTOM, OAUTHBEARER, SASL_INHERIT, SASL_OAUTHBEARER_INHERIT
from kafka_sink.options.parse_sink import parse_sink_options

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "schemas.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^```python\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_a_recipe_is_taken(number: int) -> None:
    options = dict(re.findall(r'\.option\("([^"]+)", "([^"]+)"\)', RECIPES[number]))
    found = parse_sink_options({"kafka.bootstrap.servers": "b:9092", "topic": "orders", **options})
    assert found.formats is not None and found.notices == ()


def test_there_are_recipes_for_three_registries() -> None:
    assert len(RECIPES) >= 4
    assert all(f"### {name}\n" in PAGE for name in ("Confluent Cloud", "AWS Glue", "Apicurio"))


@pytest.mark.parametrize("word", [*FRAMINGS, SASL_INHERIT, SASL_OAUTHBEARER_INHERIT, OAUTHBEARER, CUSTOM])
def test_each_framing_and_login_is_named(word: str) -> None:
    assert f"`{word}`" in PAGE or f"={word}`" in PAGE
