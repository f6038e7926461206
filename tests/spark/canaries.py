"""A canary for each option that holds a secret, and the search for them in everything that Spark writes and serves.

The options come from the tables of options: one without companions here fails `test_every_secret_option_has_a_canary`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_sink.options.foreign_table import canonical_name
from kafka_sink.options.format_table import REGISTRY_ALIASES
from kafka_sink.options.presets import PREFIX
from kafka_sink.options.secret_options import secret_options
from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry

TOPIC = "canaries"
# How Spark's UI shows a plan. The last is the default, and the second shows each step from the user's words on.
EXPLAIN_MODES = ("simple", "extended", "codegen", "cost", "formatted")
# The value of an option that is not secret.
MARKER = "marker-of-the-canary"
_OAUTH, _KAFKA_OAUTH = "sasl.oauthbearer.", "kafka.sasl.oauthbearer."
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_REGISTRY = "schema.registry."
_SASL = {"kafka.security.protocol": "SASL_PLAINTEXT"}
_PASSWORD = {**_SASL, "kafka.sasl.mechanism": "PLAIN"}
_TOKENS = {**_SASL, "kafka.sasl.mechanism": "OAUTHBEARER", f"{_KAFKA_OAUTH}token.endpoint.url": "http://127.0.0.1:1"}
_AWS = {**_SASL, "kafka.sasl.mechanism": "AWS_MSK_IAM", "kafka.sasl.aws.access.key.id": "AKID"}
_AWS_REGION = {"kafka.sasl.aws.region": "eu-west-1"}
_BEARER = f"{_REGISTRY}bearer.auth."
# What makes the sink use the option, by its canonical name without a prefix. {file} is a path that exists, {held} the
# file with all secrets.
COMPANIONS: Mapping[str, Mapping[str, str]] = {
    "sasl.password": {**_PASSWORD, "kafka.sasl.username": "alice"},
    "sasl.jaas.config": _PASSWORD,
    "sasl.aws.secret.access.key": {**_AWS, **_AWS_REGION},
    "sasl.aws.session.token": {**_AWS, **_AWS_REGION, "kafka.sasl.aws.secret.access.key": "${file:{held}:topic}"},
    f"{_OAUTH}client.credentials.client.secret": {
        **_TOKENS, f"{_KAFKA_OAUTH}client.credentials.client.id": "me"},
    f"{_OAUTH}assertion.private.key.passphrase": _TOKENS,
    "ssl.truststore.password": {"ssl.truststore.location": "{file}"},
    "ssl.keystore.password": {"ssl.keystore.location": "{file}"},
    "ssl.keystore.key": {"ssl.keystore.certificate.chain": "a chain"},
    "ssl.key.password": {"ssl.keystore.location": "{file}"},
    f"{_REGISTRY}basic.auth.user.info": {},
    f"{_BEARER}token": {},
    f"{_BEARER}client.secret": {
        f"{_BEARER}credentials.source": "OAUTHBEARER", f"{_BEARER}issuer.endpoint.url": "http://127.0.0.1:1",
        f"{_BEARER}client.id": "me"},
}  # fmt: skip
# What an option holds besides its canary.
FORMS = {
    "sasl.jaas.config": f'{_PLAIN_MODULE} required username="bob" password="{{}}";',
    f"{_REGISTRY}basic.auth.user.info": "me:{}",
}
# With these the write succeeds; the others are refused by sink, broker or registry, each at another step.
PASSWORD = "kafka.sasl.password"
ACCEPTED = frozenset({PASSWORD, "kafka.sasl.jaas.config", f"{_REGISTRY}basic.auth.user.info"})
# And one that the sink refuses, one that brokers refuse, and one of the registry.
OF_EACH_KIND = ACCEPTED | {"kafka.ssl.keystore.key", "kafka.sasl.aws.secret.access.key", f"{_BEARER}token"}
_SSL = "ssl."


def canonical(name: str) -> str:
    """`kafka.ssl.key.pem` and `schema.registry.ssl.keystore.key` are `ssl.keystore.key`."""
    for prefix in (PREFIX, f"{_REGISTRY}{_SSL}"):
        if name.startswith(prefix):
            return canonical_name(name.removeprefix(prefix if prefix == PREFIX else _REGISTRY))
    return REGISTRY_ALIASES.get(name, name)


# Without a word of Spark's own `spark.redaction.regex` in name or value.
UNKNOWN_TO_SPARK = {
    name for name in secret_options()
    if not re.search("secret|password|token|access[.]?key", f"{name} {FORMS.get(canonical(name), '')}", re.IGNORECASE)
}  # fmt: skip


@dataclass(frozen=True)
class Canaries:
    """The secrets, by the option that holds each; and options for writes with them."""

    servers: str
    registry_url: str
    folder: Path
    secrets: Mapping[str, str] = field(repr=False)

    def options(self, name: str, value: str) -> dict[str, str]:
        """A write in which `value` is the secret, or stands for it."""
        known = canonical(name)
        form = FORMS.get(known, "{}")
        companions = dict(COMPANIONS[known])
        if known.startswith(_SSL):
            prefix = _REGISTRY if name.startswith(_REGISTRY) else PREFIX
            companions = {prefix + each: text for each, text in companions.items()}
            if prefix == PREFIX:
                companions["kafka.security.protocol"] = "SSL"
        if not name.startswith(PREFIX):
            address = self.registry_url.replace("http:", "https:") if known.startswith(_SSL) else self.registry_url
            companions |= {
                **_PASSWORD, "kafka.sasl.username": "alice", "kafka.sasl.password": self.value(PASSWORD, "file"),
                "value.format": "avro", "auto.register.schemas": "true", f"{_REGISTRY}url": address,
                f"{_REGISTRY}max.retries": "0",
            }  # fmt: skip
        paths = {"{file}": str(self.pem), "{held}": str(self.properties)}
        for mark, path in paths.items():
            companions = {each: text.replace(mark, path) for each, text in companions.items()}
        return {**self.common, **companions, name: form.format(value)}

    def all_together(self, how: str) -> dict[str, str]:
        """For statements that are shown and not run: every secret in one set of options."""
        values = {name: FORMS.get(canonical(name), "{}").format(self.value(name, how)) for name in self.secrets}
        return {**self.common, **values}

    @property
    def common(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers, "topic": TOPIC, "kafka.client.id": MARKER,
            "kafka.max.block.ms": "2000", "metrics.enabled": "true", "lineage.file": str(self.folder / "lineage"),
        }  # fmt: skip

    def value(self, name: str, how: str) -> str:
        if how == "literal":
            return self.secrets[name]
        return f"${{env:{variable(name)}}}" if how == "env" else f"${{file:{self.properties}:{name}}}"

    def writes(self, how: str, names: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Of all secrets, if no names are given."""
        return [
            {"name": name, "options": self.options(name, self.value(name, how)), "succeeds": name in ACCEPTED}
            for name in self.secrets if names is None or name in names
        ]  # fmt: skip

    def statements(self, how: str) -> list[str]:
        """The same writes that succeed, as SQL; and one that is refused and has every secret."""
        succeed = [statement(write["options"]) for write in self.writes(how, ACCEPTED)]
        return [*succeed, statement(self.all_together(how))]

    def order(self, how: str, **more: object) -> dict[str, Any]:
        """For `jobs/doors.py`."""
        together = [self.all_together(how)]
        accepted = self.options(PASSWORD, self.value(PASSWORD, how))
        order: dict[str, Any] = {
            "writes": self.writes(how),
            "shown": together,
            "explained": together,
            "accepted": accepted,
            "modes": EXPLAIN_MODES,
            "statements": [],
        }
        return {**order, "settings": {}, **more}

    def second_door(self, names: Collection[str] | None = None, **more: object) -> dict[str, Any]:
        """An order of writes with secrets themselves, planned by the process that has them."""
        nothing: dict[str, Any] = {"writes": [], "shown": [], "explained": []}
        return self.order("literal", **nothing, second=self.writes("literal", names), streams=self.streams, **more)

    @property
    def streams(self) -> list[dict[str, Any]]:
        """One that succeeds and one that is refused: they are slow."""
        (refused, *_) = [each for each in self.writes("literal") if not each["succeeds"]]
        return [*self.writes("literal", {PASSWORD}), refused]

    @property
    def environment(self) -> dict[str, str]:
        return {variable(name): secret for name, secret in self.secrets.items()}

    @property
    def properties(self) -> Path:
        return self.folder / "held" / "secrets.properties"

    @property
    def pem(self) -> Path:
        return self.folder / "held" / "some.pem"

    def found_in(self, outputs: Mapping[str, bytes]) -> set[tuple[str, str]]:
        """Also says how much was searched."""
        lineage = {"lineage": (self.folder / "lineage").read_bytes()}
        everything = {**outputs, **lineage}
        found = {
            (name, place) for name, secret in self.secrets.items() for place, content in everything.items()
            if secret.encode() in content
        }  # fmt: skip
        size = sum(map(len, everything.values()))
        print(f"{len(self.secrets)} secrets, {len(everything)} outputs, {size:,} bytes, {len(found)} found")
        return found


