"""docs/options.md matches the option tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.envelope_table import ENVELOPE_OPTIONS
from kafka_sink.options.foreign_table import ALIASES, FOREIGN_OPTIONS
from kafka_sink.options.format_table import FORMAT_OPTIONS, REGISTRY_OPTIONS
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_table import PRODUCER_DEFAULTS, SINK_OPTIONS
from kafka_sink.options.table import OPTIONS
from tests.support.page_blocks import ROOT
from tools.options_reference import PATH, anchor_of, main, reference

LINK = re.compile(r"\]\((?:[\w./-]*options\.md)?#([\w-]+)\)")


def headings() -> list[str]:
    return re.findall(r"^##+ (.+)$", reference(), re.MULTILINE)


def section(name: str) -> str:
    return re.split(r"^##+ ", reference().partition(f"\n### {name}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_committed_reference_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == reference(), "run: python -m tools.options_reference"


def test_the_reference_names_every_option_and_alias() -> None:
    cells = re.findall(r"^\| (`.+?) \|", reference(), re.MULTILINE)
    named = {*headings(), *(name for cell in cells for name in re.findall(r"`(.+?)`", cell))}
    ours = {*SINK_OPTIONS, *FORMAT_OPTIONS, *REGISTRY_OPTIONS, *ENVELOPE_OPTIONS}
    assert {*ours, *OPTIONS, *FOREIGN_OPTIONS, *ALIASES} - named == set()


def test_each_heading_has_an_anchor_of_its_own_and_every_link_to_one_leads_there() -> None:
    anchors = [anchor_of(heading) for heading in headings()]
    assert len(anchors) == len(set(anchors))
    pages = {page: page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md") if page != PATH}
    linked = {anchor for text in pages.values() for anchor in re.findall(r"options\.md#([\w-]+)", text)}
    assert linked | set(LINK.findall(reference())) <= set(anchors)
    assert len(linked) > 1


def test_each_option_says_its_default_its_values_and_what_it_needs() -> None:
    needed = section("metrics.timeout.ms")
    assert "default `2000` · whole number from 1 ·" in needed
    assert "needs `metrics.pushgateway.url` or `metrics.otlp.endpoint` or `lineage.url`" in needed
    assert "only with `delivery.guarantee=exactly-once`" in section("ledger.config.NAME")
    assert '`.option("kafka.compression.type", "zstd")`' in section("compression.type")
    assert "also `metadata.broker.list`" in section("bootstrap.servers")


def test_a_range_without_a_limit_names_none_and_a_sentence_begins_with_a_capital() -> None:
    assert section("connections.max.idle.ms").rstrip().endswith("default `540000` · any whole number")
    assert [line for line in reference().splitlines() if line.startswith("a ") and line.endswith(".")] == []


def test_an_option_of_the_key_leads_to_that_of_the_value() -> None:
    assert section("key.schema").strip() == "As [value.schema](#valueschema), for the key."
    assert "· Python callable" in section("key.serializer")


@pytest.mark.parametrize(
    "word", ["Docker", "hostname", "password", "INVALID_PRODUCER_EPOCH", "MESSAGE_TOO_LARGE", "PKS-6005"]
)
def test_the_table_of_wants_has_everyday_words_and_words_of_errors(word: str) -> None:
    wants = reference().partition("\n## ")[0]
    assert [row for row in wants.splitlines() if row.startswith("|") and word in row] != []


@pytest.mark.parametrize("name", PRODUCER_DEFAULTS)
def test_the_reference_names_what_the_sink_sets_by_itself_and_the_prefix(name: str) -> None:
    assert f", in Spark `{PRODUCER_DEFAULTS[name]}` " in section(name)
    assert f"\n`kafka.{name}` · " in section(name)


@pytest.mark.parametrize("name", [name for name, row in OPTIONS.items() if row.in_sink])
def test_what_the_reference_calls_refused_in_the_sink_is(name: str) -> None:
    assert f"\nin Spark refused: {OPTIONS[name].in_sink} · " in section(name)
    with pytest.raises(ConfigError, match=f"kafka.{name} is not supported".replace(".", r"\.")):
        parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", f"kafka.{name}": "x"})


def test_the_command_writes_the_file_it_is_given(tmp_path: Path) -> None:
    assert main([str(tmp_path / "options.md")]) == 0
    assert (tmp_path / "options.md").read_text(encoding="utf-8") == reference()
