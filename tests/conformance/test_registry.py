"""The embedded schema registry answers as Confluent's public documentation describes, and as another registry does.

The other one is Apicurio, whose interface /apis/ccompat/v7 is compatible according to its own documentation. OTHERWISE
lists where it answers differently from Confluent's documentation; an entry there without a difference fails.
Confluent's own client sends the embedded registry all requests that it knows.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from kafka_sink.testing import EmbeddedRegistry, RegistryCore
from kafka_sink.testing.registry.store import Content
from tests.conformance.registry_scripts import A_B_DEFAULT, EVOLUTION, SCRIPTS, A, Step, record
from tests.conftest import or_without_kafka
from tools.apicurio import Apicurio

Ask = Callable[[str, str, Any], tuple[int, Any]]

# (script, title): what Apicurio 2.6 does instead.
SPELLING = "compares texts letter by letter"
NO_MODES = "has no modes"
OTHERWISE: dict[tuple[str, str], str] = {
    ("subjects", "register with other blanks"): SPELLING,
    ("subjects", "versions"): SPELLING,
    ("subjects", "latest"): SPELLING,
    ("subjects", "no number"): "looks for a version of that name",
    ("subjects", "number zero"): "looks for a version of that name",
    ("invalid", "a superscript as a version"): "looks for a version of that name",
    ("compatible", "the level is BACKWARD"): "begins with NONE",
    ("compatible", "no level of its own"): "says that there is no such subject",
    ("compatible", "no level"): "400, without JSON",
    **{("modes", step.title): NO_MODES for step in SCRIPTS["modes"]},
}
EVOLVES_OTHERWISE: dict[int, str] = {}


def of_core(core: RegistryCore) -> Ask:
    def ask(method: str, path: str, body: Any) -> tuple[int, Any]:
        made = core.answer(method, path, {}, b"" if body is None else json.dumps(body).encode())
        return made.status, json.loads(made.body)

    return ask


def of_url(url: str) -> Ask:
    def ask(method: str, path: str, body: Any) -> tuple[int, Any]:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + path, content, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _said(error.read())

    return ask


def _said(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return {}


class Apart:
    """Queries a registry that other scripts have used before: subjects get a prefix, ids are counted anew."""

    def __init__(self, ask: Ask, prefix: str) -> None:
        self._ask = ask
        self._prefix = prefix
        self._ids: list[int] = []

    def __call__(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        path = re.sub(r"(/subjects/|/config/|/mode/)", rf"\g<1>{self._prefix}", path)
        path = re.sub(r"/schemas/ids/(\d+)", lambda found: f"/schemas/ids/{self._id(int(found[1]))}", path)
        if isinstance(body, dict) and "references" in body:
            named = [{**each, "subject": self._prefix + each["subject"]} for each in body["references"]]
            body = {**body, "references": named}
        status, told = self._ask(method, path, body)
        return status, self._told(told, "/referencedby" in path)

    def _id(self, number: int) -> int:
        return self._ids[number - 1] if number <= len(self._ids) else number

    def _number(self, found: int) -> int:
        if found not in self._ids:
            self._ids.append(found)
        return self._ids.index(found) + 1

    def _is_own(self, said: dict[str, Any]) -> bool:
        return str(said.get("subject", self._prefix)).startswith(self._prefix)

    def _told(self, said: Any, are_ids: bool) -> Any:
        if isinstance(said, list) and all(isinstance(each, str) for each in said):
            own = [each.removeprefix(self._prefix) for each in said if each.startswith(self._prefix)]
            return own if any(self._prefix in each for each in said) or not said or "." in said[0] else said
        if isinstance(said, list):
            said = [each for each in said if not isinstance(each, dict) or self._is_own(each)]
            return [self._number(each) if are_ids else self._told(each, False) for each in said]
        if isinstance(said, dict):
            made = {name: self._told(value, False) for name, value in said.items()}
            if "subject" in made:
                made["subject"] = made["subject"].removeprefix(self._prefix)
            return {**made, "id": self._number(made["id"])} if "id" in made else made
        return said


def differences(script: tuple[Step, ...], ask: Ask) -> dict[str, str]:
    """What differs from the script, by title."""
    found: dict[str, str] = {}
    for step in script:
        status, told = ask(step.method, step.path, step.body)
        wanted = step.status, step.code
        seen = status, told.get("error_code") if status >= 400 and isinstance(told, dict) else None
        if seen != wanted:
            found[step.title] = f"{seen}, not {wanted}: {told}"
        elif step.told is not None and not holds(told, step.told):
            found[step.title] = f"{told}, not {step.told}"
    return found


def holds(told: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(told, dict):
        return all(told.get(name) == value for name, value in wanted.items())
    return bool(told == wanted)


def evolved(level: str, texts: tuple[str, ...], ask: Ask, subject: str) -> bool:
    """Whether the last schema may be registered after the others."""
    for text in texts[:-1]:
        ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})
        status, told = ask("POST", f"/subjects/{subject}/versions", {"schema": text})
        assert status == 200, told
    ask("PUT", f"/config/{subject}", {"compatibility": level})
    against = "versions" if level.endswith("_TRANSITIVE") else "versions/latest"
    _, told = ask("POST", f"/compatibility/subjects/{subject}/{against}?verbose=true", {"schema": texts[-1]})
    status, _ = ask("POST", f"/subjects/{subject}/versions", {"schema": texts[-1]})
    assert told["is_compatible"] is (status == 200)
    assert status in (200, 409)
    return status == 200


# ---- by the documentation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_embedded_registry_answers_as_documented(name: str) -> None:
    assert differences(SCRIPTS[name], of_core(RegistryCore())) == {}


@pytest.mark.parametrize("number", range(len(EVOLUTION)))
def test_avro_evolves_as_its_specification_says(number: int) -> None:
    level, texts, may = EVOLUTION[number]
    assert evolved(level, texts, of_core(RegistryCore()), "s") is may


# ---- by another registry ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apicurio() -> Iterator[Apicurio]:
    with or_without_kafka(Apicurio()) as registry:
        yield registry


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_another_registry_answers_alike(apicurio: Apicurio, name: str) -> None:
    found = differences(SCRIPTS[name], Apart(of_url(apicurio.url), f"{name}."))
    listed = {title for script, title in OTHERWISE if script == name}
    assert set(found) == listed, json.dumps(found, indent=1)


@pytest.mark.slow
def test_avro_evolves_alike_there(apicurio: Apicurio) -> None:
    ask = of_url(apicurio.url)
    wrong = {
        number for number, (level, texts, may) in enumerate(EVOLUTION)
        if evolved(level, texts, ask, f"s-{number}") is not may
    }  # fmt: skip
    assert wrong == set(EVOLVES_OTHERWISE), [EVOLUTION[number] for number in wrong]


# ---- by Confluent's own client ---------------------------------------------------------------------------------------


@pytest.fixture
def client() -> Iterator[SchemaRegistryClient]:
    with EmbeddedRegistry() as registry:
        client = SchemaRegistryClient({"url": registry.url, "max.retries": 0})
        yield client
        client.close()


def refused(call: Callable[[], object]) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as caught:
        call()
    return caught.value.http_status_code, caught.value.error_code


def test_the_client_registers_and_finds(client: SchemaRegistryClient) -> None:
    schema = Schema(A, "AVRO")
    made = client.register_schema_full_response("orders-value", schema)
    assert client.register_schema("other", schema) == made.schema_id == 1
    assert client.lookup_schema("orders-value", schema).version == 1
    assert client.get_latest_version("orders-value").guid == made.guid
    client.clear_caches()
    assert made.guid is not None and client.get_schema_by_guid(made.guid).schema_str == A
    assert client.get_schema(1).schema_str == A
    assert client.get_subjects() == client.get_subjects_by_schema_id(1) == ["orders-value", "other"]
    assert [(each.subject, each.version) for each in client.get_schema_versions(1)] == [
        ("orders-value", 1),
        ("other", 1),
    ]
    assert client.get_versions("orders-value") == [1]
    assert client.get_contexts() == ["."]
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]


def test_the_client_sets_levels_and_modes(client: SchemaRegistryClient) -> None:
    client.register_schema("s", Schema(A, "AVRO"))
    assert client.get_compatibility() == "BACKWARD"
    assert client.test_compatibility("s", Schema(A_B_DEFAULT, "AVRO")) is True
    assert client.test_compatibility("s", Schema(record("other"), "AVRO")) is False
    assert refused(lambda: client.register_schema("s", Schema(record("other"), "AVRO"))) == (409, 409)
    client.set_compatibility("s", "NONE")
    assert client.get_compatibility("s") == "NONE"
    assert client.register_schema("s", Schema(record("other"), "AVRO")) == 2
    assert client.get_global_mode() == "READWRITE"
    client.update_mode("s", "READONLY")
    assert refused(lambda: client.register_schema("s", Schema('"int"', "AVRO"))) == (422, 42205)


def test_the_client_deletes(client: SchemaRegistryClient) -> None:
    client.register_schema("s", Schema(A, "AVRO"))
    client.register_schema("s", Schema(A_B_DEFAULT, "AVRO"))
    assert client.delete_version("s", 1) == 1
    assert client.get_versions("s") == [2]
    assert client.delete_subject("s") == [2]
    assert refused(lambda: client.get_versions("s")) == (404, 40401)
    assert refused(lambda: client.delete_subject("s")) == (404, 40404)
    client.clear_caches()
    assert client.register_schema("s", Schema(A, "AVRO")) == 1
    assert client.get_versions("s") == [3]
    assert refused(lambda: client.delete_subject("s", permanent=True)) == (404, 40405)
    assert client.delete_subject("s") == [3]
    assert client.delete_subject("s", permanent=True) == [1, 2, 3]
    client.clear_caches()
    assert client.register_schema("s", Schema(A, "AVRO")) == 1
    assert client.get_versions("s") == [1]


def test_the_client_refers(client: SchemaRegistryClient) -> None:
    client.register_schema("part", Schema(record("n", name="Part"), "AVRO"))
    whole = record({"name": "x", "type": "Part"})
    client.register_schema("s", Schema(whole, "AVRO", references=[SchemaReference("Part", "part", 1)]))
    found = client.get_latest_version("s").schema
    assert found is not None and found.references is not None and found.references[0].subject == "part"
    assert client.get_referenced_by("part", 1) == [2]


def test_of_two_texts_by_one_name_the_first_that_is_met_in_listed_order_is_taken() -> None:
    store = RegistryCore().store
    store.levels[""] = "NONE"
    old, new, line = record("old", name="Money"), record("new", name="Money"), record("x", name="Line")
    for subject, content in (
        ("money", {"schema": old}),
        ("money", {"schema": new}),
        ("line", {"schema": line, "references": [{"name": "Money", "subject": "money", "version": 1}]}),
    ):
        store.register(Content.of(content), subject, normalize=False)
    listed = [{"name": "Money", "subject": "money", "version": 2}, {"name": "Line", "subject": "line", "version": 1}]
    for references, texts in ((listed, [new, line]), (listed[::-1], [old, line])):
        order = Content.of({"schema": record("y"), "references": references})
        assert store.texts_of(order, "orders-value") == texts


def test_the_client_takes_the_last_text_by_one_name(client: SchemaRegistryClient) -> None:
    """So no choice of a writer suits it as well as the client for Java, which takes the first."""
    client.set_compatibility("money", "NONE")
    client.register_schema("money", Schema(record("old", name="Money"), "AVRO"))
    client.register_schema("money", Schema(record("new", name="Money"), "AVRO"))
    line = Schema(record({"name": "m", "type": "Money"}, name="Line"), "AVRO", [SchemaReference("Money", "money", 1)])
    client.register_schema("line", line)
    order = record({"name": "total", "type": "Money"}, {"name": "line", "type": "Line"})
    references = [SchemaReference("Money", "money", 2), SchemaReference("Line", "line", 1)]
    schema_id = client.register_schema("s", Schema(order, "AVRO", references))
    found = AvroDeserializer(client)(b"\x00" + schema_id.to_bytes(4, "big") + b"\x02\x04", None)
    assert found == {"total": {"old": 1}, "line": {"m": {"old": 2}}}


def test_the_client_reads_and_writes_bytes_alone_without_avros_length(client: SchemaRegistryClient) -> None:
    """And after a length where they are in a record or a union."""
    context = SerializationContext("t", MessageField.VALUE)
    for schema, value, expected in (
        ('"bytes"', b"\xca\xfe", b"\xca\xfe"),
        ('["null","bytes"]', b"\xca\xfe", b"\x02\x04\xca\xfe"),
        (record({"name": "b", "type": "bytes"}), {"b": b"\xca\xfe"}, b"\x04\xca\xfe"),
    ):
        client.set_compatibility("t-value", "NONE")
        written = AvroSerializer(client, schema)(value, context)
        assert written is not None and written[5:] == expected
        assert AvroDeserializer(client)(written, context) == value


def test_contexts_number_their_schemas_anew(client: SchemaRegistryClient) -> None:
    assert client.register_schema("s", Schema(A, "AVRO")) == 1
    assert client.register_schema(":.eu:s", Schema('"int"', "AVRO")) == 1
    assert client.get_contexts() == [".", ".eu"]
    assert client.get_schema(1, ":.eu:s").schema_str == '"int"'


def test_who_logs_in() -> None:
    with EmbeddedRegistry(users={"me": "secret"}, tokens={"token"}) as registry:
        login = {"url": registry.url, "max.retries": 0}
        wrong = SchemaRegistryClient({**login, "basic.auth.user.info": "me:wrong"})
        assert refused(lambda: wrong.get_subjects()) == (401, 401)
        assert SchemaRegistryClient({**login, "basic.auth.user.info": "me:secret"}).get_subjects() == []
        bearer = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "token",
                  "bearer.auth.logical.cluster": "lsrc-1"}  # fmt: skip
        assert SchemaRegistryClient({**login, **bearer}).get_subjects() == []
