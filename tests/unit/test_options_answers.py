"""The response to unknown names, refused values, corrected values, and options that contradict each other."""

from __future__ import annotations

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.security.reference import AS_WRITTEN
from tests.support.option_parsing import parse, parse_named, refusal

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


@pytest.mark.parametrize("value", ["x", "nan", 0.4, 10**400, True])
def test_what_is_no_share_is_refused(value: object) -> None:
    assert "expected a number from 0.5 to 1.0" in refusal({"sasl.login.refresh.window.factor": value})


def test_all_problems_of_one_call_are_reported_together() -> None:
    text = refusal({"acks": "2", "lingerms": 1, "batch.size": -1})
    assert text.startswith("3 problems:\n- acks=")
    assert "did you mean linger.ms?" in text and "batch.size=-1" in text


def test_brokers_are_missing_only_if_no_option_names_any() -> None:
    for settings in ({"metadata.broker.list": "bad"}, {"bootstrap.server": "a:1"}):
        with pytest.raises(ConfigError) as raised:
            parse_producer_options(settings)
        assert "is missing" not in str(raised.value)
    with pytest.raises(ConfigError, match=r"- bootstrap\.servers is missing"):
        parse_producer_options({"broker.address.family": "v4"})


def test_contradictions_are_reported_together() -> None:
    text = refusal({"acks": "0", "enable.idempotence": True, "delivery.timeout.ms": 5})
    assert "acks=0 contradicts enable.idempotence=true" in text and "delivery.timeout.ms=5 is too short" in text


# ---- what is refused or without effect -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("config.providers", ""), ("enable.metrics.push", "false"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"), ("metrics.recording.level", "INFO"),
        ("bootstrap.resolve.timeout.ms", "0"), ("metadata.cluster.check.enable", "false"),
        ("buffer.memory.allocation.strategy", "INCREMENTAL"),
        ("client.dns.lookup", "use_all_dns_ips"), ("transaction.two.phase.commit.enable", "false"),
        ("socket.keepalive.enable", "true"), ("statistics.interval.ms", 0),
    ],
)  # fmt: skip
def test_a_refused_option_is_taken_where_it_says_what_happens_anyway(name: str, value: object) -> None:
    assert parse_named({name: value}) == parse()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.metrics.push", True), ("metrics.recording.level", "DEBUG"), ("metadata.cluster.check.enable", True),
        ("buffer.memory.allocation.strategy", "full"),
    ],
)  # fmt: skip
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
        ("bootstrap.resolve.timeout.ms", "120000", "max.block.ms"),
        ("sasl.oauthbearer.allow.unverified.issuer", "true", "it is for brokers"),
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


# ---- racks ------------------------------------------------------------------------------------------------------


def test_rack_aware_placement_needs_a_rack() -> None:
    assert "needs client.rack" in refusal({"partitioner.rack.aware": True, "client.rack": "  "})
    options = parse(partitioner_rack_aware="true", client_rack=" a ")
    assert (options.partitioner_rack_aware, options.client_rack, options.notices) == (True, "a", ())


def test_a_rack_that_nothing_goes_by_leaves_a_notice() -> None:
    assert parse(client_rack="a").notices == ("client.rack changes nothing without partitioner.rack.aware=true",)
    (notice,) = parse(client_rack="a", partitioner_rack_aware=True, partitioner_class="round_robin").notices
    assert "default partitioner only" in notice


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


def test_a_codec_that_is_not_to_be_had_is_refused_at_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(codec_name: str, level: int | None = None) -> None:
        raise ConfigError(f"compression.type={codec_name} needs a package")

    monkeypatch.setattr("kafka_sink.formats.records.compression.make_compressor", missing)
    assert refusal({"compression.type": "zstd"}) == "compression.type=zstd needs a package"


@pytest.mark.parametrize(
    ("value", "codec"), [(0, "none"), ("1", "gzip"), ("LZ4", "lz4"), (" gzip ", "gzip"), ("none", "none")]
)
def test_compression_codec_takes_names_and_numbers(value: object, codec: str) -> None:
    assert parse_named({"compression.codec": value}).compression_type == codec


@pytest.mark.parametrize("value", [5, "-1", "\u00b2", "9" * 5000, "brotli", True, ""])
def test_other_compression_codecs_are_refused(value: object) -> None:
    assert "compression.codec" in refusal({"compression.codec": value})


def test_only_the_compressed_topics_are_compressed() -> None:
    options = parse_named({"compression.type": "gzip", "compressed.topics": "a, b"})
    assert options.compressed_topics == frozenset(("a", "b"))
    assert [options.compression_of(topic) for topic in "ac"] == [("gzip", None), ("none", None)]


def test_an_empty_list_of_compressed_topics_means_all() -> None:
    options = parse_named({"compression.type": "gzip", "compressed.topics": ""})
    assert options.compressed_topics is None and options.compression_of("a") == ("gzip", None)


def test_a_variable_as_a_shell_writes_it_is_told_the_way_that_works() -> None:
    parsed = parse_producer_options({"bootstrap.servers": "b:1", "client.id": "${KAFKA_NAME}"})
    assert parsed.client_id == "${KAFKA_NAME}"
    (notice,) = parsed.notices
    assert notice == f"client.id {AS_WRITTEN}"
    assert parse_producer_options({"bootstrap.servers": "b:1", "client.id": "${env:KAFKA_NAME}"}).notices == ()
