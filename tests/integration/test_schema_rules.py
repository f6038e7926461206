"""Data contracts: rules of a schema that a writer must apply are refused on every way to the schema, or ignored by the
user's word. Answers come from the embedded registry; Confluent's own client registers the rules and reads them back."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    MetadataTags,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry import Rule as ClientRule
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from kafka_sink.errors import ConfigError, RemoteProtocolError
from kafka_sink.formats.registry.answer import RegistryAnswer, parse_registered
from kafka_sink.formats.registry.resolution import SchemaQuery, resolve_schema
from kafka_sink.formats.registry.rules import SchemaRule, parse_rules
from kafka_sink.formats.registry.schema import AVRO, ResolvedSchema, from_text, to_text
from kafka_sink.formats.registry.schema import Schema as OurSchema
from kafka_sink.kafka.io.warn_once import WARNED
from kafka_sink.options.format_options import SideFormat
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.formats import registry_memory
from kafka_sink.spark.formats.schema_registry import RegistryClient
from kafka_sink.spark.formats.side_planning import plan_side
from kafka_sink.testing import EmbeddedRegistry
from kafka_sink.testing.registry.core import RegistryFault

TEXT = json.dumps(
    {"type": "record", "name": "Customer", "fields": [
        {"name": "id", "type": "long"},
        {"name": "ssn", "type": "string", "confluent:tags": ["PII"]},
    ]}
)  # fmt: skip
KIND = pa.struct([("id", pa.int64()), ("ssn", pa.string())])
ENCRYPT = {
    "name": "encryptPII", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"],
    "params": {"encrypt.kek.name": "kek1", "encrypt.kms.type": "local-kms"}, "onFailure": "ERROR,NONE",
}  # fmt: skip
CONDITION = {"name": "hasId", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "message.id > 0"}
PAYLOAD = {"name": "whole", "kind": "TRANSFORM", "type": "ENCRYPT_PAYLOAD", "mode": "WRITEREAD"}
READ = {"name": "onRead", "kind": "TRANSFORM", "type": "CEL", "mode": "READ", "expr": "message"}
MIGRATION = {"name": "up", "kind": "TRANSFORM", "type": "JSONATA", "mode": "UPGRADE", "expr": "$"}
SUBJECT = "customers-value"


def contract(registry: EmbeddedRegistry, rule_set: Any, text: str = TEXT, **more: Any) -> dict[str, Any]:
    body = json.dumps({"schema": text, "ruleSet": rule_set, **more}).encode()
    made = registry.do(lambda core: core.answer("POST", f"/subjects/{SUBJECT}/versions", {}, body))
    assert made.status == 200, made.body
    told: dict[str, Any] = json.loads(made.body)
    return told


def planned(registry: EmbeddedRegistry, **options: str) -> ResolvedSchema | None:
    named = {name.replace("_", "."): value for name, value in options.items()}
    where = {"kafka.bootstrap.servers": "h:1", "value.format": "avro", "schema.registry.url": registry.url}
    formats = parse_sink_options({**where, **named}).formats
    assert formats is not None and isinstance(formats.value, SideFormat)
    return plan_side("value", formats.value, formats.registry, KIND, "customers")[1]


def refusal(registry: EmbeddedRegistry, **options: str) -> str:
    with pytest.raises(ConfigError) as raised:
        planned(registry, **options)
    assert raised.value.name == "PKS-7010"
    return str(raised.value)


WAYS: dict[str, Callable[[dict[str, Any]], dict[str, str]]] = {
    "latest": lambda told: {"use_latest_version": "true"},
    "version": lambda told: {"value_schema_version": "1"},
    "id": lambda told: {"value_schema_id": str(told["id"])},
    "guid": lambda told: {"value_schema_id": told["guid"], "value_schema_framing": "header"},
    "given with its id": lambda told: {"value_schema_id": str(told["id"]), "value_schema": TEXT},
    "looked up": lambda told: {"value_schema": TEXT},
    "registered before": lambda told: {"value_schema": TEXT, "auto_register_schemas": "true"},
    # Of another text: the new version inherits the rules.
    "registered": lambda told: {"auto_register_schemas": "true", "value_record_name": "Customer"},
}


@pytest.mark.parametrize("way", WAYS)
def test_rules_for_writers_are_refused_on_every_way_to_a_schema(embedded_registry: EmbeddedRegistry, way: str) -> None:
    rules = {"domainRules": [ENCRYPT, CONDITION, READ], "encodingRules": [PAYLOAD], "migrationRules": [MIGRATION]}
    told = contract(embedded_registry, rules)
    embedded_registry.do(lambda core: core.store.levels.update({"": "NONE"}))
    options = WAYS[way](told)
    said = refusal(embedded_registry, **options)
    by_id = way in ("id", "guid", "given with its id")
    assert (options["value_schema_id"] if by_id else repr(SUBJECT)) in said
    fields = "" if way == "registered" else ", fields ssn"
    assert f"encryptPII (TRANSFORM ENCRYPT, WRITEREAD, tags PII{fields})" in said
    assert "hasId (CONDITION CEL, WRITE)" in said and "whole (TRANSFORM ENCRYPT_PAYLOAD, WRITEREAD)" in said
    assert "onRead" not in said and "up (" not in said
    # The user's word.
    found = planned(embedded_registry, **options, schema_rules="ignore")
    assert found is not None and found.schema_id == (
        told["id"] if way not in ("guid", "registered") else found.schema_id
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "rule_set",
    [
        {"domainRules": [READ], "migrationRules": [MIGRATION, {**ENCRYPT, "mode": "UPDOWN"}]},
        {"domainRules": [{**ENCRYPT, "disabled": True}]},
        {"domainRules": [ENCRYPT], "enableAt": "GATEWAY"},
        {},
        None,
    ],
)
def test_other_rules_are_no_obstacle(embedded_registry: EmbeddedRegistry, way: str, rule_set: Any) -> None:
    told = contract(embedded_registry, rule_set)
    embedded_registry.do(lambda core: core.store.levels.update({"": "NONE"}))
    found = planned(embedded_registry, **WAYS[way](told))
    # By its GUID no id is known, and what is registered now comes after the one that has rules.
    schema_id = {"guid": None, "registered": told["id"] + 1}.get(way, told["id"])
    assert found is not None and found.schema_id == schema_id


def test_a_registry_that_answers_a_registration_with_the_id_alone_is_asked_for_the_rules(
    embedded_registry: EmbeddedRegistry,
) -> None:
    told = contract(embedded_registry, {"domainRules": [ENCRYPT]})
    short = json.dumps({"id": told["id"]}).encode()
    fault = RegistryFault(path=f"/subjects/{SUBJECT}/versions", times=2, body=short)
    embedded_registry.do(lambda core: core.faults.append(fault))
    assert "encryptPII" in refusal(embedded_registry, value_schema=TEXT, auto_register_schemas="true")
    assert [method for method, _ in embedded_registry.requests()[-2:]] == ["POST", "GET"]
    planned(embedded_registry, value_schema=TEXT, auto_register_schemas="true", schema_rules="ignore")
    assert embedded_registry.requests()[-1][0] == "POST"


@pytest.mark.parametrize("name", ["defaultRuleSet", "overrideRuleSet"])
@pytest.mark.parametrize("subject", ["", f"/{SUBJECT}"])
def test_rules_of_a_configuration_are_in_the_answer_to_a_registration(
    embedded_registry: EmbeddedRegistry, name: str, subject: str
) -> None:
    body = json.dumps({name: {"domainRules": [ENCRYPT]}}).encode()
    made = embedded_registry.do(lambda core: core.answer("PUT", f"/config{subject}", {}, body))
    assert made.status == 200
    assert "encryptPII" in refusal(embedded_registry, value_schema=TEXT, auto_register_schemas="true")


def test_ignored_rules_are_logged_once(embedded_registry: EmbeddedRegistry, caplog: pytest.LogCaptureFixture) -> None:
    WARNED.renew()
    contract(embedded_registry, {"domainRules": [ENCRYPT]})
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        for _ in range(3):
            planned(embedded_registry, use_latest_version="true", schema_rules="ignore")
    (record,) = caplog.records
    assert "value: schema.rules=ignore, so rows are written without what the schema of 'customers-value' demands" in (
        record.message
    )
    assert "encryptPII (TRANSFORM ENCRYPT" in record.message


def test_what_a_later_process_remembers_has_the_rules(
    embedded_registry: EmbeddedRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the registry is down, an earlier answer is used: its rules are refused as well."""
    monkeypatch.setattr(registry_memory, "_folders", [lambda: str(tmp_path)])
    contract(embedded_registry, {"domainRules": [ENCRYPT], "migrationRules": [MIGRATION]})
    formats = parse_sink_options({
        "kafka.bootstrap.servers": "h:1", "value.format": "avro", "schema.registry.url": embedded_registry.url,
        "schema.registry.max.retries": "0", "use.latest.version": "true", "value.subject.name": SUBJECT,
    }).formats  # fmt: skip
    assert formats is not None and formats.registry is not None and formats.value is not None
    before = RegistryClient(formats.registry).resolve(formats.value.query)
    embedded_registry.stop()
    again = RegistryClient(formats.registry).resolve(formats.value.query)
    assert again == before and [rule.name for rule in again.rules or ()] == ["encryptPII", "up"]
    without = json.loads(to_text(again))
    del without["rules"]
    assert from_text(json.dumps(without)) is None


