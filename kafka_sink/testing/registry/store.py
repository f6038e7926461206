"""State of the embedded schema registry: contexts with their ids, subjects with their versions, levels and modes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import UUID

from kafka_sink.testing.registry.avro import InvalidAvro, StoredAvroSchema, find_mismatches, parse_avro

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
KINDS = (JSON, PROTOBUF, AVRO)
LEVELS = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
READ_ONLY = frozenset({"READONLY", "READONLY_OVERRIDE"})
STAGES = ("migrationRules", "domainRules", "encodingRules")
DEFAULT_CONTEXT = "."


class RegistryRefusal(Exception):
    """The first three digits of the API's error code are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3])


@dataclass(frozen=True)
class Ref:
    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Content:
    kind: str
    text: str
    references: tuple[Ref, ...] = ()
    # As they were sent; None: not sent.
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None

    @staticmethod
    def of(content: Mapping[str, Any]) -> Content:
        text, kind = content.get("schema"), content.get("schemaType") or AVRO
        if not isinstance(text, str) or not text.strip():
            raise RegistryRefusal(42201, "Empty schema")
        if kind not in KINDS:
            raise RegistryRefusal(42201, f"Invalid schema type {kind}")
        try:
            given = content.get("references") or []
            references = tuple(Ref(str(each["name"]), str(each["subject"]), int(each["version"])) for each in given)
        except (TypeError, KeyError, ValueError, OverflowError):
            text = "Invalid schema: a reference needs name, subject and version"
            raise RegistryRefusal(42201, text) from None
        metadata, rule_set = content.get("metadata"), content.get("ruleSet")
        if metadata is not None and not isinstance(metadata, dict):
            raise RegistryRefusal(422, "metadata is no object")
        check_rule_set(rule_set)
        return Content(kind, text, references, metadata, rule_set)

    def to_answer(self) -> dict[str, Any]:
        """As in the REST API."""
        fields: dict[str, Any] = {"schema": self.text}
        if self.kind != AVRO:
            fields["schemaType"] = self.kind
        if self.references:
            fields["references"] = [asdict(each) for each in self.references]
        fields |= {"metadata": self.metadata} if self.metadata is not None else {}
        return fields | ({"ruleSet": self.rule_set} if self.rule_set is not None else {})

    @property
    def as_json(self) -> Any:
        return self.text if self.kind == PROTOBUF else json.loads(self.text)

    @property
    def contract(self) -> str | None:
        """Metadata and rules as a text, for comparison. They are part of a schema."""
        both = [self.metadata, self.rule_set]
        return json.dumps(both, sort_keys=True) if any(each is not None for each in both) else None

    @property
    def guid(self) -> str:
        identity = json.dumps(
            [self.kind, self.text, [[each.name, each.subject, each.version] for each in self.references]]
        )
        if self.contract is not None:
            identity += self.contract
        return str(UUID(bytes=hashlib.md5(identity.encode(), usedforsecurity=False).digest()))


@dataclass(slots=True)
class StoredVersion:
    number: int
    schema_id: int
    content: Content
    is_deleted: bool = False

    def to_answer(self, subject: str) -> dict[str, Any]:
        place = {"subject": subject, "version": self.number, "id": self.schema_id, "guid": self.content.guid}
        return {**place, "schemaType": self.content.kind, **self.content.to_answer()}


@dataclass(slots=True)
class RegistryContext:
    """Each has its own schema ids."""

    by_id: dict[int, Content] = field(default_factory=dict)
    subjects: dict[str, list[StoredVersion]] = field(default_factory=dict)


