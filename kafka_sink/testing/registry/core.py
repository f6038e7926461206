"""An embedded schema registry: Confluent's REST API as a pure function from a request to a response.

Error codes and messages are those of the API's public documentation; tests/conformance/test_registry.py has them as a
table, and compares with confluent-kafka's client and another registry. Compatibility is checked for Avro; Protobuf and
JSON Schema are compatible only with themselves, unless the level is NONE. Tokens and passwords are only compared, and
stored nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from kafka_sink.testing.registry.store import KINDS, LEVELS, MODES, Content, RegistryRefusal, Store, check_rule_set

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(slots=True)
class RegistryFault:
    """A fault for the next `times` requests whose path begins with `path`.

    A `status` is the response, and the request is not handled. `body` replaces the body. `delay_s` delays the response;
    `cut` truncates it in the middle of the body, `drip_s` sends it byte by byte with such pauses.
    """

    path: str = "/"
    times: int = 1
    status: int | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: bool = False
    drip_s: float = 0.0


@dataclass(frozen=True)
class RegistryHttpAnswer:
    status: int
    body: bytes
    headers: Mapping[str, str]
    fault: RegistryFault


@dataclass(frozen=True)
class _Call:
    parts: tuple[str, ...]
    query: Mapping[str, str]
    body: Any

    def is_set(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"


class RegistryCore:
    """`users`: name -> password, for basic authentication. `tokens`: accepted bearer tokens."""

    def __init__(self, users: Mapping[str, str] | None = None, tokens: set[str] | None = None) -> None:
        self.store = Store()
        self.users = dict(users or {})
        self.tokens = set(tokens or ())
        self.denied_subjects: set[str] = set()
        self.faults: list[RegistryFault] = []
        # Method and target of all requests.
        self.requests: list[tuple[str, str]] = []
        self._is_open = users is None and tokens is None

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> RegistryHttpAnswer:
        """`headers` by lower-case names."""
        self.requests.append((method, target))
        fault = self._fault(target)
        status, content = fault.status, b""
        if status is None:
            try:
                self._check_user(headers.get("authorization", ""))
                status, content = 200, json.dumps(self._route(method, target, body)).encode()
            except RegistryRefusal as refused:
                error = {"error_code": refused.code, "message": str(refused)}
                status, content = refused.status, json.dumps(error).encode()
        if fault.body is not None:
            content = fault.body
        return RegistryHttpAnswer(status, content, {"Content-Type": CONTENT_TYPE, **fault.headers}, fault)

    def _fault(self, target: str) -> RegistryFault:
        """The next fault for this request; without one a fault that changes nothing."""
        for fault in self.faults:
            if target.startswith(fault.path) and fault.times > 0:
                fault.times -= 1
                return fault
        return RegistryFault()

    def _check_user(self, authorization: str) -> None:
        if self._is_open:
            return
        scheme, _, rest = authorization.partition(" ")
        if scheme.lower() == "bearer" and rest in self.tokens:
            return
        if scheme.lower() == "basic":
            try:
                name, _, password = base64.b64decode(rest).decode().partition(":")
            except (ValueError, binascii.Error):
                name, password = "", ""
            if name in self.users and self.users[name] == password:
                return
        raise RegistryRefusal(401, "Unauthorized")

    def _route(self, method: str, target: str, body: bytes) -> Any:
        path = urlsplit(target)
        parts = tuple(unquote(part) for part in path.path.split("/") if part)
        query = {name: values[-1] for name, values in parse_qs(path.query).items()}
        for wanted, pattern, handle in _ROUTES:
            if wanted == method and _fits(pattern, parts):
                if len(parts) > 1 and parts[0] == "subjects" and parts[1] in self.denied_subjects:
                    raise RegistryRefusal(40301, f"User is denied operation on subject {parts[1]}")
                return handle(self, _Call(parts, query, _json(body) if method in ("POST", "PUT") else None))
        raise RegistryRefusal(404, "HTTP 404 Not Found")

    # ---- subjects ----

    def _subjects(self, call: _Call) -> Any:
        prefix = call.query.get("subjectPrefix", ":*:")
        every = {name for context in self.store.contexts.values() for name in context.subjects}
        shown = sorted(name for name in every if self.store.versions(name, with_deleted=call.is_set("deleted")))
        return shown if prefix == ":*:" else [name for name in shown if name.startswith(prefix)]

    def _versions(self, call: _Call) -> Any:
        return [each.number for each in self.store.require_versions(call.parts[1], with_deleted=call.is_set("deleted"))]

    def _version(self, call: _Call) -> Any:
        found = self.store.version(call.parts[1], call.parts[3], with_deleted=call.is_set("deleted"))
        return found.to_answer(call.parts[1])

    def _version_text(self, call: _Call) -> Any:
        return self.store.version(call.parts[1], call.parts[3]).content.as_json

    def _referenced_by(self, call: _Call) -> Any:
        return self.store.list_referrers(call.parts[1], self.store.version(call.parts[1], call.parts[3]).number)

    def _look_up(self, call: _Call) -> Any:
        subject = call.parts[1]
        self.store.require_versions(subject, with_deleted=call.is_set("deleted"))
        content = self.store.check(Content.of(call.body), subject)
        is_normal, with_deleted = call.is_set("normalize"), call.is_set("deleted")
        for each in (content, self.store.with_contract(content, subject)):
            found = self.store.find_same(each, subject, normalize=is_normal, with_deleted=with_deleted)
            if found is not None:
                return found.to_answer(subject)
        raise RegistryRefusal(40403, "Schema not found")

    def _register(self, call: _Call) -> Any:
        found = self.store.register(Content.of(call.body), call.parts[1], normalize=call.is_set("normalize"))
        return {name: value for name, value in found.to_answer(call.parts[1]).items() if name != "subject"}

    def _delete_subject(self, call: _Call) -> Any:
        subject, permanent = call.parts[1], call.is_set("permanent")
        self.store.require_versions(subject, with_deleted=True)
        is_deleted = not self.store.versions(subject)
        _check_deletion(f"Subject '{subject}'", 40404, is_deleted=is_deleted, permanent=permanent)
        return self.store.delete(subject, lambda each: permanent or not each.is_deleted, permanent=permanent)

    def _delete_version(self, call: _Call) -> Any:
        subject, permanent = call.parts[1], call.is_set("permanent")
        found = self.store.version(subject, call.parts[3], with_deleted=True)
        what = f"Subject '{subject}' Version {found.number}"
        _check_deletion(what, 40406, is_deleted=found.is_deleted, permanent=permanent)
        return self.store.delete(subject, lambda each: each is found, permanent=permanent)[0]

    # ---- schemas ----

    def _by_id(self, call: _Call) -> Any:
        content = self._content_of_id(call)
        return {**content.to_answer(), "guid": content.guid}

    def _text_by_id(self, call: _Call) -> Any:
        return self._content_of_id(call).as_json

    def _content_of_id(self, call: _Call) -> Content:
        wanted = call.parts[2]
        if not re.fullmatch(r"-?[0-9]{1,10}", wanted):
            raise RegistryRefusal(404, "HTTP 404 Not Found")
        context = self.store.contexts.get(self.store.context_of(call.query.get("subject", "")))
        content = None if context is None else context.by_id.get(int(wanted))
        if content is None:
            raise RegistryRefusal(40403, f"Schema {wanted} not found")
        return content

    def _where_is_id(self, call: _Call) -> list[tuple[str, int]]:
        self._content_of_id(call)
        context = self.store.contexts[self.store.context_of(call.query.get("subject", ""))]
        return [
            (name, each.number)
            for name, versions in context.subjects.items()
            for each in versions
            if each.schema_id == int(call.parts[2]) and (call.is_set("deleted") or not each.is_deleted)
        ]

    def _subjects_of_id(self, call: _Call) -> Any:
        return sorted({subject for subject, _ in self._where_is_id(call)})

    def _versions_of_id(self, call: _Call) -> Any:
        return [{"subject": subject, "version": number} for subject, number in self._where_is_id(call)]

    def _by_guid(self, call: _Call) -> Any:
        for context in self.store.contexts.values():
            for content in context.by_id.values():
                if content.guid == call.parts[2].lower():
                    return {**content.to_answer(), "guid": content.guid}
        raise RegistryRefusal(40403, f"Schema {call.parts[2]} not found")

    # ---- compatibility, level, mode ----

    def _test(self, call: _Call) -> Any:
        subject = call.parts[2]
        content = self.store.check(Content.of(call.body), subject)
        is_of_one = len(call.parts) == 5
        others = [self.store.version(subject, call.parts[4])] if is_of_one else self.store.relevant_versions(subject)
        reasons = self.store.reasons(content, subject, others)
        return {"is_compatible": not reasons, **({"messages": reasons} if call.is_set("verbose") else {})}

    def _setting(self, call: _Call) -> Any:
        setting, subject = _SETTINGS[call.parts[0]], _subject_of(call)
        values = setting.values_in(self.store)
        if subject and subject not in values:
            if not call.is_set("defaultToGlobal"):
                raise setting.missing(subject)
            subject = ""
        return {setting.told_as: values[subject]}

    def _set_setting(self, call: _Call) -> Any:
        setting = _SETTINGS[call.parts[0]]
        rule_sets = {name: call.body[name] for name in ("defaultRuleSet", "overrideRuleSet") if name in call.body}
        if rule_sets and call.parts[0] == "config":
            for each in rule_sets.values():
                check_rule_set(each)
            self.store.rule_sets[_subject_of(call)] = rule_sets
            if setting.word not in call.body:
                return rule_sets
        value = call.body.get(setting.word)
        if not isinstance(value, str) or value.upper() not in setting.choices:
            raise RegistryRefusal(setting.code_wrong, setting.text_wrong)
        setting.values_in(self.store)[_subject_of(call)] = value.upper()
        return {setting.word: value.upper()}

    def _delete_setting(self, call: _Call) -> Any:
        setting, subject = _SETTINGS[call.parts[0]], _subject_of(call)
        values = setting.values_in(self.store)
        if subject not in values:
            raise setting.missing(subject)
        before = values.pop(subject)
        values.setdefault("", setting.default)
        return {setting.word: before}


@dataclass(frozen=True)
class _Setting:
    """A setting of a subject, or the global one."""

    word: str
    told_as: str
    choices: tuple[str, ...]
    default: str
    values_in: Callable[[Store], dict[str, str]]
    code_missing: int
    code_wrong: int
    text_wrong: str

    def missing(self, subject: str) -> RegistryRefusal:
        text = f"Subject '{subject}' does not have subject-level {self.word} configured"
        return RegistryRefusal(self.code_missing, text)


_LEVELS_IN_WORDS = "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"
_SETTINGS = {
    "config": _Setting(
        "compatibility", "compatibilityLevel", LEVELS, "BACKWARD", lambda store: store.levels, 40408, 42203,
        f"Invalid compatibility level. Valid values are {_LEVELS_IN_WORDS}",
    ),
    "mode": _Setting(
        "mode", "mode", MODES, "READWRITE", lambda store: store.modes, 40409, 42204,
        f"Invalid mode. Valid values are {', '.join(MODES)}",
    ),
}  # fmt: skip


_Handler = Callable[[RegistryCore, _Call], Any]
_ROUTES: tuple[tuple[str, tuple[str, ...], _Handler], ...] = tuple(
    (route.split()[0], tuple(part for part in route.split()[1].split("/") if part), handler)
    for route, handler in {
        "GET /": lambda _core, _call: {},
        "GET /subjects": RegistryCore._subjects,
        "GET /subjects/*/versions": RegistryCore._versions,
        "GET /subjects/*/versions/*": RegistryCore._version,
        "GET /subjects/*/versions/*/schema": RegistryCore._version_text,
        "GET /subjects/*/versions/*/referencedby": RegistryCore._referenced_by,
        "POST /subjects/*": RegistryCore._look_up,
        "POST /subjects/*/versions": RegistryCore._register,
        "DELETE /subjects/*": RegistryCore._delete_subject,
        "DELETE /subjects/*/versions/*": RegistryCore._delete_version,
        "GET /schemas/types": lambda _core, _call: list(KINDS),
        "GET /schemas/ids/*": RegistryCore._by_id,
        "GET /schemas/ids/*/schema": RegistryCore._text_by_id,
        "GET /schemas/ids/*/subjects": RegistryCore._subjects_of_id,
        "GET /schemas/ids/*/versions": RegistryCore._versions_of_id,
        "GET /schemas/guids/*": RegistryCore._by_guid,
        "GET /contexts": lambda core, _call: sorted(core.store.contexts),
        "POST /compatibility/subjects/*/versions": RegistryCore._test,
        "POST /compatibility/subjects/*/versions/*": RegistryCore._test,
        "GET /config": RegistryCore._setting,
        "GET /config/*": RegistryCore._setting,
        "PUT /config": RegistryCore._set_setting,
        "PUT /config/*": RegistryCore._set_setting,
        "DELETE /config": RegistryCore._delete_setting,
        "DELETE /config/*": RegistryCore._delete_setting,
        "GET /mode": RegistryCore._setting,
        "GET /mode/*": RegistryCore._setting,
        "PUT /mode": RegistryCore._set_setting,
        "PUT /mode/*": RegistryCore._set_setting,
        "DELETE /mode/*": RegistryCore._delete_setting,
    }.items()
)


def _fits(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    return len(pattern) == len(parts) and all(each in ("*", part) for each, part in zip(pattern, parts, strict=True))


def _check_deletion(what: str, code: int, *, is_deleted: bool, permanent: bool) -> None:
    """First softly, then permanently; each once."""
    if is_deleted and not permanent:
        raise RegistryRefusal(code, f"{what} was soft deleted.Set permanent=true to delete permanently")
    if permanent and not is_deleted:
        raise RegistryRefusal(code + 1, f"{what} was not deleted first before being permanently deleted")


def _json(body: bytes) -> Any:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise RegistryRefusal(400, "Unable to process JSON")
    return parsed


def _subject_of(call: _Call) -> str:
    return call.parts[1] if len(call.parts) > 1 else ""