def client_rule(name: str, mode: RuleMode, kind_of_rule: str, **more: Any) -> ClientRule:
    fields: dict[str, Any] = dict.fromkeys(("doc", "tags", "params", "expr", "on_success", "on_failure"))
    fields |= {"kind": RuleKind.TRANSFORM, "disabled": False}
    return ClientRule(name=name, mode=mode, type=kind_of_rule, **{**fields, **more})


def test_confluents_client_and_this_one_read_the_same_rules(embedded_registry: EmbeddedRegistry) -> None:
    client = SchemaRegistryClient({"url": embedded_registry.url})
    params = RuleParams({"encrypt.kek.name": "kek1"})
    rules = RuleSet(
        migration_rules=[client_rule("up", RuleMode.UPGRADE, "JSONATA", expr="$")],
        domain_rules=[
            client_rule("encryptPII", RuleMode.WRITEREAD, "ENCRYPT", tags=["PII", "SECRET"], params=params),
            client_rule("off", RuleMode.WRITE, "CEL", kind=RuleKind.CONDITION, expr="true", disabled=True),
        ],
        encoding_rules=[],
    )
    metadata = Metadata(MetadataTags({"**.id": ["SECRET"]}), MetadataProperties({"owner": "me"}), [])
    client.register_schema(SUBJECT, Schema(TEXT, "AVRO", [], metadata, rules))
    theirs = client.get_latest_version(SUBJECT).schema
    assert theirs.rule_set == rules and theirs.metadata == metadata
    found = planned(embedded_registry, use_latest_version="true", schema_rules="ignore")
    assert found is not None and found.rules == (
        SchemaRule(
            "domainRules", "encryptPII", "TRANSFORM", "ENCRYPT", "WRITEREAD", ("PII", "SECRET"), ("**.id", "ssn")
        ),
        SchemaRule("domainRules", "off", "CONDITION", "CEL", "WRITE", is_active=False),
        SchemaRule("migrationRules", "up", "TRANSFORM", "JSONATA", "UPGRADE"),
    )


