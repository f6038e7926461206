"""The requests that find a schema, and the effect of every answer, with the embedded registry's core and no socket."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    KafkaSinkError,
    RemoteProtocolError,
    TransportError,
)
from kafka_sink.errors.table.commits import REGISTRY_UNREACHABLE
from kafka_sink.formats.registry.answer import ANSWER_BYTES_MAX, RegistryAnswer
from kafka_sink.formats.registry.request import LATEST, RegistryRequest
from kafka_sink.formats.registry.resolution import DEPENDENCIES_MAX, SchemaQuery, resolve_schema
from kafka_sink.formats.registry.rules import SchemaRule
from kafka_sink.formats.registry.schema import (
    AVRO,
    JSON,
    PROTOBUF,
    Reference,
    ResolvedSchema,
    Schema,
    from_text,
    to_text,
)
from kafka_sink.testing import RegistryCore

SOURCE = "the schema registry http://registry:8081"
SUBJECT = "orders-value"


def avro(*fields: str, name: str = "shop.Order") -> Schema:
    made = [{"name": each, "type": "int"} for each in fields]
    return Schema(AVRO, json.dumps({"type": "record", "name": name, "fields": made}, separators=(",", ":")))


ONE, TWO = avro("a"), avro("a", "b")


class CountedRegistry:
    """Passes requests to the core and records them."""

    def __init__(self) -> None:
        self.core = RegistryCore()
        self.asked: list[tuple[str, str]] = []

    def answer(self, request: RegistryRequest) -> RegistryAnswer:
        self.asked.append((request.method, request.path))
        made = self.core.answer(request.method, request.path, {}, request.body or b"")
        return RegistryAnswer(SOURCE, made.status, made.body, made.headers["Content-Type"])

    def register(self, subject: str, schema: Schema) -> dict[str, Any]:
        references = [{"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references]
        said = {"schema": schema.text, "schemaType": schema.kind, "references": references}
        made = self.core.answer("POST", f"/subjects/{subject}/versions", {}, json.dumps(said).encode())
        assert made.status == 200, made.body
        told: dict[str, Any] = json.loads(made.body)
        return told

    def resolved(self, **question: Any) -> ResolvedSchema:
        return resolve_schema(SchemaQuery(**{"side": "value", "subject": SUBJECT, **question}), self.answer)


@pytest.fixture
def registry() -> CountedRegistry:
    return CountedRegistry()


def refusal(question: dict[str, Any], answer: Callable[[RegistryRequest], RegistryAnswer]) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as caught:
        resolve_schema(SchemaQuery(**{"side": "value", "subject": SUBJECT, **question}), answer)
    return caught.value


# ---- one request each ------------------------------------------------------------------------------------------------


def test_the_latest_version_is_one_request(registry: CountedRegistry) -> None:
    registry.register(SUBJECT, ONE)
    registry.core.store.levels[""] = "NONE"
    told = registry.register(SUBJECT, TWO)
    found = registry.resolved(version=LATEST)
    assert registry.asked == [("GET", f"/subjects/{SUBJECT}/versions/latest")]
    assert found == ResolvedSchema(TWO, SUBJECT, 2, told["id"], told["guid"], rules=())


def test_a_numbered_version_is_one_request(registry: CountedRegistry) -> None:
    told = registry.register(SUBJECT, ONE)
    found = registry.resolved(version=1)
    assert registry.asked == [("GET", f"/subjects/{SUBJECT}/versions/1")]
    assert (found.schema, found.schema_id) == (ONE, told["id"])


def test_an_id_is_one_request_and_names_the_context_by_its_subject(registry: CountedRegistry) -> None:
    told = registry.register(SUBJECT, ONE)
    found = registry.resolved(identity=told["id"])
    assert registry.asked == [("GET", f"/schemas/ids/{told['id']}?subject={SUBJECT}")]
    assert (found.schema, found.schema_id, found.guid) == (ONE, told["id"], told["guid"])


def test_a_guid_is_one_request(registry: CountedRegistry) -> None:
    told = registry.register(SUBJECT, ONE)
    found = registry.resolved(identity=told["guid"])
    assert registry.asked == [("GET", f"/schemas/guids/{told['guid']}")]
    assert (found.schema, found.guid) == (ONE, told["guid"])


def test_looking_up_is_one_request(registry: CountedRegistry) -> None:
    told = registry.register(SUBJECT, ONE)
    found = registry.resolved(schema=ONE)
    assert registry.asked == [("POST", f"/subjects/{SUBJECT}")]
    assert (found.schema, found.schema_id, found.version) == (ONE, told["id"], 1)


def test_registering_is_one_request_and_doing_so_again_finds_the_same(registry: CountedRegistry) -> None:
    first = registry.resolved(schema=ONE, registers=True, normalizes=True)
    assert registry.asked == [("POST", f"/subjects/{SUBJECT}/versions?normalize=true")]
    assert registry.resolved(schema=ONE, registers=True) == first
    assert registry.core.store.snapshot() == {SUBJECT: [(1, first.schema_id, ONE.text)]}


def test_what_is_written_by_is_what_was_given_however_the_registry_spells_it(registry: CountedRegistry) -> None:
    spaced = Schema(AVRO, json.dumps(json.loads(ONE.text), indent=2))
    registry.register(SUBJECT, ONE)
    assert registry.resolved(schema=spaced).schema == spaced


@pytest.mark.parametrize("subject", ["a/b", "a b?c#d", ":.eu:orders-value", "größe", "..", "%2F"])
def test_a_subject_may_be_any_text(registry: CountedRegistry, subject: str) -> None:
    first = registry.resolved(subject=subject, schema=ONE, registers=True)
    assert list(registry.core.store.snapshot()) == [subject]
    assert registry.resolved(subject=subject, version=LATEST).schema_id == first.schema_id
    assert registry.resolved(subject=subject, identity=first.schema_id).schema == ONE


@pytest.mark.parametrize(("registers", "path"), [(False, ""), (True, "/versions")])
@pytest.mark.parametrize(("normalizes", "query"), [(False, ""), (True, "?normalize=true")])
def test_what_is_sent_is_the_whole_schema_and_how_it_is_compared(
    registers: bool, path: str, normalizes: bool, query: str
) -> None:
    def answer(request: RegistryRequest) -> RegistryAnswer:
        asked.append((request.path, json.loads(request.body or b"")))
        return RegistryAnswer(SOURCE, 200, b'{"id": 1}')

    asked: list[tuple[str, dict[str, Any]]] = []
    text = 'syntax = "proto3"; import "n.proto";'
    for schema in (Schema(PROTOBUF, text, (Reference("n.proto", "s", 3),)), Schema(JSON, "true"), ONE):
        found = resolve_schema(
            SchemaQuery("value", SUBJECT, schema, registers=registers, normalizes=normalizes),
            lambda request: answer(request) if request.body else RegistryAnswer(SOURCE, 200, b'{"schema": "{}"}'),
        )
        assert found.schema == schema
    references = [{"name": "n.proto", "subject": "s", "version": 3}]
    assert asked == [
        (f"/subjects/{SUBJECT}{path}{query}", {"schema": text, "schemaType": "PROTOBUF", "references": references}),
        (f"/subjects/{SUBJECT}{path}{query}", {"schema": "true", "schemaType": "JSON"}),
        (f"/subjects/{SUBJECT}{path}{query}", {"schema": ONE.text}),
    ]


# ---- GUIDs -----------------------------------------------------------------------------------------------------------


def test_a_guid_that_is_needed_and_was_not_told_is_asked_for(registry: CountedRegistry) -> None:
    def without_guid(request: RegistryRequest) -> RegistryAnswer:
        made = registry.answer(request)
        if request.method == "POST":
            told = {"id": json.loads(made.body)["id"]}
            return RegistryAnswer(made.source, made.status, json.dumps(told).encode())
        return made

    question = SchemaQuery("value", SUBJECT, ONE, registers=True, needs_guid=True)
    found = resolve_schema(question, without_guid)
    assert [method for method, _ in registry.asked] == ["POST", "GET"]
    assert found.guid is not None and found.schema == ONE
    registry.asked.clear()
    assert registry.resolved(schema=ONE, registers=True, needs_guid=True).guid == found.guid
    assert len(registry.asked) == 1


@pytest.mark.parametrize("registers", [False, True])
def test_the_registrys_text_is_read_back_where_readers_count_its_messages_and_only_there(registers: bool) -> None:
    def answer(request: RegistryRequest) -> RegistryAnswer:
        asked.append((request.method, request.path))
        said = {"id": 7} if request.body else {"schema": theirs, "schemaType": PROTOBUF}
        return RegistryAnswer(SOURCE, 200, json.dumps(said).encode())

    ours, theirs = Schema(PROTOBUF, "message B {} message A {}"), "message A {} message B {}"
    for reads_back, text, requests in ((False, ours.text, 1), (True, theirs, 2)):
        asked: list[tuple[str, str]] = []
        found = resolve_schema(SchemaQuery("value", SUBJECT, ours, registers=registers, reads_back=reads_back), answer)
        assert (found.schema.text, found.schema_id, len(asked)) == (text, 7, requests)
    assert asked[1] == ("GET", f"/schemas/ids/7?subject={SUBJECT}")


def test_rules_that_were_not_told_are_asked_for_by_guid_where_there_is_no_id() -> None:
    def answer(request: RegistryRequest) -> RegistryAnswer:
        asked.append(request.path)
        rule_set = {"domainRules": [{"name": "r", "mode": "WRITE"}]}
        said = {"guid": guid} if request.body else {"schema": ONE.text, "ruleSet": rule_set}
        return RegistryAnswer(SOURCE, 200, json.dumps(said).encode())

    guid, asked = "c99f7e42-386d-12ce-ae93-285caaaa88be", list[str]()
    found = resolve_schema(SchemaQuery("value", SUBJECT, ONE, registers=True, needs_rules=True), answer)
    assert asked == [f"/subjects/{SUBJECT}/versions", f"/schemas/guids/{guid}"]
    assert (found.guid, found.schema) == (guid, ONE) and [rule.name for rule in found.rules or ()] == ["r"]


@pytest.mark.parametrize("rules", [None, (), (SchemaRule("domainRules", "r", "k", "t", "m", ("a",), ("b", "c")),)])
def test_what_was_found_is_the_same_when_it_is_read_from_a_file(rules: tuple[SchemaRule, ...] | None) -> None:
    schema = Schema(PROTOBUF, "text", (Reference("n.proto", "s", 3),))
    found = ResolvedSchema(schema, SUBJECT, 2, 7, "guid", (("n.proto", "theirs"), ("m.proto", "more")), rules)
    assert from_text(to_text(found)) == found


@pytest.mark.parametrize("identity", [7, "c99f7e42-386d-12ce-ae93-285caaaa88be"])
def test_a_schema_that_is_given_with_its_id_is_written_with_and_the_registrys_only_where_it_is_read_back(
    identity: int | str,
) -> None:
    def answer(_: RegistryRequest) -> RegistryAnswer:
        return RegistryAnswer(SOURCE, 200, json.dumps({"schema": TWO.text}).encode())

    for reads_back, schema in ((False, ONE), (True, TWO)):
        question = SchemaQuery("value", SUBJECT, ONE, identity=identity, reads_back=reads_back)
        found = resolve_schema(question, answer)
        assert (found.schema, found.subject, found.schema_id or found.guid) == (schema, SUBJECT, identity)


# ---- references ------------------------------------------------------------------------------------------------------


def referring(name: str, *others: tuple[str, str]) -> Schema:
    fields = [{"name": f"f{index}", "type": other} for index, (other, _) in enumerate(others)]
    text = json.dumps({"type": "record", "name": name, "fields": fields})
    return Schema(AVRO, text, tuple(Reference(other, subject, 1) for other, subject in others))


def test_references_are_asked_for_once_each(registry: CountedRegistry) -> None:
    registry.register("d", referring("D"))
    registry.register("b", referring("B", ("D", "d")))
    registry.register("c", referring("C", ("D", "d"), ("B", "b")))
    registry.register(SUBJECT, referring("A", ("B", "b"), ("C", "c")))
    found = registry.resolved(version=LATEST)
    texts = {name: json.loads(text)["name"] for name, text in found.dependencies}
    assert texts == {"B": "B", "C": "C", "D": "D"}
    assert sorted(path for _, path in registry.asked[1:]) == [f"/subjects/{each}/versions/1" for each in "bcd"]


@pytest.mark.parametrize("subject", [":.eu:orders-value", ":.eu:orders:value"])
def test_a_reference_of_a_context_stays_in_it(registry: CountedRegistry, subject: str) -> None:
    registry.register(":.eu:d", referring("D"))
    registry.register(subject, referring("A", ("D", "d")))
    found = registry.resolved(subject=subject, version=LATEST)
    assert registry.asked[1] == ("GET", "/subjects/%3A.eu%3Ad/versions/1")
    assert [name for name, _ in found.dependencies] == ["D"]


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, 40401, "there is no subject 'addresses'"),
        (404, 40402, "there is no version 1 of 'addresses'"),
        (403, 40301, "the user may not read subject 'addresses'"),
    ],
)
@pytest.mark.parametrize("question", [{"version": LATEST}, {"identity": 2}])
def test_a_reference_that_is_refused_is_named_and_not_the_schema_that_refers_to_it(
    registry: CountedRegistry, question: dict[str, Any], status: int, code: int, words: str
) -> None:
    registry.register("addresses", avro("street", name="shop.Address"))
    registry.register(SUBJECT, referring("A", ("shop.Address", "addresses")))

    def answer(request: RegistryRequest) -> RegistryAnswer:
        if "addresses" not in request.path:
            return registry.answer(request)
        return RegistryAnswer(SOURCE, status, json.dumps({"error_code": code}).encode())

    assert words in str(refusal(question, answer))


def register_order(registry: CountedRegistry, *listed: tuple[str, str, int]) -> None:
    """Money in two versions, a line with the older one, and an order that refers to what is listed."""
    registry.core.store.levels[""] = "NONE"
    registry.register("money", avro("cents", name="Money"))
    registry.register("money", avro("units", "cents", name="Money"))
    registry.register("line", referring("Line", ("Money", "money")))
    fields = [{"name": name.lower(), "type": name} for name, _, _ in listed]
    text = json.dumps({"type": "record", "name": "Order", "fields": fields})
    registry.register(SUBJECT, Schema(AVRO, text, tuple(Reference(*each) for each in listed)))


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(
    ("question", "who"),
    [
        ({"version": LATEST}, "the schema of 'orders-value'"),
        ({"identity": 4}, "the schema 4 of 'orders-value'"),
        ({"identity": 4, "subject": ""}, "the schema 4"),
    ],
)
def test_a_name_that_stands_for_two_texts_is_refused_because_readers_choose_differently(
    registry: CountedRegistry, is_reversed: bool, question: dict[str, Any], who: str
) -> None:
    """Confluent's clients for Java take the first that they meet, the one for Python the last."""
    listed = [("Money", "money", 2), ("Line", "line", 1)]
    register_order(registry, *(reversed(listed) if is_reversed else listed))
    error = refusal(question, registry.answer)
    assert isinstance(error, ConfigError) and error.name == "PKS-7005"
    met = ["version 1 of 'money'", "version 2 of 'money'"]
    first, second = met if is_reversed else reversed(met)
    assert f"{who} refers to two schemas by the name 'Money': {first} and {second}" in str(error)


