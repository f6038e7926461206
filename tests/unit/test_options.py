"""Options against the Java producer: what its configuration holds, and what it takes, corrects and refuses.

The oracle is recorded from the JVM (tests/golden/Dump*.java). Where this producer is stricter on purpose, the case is
listed here with the reason.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options import ProducerOptions, parse_producer_options
from kafka_sink.options.foreign_table import ALIASES, FOREIGN_OPTIONS
from kafka_sink.options.option import Treatment
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from kafka_sink.options.table import OPTIONS
from kafka_sink.options.values import Choice, Whole

GOLDEN = Path(__file__).parent.parent / "golden"
JAVA_OPTIONS: dict[str, dict[str, Any]] = json.loads((GOLDEN / "producer_config_4.3.1.json").read_text())["options"]
JAVA_VERDICTS: dict[str, dict[str, str]] = json.loads((GOLDEN / "producer_verdicts_4.3.1.json").read_text())["verdicts"]

# Java takes these; here they are errors.
STRICTER = {
    "transaction.timeout.ms=0": "every broker refuses it",
    "transaction.timeout.ms=-1": "every broker refuses it",
    "connections.max.idle.ms=0": "Java and librdkafka mean opposite things",
    "metrics.sample.window.ms=0": "a rate over no time",
    "bootstrap.servers=:9092": "an empty host is a forgotten one",
    "bootstrap.servers=localhost:0": "nobody listens on port 0",
    "bootstrap.servers=::1:9092": "without brackets the port is a guess",
}


def parse(**settings: object) -> ProducerOptions:
    return parse_named({name.replace("_", "."): value for name, value in settings.items()})


def parse_named(settings: dict[str, object]) -> ProducerOptions:
    return parse_producer_options({"bootstrap.servers": "broker:9092"} | settings)


def refusal(settings: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_producer_options({"bootstrap.servers": "broker:9092"} | settings)
    return str(caught.value)


# ---- Java's table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JAVA_OPTIONS)
def test_every_java_option_is_in_the_table_with_its_type_and_default(name: str) -> None:
    java = JAVA_OPTIONS[name]
    row = OPTIONS[name]
    default = list(row.default) if isinstance(row.default, tuple) else row.default
    assert (row.kind, default) == (java["type"], java["default"])
    assert row.is_required == (java["required"] and not name.endswith("serializer"))


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
    row_fields = [row.field for row in OPTIONS.values() if row.field not in ("", "-")]
    assert sorted(row_fields) == sorted(field.name for field in fields(ProducerOptions) if field.name != "notices")


def test_names_are_unique_over_all_tables() -> None:
    names = [*OPTIONS, *FOREIGN_OPTIONS, *ALIASES]
    assert len(set(names)) == len(names)


def test_every_alias_sets_an_option_that_exists_and_is_honoured() -> None:
    targets = {alias.target for alias in ALIASES.values()} | {alias.fallback_for for alias in ALIASES.values()} - {""}
    assert all(OPTIONS[target].treatment is Treatment.HONOURED for target in targets)


def test_every_row_that_is_not_honoured_says_what_to_do_instead() -> None:
    rows = [row for row in (*OPTIONS.values(), *FOREIGN_OPTIONS.values()) if row.treatment is not Treatment.HONOURED]
    assert len(rows) > 80
    assert all(row.instead and not row.field for row in rows)


@pytest.mark.parametrize("row", [*OPTIONS.values(), *FOREIGN_OPTIONS.values()], ids=lambda row: row.name)
def test_every_row_has_an_effect_or_an_answer(row: Any) -> None:
    samples = ["1", "7", "99999", "false", "true", "gzip", "none", "sync", "random", "LongSerializer", "DEBUG", "b:1"]
    before = parse(compression_type="gzip")
    answers = set()
    for sample in samples:
        try:
            after = parse_named({"compression.type": "gzip", row.name: sample})
        except ConfigError as error:
            answers.add("refused" if row.name in str(error) else "foreign text")
        else:
            answers.add("changed" if after != before else "the same")
    assert "foreign text" not in answers
    # Interceptors are objects, so that no text can set them.
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


@pytest.mark.parametrize("entry", ["b", "b:", "b:0", "b:65536", "b:x", "b c:1", "::1:9", "[::1]", "http://b:1/", "b:-1"])
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


def test_a_scheme_that_asks_for_encryption_is_refused() -> None:
    assert "PLAINTEXT only" in refusal({"bootstrap.servers": "SASL_SSL://a:1"})


def test_credentials_in_a_bootstrap_entry_are_not_repeated() -> None:
    assert "hunter2" not in refusal({"bootstrap.servers": "user:hunter2@broker:9092"})


# ---- names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("linger_ms", "linger.ms"), ("batch-size", "batch.size"), ("bufer.memory", "buffer.memory"),
        ("Acks", "acks"), ("compression.typ", "compression.type"), ("message.timeout.m", "message.timeout.ms"),
        ("metadata.broker.lst", "metadata.broker.list"), ("key_serializer", "key.serializer"),
    ],
)  # fmt: skip
def test_an_unknown_name_gets_the_nearest_known_one(wrong: str, nearest: str) -> None:
    assert refusal({wrong: "1"}) == f"{wrong!r} is not a producer option: did you mean {nearest}?"


def test_a_name_like_no_other_gets_no_hint() -> None:
    assert refusal({"zzz": "1"}) == "'zzz' is not a producer option"


def test_an_option_of_consumers_is_called_one() -> None:
    assert refusal({"group.id": "g"}) == "group.id is an option of consumers: leave it out"


def test_a_name_that_is_not_text_is_refused() -> None:
    assert "must be text" in refusal({5: "x"})  # type: ignore[dict-item]


def test_all_problems_of_one_call_are_reported_together() -> None:
    text = refusal({"acks": "2", "lingerms": 1, "batch.size": -1})
    assert text.startswith("3 problems:\n- acks=")
    assert "did you mean linger.ms?" in text and "batch.size=-1" in text


def test_contradictions_are_reported_together() -> None:
    text = refusal({"acks": "0", "enable.idempotence": True, "delivery.timeout.ms": 5})
    assert "acks=0 contradicts enable.idempotence=true" in text and "delivery.timeout.ms=5 is too short" in text


# ---- what is refused or without effect -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["ssl.keystore.password", "sasl.jaas.config", "sasl.mechanism", "ssl.ca.location", "ssl.protocol"]
)
def test_security_options_are_refused_by_name_and_never_repeat_the_value(name: str) -> None:
    assert refusal({name: "hunter2"}) == f"{name} is not supported: this version speaks PLAINTEXT only"


@pytest.mark.parametrize("protocol", ["SSL", "sasl_ssl", "SASL_PLAINTEXT"])
def test_other_security_protocols_are_refused(protocol: str) -> None:
    text = refusal({"security.protocol": protocol})
    assert text == f"security.protocol={protocol.upper()} is not supported: this version speaks PLAINTEXT only"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security.protocol", "plaintext"), ("config.providers", ""), ("enable.metrics.push", "false"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"), ("metrics.recording.level", "INFO"),
        ("client.dns.lookup", "use_all_dns_ips"), ("transaction.two.phase.commit.enable", "false"),
        ("socket.keepalive.enable", "true"), ("statistics.interval.ms", 0),
    ],
)  # fmt: skip
def test_a_refused_option_is_taken_where_it_says_what_happens_anyway(name: str, value: object) -> None:
    assert parse_named({name: value}) == parse()


@pytest.mark.parametrize(("name", "value"), [("enable.metrics.push", True), ("metrics.recording.level", "DEBUG")])
def test_an_option_without_effect_leaves_a_notice(name: str, value: object) -> None:
    (notice,) = parse_named({name: value}).notices
    assert notice.startswith(f"{name}=") and "has no effect" in notice


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("interceptor.classes", "com.example.Audit", "pass Python objects as `interceptors`"),
        ("partitioner.class", "com.example.Mine", "pass a Python callable as `partitioner`"),
        ("partitioner", "consistent", "use consistent_random"),
        ("partitioner.class", "org.apache.kafka.clients.producer.UniformStickyPartitioner", "partitioner.ignore.keys"),
        ("key.serializer", "io.confluent.Avro", "pass a Python callable"),
        ("config.providers", "file", "look the values up in Python"),
        ("metric.reporters", "com.example.Reporter", "Producer.metrics()"),
        ("block.on.buffer.full", "true", "max.block.ms"),
        ("sticky.partitioning.linger.ms", "10", "batch.size"),
        ("socket.timeout.ms", "10", "request.timeout.ms"),
        ("statistics.interval.ms", "1000", "Producer.metrics()"),
        ("transaction.two.phase.commit.enable", "true", "transaction.timeout.ms"),
    ],
)
def test_a_refused_option_says_what_to_use_instead(name: str, value: str, instead: str) -> None:
    text = refusal({name: value})
    assert text.startswith(name) and instead in text


# ---- idempotence and time-outs beyond the recorded cases --------------------------------------------------------


def test_idempotence_is_turned_off_with_a_notice_when_an_alias_sets_acks() -> None:
    options = parse_named({"request.required.acks": "1"})
    assert (options.acks, options.enable_idempotence) == (1, False)
    assert "enable.idempotence is off, because request.required.acks=1; it needs acks=all" in options.notices


def test_naming_the_delivery_time_out_by_an_alias_counts_as_naming_it() -> None:
    assert refusal({"message.timeout.ms": 1000}).startswith("message.timeout.ms=1000 is too short")


def test_a_first_wait_above_the_largest_is_lowered_with_a_notice() -> None:
    options = parse(retry_backoff_ms=5000)
    assert (options.retry_backoff_ms, options.retry_backoff_max_ms) == (1000, 1000)
    assert len(options.notices) == 1


# ---- compression -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, None), ({"compression.type": "gzip"}, None), ({"compression.type": "lz4"}, 9),
        ({"compression.type": "gzip", "compression.gzip.level": 4, "compression.lz4.level": 5}, 4),
        ({"compression.type": "gzip", "compression.level": 6}, 6),
        ({"compression.type": "lz4", "compression.level": -1}, 9),
        ({"compression.type": "gzip", "compression.level": 6, "compression.gzip.level": "6"}, 6),
    ],
)  # fmt: skip
def test_the_level_is_that_of_the_chosen_codec(settings: dict[str, object], level: int | None) -> None:
    assert parse_named(settings).compression_level == level


def test_a_level_that_contradicts_or_has_no_codec_is_refused() -> None:
    assert "contradict" in refusal({"compression.type": "gzip", "compression.level": 1, "compression.gzip.level": 2})
    assert "no meaning" in refusal({"compression.level": 1})
    assert "from 1 to 9" in refusal({"compression.type": "gzip", "compression.level": 12})


def test_a_codec_whose_package_is_missing_is_refused_at_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(codec_name: str, level: int | None = None) -> None:
        raise ConfigError(f"compression.type={codec_name} needs a package")

    monkeypatch.setattr("kafka_sink.records.compression.compressor", missing)
    assert refusal({"compression.type": "zstd"}) == "compression.type=zstd needs a package"


@pytest.mark.parametrize(
    ("value", "codec"), [(0, "none"), ("1", "gzip"), ("LZ4", "lz4"), (" gzip ", "gzip"), ("none", "none")]
)
def test_compression_codec_takes_names_and_numbers(value: object, codec: str) -> None:
    assert parse_named({"compression.codec": value}).compression_type == codec


@pytest.mark.parametrize("value", [5, "-1", "brotli", True, ""])
def test_other_compression_codecs_are_refused(value: object) -> None:
    assert "compression.codec" in refusal({"compression.codec": value})


def test_only_the_compressed_topics_are_compressed() -> None:
    options = parse_named({"compression.type": "gzip", "compressed.topics": "a, b"})
    assert options.compressed_topics == frozenset(("a", "b"))
    assert [options.compression_of(topic) for topic in "ac"] == [("gzip", None), ("none", None)]


def test_an_empty_list_of_compressed_topics_means_all() -> None:
    options = parse_named({"compression.type": "gzip", "compressed.topics": ""})
    assert options.compressed_topics is None and options.compression_of("a") == ("gzip", None)


# ---- older clients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("request.required.acks", "-1", "acks", -1),
        ("message.send.max.retries", "3", "retries", 3),
        ("queue.buffering.max.ms", "50", "linger_ms", 50),
        ("queue.enqueue.timeout.ms", "0", "max_block_ms", 0),
        ("queue.enqueue.timeout.ms", "-1", "max_block_ms", LONG_MAX),
        ("queue.enqueue.timeout.ms", "250", "max_block_ms", 250),
        ("queue.buffering.max.messages", "500", "buffer_records_max", 500),
        ("queue.buffering.max.messages", "0", "buffer_records_max", None),
        ("batch.num.messages", "200", "batch_records_max", 200),
        ("producer.type", "sync", "send_is_synchronous", True),
        ("producer.type", "async", "send_is_synchronous", False),
        ("topic.metadata.refresh.interval.ms", "600000", "metadata_max_age_ms", 600_000),
        ("topic.metadata.refresh.interval.ms", "-1", "metadata_max_age_ms", LONG_MAX),
        ("queue.buffering.max.kbytes", "1024", "buffer_memory", 1_048_576),
        ("message.timeout.ms", "300000", "delivery_timeout_ms", 300_000),
        ("message.timeout.ms", "0", "delivery_timeout_ms", INT_MAX),
        ("message.max.bytes", "1000000", "max_request_size", 1_000_000),
        ("max.in.flight", "2", "max_in_flight_requests_per_connection", 2),
        ("socket.send.buffer.bytes", "0", "send_buffer_bytes", -1),
        ("allow.auto.create.topics", "false", "allow_auto_create_topics", False),
        ("partitioner", "murmur2_random", "partitioner", "default"),
        ("partitioner", "consistent_random", "partitioner", "consistent_random"),
        ("partitioner", "random", "partitioner", "random"),
    ],
)
def test_a_name_of_another_client_sets_our_option(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(parse_named({name: value}), field) == expected


@pytest.mark.parametrize("name", ["queue.buffering.max.ms", "message.max.bytes", "producer.type"])
def test_a_name_of_another_client_leaves_a_notice(name: str) -> None:
    notices = parse_named({name: "sync" if name == "producer.type" else "60"}).notices
    assert len(notices) == 1 and notices[0].startswith(name)


def test_the_08_list_of_brokers_replaces_the_bootstrap_list() -> None:
    options = parse_producer_options({"metadata.broker.list": "a:1,b:2"})
    assert options.bootstrap_servers == (("a", 1), ("b", 2))


def test_a_refresh_after_every_record_is_refused() -> None:
    assert "metadata.max.age.ms" in refusal({"topic.metadata.refresh.interval.ms": 0})


def test_more_records_per_batch_than_may_wait_are_refused() -> None:
    assert "batch.num.messages=9" in refusal({"batch.num.messages": 9, "queue.buffering.max.messages": 8})


def test_an_alias_that_contradicts_its_canonical_name_is_refused_with_both_names() -> None:
    for settings in (
        {"max.block.ms": 1, "queue.enqueue.timeout.ms": 2},
        {"queue.enqueue.timeout.ms": 2, "max.block.ms": 1},
    ):
        text = refusal(dict(settings))
        assert "max.block.ms" in text and "queue.enqueue.timeout.ms" in text


def test_an_alias_that_says_the_same_is_taken() -> None:
    assert parse_named({"max.block.ms": 7, "queue.enqueue.timeout.ms": "7"}).max_block_ms == 7


# ---- hooks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["RoundRobinPartitioner", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_javas_round_robin_partitioner_is_known_by_its_class_name(spelling: str) -> None:
    assert parse(partitioner_class=spelling).partitioner == "round_robin"


def test_a_callable_partitioner_is_taken_under_both_names() -> None:
    def choose(*arguments: object) -> int:
        return len(arguments)

    assert parse(partitioner=choose).partitioner is choose
    assert parse(partitioner_class=choose).partitioner is choose


SERIALIZED: list[tuple[str, object, bytes | None]] = [
    ("StringSerializer", "é", b"\xc3\xa9"),
    ("ByteArraySerializer", b"x", b"x"),
    ("BytesSerializer", memoryview(b"x"), b"x"),
    ("ByteBufferSerializer", bytearray(b"x"), b"x"),
    ("ShortSerializer", -2, b"\xff\xfe"),
    ("IntegerSerializer", 1, b"\x00\x00\x00\x01"),
    ("LongSerializer", -1, b"\xff" * 8),
    ("FloatSerializer", 1.5, b"\x3f\xc0\x00\x00"),
    ("DoubleSerializer", 1.5, b"\x3f\xf8" + b"\x00" * 6),
    ("BooleanSerializer", True, b"\x01"),
    ("UUIDSerializer", UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
    ("VoidSerializer", None, None),
]


@pytest.mark.parametrize(("name", "value", "expected"), SERIALIZED, ids=[case[0] for case in SERIALIZED])
def test_kafkas_own_serializers_write_the_same_bytes(name: str, value: object, expected: bytes | None) -> None:
    for spelling in (name, f"org.apache.kafka.common.serialization.{name}"):
        serializer = parse(value_serializer=spelling).value_serializer
        assert serializer is not None
        assert serializer(value) == expected
        assert serializer(None) is None


@pytest.mark.parametrize("name", [case[0] for case in SERIALIZED])
def test_kafkas_own_serializers_refuse_what_they_cannot_write(name: str) -> None:
    serializer = parse(key_serializer=name).key_serializer
    assert serializer is not None
    with pytest.raises((TypeError, ValueError, struct.error)):
        serializer(object())


def test_the_08_serializer_serves_values_and_keys_without_their_own() -> None:
    both = parse_named({"serializer.class": "kafka.serializer.StringEncoder"})
    assert both.key_serializer is both.value_serializer is not None
    own = parse_named({"serializer.class": "kafka.serializer.StringEncoder", "key.serializer.class": "LongSerializer"})
    assert own.key_serializer is not own.value_serializer is both.value_serializer


class Auditor:
    def on_send(self, record: object) -> object:
        return record


def test_interceptors_are_python_objects() -> None:
    auditor = Auditor()
    assert parse(interceptors=[auditor]).interceptors == (auditor,)
    assert parse_named({"interceptor.classes": auditor}).interceptors == (auditor,)


@pytest.mark.parametrize("value", [[object()], [Auditor], 5])
def test_what_is_no_interceptor_is_refused(value: object) -> None:
    assert "is not an interceptor" in refusal({"interceptors": value})


# ---- the value -------------------------------------------------------------------------------------------------


def test_options_are_frozen_replaceable_and_survive_pickling() -> None:
    options = parse(value_serializer="StringSerializer", transactional_id="t")
    assert pickle.loads(pickle.dumps(options)) == options
    assert replace(options, linger_ms=9).linger_ms == 9
    with pytest.raises(FrozenInstanceError):
        options.linger_ms = 1  # type: ignore[misc]


def test_the_repr_shows_what_differs_from_the_default_and_no_secret() -> None:
    def encrypt(value: Any, password: str = "") -> bytes:
        return f"{password}{value}".encode()

    hidden: Callable[[Any], bytes] = partial(encrypt, password="hunter2")
    text = repr(parse(key_serializer=hidden, value_serializer=encrypt, linger_ms=9, interceptors=[Auditor()]))
    assert "linger_ms=9" in text and "encrypt" in text and "(Auditor)" in text
    assert "hunter2" not in text and "batch_size" not in text