@pytest.mark.parametrize(
    ("rule_set", "is_refused"),
    [
        ({"domainRules": [ENCRYPT]}, True),
        ({"domainRules": [CONDITION]}, True),
        ({"domainRules": [CONDITION], "enableAt": "ALL"}, True),
        ({"domainRules": [CONDITION], "enableAt": "CLIENT"}, True),
        ({"encodingRules": [PAYLOAD]}, True),
        ({"domainRules": [READ], "migrationRules": [MIGRATION]}, False),
        ({"domainRules": [{**ENCRYPT, "disabled": True}]}, False),
        ({"domainRules": [ENCRYPT], "enableAt": "GATEWAY"}, False),
    ],
)
def test_what_is_refused_is_what_confluents_serializer_without_executors_refuses(
    embedded_registry: EmbeddedRegistry, rule_set: Any, is_refused: bool
) -> None:
    contract(embedded_registry, rule_set)
    client = SchemaRegistryClient({"url": embedded_registry.url})
    theirs = AvroSerializer(client, TEXT, conf={"auto.register.schemas": False, "use.latest.version": True})
    context = SerializationContext("customers", MessageField.VALUE)
    if is_refused:
        with pytest.raises(SerializationError):
            theirs({"id": 1, "ssn": "x"}, context)
        refusal(embedded_registry, use_latest_version="true")
    else:
        assert theirs({"id": 1, "ssn": "x"}, context)
        planned(embedded_registry, use_latest_version="true")


