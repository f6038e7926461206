"""Rules of a data contract, which the owner of a schema registers with it: fields to encrypt, conditions that values
must meet, changes between versions. A client has to apply them; this sink applies none, so it must know of them.

Which rules a writer applies is Confluent's: domain and encoding rules that are active, of the mode WRITE or WRITEREAD.
Rules of a subject's configuration (defaultRuleSet, overrideRuleSet) and of its last version are merged by the registry
when a schema is registered, so they are in its answers.

To apply ENCRYPT rules, this would be needed. In each text or bytes field with one of the rule's tags, `00`, the version
of the key (4 bytes, if keys expire), a nonce of 12 bytes and AES-GCM's ciphertext with its tag take the place of the
value (of a text as base64; AES-SIV where equal values must stay equal). The data key, one per subject and algorithm,
comes from the registry (`/dek-registry/v1/keks/...`), encrypted by a KMS; a writer that finds none makes one. The hard
part is where it is unwrapped: on the driver it would be the first secret in a plan, which Spark may log; in tasks each
executor needs the KMS. AES-GCM costs 1.2 us a value, three times what Avro costs for a row of ten columns. The proof
would be confluent-kafka's deserializer with its local KMS.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kafka_sink.errors import foreign_text
from kafka_sink.frozen import frozen

# The lists of a rule set. Migration rules are applied by readers, between two versions.
MIGRATION, DOMAIN, ENCODING = "migrationRules", "domainRules", "encodingRules"
_NOT_ON_WRITE = frozenset({"READ", "UPGRADE", "DOWNGRADE", "UPDOWN"})
# Where clients apply the rules; elsewhere a gateway does.
_FOR_CLIENTS = frozenset({"", "ALL", "CLIENT"})
_TAGS = "confluent:tags"
WORD_CHARACTERS_MAX, SHOWN_MAX = 100, 20


@frozen
class SchemaRule:
    """`stage` is the list that it is in. `fields`: those that carry one of its tags, by schema and metadata, as far as
    they are in JSON. `is_active`: neither disabled nor for a gateway only."""

    stage: str
    name: str
    kind: str
    type: str
    mode: str
    tags: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    is_active: bool = True

    @property
    def is_for_writers(self) -> bool:
        return self.is_active and self.stage != MIGRATION and self.mode not in _NOT_ON_WRITE

    def __str__(self) -> str:
        about = [f"{self.kind} {self.type}", self.mode]
        about += [f"tags {_some(self.tags)}"] if self.tags else []
        about += [f"fields {_some(self.fields)}"] if self.fields else []
        about += [] if self.is_active else ["not active"]
        return f"{self.name or 'a rule without a name'} ({', '.join(about)})"


def parse_rules(content: dict[str, Any], wrong: Callable[[str], Exception]) -> tuple[SchemaRule, ...]:
    """`content` is a registry's answer about one schema; `wrong` makes the error for a field that is not what it should
    be. A rule of which nothing is said but its presence applies: Confluent's default mode is WRITEREAD."""
    rule_set = content.get("ruleSet")
    if rule_set is None:
        return ()
    if not isinstance(rule_set, dict):
        raise wrong("ruleSet")
    is_for_clients = _word(rule_set.get("enableAt")).upper() in _FOR_CLIENTS
    tagged: list[tuple[str, str]] | None = None
    rules: list[SchemaRule] = []
    for stage in (DOMAIN, ENCODING, MIGRATION):
        listed = rule_set.get(stage)
        if listed is None:
            continue
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise wrong("ruleSet")
        for each in listed:
            tags = _words(each.get("tags"))
            if tags and tagged is None:
                tagged = list(_tagged_fields(content))
            names = dict.fromkeys(name for name, tag in tagged or [] if tag in tags)
            rules.append(_make_rule(each, stage, tags, tuple(names), is_for_clients))
    return tuple(rules)


def _make_rule(
    content: dict[str, Any], stage: str, tags: tuple[str, ...], fields: tuple[str, ...], is_for_clients: bool
) -> SchemaRule:
    return SchemaRule(
        stage,
        _word(content.get("name")),
        _word(content.get("kind")).upper() or "TRANSFORM",
        _word(content.get("type")).upper() or "without a type",
        _word(content.get("mode")).upper() or "WRITEREAD",
        tags,
        fields,
        is_active=is_for_clients and content.get("disabled") is not True,
    )


def _tagged_fields(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Fields and their tags. In metadata the field is a pattern, such as **.ssn."""
    metadata = content.get("metadata")
    by_path = metadata.get("tags") if isinstance(metadata, dict) else None
    for path, tags in by_path.items() if isinstance(by_path, dict) else ():
        yield from ((_word(path), tag) for tag in _words(tags))
    try:
        schema = json.loads(content.get("schema") or "")
    except (ValueError, TypeError, RecursionError):
        return  # Protobuf; its tags are options of fields
    waiting: list[tuple[str, Any]] = [("", schema)]
    while waiting:  # no recursion: a schema may be nested deeply
        path, node = waiting.pop()
        if isinstance(node, dict):
            yield from ((path, tag) for tag in _words(node.get(_TAGS)) if path)
        waiting += _inner_nodes(path, node)


def _inner_nodes(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    """Of an Avro or a JSON schema, with the path of the field that they describe."""
    if isinstance(node, list):
        yield from ((path, each) for each in node)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "fields" and isinstance(value, list):
                named = ((each.get("name"), each) for each in value if isinstance(each, dict))
            elif key == "properties" and isinstance(value, dict):
                named = ((name, each) for name, each in value.items())
            else:
                yield path, value
                continue
            yield from (("".join((path, "." if path else "", _word(name))), each) for name, each in named)


def _word(value: object) -> str:
    return foreign_text(value)[:WORD_CHARACTERS_MAX]


def _words(value: object) -> tuple[str, ...]:
    return tuple(word for word in map(_word, value) if word) if isinstance(value, list) else ()


def _some(words: Iterable[str]) -> str:
    listed = list(words)
    return ", ".join(listed[:SHOWN_MAX]) + (f" and {len(listed) - SHOWN_MAX} more" if len(listed) > SHOWN_MAX else "")