def test_a_name_that_stands_for_one_text_under_two_subjects_is_no_obstacle(registry: CountedRegistry) -> None:
    register_order(registry, ("Money", "money", 1), ("Line", "line", 1))
    registry.register("euro", avro("cents", name="Money"))
    registry.register(SUBJECT, referring("Order", ("Money", "euro"), ("Line", "line")))
    texts = dict(registry.resolved(version=LATEST).dependencies)
    assert json.loads(texts["Money"])["fields"] == [{"name": "cents", "type": "int"}]


def test_a_text_that_two_schemas_share_is_refused_if_they_refer_to_different_ones(registry: CountedRegistry) -> None:
    register_order(registry, ("Line", "line", 1))
    line = referring("Line", ("Money", "money"))
    registry.register("other-line", Schema(AVRO, line.text, (Reference("Money", "money", 2),)))
    part = referring("Part", ("Line", "other-line"))
    registry.register("part", part)
    registry.register(SUBJECT, referring("Order", ("Line", "line"), ("Part", "part")))
    assert "two schemas by the name 'Money'" in str(refusal({"version": LATEST}, registry.answer))


@pytest.mark.parametrize("listed", ["BCD", "DCB", "CBD", "DBC"])
def test_each_text_comes_before_those_that_it_refers_to_however_they_are_listed(
    registry: CountedRegistry, listed: str
) -> None:
    """Then each is read once."""
    registry.register("d", referring("D"))
    registry.register("c", referring("C", ("D", "d")))
    registry.register("b", referring("B", ("C", "c")))
    registry.register(SUBJECT, referring("A", *((each, each.lower()) for each in listed)))
    assert [name for name, _ in registry.resolved(version=LATEST).dependencies] == ["B", "C", "D"]