def test_what_is_missing_in_a_rule_has_the_defaults_of_confluents_clients() -> None:
    (found,) = parse_rules({"ruleSet": {"domainRules": [{"name": "x", "mode": None}]}}, RuntimeError)
    assert (found.kind, found.mode, found.type, found.is_for_writers) == (
        "TRANSFORM",
        "WRITEREAD",
        "without a type",
        True,
    )
    (found,) = parse_rules({"ruleSet": {"domainRules": [{"mode": "SOMETIMES", "type": "NEW"}]}}, RuntimeError)
    assert found.is_for_writers and str(found) == "a rule without a name (TRANSFORM NEW, SOMETIMES)"


def test_fields_of_a_tag_are_found_at_any_depth() -> None:
    address = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "street", "type": "string", "confluent:tags": ["PII"]}],
    }
    text = {"type": "record", "name": "R", "fields": [{"name": "homes", "type": {"type": "array", "items": address}}]}
    json_text = {"properties": {"a": {"properties": {"b": {"type": "string", "confluent:tags": ["PII"]}}}}}
    for schema, field in ((text, "homes.street"), (json_text, "a.b"), ("message M { }", "")):
        said = {"schema": json.dumps(schema), "ruleSet": {"domainRules": [ENCRYPT]}}
        (rule,) = parse_rules(said, RuntimeError)
        assert rule.fields == ((field,) if field else ())


@pytest.mark.parametrize(
    "rule_set", [[], "x", 1, True, {"domainRules": {}}, {"domainRules": ["x"]}, {"migrationRules": [None]}]
)
def test_rules_that_cannot_be_read_are_refused(rule_set: Any) -> None:
    answer = RegistryAnswer("the registry", 200, json.dumps({"schema": TEXT, "id": 1, "ruleSet": rule_set}).encode())
    with pytest.raises(RemoteProtocolError, match="JSON in which ruleSet is missing or not what it should be"):
        parse_registered(answer)


def test_a_rule_says_no_more_than_a_line() -> None:
    rule = {**ENCRYPT, "name": "x\n" * 10_000, "tags": [f"T{number}" for number in range(1000)], "params": {"a": 1}}
    answer = RegistryAnswer(
        "r", 200, json.dumps({"schema": TEXT, "id": 1, "ruleSet": {"domainRules": [rule]}}).encode()
    )
    (found,) = parse_registered(answer).rules or ()
    assert str(found).isprintable() and len(str(found)) < 500 and "and 980 more" in str(found)


def test_of_a_schema_that_is_given_with_its_id_only_the_rules_are_asked(embedded_registry: EmbeddedRegistry) -> None:
    """What is written is what was given, however the registry spells it."""
    told = contract(embedded_registry, None)
    given = OurSchema(AVRO, json.dumps(json.loads(TEXT), indent=2))
    query = SchemaQuery("value", "", given, identity=told["id"], needs_rules=True)

    def send(request: Any) -> RegistryAnswer:
        made = embedded_registry.do(lambda core: core.answer(request.method, request.path, {}, b""))
        return RegistryAnswer("r", made.status, made.body)

    assert resolve_schema(query, send).schema is given
    count = len(embedded_registry.requests())
    for options in ({"schema_rules": "ignore"}, {"value_schema_framing": "none", "schema_rules": "ignore"}):
        planned(embedded_registry, value_schema=TEXT, value_schema_id="42", **options)
    planned(embedded_registry, value_schema=TEXT, value_schema_id=told["guid"], value_schema_framing="glue")
    assert len(embedded_registry.requests()) == count
    with pytest.raises(ConfigError, match=r"there is no schema 42; is it value\.schema\.id of another registry"):
        planned(embedded_registry, value_schema=TEXT, value_schema_id="42")
