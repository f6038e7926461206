"""Options compared with the Java producer: its table of options, and the values that it accepts, corrects and refuses.

The oracle is recorded from the JVM (tests/golden/Dump*.java). Where this producer is stricter on purpose, the case is
listed here with the reason.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options import ProducerOptions
from kafka_sink.options.foreign_table import ALIASES, FOREIGN_OPTIONS
from kafka_sink.options.hooks import InterceptorsRule
from kafka_sink.options.option import Treatment
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from kafka_sink.options.table import OPTIONS
from kafka_sink.options.values import (
    Acks,
    Choice,
    CipherSuites,
    Flag,
    Fraction,
    Names,
    Servers,
    Text,
    TlsVersions,
    Whole,
)
from tests.support.option_parsing import parse, parse_named, refusal

GOLDEN = Path(__file__).parent.parent / "golden"
JAVA_OPTIONS: dict[str, dict[str, Any]] = json.loads((GOLDEN / "producer_config_4.4.0.json").read_text())["options"]
JAVA_VERDICTS: dict[str, dict[str, str]] = json.loads((GOLDEN / "producer_verdicts_4.3.1.json").read_text())["verdicts"]

# Java accepts these values; here they are errors.
STRICTER = {
    "transaction.timeout.ms=0": "every broker refuses it",
    "transaction.timeout.ms=-1": "every broker refuses it",
    "connections.max.idle.ms=0": "Java and librdkafka mean opposite things",
    "metrics.sample.window.ms=0": "a rate over no time",
    "bootstrap.servers=:9092": "an empty host is a forgotten one",
    "bootstrap.servers=localhost:0": "nobody listens on port 0",
    "bootstrap.servers=::1:9092": "without brackets the port is a guess",
}


# ---- Java's table ----------------------------------------------------------------------------------------------

# Java's send buffer of 128 KiB takes a large request in many parts, each of which wakes the sender.
DIFFERENT_DEFAULTS = {"send.buffer.bytes": -1}


@pytest.mark.parametrize("name", JAVA_OPTIONS)
def test_every_java_option_is_in_the_table_with_its_default(name: str) -> None:
    java = JAVA_OPTIONS[name]
    row = OPTIONS[name]
    default = list(row.default) if isinstance(row.default, tuple) else row.default
    assert default == DIFFERENT_DEFAULTS.get(name, java["default"])
    assert row.is_required == (java["required"] and not name.endswith("serializer"))


# The rules for each of Java's types. A refused option has a rule only if some of its values are accepted.
READ_AS = {
    "BOOLEAN": (Flag,), "INT": (Whole, Acks), "LONG": (Whole,), "SHORT": (Whole,), "DOUBLE": (Fraction,),
    "LIST": (Names, Servers, TlsVersions, CipherSuites, InterceptorsRule), "PASSWORD": (Text,),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in JAVA_OPTIONS if OPTIONS[name].treatment is Treatment.HONOURED])
def test_a_value_is_read_as_the_type_that_it_has_in_java(name: str) -> None:
    kind, rule = JAVA_OPTIONS[name]["type"], OPTIONS[name].rule
    if kind in READ_AS:
        assert isinstance(rule, READ_AS[kind])
    else:
        assert kind in ("STRING", "CLASS")
        assert not isinstance(rule, (Flag, Whole, Fraction, Names))
    if isinstance(rule, Whole) and kind != "SHORT":
        assert (rule.maximum > INT_MAX) == (kind == "LONG")


@pytest.mark.parametrize("name", [name for name in JAVA_OPTIONS if isinstance(OPTIONS[name].rule, Whole)])
def test_number_ranges_equal_those_of_java(name: str) -> None:
    rule = OPTIONS[name].rule
    assert isinstance(rule, Whole)
    top = INT_MAX if JAVA_OPTIONS[name]["type"] == "INT" else LONG_MAX
    lowest, highest = f"[{rule.minimum},...", f"{rule.maximum}]" if rule.maximum != top else "]"
    java_range = (JAVA_OPTIONS[name]["valid"] or "").replace(f",{INT_MAX}]", "]")
    stricter = {"transaction.timeout.ms", "metrics.sample.window.ms"}
    without_range = {
        "connections.max.idle.ms", "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
        "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms", "sasl.kerberos.min.time.before.relogin",
    }  # fmt: skip
    if name not in stricter | without_range:
        ours = f"{lowest},{highest}" if highest != "]" else f"{lowest}]"
        assert java_range in (ours, f"{ours} or {rule.besides}")
    else:
        assert java_range in ("", "[0,...]")


@pytest.mark.parametrize("name", [name for name in JAVA_OPTIONS if isinstance(OPTIONS[name].rule, Choice)])
def test_choices_equal_those_of_java(name: str) -> None:
    rule = OPTIONS[name].rule
    assert isinstance(rule, Choice)
    java = JAVA_OPTIONS[name]["valid"]
    assert rule.any_case == java.startswith("(case insensitive)")
    words = java.partition("[")[2].rstrip("]").split(", ")
    assert sorted(word.lower() for word in words) == sorted(word.lower() for word in rule.words)


@pytest.mark.parametrize("case", JAVA_VERDICTS)
def test_an_option_set_is_taken_or_refused_as_the_java_producer_does(case: str) -> None:
    settings: dict[str, object] = {pair.partition("=")[0]: pair.partition("=")[2] for pair in case.split("|")}
    java = JAVA_VERDICTS[case]
    if "refused" in java or case in STRICTER:
        assert "refused" in java or case in STRICTER
        assert refusal(settings)
        return
    options = parse_named(settings)
    assert str(options.acks) == java["acks"]
    assert options.client_id == java["client.id"]
    assert str(options.enable_idempotence).lower() == java["enable.idempotence"]
    assert str(options.reconnect_backoff_max_ms) == java["reconnect.backoff.max.ms"]
    assert str(options.delivery_timeout_ms) == java["delivery.timeout.ms"]
    assert options.metadata_recovery_strategy == java["metadata.recovery.strategy"].lower()


def test_every_stricter_case_is_really_one() -> None:
    assert all("refused" not in JAVA_VERDICTS[case] for case in STRICTER)


# ---- the table itself ------------------------------------------------------------------------------------------


def test_defaults_of_the_dataclass_are_the_defaults_of_the_table() -> None:
    assert parse() == ProducerOptions(bootstrap_servers=(("broker", 9092),))


def test_every_field_is_set_by_exactly_one_row() -> None:
    row_fields = [row.field for row in OPTIONS.values() if row.field]
    assert sorted(row_fields) == sorted(field.name for field in fields(ProducerOptions) if field.name != "notices")


def test_names_are_unique_over_all_tables() -> None:
    names = [*OPTIONS, *FOREIGN_OPTIONS, *ALIASES]
    assert len(set(names)) == len(names)


def test_every_alias_sets_an_option_that_exists_and_is_honoured() -> None:
    targets = {alias.target for alias in ALIASES.values()} | {alias.fallback_for for alias in ALIASES.values()} - {""}
    assert all(OPTIONS[target].treatment is Treatment.HONOURED for target in targets)


def test_every_row_that_is_not_honoured_says_what_to_do_instead() -> None:
    rows = [row for row in (*OPTIONS.values(), *FOREIGN_OPTIONS.values()) if row.treatment is not Treatment.HONOURED]
    assert len(rows) > 70
    assert all(row.instead and not row.field for row in rows)


@pytest.mark.parametrize("row", [*OPTIONS.values(), *FOREIGN_OPTIONS.values()], ids=lambda row: row.name)
def test_every_row_has_an_effect_or_an_answer(row: Any) -> None:
    # The first samples are for security options.
    samples = ["SSL", "PLAIN", "TLSv1.2", "PEM", "0.7", "0.2", "m:f", "a.OAuthBearerLoginCallbackHandler"]
    samples += [
        "a.JwtBearerJwtRetriever",
        "1",
        "7",
        "99999",
        "false",
        "true",
        "gzip",
        "none",
        "sync",
        "random",
        "LongSerializer",
        "DEBUG",
        "b:1",
        "full",
    ]
    # Secrets are refused for a connection without encryption.
    more = {"allow.plaintext.credentials": "true"} if row.is_secret else {}
    base = {"compression.type": "gzip", "client.rack": "r", **more}
    before = parse_named(base)
    answers = set()
    for sample in samples:
        try:
            after = parse_named({**base, row.name: sample})
        except ConfigError as error:
            answers.add("refused" if row.name in str(error) else "foreign text")
        else:
            answers.add("changed" if after != before else "the same")
    assert "foreign text" not in answers
    # Interceptors are objects, so no text can set them.
    is_set_by_text = row.treatment is Treatment.HONOURED and row.name != "interceptor.classes"
    assert ("changed" if is_set_by_text or row.treatment is Treatment.NO_EFFECT else "refused") in answers


# ---- reading values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [7, "7", " 7 ", "+7", "007"])
def test_a_number_may_be_text_or_an_int(value: object) -> None:
    assert parse(linger_ms=value).linger_ms == 7


@pytest.mark.parametrize("value", ["7.0", 7.0, "1_0", "0x7", "", "seven", True, b"7", "7ms", "٧", "9" * 5000, [7], -1])
def test_what_is_no_whole_number_in_range_is_refused_with_name_value_and_range(value: object) -> None:
    text = refusal({"linger.ms": value})
    assert text.startswith("linger.ms=") and text.endswith(f"expected a whole number from 0 to {LONG_MAX}")
    assert len(text) < 250


@pytest.mark.parametrize(("value", "expected"), [(True, True), ("true", True), (" FALSE ", False), (False, False)])
def test_a_boolean_may_be_text_or_a_bool(value: object, expected: bool) -> None:
    assert parse(enable_idempotence=value).enable_idempotence is expected


@pytest.mark.parametrize("value", [1, "1", "yes", "", 0])
def test_other_booleans_are_refused(value: object) -> None:
    assert "true or false" in refusal({"enable.idempotence": value})


def test_acks_may_be_a_number() -> None:
    assert [parse(acks=value).acks for value in (-1, 0, 1, "all")] == [-1, 0, 1, -1]
    assert "all, -1, 0 or 1" in refusal({"acks": True})


def test_a_type_is_no_number() -> None:
    assert "expected a whole number" in refusal({"retries": int})


def test_ids_that_do_not_fit_into_a_request_are_refused_before_anything_is_sent() -> None:
    for name in ("client.id", "transactional.id"):
        assert "at most 32000 bytes" in refusal({name: "\u00e4" * 16_001})
        parse_named({name: "\u00e4" * 16_000})


def test_none_means_not_set_where_that_is_the_default() -> None:
    assert parse_named({"transactional.id": None, "partitioner.class": None, "key.serializer": None}) == parse()


@pytest.mark.parametrize("name", ["linger.ms", "compression.type", "bootstrap.servers", "enable.idempotence"])
def test_none_is_refused_where_a_value_is_needed(name: str) -> None:
    assert refusal({name: None}).startswith(f"{name} is None")


# ---- bootstrap.servers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1", (("a", 1),)),
        ("a:1, b.example.org:65535", (("a", 1), ("b.example.org", 65535))),
        ("[::1]:9092", (("::1", 9092),)),
        ("[fe80::1%eth0]:9092", (("fe80::1%eth0", 9092),)),
        ("PLAINTEXT://a:1,CLIENT://[2001:db8::1]:2", (("a", 1), ("2001:db8::1", 2))),
        (["a:1", " b:2 "], (("a", 1), ("b", 2))),
    ],
)
def test_bootstrap_servers_are_read(text: object, servers: tuple[tuple[str, int], ...]) -> None:
    assert parse_producer_options({"bootstrap.servers": text}).bootstrap_servers == servers


@pytest.mark.parametrize(
    "entry", ["b", "b:", "b:0", "b:65536", "b:x", "b c:1", "::1:9", "[::1]", "http://b:1/", "b:-1"]
)
def test_a_bad_bootstrap_entry_is_named(entry: str) -> None:
    text = refusal({"bootstrap.servers": f"a:1,{entry},c:3"})
    assert repr(entry) in text and "a:1" not in text


@pytest.mark.parametrize("text", ["", " ", ",", "a:1,", "a:1,,b:2", []])
def test_empty_bootstrap_entries_are_refused(text: object) -> None:
    assert "bootstrap.servers" in refusal({"bootstrap.servers": text})


def test_duplicate_bootstrap_entries_are_dropped_with_a_notice() -> None:
    options = parse_named({"bootstrap.servers": "a:1,b:2,A:1"})
    assert options.bootstrap_servers == (("a", 1), ("b", 2))
    assert options.notices == ("bootstrap.servers names some servers more than once",)


def test_a_missing_bootstrap_list_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap.servers is missing"):
        parse_producer_options({})


def test_a_scheme_that_asks_for_encryption_must_agree_with_the_protocol() -> None:
    text = refusal({"bootstrap.servers": "SASL_SSL://a:1"})
    assert text == "bootstrap.servers asks for SASL_SSL, but security.protocol=PLAINTEXT: make them agree"
    assert refusal({"bootstrap.servers": iter(["SASL_SSL://a:1"])}) == text
    both = {"bootstrap.servers": "SSL://a:1", "security.protocol": "ssl"}
    assert parse_producer_options(both).bootstrap_servers == (("a", 1),)


def test_credentials_in_a_bootstrap_entry_are_not_repeated() -> None:
    for given in ("user:hunter2@broker:9092", "SASL_SSL://user:hun,ter2@broker:9092", ["user:hun", "ter2@broker:9092"]):
        said = refusal({"bootstrap.servers": given})
        assert "has an @ in it" in said and not re.search("user|hun|ter2|:9092", said.replace("a user", ""))