def test_references_of_a_json_schema_are_left_to_readers_that_validate(registry: CountedRegistry) -> None:
    registry.register("part", Schema(JSON, "{}"))
    registry.register(SUBJECT, Schema(JSON, "{}", (Reference("part.json", "part", 1),)))
    assert registry.resolved(version=LATEST).dependencies == ()
    assert len(registry.asked) == 1


@pytest.mark.parametrize("is_elsewhere_too", [False, True])
def test_a_reference_of_a_referenced_schema_stays_in_the_context_of_that_one(
    registry: CountedRegistry, is_elsewhere_too: bool
) -> None:
    if is_elsewhere_too:
        registry.register("country", avro("wrong", name="Country"))
    registry.register(":.common:country", avro("code", name="Country"))
    registry.register(":.common:address", referring("Address", ("Country", "country")))
    registry.register(SUBJECT, referring("Order", ("Address", ":.common:address")))
    found = registry.resolved(version=LATEST)
    assert registry.asked[2] == ("GET", "/subjects/%3A.common%3Acountry/versions/1")
    assert dict(found.dependencies)["Country"] == avro("code", name="Country").text


def test_references_without_end_come_to_one() -> None:
    def ever_deeper(request: RegistryRequest) -> RegistryAnswer:
        number = len(asked)
        asked.append(request)
        said = {
            "schema": '"int"',
            "id": 1,
            "references": [{"name": f"n{number}", "subject": f"s{number}", "version": 1}],
        }
        return RegistryAnswer(SOURCE, 200, json.dumps(said).encode())

    asked: list[RegistryRequest] = []
    error = refusal({"version": 1}, ever_deeper)
    assert isinstance(error, ConfigError) and f"more than {DEPENDENCIES_MAX} others" in str(error)
    assert len(asked) == DEPENDENCIES_MAX + 1


