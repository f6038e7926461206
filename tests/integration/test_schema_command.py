"""`pykafka-sink schema show` and `check`, without a registry and with the embedded one."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafka_sink.__main__ import main
from kafka_sink.testing import EmbeddedRegistry

COLUMNS = "id BIGINT NOT NULL, name STRING"
TEXT = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"]}]}'


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    exit_code = main(["schema", *words, "--json"])
    return exit_code, json.loads(capsys.readouterr().out)


def test_show_prints_what_would_be_registered(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "my columns"
    path.write_text(COLUMNS)
    code, found = run(capsys, "show", "--format", "avro", "--record-name", "shop.Order", "--columns", str(path))
    assert (code, found["schema"]["namespace"], found["schema"]["fields"][0]) == (
        0, "shop", {"name": "id", "type": "long"},
    )  # fmt: skip
    assert main(["schema", "show", "--format", "json-schema", "--columns", COLUMNS]) == 0
    assert json.loads(capsys.readouterr().out)["required"] == ["id"]
    code, found = run(capsys, "show", "--format", "avro", "--columns", COLUMNS, "--column", "id", "--side", "key")
    assert (code, found["schema"]) == (0, "long")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "--format", "protobuf", "--columns", COLUMNS), "field numbers cannot be made from columns"),
        (("show", "--format", "json", "--columns", COLUMNS), "no schema is made from columns"),
        (("check", "--columns", COLUMNS), "the format of the value is not named"),
        (("check", "--columns", "no.such.file", "--format", "avro"), "cannot be read"),
        (("check", "--columns", sys.executable, "--format", "avro"), "the file is not UTF-8"),
        (("show", "--columns", COLUMNS, "--format", "avro", "--column", "x"), "there is no such column"),
        (("check", "--columns", COLUMNS, "--format", "avro", "--option", "topic=t"), "is no option of formats"),
        (("show", "--columns", "a-b int", "--format", "avro"), "is no name with a type"),
    ],
)
def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    code, found = run(capsys, *words)
    assert code == 2 and said in found["text"]


def test_check_says_what_does_not_fit_a_schema_that_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--format", "avro", "--option", f"value.schema={TEXT}")
    assert run(capsys, "check", "--columns", COLUMNS, *given)[0] == 0
    code, found = run(capsys, "check", "--columns", "id STRING", *given)
    assert code == 1 and "column id has type string" in found["text"]
    assert run(capsys, "check", "--columns", COLUMNS, "--format", "json")[0] == 0


def test_check_asks_the_registry_and_registers_nothing(
    capsys: pytest.CaptureFixture[str], embedded_registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    properties = tmp_path / "registry.properties"
    properties.write_text(f"schema.registry.url={embedded_registry.url}\nauto.register.schemas=true\n")
    where = ("--topic", "orders", "--format", "avro", "--properties", str(properties))
    code, found = run(capsys, "check", "--columns", COLUMNS, *where)
    assert code == 1 and "has no subject 'orders-value'" in found["text"]
    client = SchemaRegistryClient({"url": embedded_registry.url})
    assert client.get_subjects() == []
    schema_id = client.register_schema("orders-value", Schema(TEXT, "AVRO"))
    properties.write_text(f"schema.registry.url={embedded_registry.url}\nuse.latest.version=true\n")
    code, found = run(capsys, "check", "--columns", COLUMNS, *where)
    assert (code, found["fits"], found["id"], found["version"]) == (0, True, schema_id, 1)
    code, found = run(capsys, "check", "--columns", "id DOUBLE", *where)
    assert code == 1 and "column id has type double, the schema says long" in found["text"]
    properties.write_text(f"schema.registry.url={embedded_registry.url}\n")
    code, found = run(capsys, "check", "--columns", "id STRING NOT NULL, name STRING", *where)
    assert code == 1 and "is not compatible with what is" in found["text"]


def test_a_registry_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--option", "schema.registry.url=http://127.0.0.1:9", "--option", "schema.registry.max.retries=0")
    code, found = run(capsys, "check", "--topic", "t", "--format", "avro", "--columns", COLUMNS, *options)
    assert code == 3 and found["error"] == "TransportError"


def test_rules_of_a_schema_are_listed(
    capsys: pytest.CaptureFixture[str], embedded_registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    rules = {
        "domainRules": [
            {"name": "checkName", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "message.name != ''"},
            {"name": "shown", "kind": "TRANSFORM", "type": "CEL_FIELD", "mode": "READ", "tags": ["PII"]},
        ]
    }  # fmt: skip
    url = f"{embedded_registry.url}/subjects/orders-value/versions"
    request = urllib.request.Request(url, json.dumps({"schema": TEXT, "ruleSet": rules}).encode(), method="POST")
    urllib.request.urlopen(request).close()
    options = ("--option", f"schema.registry.url={embedded_registry.url}", "--topic", "orders", "--format", "avro")
    latest = (*options, "--option", "use.latest.version=true", "--columns", COLUMNS)
    code, found = run(capsys, "check", *latest)
    assert code == 1 and "has rules that a writer must apply" in found["text"]
    assert "checkName (CONDITION CEL, WRITE)" in found["text"] and "shown" not in found["text"]
    code, found = run(capsys, "check", *latest, "--option", "schema.rules=ignore")
    assert (code, found["fits"]) == (0, True)
    assert [(rule["name"], rule["is_for_writers"]) for rule in found["rules"]] == [
        ("checkName", True),
        ("shown", False),
    ]
    assert main(["schema", "check", *latest, "--option", "schema.rules=ignore"]) == 0
    assert "rule shown (TRANSFORM CEL_FIELD, READ, tags PII): not for writers" in capsys.readouterr().out
    assert main(["schema", "show", *options, "--columns", COLUMNS]) == 0
    told = capsys.readouterr()
    assert "rule checkName" in told.err and json.loads(told.out)["type"] == "record"
    code, found = run(capsys, "show", *options, "--columns", COLUMNS)
    assert [rule["name"] for rule in found["rules"]] == ["checkName", "shown"]
    nobody = ("--option", "schema.registry.url=http://127.0.0.1:9", "--option", "schema.registry.max.retries=0")
    code, found = run(capsys, "show", "--topic", "t", "--format", "avro", "--columns", COLUMNS, *nobody)
    assert (code, found["rules"]) == (0, None)