class Store:
    def __init__(self) -> None:
        self.contexts: dict[str, RegistryContext] = {DEFAULT_CONTEXT: RegistryContext()}
        # By qualified subject; "" is the global one.
        self.levels: dict[str, str] = {"": "BACKWARD"}
        self.modes: dict[str, str] = {"": "READWRITE"}
        # Of a configuration: defaultRuleSet and overrideRuleSet.
        self.rule_sets: dict[str, dict[str, Any]] = {}

    # ---- finding ----

    def context_of(self, subject: str) -> str:
        """`:.name:rest` is in the context .name."""
        return subject[1:].partition(":")[0] if subject.startswith(":.") else DEFAULT_CONTEXT

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[StoredVersion]:
        every = self.contexts.get(self.context_of(subject), RegistryContext()).subjects.get(subject, [])
        return [each for each in every if with_deleted or not each.is_deleted]

    def require_versions(self, subject: str, *, with_deleted: bool = False) -> list[StoredVersion]:
        """Returns at least one version."""
        found = self.versions(subject, with_deleted=with_deleted)
        if not found:
            raise RegistryRefusal(40401, f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, wanted: str, *, with_deleted: bool = False) -> StoredVersion:
        number = self._number(wanted)
        every = self.require_versions(subject, with_deleted=with_deleted)
        found = every[-1] if number == -1 else next((each for each in every if each.number == number), None)
        if found is None:
            raise RegistryRefusal(40402, f"Version {number} not found.")
        return found

    @staticmethod
    def _number(wanted: str) -> int:
        if wanted in ("latest", "-1"):
            return -1
        if not wanted.isdecimal() or not 1 <= int(wanted) <= 2**31 - 1:
            raise RegistryRefusal(
                42202, f"The specified version '{wanted}' is not a valid version id. Allowed values are between "
                '[1, 2^31-1] and the string "latest"'
            )  # fmt: skip
        return int(wanted)

    def texts_of(self, content: Content, subject: str) -> list[str]:
        """Texts of referenced schemas, each after those that it refers to. As in Confluent's registry the first that is
        met under a name is taken, in listed order, and a subject is looked up in the context of what refers to it."""
        seen: set[str] = set()
        found: list[str] = []

        def take(one: Content, beside: str) -> None:
            for each in one.references:
                other = self._qualify(each.subject, beside)
                versions = [version for version in self.versions(other) if version.number == each.version]
                if not versions:
                    raise RegistryRefusal(
                        42201, f"No schema reference found for subject '{other}' version {each.version}"
                    )
                if each.name not in seen:
                    seen.add(each.name)
                    take(versions[0].content, other)
                    found.append(versions[0].content.text)

        take(content, subject)
        return found

    def _qualify(self, subject: str, beside: str) -> str:
        context = self.context_of(beside)
        return subject if subject.startswith(":.") or context == DEFAULT_CONTEXT else f":{context}:{subject}"

    # ---- equality and compatibility ----

    def check(self, content: Content, subject: str) -> Content:
        """The schema with its text as stored. Raises RegistryRefusal for an invalid one."""
        texts = self.texts_of(content, subject)
        if content.kind == PROTOBUF:
            is_text = any(word in content.text for word in ("message", "enum", "syntax"))
            if not is_text and not _is_descriptor(content.text):
                raise RegistryRefusal(42201, "Invalid schema: no message in this Protobuf schema")
            return content
        if content.kind == JSON:
            try:
                schema = json.loads(content.text)
            except (ValueError, RecursionError):
                schema = None
            if not isinstance(schema, (dict, bool)):
                raise RegistryRefusal(42201, "Invalid schema: this JSON schema is no object")
            return content
        try:
            parse_avro(content.text, texts)
        except InvalidAvro as error:
            raise RegistryRefusal(42201, f"Invalid schema {content.text[:200]} with refs, details: {error}") from None
        text = json.dumps(json.loads(content.text), separators=(",", ":"), ensure_ascii=False)
        return replace(content, text=text)

    def with_contract(self, content: Content, subject: str) -> Content:
        """What is not sent is taken from the last version; the configuration goes around it."""
        last = self.versions(subject)[-1:]
        metadata, rule_set = content.metadata, content.rule_set
        if last:
            metadata = last[0].content.metadata if metadata is None else metadata
            rule_set = last[0].content.rule_set if rule_set is None else rule_set
        of_config = self.rule_sets.get(subject) or self.rule_sets.get("") or {}
        merged = _merge_rule_sets(of_config.get("defaultRuleSet"), rule_set)
        return replace(content, metadata=metadata, rule_set=_merge_rule_sets(merged, of_config.get("overrideRuleSet")))

    def key_of(self, content: Content, subject: str, *, normalize: bool) -> object:
        """Equal for schemas that the registry treats as the same."""
        return content.contract, self._text_key(content, subject, normalize)

    def _text_key(self, content: Content, subject: str, normalize: bool) -> object:
        if content.kind == PROTOBUF:
            return content.kind, " ".join(content.text.split()), content.references
        if content.kind == AVRO and normalize:
            parsed = self._parse(content, subject)
            return content.kind, json.dumps([parsed.root, sorted(parsed.named.items())], sort_keys=True)
        references = sorted(content.references, key=lambda each: each.name)
        return content.kind, json.dumps(json.loads(content.text), sort_keys=True), tuple(references)

    def find_same(
        self, content: Content, subject: str, *, normalize: bool, with_deleted: bool = False
    ) -> StoredVersion | None:
        key = self.key_of(content, subject, normalize=normalize)
        for each in reversed(self.versions(subject, with_deleted=with_deleted)):
            if self.key_of(each.content, subject, normalize=normalize) == key:
                return each
        return None

    def level(self, subject: str) -> str:
        return self.levels.get(subject) or self.levels[""]

    def mode(self, subject: str) -> str:
        return self.modes.get(subject) or self.modes[""]

    def relevant_versions(self, subject: str) -> list[StoredVersion]:
        """The versions that a new one must be compatible with."""
        every = self.versions(subject)
        return every if self.level(subject).endswith("_TRANSITIVE") else every[-1:]

    def reasons(self, content: Content, subject: str, others: list[StoredVersion]) -> list[str]:
        """Why it is not compatible with these versions, by the level of the subject."""
        level = self.level(subject)
        if level == "NONE":
            return []
        return [text for each in others for text in self._reasons_with(content, each.content, subject, level)]

    def _reasons_with(self, new: Content, old: Content, subject: str, level: str) -> list[str]:
        if new.kind != old.kind:
            return [f"Incompatible because of different schema type: {new.kind}, not {old.kind}"]
        if new.kind != AVRO:
            is_same = self._text_key(new, subject, False) == self._text_key(old, subject, False)
            return [] if is_same else [f"of {new.kind} this registry takes no other schema: set the level NONE"]
        reader, writer = self._parse(new, subject), self._parse(old, subject)
        found: list[str] = []
        if not level.startswith("FORWARD"):
            found += find_mismatches(reader, writer)
        if not level.startswith("BACKWARD"):
            found += find_mismatches(writer, reader)
        return found

    def _parse(self, content: Content, subject: str) -> StoredAvroSchema:
        return parse_avro(content.text, self.texts_of(content, subject))

    # ---- changing ----

    def register(self, content: Content, subject: str, *, normalize: bool) -> StoredVersion:
        if not subject.strip():
            raise RegistryRefusal(42208, "The specified subject is not a valid subject.")
        if self.mode(subject) in READ_ONLY:
            raise RegistryRefusal(42205, f"Subject {subject} is in read-only mode")
        content = self.check(self.with_contract(content, subject), subject)
        known = self.find_same(content, subject, normalize=normalize)
        if known is not None:
            return known
        reasons = self.reasons(content, subject, self.relevant_versions(subject))
        if reasons:
            raise RegistryRefusal(
                409, "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: {reasons}, compatibility: \'{self.level(subject)}\''
            )  # fmt: skip
        context = self.contexts.setdefault(self.context_of(subject), RegistryContext())
        every = context.subjects.setdefault(subject, [])
        version = StoredVersion(every[-1].number + 1 if every else 1, self._id_of(context, content, subject), content)
        every.append(version)
        return version

    def _id_of(self, context: RegistryContext, content: Content, subject: str) -> int:
        key = self.key_of(content, subject, normalize=False)
        for number, other in context.by_id.items():
            if other == content or self.key_of(other, subject, normalize=False) == key:
                return number
        number = max(context.by_id, default=0) + 1
        context.by_id[number] = content
        return number

    def list_referrers(self, subject: str, number: int) -> list[int]:
        """Ids of schemas that reference that version."""
        found = {
            each.schema_id
            for context in self.contexts.values()
            for name, versions in context.subjects.items()
            for each in versions
            for ref in each.content.references
            if not each.is_deleted and (self._qualify(ref.subject, name), ref.version) == (subject, number)
        }
        return sorted(found)

    def delete(self, subject: str, is_chosen: Callable[[StoredVersion], bool], *, permanent: bool) -> list[int]:
        """The numbers of deleted versions."""
        every = self.require_versions(subject, with_deleted=True)
        wanted = [each for each in every if is_chosen(each)]
        for each in wanted:
            if self.list_referrers(subject, each.number):
                raise RegistryRefusal(
                    42206, f"One or more references exist to the schema {subject} version {each.number}."
                )
        context = self.contexts[self.context_of(subject)]
        for each in wanted:
            if permanent:
                context.subjects[subject].remove(each)
            each.is_deleted = True
        if not context.subjects[subject]:
            del context.subjects[subject]
        return [each.number for each in wanted]

    def snapshot(self) -> dict[str, Any]:
        """The complete state, for comparison in tests."""
        return {
            subject: [(each.number, each.schema_id, each.content.text) for each in versions if not each.is_deleted]
            for context in self.contexts.values()
            for subject, versions in context.subjects.items()
        }


def check_rule_set(content: Any) -> None:
    if content is None:
        return
    lists = [content[stage] for stage in STAGES if stage in content] if isinstance(content, dict) else [content]
    if not all(isinstance(each, list) and all(isinstance(rule, dict) for rule in each) for each in lists):
        raise RegistryRefusal(422, "ruleSet is no object with lists of rules")


def _merge_rule_sets(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    """Of rules with one name the other's is kept."""
    if one is None or other is None:
        return other if one is None else one
    merged: dict[str, Any] = {**one, **other}
    for stage in STAGES:
        rules = {each.get("name"): each for each in (*one.get(stage, ()), *other.get(stage, ()))}
        if rules:
            merged[stage] = list(rules.values())
    return merged


def _is_descriptor(text: str) -> bool:
    """Confluent's registry also accepts a FileDescriptorProto in base64; it begins with the file name."""
    try:
        return base64.b64decode(text, validate=True)[:1] == b"\n"
    except ValueError:
        return False