def test_references_in_a_circle_come_to_an_end() -> None:
    def circle(request: RegistryRequest) -> RegistryAnswer:
        said = {"schema": '"int"', "id": 1, "references": [{"name": "other", "subject": SUBJECT, "version": 1}]}
        return RegistryAnswer(SOURCE, 200, json.dumps(said).encode())

    found = resolve_schema(SchemaQuery("value", SUBJECT, version=1), circle)
    assert [name for name, _ in found.dependencies] == ["other"]


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_an_incompatible_schema_is_refused_with_the_registrys_reason_and_changes_nothing(
    registry: CountedRegistry,
) -> None:
    registry.register(SUBJECT, ONE)
    before = registry.core.store.snapshot()
    error = refusal({"schema": TWO, "registers": True}, registry.answer)
    assert isinstance(error, ConfigError)
    for word in (SOURCE, "409", "READER_FIELD_MISSING_DEFAULT_VALUE", "field b", SUBJECT, "Nothing was written"):
        assert word in str(error)
    assert registry.core.store.snapshot() == before


def test_one_that_is_not_registered_is_told_with_what_could_be_done(registry: CountedRegistry) -> None:
    assert f"has no subject '{SUBJECT}'" in str(refusal({"schema": ONE}, registry.answer))
    registry.register(SUBJECT, ONE)
    error = str(refusal({"schema": TWO}, registry.answer))
    assert "is not registered" in error and "is not compatible" in error and "READER_FIELD_MISSING" in error
    registry.core.store.levels[SUBJECT] = "FORWARD"
    error = str(refusal({"schema": TWO}, registry.answer))
    assert "and is compatible with what is" in error and "auto.register.schemas=true" in error
    assert list(registry.core.store.snapshot()[SUBJECT]) == [(1, 1, ONE.text)]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"version": LATEST}, "40401 .*there is no subject 'orders-value'"),
        ({"version": 3}, "there is no"),
        ({"identity": 77}, "40403 .*there is no schema 77; is it value.schema.id of another registry"),
        ({"identity": "00000000-0000-0000-0000-000000000000"}, "40403 .*there is no schema 0000"),
    ],
)
def test_what_is_not_there_is_named(registry: CountedRegistry, question: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        registry.resolved(**question)
    assert len(registry.asked) == 1


def test_a_version_that_is_not_there_is_named(registry: CountedRegistry) -> None:
    registry.register(SUBJECT, ONE)
    with pytest.raises(ConfigError, match=r"40402 .*there is no version 3 of 'orders-value'"):
        registry.resolved(version=3)


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (401, AuthenticationError, "answered 401 .*check schema.registry.basic.auth.user.info or the bearer token"),
        (403, AuthorizationError, "answered 40301 .*may not read subject 'orders-value'"),
        (302, ConfigError, "redirects are not followed"),
        (409, ConfigError, "not compatible"),
        (422, ConfigError, "takes no such schema"),
        (429, TransportError, "again and again"),
        (500, TransportError, "again and again"),
        (503, TransportError, "again and again"),
        (418, ConfigError, "was not expected"),
    ],
)
@pytest.mark.parametrize("question", [{"version": LATEST}, {"schema": ONE}, {"identity": 1}])
def test_every_refusal_says_where_and_what_to_do(
    question: dict[str, Any], status: int, error: type[KafkaSinkError], words: str
) -> None:
    body = json.dumps({"error_code": 40301 if status == 403 else status, "message": "so it is"}).encode()
    with pytest.raises(error, match=words) as caught:
        resolve_schema(SchemaQuery("value", SUBJECT, **question), lambda _: RegistryAnswer(SOURCE, status, body))
    assert SOURCE in str(caught.value) and "so it is" in str(caught.value)
    names = {401: "PKS-7007", 403: "PKS-7007", 429: "PKS-7006", 500: "PKS-7006", 503: "PKS-7006"}
    assert caught.value.name == names.get(status, "PKS-7005")