def advised_expression() -> str:
    """Of docs/security.md, for `spark.redaction.regex`."""
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    (found,) = set(re.findall(r"spark\.redaction\.regex=(\S+?)`", page))
    return found


def variable(name: str) -> str:
    return f"CANARY_{name}".upper().replace(".", "_")


@contextmanager
def canaries(folder: Path) -> Iterator[Canaries]:
    """Brokers and a registry that accept some of the secrets. `held` is the only folder of `folder` with secrets."""
    made = {name: f"canary-{secrets.token_hex(8)}" for name in secret_options()}
    (folder / "held").mkdir()
    users = {"alice": made[PASSWORD], "bob": made["kafka.sasl.jaas.config"]}
    with (
        EmbeddedBroker(topics={TOPIC: 1}, users=users) as broker,
        EmbeddedRegistry(users={"me": made[f"{_REGISTRY}basic.auth.user.info"]}) as registry,
    ):
        held = Canaries(broker.bootstrap_servers, registry.url, folder, made)
        held.properties.write_text("topic=none\n" + "".join(f"{name}={secret}\n" for name, secret in made.items()))
        held.pem.write_text("-----BEGIN CERTIFICATE-----\nbm8gY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n")
        yield held


def places(outputs: Mapping[str, bytes], text: str) -> set[str]:
    """The first part of the path of each output that holds the text."""
    return {place.split("/")[0] for place, content in outputs.items() if text.encode() in content}


def lines_with(outputs: Mapping[str, bytes], text: str) -> list[str]:
    every = (line for content in outputs.values() for line in content.decode(errors="replace").splitlines())
    return [line for line in every if text in line]


def statement(options: Mapping[str, str], mode: str = "") -> str:
    given = ", ".join(f"`{name}` = '{value}'" for name, value in options.items())
    return f"{mode} INSERT INTO doors WITH ({given}) SELECT cast(id AS string) FROM range(2)"
