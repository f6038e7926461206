"""The options of the Spark sink: names, defaults, refusals, and that each row of the table has an effect."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.presets import PRESETS
from kafka_sink.options.security_options import SECRET_NAME
from kafka_sink.options.sink_options import ChangeOptions, SinkOptions, TopicPlan
from kafka_sink.options.sink_table import (
    PRODUCER_DEFAULTS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
)
from kafka_sink.options.table import OPTIONS

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parsed(settings: dict[str, str] | None = None) -> SinkOptions:
    return parse_sink_options({**SERVERS, **(settings or {})})


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as raised:
        parsed(settings)
    return str(raised.value)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_prefix_and_names_are_taken_in_any_case() -> None:
    options = parse_sink_options({"Kafka.Bootstrap.Servers": "127.0.0.1:9092", "TOPIC": "t", "KAFKA.linger.ms": "7"})
    assert options.topic == "t"
    assert options.producer.linger_ms == 7


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    assert "'topik' is not an option of this sink: did you mean topic?" in refusal({"topik": "t"})
    assert "did you mean record.errors?" in refusal({"record.error": "drop"})
    assert "did you mean kafka.bootstrap.servers?" in refusal({"bootstrap.servers": "127.0.0.1:9092"})


def test_an_unknown_producer_option_is_refused_with_the_nearest_name_and_the_prefix() -> None:
    text = refusal({"kafka.lingr.ms": "5"})
    assert "'lingr.ms' is not a producer option: did you mean linger.ms?" in text
    assert "in Spark each has the prefix kafka." in text


def test_a_producer_option_without_its_prefix_is_told_to_take_it() -> None:
    for name in ("linger.ms", "acks", "compression.type", "delivery.timeout.ms", "max.request.size"):
        assert f"did you mean kafka.{name}?" in refusal({name: "1"})


def test_brokers_without_the_prefix_are_one_mistake_and_not_missing_as_well() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_sink_options({"bootstrap.servers": "127.0.0.1:9092", "topic": "t"})
    assert str(refused.value).partition("\n")[0].endswith("did you mean kafka.bootstrap.servers?")


def test_an_option_of_the_sink_with_the_prefix_of_the_producer_is_told_to_leave_it_out() -> None:
    for name in ("topic", "sink.id", "value.format", "schema.registry.url", "cloudevents.type", "checkpointlocation"):
        assert f"kafka.{name} is no producer option: did you mean {name}, without kafka.?" in refusal(
            {f"kafka.{name}": "x"}
        )


def test_options_of_kafka_as_a_source_are_named_as_such() -> None:
    for name in SOURCE_OPTIONS:
        assert f"{name} is an option of Kafka as a source" in refusal({name: "1"})
    assert "startingOffsets is an option of Kafka as a source" in refusal({"startingOffsets": "earliest"})


def test_a_method_of_the_writer_is_no_option() -> None:
    for name in ("mode", "outputMode", "trigger", "partitionBy"):
        assert f"call .{name}(...) of the writer instead" in refusal({name.lower(): "x"})


@pytest.mark.parametrize(
    "name", ["kafka.acks", "kafka.sasl.password", "value.format", "header.source", "cloudevents.type", "topic"]
)
def test_two_spellings_of_a_name_with_different_values_are_refused(name: str) -> None:
    """A mapping that is given to a function may have both, and the last one would win without a word."""
    text = refusal({name: "one", name.upper(): "two"})
    assert "mean the same and have different values: keep one" in text and name in text
    assert "one" not in text.partition("keep one")[0] and "mean the same" not in refusal(
        {name: "1", name.upper(): "1", "x": ""}
    )


def test_a_path_is_refused_with_what_to_do_instead() -> None:
    assert "without it and set the option topic" in refusal({"path": "out"})


def test_missing_brokers_are_named_with_their_prefix() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing") as raised:
        parse_sink_options({"topic": "t"})
    assert "prefix kafka." in str(raised.value)


def test_all_problems_of_one_write_are_told_together() -> None:
    text = refusal({"topik": "t", "record.errors": "ignore", "kafka.acks": "7", "kafka.key.serializer": "x"})
    assert text.startswith("4 problems with the options:")
    for part in ("topik", "record.errors", "acks", "kafka.key.serializer"):
        assert part in text


def test_each_problem_of_the_producer_and_of_the_registrys_tls_is_a_line_of_the_one_list() -> None:
    heading, *lines = refusal({"topik": "t", "kafka.acks": "7", "kafka.retries": "x"}).split("\n- ")
    assert heading == "3 problems with the options:" and len(lines) == 3
    assert all("in Spark each has the prefix kafka." in line for line in lines[1:])
    tls = {"schema.registry.ssl.protocol": "SSLv3", "schema.registry.ssl.nonsense": "x"}
    registry = {"value.format": "avro", "schema.registry.url": "https://registry"}
    heading, *lines = refusal({**registry, **tls}).split("\n- ")
    assert heading == "2 problems with the options:"
    assert all("each of these options has the prefix schema.registry." in line for line in lines)


# ---- each row of the table has an effect -----------------------------------------------------------------------------

CREATED = {"topic.create": "true", "topic": "t"}
# Option -> settings, field of the parsed options, its value without the option and with it.
EFFECTS: dict[str, tuple[dict[str, str], str, object, object]] = {
    "preset": ({"preset": "redpanda"}, "preset", None, "redpanda"),
    "delivery.fallback": ({"delivery.fallback": "at-least-once"}, "delivery_fallback", "none", "at-least-once"),
    "ledger.create": ({"ledger.create": "false"}, "ledger_create", True, False),
    "topic.create": ({**CREATED, "topic.create": "true"}, "topic_plan", None, TopicPlan()),
    "topic.partitions": ({**CREATED, "topic.partitions": "6"}, "topic_plan", None, TopicPlan(6)),
    "topic.replication.factor": (
        {**CREATED, "topic.replication.factor": "3"}, "topic_plan", None, TopicPlan(-1, 3),
    ),
    "topic.config.NAME": (
        {**CREATED, "topic.config.retention.ms": "9"}, "topic_plan", None, TopicPlan(configs=(("retention.ms", "9"),)),
    ),
    "envelope": ({"envelope": "upsert"}, "changes", None, ChangeOptions("upsert", "_change_type", None)),
    "operation.column": (
        {"envelope": "upsert", "operation.column": "op"}, "changes", None, ChangeOptions("upsert", "op", None),
    ),
    "before.column": (
        {"envelope": "debezium", "before.column": "old", "value.format": "json"}, "changes", None,
        ChangeOptions("debezium", "_change_type", "old"),
    ),
    "ledger.config.NAME": (
        {"ledger.config.segment.bytes": ""}, "ledger_config", (), (("segment.bytes", ""),),
    ),
    "delivery.guarantee": ({"delivery.guarantee": "at-least-once"}, "is_exactly_once", True, False),
    "sink.id": ({"sink.id": "orders.v2"}, "sink_id", None, "orders.v2"),
    "batch.id": ({"sink.id": "orders", "batch.id": "monday"}, "batch_id", None, "monday"),
    "query.id": ({"sink.id": "orders", "batch.id": "7", "query.id": "q-1"}, "query_id", None, "q-1"),
    "manifest.topic": ({"manifest.topic": "told"}, "manifest_topic", None, "told"),
    "ledger.topic": ({"ledger.topic": "our.ledger"}, "ledger_topic", "__pykafka_sink_ledger", "our.ledger"),
    "ledger.replication.factor": ({"ledger.replication.factor": "3"}, "ledger_replication_factor", -1, 3),
    "ledger.accept.new.sink": ({"ledger.accept.new.sink": "true"}, "ledger_accept_new_sink", False, True),
    "replay.mismatch": ({"replay.mismatch": "warn"}, "replay_mismatch", "fail", "warn"),
    "commit.visible.timeout.ms": ({"commit.visible.timeout.ms": "500"}, "commit_visible_timeout_ms", 0, 500),
    "topic": ({"topic": " rows "}, "topic", None, "rows"),
    "record.errors": ({"record.errors": "drop"}, "record_errors", "fail", "drop"),
    "dead.letter.topic": (
        {"record.errors": "dead-letter", "dead.letter.topic": "bad"}, "dead_letter_topic", None, "bad",
    ),
    "summary.listener": ({"summary.listener": "my.module:told"}, "summary_listener", None, "my.module:told"),
}  # fmt: skip
# The same for metrics and lineage: other required settings, the value, the field of `telemetry`, its value.
TELEMETRY: dict[str, tuple[dict[str, str], str, str, object]] = {
    "metrics.prometheus.port": ({}, "9400", "prometheus_port", 9400),
    "metrics.prometheus.address": ({"metrics.prometheus.port": "1"}, "0.0.0.0", "prometheus_address", "0.0.0.0"),
    "metrics.pushgateway.url": ({}, "http://push:9091/", "pushgateway_url", "http://push:9091"),
    "metrics.otlp.endpoint": ({}, "https://otel:4318", "otlp_endpoint", "https://otel:4318"),
    "metrics.timeout.ms": ({"lineage.url": "http://l"}, "50", "timeout_ms", 50),
    "lineage.file": ({}, "events.jsonl", "lineage_file", "events.jsonl"),
    "lineage.url": ({}, "http://marquez:5000", "lineage_url", "http://marquez:5000"),
    "lineage.api.key.file": ({"lineage.url": "https://l"}, "/run/key", "lineage_api_key_file", "/run/key"),
    "lineage.namespace": ({"lineage.file": "f"}, "team", "lineage_namespace", "team"),
    "lineage.job": ({"lineage.file": "f"}, "orders", "lineage_job", "orders"),
}


@pytest.mark.parametrize("name", TELEMETRY)
def test_an_option_of_metrics_or_lineage_reaches_the_tasks_and_the_driver(name: str) -> None:
    besides, given, field, value = TELEMETRY[name]
    telemetry = parsed({**besides, name: given}).telemetry
    assert getattr(telemetry, field) == value != getattr(parsed(besides).telemetry, field, None)


def test_figures_can_be_asked_for_alone() -> None:
    assert parsed().telemetry is None
    assert parsed({"metrics.enabled": "true"}).telemetry is not None


def test_an_option_of_metrics_or_lineage_that_nothing_would_use_is_refused() -> None:
    assert "nothing uses it without metrics.prometheus.port" in refusal({"metrics.prometheus.address": "0.0.0.0"})
    assert "nothing uses it without lineage.file or lineage.url" in refusal({"lineage.job": "orders"})
    assert "nothing uses it without" in refusal({"metrics.timeout.ms": "50", "metrics.prometheus.port": "1"})


def test_a_key_goes_to_nobody_who_could_read_it_on_the_way() -> None:
    assert "with https://" in refusal({"lineage.api.key.file": "k", "lineage.url": "http://marquez:5000"})
    assert parsed({"lineage.api.key.file": "k", "lineage.url": "http://127.0.0.1:5000"}).telemetry is not None


@pytest.mark.parametrize(
    "url",
    ["marquez:5000", "http://user:word@m", "http://m/?key=word", "http://m/?from=a@b&key=word", "http://user:word", ""]
    + ["ftp://m", "http://", "http://m:0", "http://[m", "http://m/a b", "http://m/\x07", "http://m/\u00fc"],
)
def test_addresses_hold_no_secret_and_can_be_asked(url: str) -> None:
    text = refusal({"lineage.url": url})
    assert "without user and query" in text and "word" not in text


def test_an_address_may_have_a_path_and_a_host_of_any_letters() -> None:
    telemetry = parsed(
        {"lineage.url": "HTTP://[::1]:5000/a%20b/", "metrics.pushgateway.url": "http://b\u00fccher"}
    ).telemetry
    assert telemetry is not None
    assert (telemetry.lineage_url, telemetry.pushgateway_url) == ("http://[::1]:5000/a%20b", "http://b\u00fccher")


@pytest.mark.parametrize("host", ["h:port", "h:65536", "h:0", "[::1", ":80", "h h", "h:12345678901"])
def test_an_address_that_no_request_can_be_sent_to_is_refused(host: str) -> None:
    assert "is not valid" in refusal({"metrics.otlp.endpoint": f"http://{host}"})
    for good in ("h:65535/", "[::1]:80", "[fe80::1%eth0]", "127.0.0.1/v1"):
        assert parsed({"metrics.otlp.endpoint": f"http://{good}"}).telemetry is not None


OF_SINK = sorted(name for name in SINK_OPTIONS if not name.startswith(("metrics.", "traceparent.", "lineage.")))


@pytest.mark.parametrize("name", OF_SINK)
def test_the_option_reaches_what_the_tasks_and_the_driver_get(name: str) -> None:
    assert name in EFFECTS, f"add a row to EFFECTS: settings with {name}, the field of SinkOptions, default, value"
    settings, field, default, value = EFFECTS[name]
    assert getattr(parsed(), field) == default
    assert getattr(parsed(settings), field) == value


def test_every_option_of_the_sink_has_a_meaning() -> None:
    assert [name for name, option in SINK_OPTIONS.items() if not option.meaning.endswith(".")] == []


@pytest.mark.parametrize("name", ["topic", "dead.letter.topic"])
@pytest.mark.parametrize("value", ["", "a b", "a/b", "..", ".", "x" * 250, "tópico"])
def test_names_that_no_topic_can_have_are_refused(name: str, value: str) -> None:
    assert "a topic name: 1 to 249 letters" in refusal({"record.errors": "dead-letter", name: value})


@pytest.mark.parametrize("value", ["told", "my module:told", "my.module:", ":told", "my.module.told()", "1a:b"])
def test_listeners_are_named_by_module_and_function(value: str) -> None:
    assert "summary.listener" in refusal({"summary.listener": value})


@pytest.mark.parametrize("name", ["batch.id", "query.id"])
def test_a_label_that_a_ledger_could_not_read_back_is_refused(name: str) -> None:
    settings = {"sink.id": "orders", "batch.id": "monday", "query.id": "q"}
    for value in ("", " ", "x" * 201):
        assert f"{name}=" in refusal({**settings, name: value})
    assert getattr(parsed({**settings, name: "x" * 200}), name.replace(".", "_")) == "x" * 200


@pytest.mark.parametrize("name", ["batch.id", "query.id"])
@pytest.mark.parametrize("template", ["${env:DAY}", "export-${env:DAY}", "${DAY}", "{{ ds }}", "export-{{ds}}-eu"])
def test_a_template_that_nobody_has_filled_in_names_no_export(name: str, template: str) -> None:
    """Every day would have this one name, and what comes after the first day would be left out as repeated."""
    settings = {"sink.id": "orders", "batch.id": "monday", "query.id": "q"}
    text = refusal({**settings, name: template})
    assert f"{name}={template!r} is taken as it is written" in text and "${env:NAME} is replaced" in text
    filled = template.translate(dict.fromkeys(map(ord, "${}"), "-"))
    assert getattr(parsed({**settings, name: filled}), name.replace(".", "_")) == filled


def test_a_query_without_a_batch_is_refused() -> None:
    assert "query.id needs batch.id" in refusal({"sink.id": "orders", "query.id": "q"})


def test_values_of_a_choice_are_listed_in_the_refusal() -> None:
    assert "fail, drop, dead-letter" in refusal({"record.errors": "skip"})


def test_dead_letters_need_a_topic_of_their_own() -> None:
    assert "needs the option dead.letter.topic" in refusal({"record.errors": "dead-letter"})
    assert "record.errors is not dead-letter" in refusal({"dead.letter.topic": "bad"})
    same = {"record.errors": "dead-letter", "dead.letter.topic": "t", "topic": "t"}
    assert "dead.letter.topic and topic are the same" in refusal(same)


# ---- the producer inside ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRODUCER_DEFAULTS)
def test_a_default_of_the_sink_gives_way_to_the_user(name: str) -> None:
    field = OPTIONS[name].field
    assert getattr(parsed().producer, field) == int(PRODUCER_DEFAULTS[name]) != OPTIONS[name].default
    assert getattr(parsed({f"kafka.{name}": "7000"}).producer, field) == 7000


def test_a_delivery_timeout_without_room_for_the_sinks_linger_is_taken_as_java_takes_it() -> None:
    own = {"kafka.delivery.timeout.ms": "30100", "kafka.request.timeout.ms": "30000"}
    assert parsed(own).producer.linger_ms == OPTIONS["linger.ms"].default
    assert parsed({**own, "kafka.linger.ms": "100"}).producer.linger_ms == 100


def test_a_default_of_the_sink_gives_way_to_another_clients_name_for_its_option() -> None:
    assert parsed({"kafka.queue.buffering.max.ms": "100"}).producer.linger_ms == 100
    own = {"kafka.message.timeout.ms": "30100", "kafka.request.timeout.ms": "30000"}
    assert parsed(own).producer.linger_ms == OPTIONS["linger.ms"].default


def test_every_other_producer_option_keeps_javas_default() -> None:
    expected = parse_producer_options({"bootstrap.servers": "127.0.0.1:9092", **PRODUCER_DEFAULTS})
    assert parsed().producer == expected
    assert set(PRODUCER_DEFAULTS) <= {"batch.size", "linger.ms", "transaction.timeout.ms"}


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer", "serializer.class", "key.serializer.class"])
def test_serializers_are_refused_in_the_words_of_columns(name: str) -> None:
    text = refusal({f"kafka.{name}": "org.apache.kafka.common.serialization.StringSerializer"})
    assert f"kafka.{name} is not supported: the column {'key' if 'key' in name else 'value'} is written" in text
    assert "use DataFrame operations" in text


def test_interceptors_and_transactional_ids_are_refused_with_the_reason() -> None:
    assert "no code sees single records" in refusal({"kafka.interceptor.classes": "com.example.Audit"})
    assert "chosen by the sink" in refusal({"kafka.transactional.id": "mine"})
    assert "kafka.interceptors is not supported: columns are written whole" in refusal({"kafka.interceptors": "m:f"})
    parsed({"kafka.interceptor.classes": " "})


def test_a_partitioner_is_a_function_by_name_or_a_name_that_the_producer_knows() -> None:
    assert parsed({"kafka.partitioner.class": "my.module:place"}).partitioner == "my.module:place"
    assert parsed({"kafka.partitioner.class": "my.module:place"}).producer.partitioner == "default"
    java = parsed({"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"})
    assert (java.partitioner, java.producer.partitioner) == (None, "round_robin")
    assert "kafka.partitioner.class=module:function" in refusal({"kafka.partitioner.class": "com.example.Mine"})


def test_a_partitioner_under_both_of_its_names_is_the_same_one() -> None:
    twice = parsed({"kafka.partitioner.class": "my.module:place", "kafka.partitioner": "my.module:place"})
    assert (twice.partitioner, twice.producer.partitioner) == ("my.module:place", "default")
    for other in ("random", "my.module:other"):
        text = refusal({"kafka.partitioner.class": "my.module:place", "kafka.partitioner": other})
        assert "kafka.partitioner.class and kafka.partitioner mean the same and have different values" in text


@pytest.mark.parametrize("value", ["my.module:", ":place", "my module:place", "a:b:c"])
def test_a_partitioner_that_cannot_be_a_function_is_refused_by_name(value: str) -> None:
    assert "partitioner.class" in refusal({"kafka.partitioner.class": value})


JAVA = json.loads((Path(__file__).parent.parent / "golden" / "producer_config_4.4.0.json").read_text())["options"]
SECRETS = sorted(name for name in OPTIONS if JAVA.get(name, {}).get("type") == "PASSWORD" or SECRET_NAME.search(name))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("name", SECRETS)
def test_no_text_repeats_the_value_of_a_security_option(name: str, protocol: str) -> None:
    try:
        said = repr(parsed({f"kafka.{name}": "hunter2", "kafka.security.protocol": protocol}))
    except ConfigError as error:
        said = str(error)
    assert "hunter2" not in said


# ---- options of others -----------------------------------------------------------------------------------------------


def test_sparks_own_options_are_taken_over() -> None:
    options = parsed({"checkpointLocation": "/tmp/c", "queryName": "q"})
    assert (options.checkpoint_location, options.query_name) == ("/tmp/c", "q")


def test_asynchronous_progress_goes_with_at_least_once_only() -> None:
    asynchronous = {"asyncProgressTrackingEnabled": "true"}
    assert "forgets which batches it has run" in refusal(asynchronous)
    parsed({**asynchronous, "delivery.guarantee": "at-least-once"})
    parsed({"asyncProgressTrackingEnabled": "false"})


def test_options_without_effect_are_told_and_taken() -> None:
    (notice,) = parsed({"includeHeaders": "true"}).notices
    assert notice == "includeHeaders has no effect: a column headers is written whenever there is one"


def test_at_least_once_options_about_repetitions_cause_a_notice() -> None:
    """A user of batch.id relies on a second run that delivers nothing."""
    given = {"sink.id": "exports", "batch.id": "monday", "Ledger.Config.retention.ms": "1", "preset": "msk-serverless"}
    assert parsed(given).notices == ()
    (notice,) = parsed({**given, "delivery.guarantee": "at-least-once"}).notices
    assert "without effect with delivery.guarantee=at-least-once: batch.id, ledger.config.retention.ms. " in notice
    assert parsed({"delivery.guarantee": "at-least-once", "sink.id": "s", "preset": "msk-serverless"}).notices == ()


def test_notices_of_the_producer_are_told_by_the_sink_and_not_again_by_each_producer() -> None:
    options = parsed({"kafka.message.timeout.ms": "60000"})
    assert any("message.timeout.ms" in notice for notice in options.notices)
    assert options.producer.notices == ()


def test_options_are_equal_hashable_and_survive_the_way_to_a_task() -> None:
    options = parsed({"topic": "t", "kafka.linger.ms": "3"})
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert hash(copy) == hash(options)


# ---- topics and presets ----------------------------------------------------------------------------------------------


def test_options_of_a_topic_that_is_not_created_are_refused() -> None:
    for name in ("topic.partitions", "topic.replication.factor", "topic.config.retention.ms"):
        assert f"{name}: set topic.create=true, or leave it out" in refusal({"topic": "t", name: "3"})
    assert "topic.create=true needs the option topic" in refusal({"topic.create": "true"})
    assert "'topic.config.' is not an option of this sink" in refusal({"topic.config.": "3"})


@pytest.mark.parametrize("policy", ["delete", "compact,delete", ""])
def test_a_ledger_is_never_created_as_one_that_deletes_decisions(policy: str) -> None:
    assert "expected compact" in refusal({"ledger.config.cleanup.policy": policy})
    assert parsed({"ledger.config.cleanup.policy": " compact "}).ledger_config == (("cleanup.policy", "compact"),)


@pytest.mark.parametrize("name", ["topic", "dead.letter.topic"])
def test_rows_are_not_written_to_a_ledger(name: str) -> None:
    chosen = {name: "led", "ledger.topic": "led", **({"record.errors": "dead-letter"} if name != "topic" else {})}
    assert f"{name} and ledger.topic are the same" in refusal(chosen)
    # A ledger may be copied to another cluster.
    parsed({**chosen, "delivery.guarantee": "at-least-once"})


@pytest.mark.parametrize("name", ["topic", "dead.letter.topic"])
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_rows_are_not_written_to_the_ledger_that_every_sink_has_by_default(name: str, guarantee: str) -> None:
    chosen = {name: "__pykafka_sink_ledger", "ledger.topic": "other", "delivery.guarantee": guarantee}
    chosen |= {"record.errors": "dead-letter"} if name != "topic" else {}
    assert "is where sinks keep their decisions" in refusal(chosen)


def test_what_is_set_wins_over_a_preset_under_whatever_name() -> None:
    login = {"preset": "event-hubs", "kafka.sasl.username": "u", "kafka.sasl.password": "p"}
    options = parsed(login)
    assert options.producer.security_protocol == "SASL_SSL" and options.producer.connections_max_idle_ms == 180_000
    assert not options.ledger_create and options.topic_plan is None
    for name in ("kafka.compression.type", "Kafka.Compression.Type", "kafka.compression.codec"):
        assert parsed({**login, name: "gzip"}).producer.compression_type == "gzip"
    assert parsed({**login, "LEDGER.CREATE": "true"}).ledger_create
    assert parsed({**login, "kafka.security.protocol": "PLAINTEXT"}).producer.security_protocol == "PLAINTEXT"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_options_that_exist_and_says_where_its_facts_are_from(name: str) -> None:
    preset = PRESETS[name]
    login = {"kafka.sasl.username": "u", "kafka.sasl.password": "p", "kafka.sasl.aws.region": "eu-west-1"}
    assert parsed({"preset": name, **login}).preset == name
    assert preset.sources and all(sentence.endswith(".") for sentence in (*preset.needs, *preset.cannot))


def test_an_unknown_preset_is_refused_with_those_that_there_are() -> None:
    assert "choose one of confluent-cloud, msk, msk-serverless" in refusal({"preset": "kafka-as-a-service"})


EVENTS = {"cloudevents": "binary", "cloudevents.type": "t", "cloudevents.source": "s"}


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ({**EVENTS, "delivery.guarantee": "at-least-once"}, True),
        ({**EVENTS, "delivery.fallback": "at-least-once"}, True),
        (EVENTS, False),
        ({**EVENTS, "delivery.guarantee": "at-least-once", "cloudevents.id.column": "order"}, False),
        ({**EVENTS, "delivery.guarantee": "at-least-once", "cloudevents.id": "${query.id}"}, False),
        ({"header.x": "y", "delivery.guarantee": "at-least-once"}, False),
    ],
)
def test_ids_of_events_that_may_name_two_rows_are_told(given: dict[str, str], is_told: bool) -> None:
    told = [notice for notice in parsed(given).notices if "cloudevents" in notice]
    assert len(told) == is_told
    assert all("Set cloudevents.id.column to a column that identifies a row" in notice for notice in told)