@pytest.mark.parametrize("normalizes", [False, True])
def test_one_who_may_not_register_is_told_so(normalizes: bool) -> None:
    question = SchemaQuery("value", SUBJECT, ONE, registers=True, normalizes=normalizes)
    with pytest.raises(AuthorizationError, match="answered 403: the user may not register a schema under subject"):
        resolve_schema(question, lambda _: RegistryAnswer(SOURCE, 403, b""))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"is_compatible": False}, "and is not compatible with what is: the registry gives no reason. Register"),
        ({"is_compatible": False, "messages": "no"}, "with what is: the registry gives no reason. Register"),
        ({"is_compatible": False, "messages": ["a", "b"]}, "with what is: a; b. Register"),
        ({"is_compatible": "no"}, f"not registered under '{SUBJECT}'. Register"),
    ],
)
def test_reasons_that_a_registry_does_not_give_do_not_hide_what_could_be_done(said: dict[str, Any], words: str) -> None:
    def answer(request: RegistryRequest) -> RegistryAnswer:
        if request.path.startswith("/compatibility"):
            return RegistryAnswer(SOURCE, 200, json.dumps(said).encode())
        return RegistryAnswer(SOURCE, 404, b'{"error_code": 40403}')

    assert words in str(refusal({"schema": ONE}, answer))


