"""docs/security.md and SECURITY.md match the code: files, and recipes that are accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_sink.options.parse_sink import parse_sink_options

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
POLICY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^```\n(kafka\..*?)```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_file_that_is_linked_is_there() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", PAGE)
    assert links and [link for link in links if not (ROOT / "docs" / link).exists()] == []
    named = [name for name in re.findall(r"`(\w+/[\w./]*)`", POLICY) if not name.startswith("tests/")]
    assert len(named) > 10 and [name for name in named if not (ROOT / "kafka_sink" / name).exists()] == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_taken_without_a_warning(recipe: str) -> None:
    lines = dict(line.split("=", 1) for line in recipe.splitlines())
    if "kafka.security.protocol" not in lines:
        lines |= {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
    options = parse_sink_options({"kafka.bootstrap.servers": "b:9093", "topic": "t", **lines})
    assert options.producer.has_tls and options.notices == ()