def test_a_request_for_reasons_that_is_not_answered_does_not_hide_that_the_schema_is_missing() -> None:
    def answer(request: RegistryRequest) -> RegistryAnswer:
        if request.path.startswith("/compatibility"):
            raise TransportError(f"{SOURCE} did not answer: timed out", REGISTRY_UNREACHABLE)
        return RegistryAnswer(SOURCE, 404, b'{"error_code": 40403}')

    error = refusal({"schema": ONE}, answer)
    assert isinstance(error, ConfigError) and error.name == "PKS-7005"
    assert f"not registered under '{SUBJECT}'. Register" in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{", b'{"error_code":"x","message":{}}', b"[" * 100_000])
def test_a_refusal_need_not_be_json(body: bytes) -> None:
    with pytest.raises(ConfigError, match="answered 404"):
        resolve_schema(SchemaQuery("value", SUBJECT, version=1), lambda _: RegistryAnswer(SOURCE, 404, body))


def test_a_refusal_is_shown_on_one_line_and_not_for_ever() -> None:
    body = json.dumps({"error_code": 42201, "message": "a\n\x1b[31mb" + "x" * 100_000}).encode()
    error = refusal({"schema": ONE, "registers": True}, lambda _: RegistryAnswer(SOURCE, 422, body))
    assert "\n" not in str(error) and "\x1b" not in str(error) and len(str(error)) < 3000


# ---- invalid answers -------------------------------------------------------------------------------------------------

GOOD = {"subject": SUBJECT, "version": 1, "id": 1, "schema": '"int"', "schemaType": AVRO, "references": []}
WRONG: list[tuple[str, Any]] = [
    ("schema", None), ("schema", 7), ("schema", {}), ("schemaType", "XML"), ("schemaType", 1), ("references", "x"),
    ("references", [1]), ("references", [{"name": "n", "subject": "s"}]),
    ("version", "1"),
    ("references", [{"name": 1, "subject": "s", "version": 1}]), ("references", [{}] * 2000),
    ("id", "1"), ("id", True), ("id", -1), ("id", 2**63), ("id", 1.5), ("version", "latest"), ("version", []),
    ("subject", 3), ("guid", "not one"), ("guid", 5),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_field_that_is_not_what_it_should_be_is_named(field: str, value: Any) -> None:
    body = json.dumps({**GOOD, field: value}).encode()
    with pytest.raises(RemoteProtocolError, match=f"{field} is missing or not what it should be"):
        resolve_schema(SchemaQuery("value", SUBJECT, version=1), lambda _: RegistryAnswer(SOURCE, 200, body))


@pytest.mark.parametrize("version", ["1", -1, 2**31, True])
def test_a_reference_to_a_version_that_no_registry_has_is_refused(version: Any) -> None:
    body = json.dumps({**GOOD, "references": [{"name": "n", "subject": "s", "version": version}]}).encode()
    with pytest.raises(RemoteProtocolError, match=f"^{SOURCE} answered with JSON in which version is missing or not"):
        resolve_schema(SchemaQuery("value", SUBJECT, version=1), lambda _: RegistryAnswer(SOURCE, 200, body))


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>log in</html>", b"{", b'{"id":', b"[" * 1_000_000, b'{"a":' * 100_000, b"\xff\xfe", b"1" * 10_000],
)
def test_what_is_no_json_is_no_registry(body: bytes) -> None:
    for question in (SchemaQuery("value", SUBJECT, version=1), SchemaQuery("value", SUBJECT, ONE, registers=True)):
        with pytest.raises(RemoteProtocolError, match="is it") as caught:
            resolve_schema(question, lambda _: RegistryAnswer(SOURCE, 200, body, "text/html"))
        assert caught.value.name == "PKS-7008"


def test_an_answer_that_is_too_long_is_not_read() -> None:
    body = b'{"schema": "' + b"x" * ANSWER_BYTES_MAX + b'"}'
    with pytest.raises(RemoteProtocolError, match="that is no schema"):
        resolve_schema(SchemaQuery("value", SUBJECT, version=1), lambda _: RegistryAnswer(SOURCE, 200, body))


def test_an_answer_without_any_id_is_none() -> None:
    with pytest.raises(RemoteProtocolError, match="without an id"):
        resolve_schema(SchemaQuery("value", SUBJECT, ONE, registers=True), lambda _: RegistryAnswer(SOURCE, 200, b"{}"))


# ---- keys that hold the id -------------------------------------------------------------------------------------------


def test_a_write_learns_once_that_its_schema_is_new_beside_earlier_ones(registry: CountedRegistry) -> None:
    """In the steady state one request, as for a value."""
    question: dict[str, Any] = {"side": "key", "registers": True, "tells_new": True}
    later = Schema(AVRO, ONE.text.replace('"name"', '"doc":"d","name"', 1))
    found = [registry.resolved(schema=schema, **question) for schema in (ONE, ONE, later, later)]
    assert [each.earlier_version_count for each in found] == [0, 0, 1, 0]
    assert [each.schema_id for each in found] == [1, 1, 2, 2]
    look_up = ("POST", f"/subjects/{SUBJECT}")
    anew = [look_up, ("POST", f"{look_up[1]}/versions"), ("GET", f"{look_up[1]}/versions")]
    assert registry.asked == [*anew, look_up, *anew, look_up]
    assert from_text(to_text(found[2])) == found[2]


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"{}"), (200, b"no JSON"), (200, b"[" * 100_000), (404, b"[1, 2]"), (403, b"")]
)
def test_a_registry_that_does_not_list_versions_causes_no_warning_and_no_error(status: int, body: bytes) -> None:
    core = CountedRegistry()

    def answer(request: RegistryRequest) -> RegistryAnswer:
        return RegistryAnswer(SOURCE, status, body) if request.body is None else core.answer(request)

    question = SchemaQuery("key", SUBJECT, ONE, registers=True, tells_new=True)
    assert resolve_schema(question, answer).earlier_version_count == 0


def test_a_list_of_versions_that_is_not_answered_warns_rather_than_fails() -> None:
    """The schema is registered by then, and may be new beside earlier ones."""

    def answer(request: RegistryRequest) -> RegistryAnswer:
        if request.body is None:
            raise TransportError(f"{SOURCE} did not answer: timed out", REGISTRY_UNREACHABLE)
        if request.path.endswith("/versions"):
            return RegistryAnswer(SOURCE, 200, b'{"id": 5}')
        return RegistryAnswer(SOURCE, 404, b'{"error_code": 40403}')

    found = resolve_schema(SchemaQuery("key", SUBJECT, ONE, registers=True, tells_new=True), answer)
    assert (found.schema_id, found.earlier_version_count) == (5, 1)


def test_a_user_who_may_register_and_not_read_registers_as_before(registry: CountedRegistry) -> None:
    def answer(request: RegistryRequest) -> RegistryAnswer:
        may = request.path.endswith("/versions") and request.body is not None
        return registry.answer(request) if may else RegistryAnswer(SOURCE, 403, b"")

    assert resolve_schema(SchemaQuery("key", SUBJECT, ONE, registers=True, tells_new=True), answer).schema_id == 1


# ---- schemas that are derived from columns ---------------------------------------------------------------------------


def order(*nullable: str) -> Schema:
    """Of two columns, of which these may be null."""
    fields = [
        {"name": name, "type": ["null", "string"], "default": None} if name in nullable else
        {"name": name, "type": "string"}
        for name in ("text", "channel")
    ]  # fmt: skip
    return Schema(AVRO, json.dumps({"type": "record", "name": "Order", "fields": fields}, separators=(",", ":")))


@pytest.mark.parametrize("level", ["BACKWARD", "FORWARD", "NONE"])
@pytest.mark.parametrize("side", ["key", "value"])
def test_a_stream_whose_columns_may_be_null_in_one_batch_and_not_in_the_next_goes_on(
    registry: CountedRegistry, side: str, level: str
) -> None:
    """Of a union one side may have no rows, and Spark leaves it out. No version and no id follows from that."""
    registry.core.store.levels[""] = level
    question = {"side": side, "registers": True, "tells_new": side == "key", "is_derived": True}
    batches = [order("text", "channel"), order("text"), order("channel"), order(), order("text", "channel")]
    found = [registry.resolved(schema=schema, **question) for schema in batches]
    assert {each.schema_id for each in found} == {1}
    assert {each.schema for each in found} == {batches[0]}
    latest = ("GET", f"/subjects/{SUBJECT}/versions/latest")
    assert registry.asked[-4:] == [latest] * 4
    assert len(registry.core.store.snapshot()[SUBJECT]) == 1


def test_nulls_that_come_later_make_a_version_that_allows_those_of_all_batches(registry: CountedRegistry) -> None:
    """Where text alone may be null at first, and channel alone later: each is incompatible with the other."""
    question: dict[str, Any] = {"registers": True, "is_derived": True}
    found = [registry.resolved(schema=order(*names), **question) for names in (["text"], ["channel"], ["text"], [])]
    assert [each.schema_id for each in found] == [1, 2, 2, 2]
    assert {each.schema for each in found[1:]} == {order("text", "channel")}


def test_a_key_moves_at_most_once_and_the_write_learns_it(registry: CountedRegistry) -> None:
    question: dict[str, Any] = {"side": "key", "registers": True, "tells_new": True, "is_derived": True}
    found = [registry.resolved(schema=order(*names), **question) for names in ([], ["text"], [], ["text"])]
    assert [each.schema_id for each in found] == [1, 2, 2, 2]
    assert [each.earlier_version_count for each in found] == [0, 1, 0, 0]


def test_a_derived_schema_that_is_only_looked_up_may_be_stricter_than_the_latest(registry: CountedRegistry) -> None:
    registry.register(SUBJECT, order("text"))
    assert registry.resolved(schema=order(), is_derived=True).schema == order("text")
    assert registry.asked == [("GET", f"/subjects/{SUBJECT}/versions/latest")]
    error = refusal({"schema": order("channel"), "is_derived": True}, registry.answer)
    assert "is not registered under" in str(error) and "and is compatible with what is" in str(error)


def test_a_derived_schema_that_is_an_earlier_version_is_found(registry: CountedRegistry) -> None:
    registry.register(SUBJECT, ONE)
    registry.core.store.levels[""] = "NONE"
    registry.register(SUBJECT, TWO)
    assert registry.resolved(schema=ONE, is_derived=True).version == 1
    assert registry.resolved(schema=ONE, is_derived=True, registers=True).schema_id == 1


def test_a_given_schema_is_never_replaced(registry: CountedRegistry) -> None:
    registry.register(SUBJECT, order("text"))
    registry.core.store.levels[""] = "NONE"
    assert registry.resolved(schema=order(), registers=True).schema_id == 2


def test_an_incompatible_derived_schema_is_told_how_to_have_one_for_all_batches(registry: CountedRegistry) -> None:
    """Old readers cannot read nulls: with this level the first batch must allow them."""
    registry.core.store.levels[""] = "FULL"
    registry.register(SUBJECT, order())
    question = {"schema": order("text"), "registers": True}
    advice = "so give the schema with value.schema, or set use.latest.version=true"
    assert advice in str(refusal({**question, "is_derived": True}, registry.answer))
    assert advice not in str(refusal(question, registry.answer))


def test_a_user_who_may_not_read_the_latest_version_registers_as_before(registry: CountedRegistry) -> None:
    def answer(request: RegistryRequest) -> RegistryAnswer:
        return registry.answer(request) if request.body is not None else RegistryAnswer(SOURCE, 403, b"")

    question = SchemaQuery("value", SUBJECT, ONE, registers=True, is_derived=True)
    assert resolve_schema(question, answer).schema_id == 1


def test_a_registry_that_is_down_is_not_asked_for_more() -> None:
    asked = []

    def answer(request: RegistryRequest) -> RegistryAnswer:
        asked.append(request.path)
        return RegistryAnswer(SOURCE, 503, b"")

    assert isinstance(refusal({"schema": ONE, "registers": True, "is_derived": True}, answer), TransportError)
    assert asked == [f"/subjects/{SUBJECT}/versions/latest"]
