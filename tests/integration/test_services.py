"""Presets on the embedded broker with the peculiarity that each is for, and the effect of the peculiarity without one.

The assumption under test: a service reports what it lacks when it is asked which requests it supports, or refuses a
request with one of Kafka's codes. docs/services.md says what was run in every mode, with Spark.
"""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructType

from kafka_sink import Producer
from kafka_sink.commit.admin.support import TransactionSupport
from kafka_sink.errors import AuthenticationError, BrokerError, ConfigError, KafkaSinkError, explain_error
from kafka_sink.errors.table.brokers import BROKER_REFUSED
from kafka_sink.kafka.wire.apis import API_VERSIONS
from kafka_sink.kafka.wire.frames import encode_request
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.presets import PRESETS
from kafka_sink.spark.datasource import plan_batch, plan_stream
from kafka_sink.testing import BrokerCluster, EmbeddedBroker, Settings
from kafka_sink.testing.quirks import QUIRKS
from tests.support.asking import client_of, said
from tools.services_table import ARRIVED, MODES, TRIED, Mode, footnote, outcome, sections, table

SCHEMA = StructType().add("value", StringType())
LEDGER = "ledger"
PAGE = Path(__file__).parents[2] / "docs" / "services.md"


def options_of(kafka: EmbeddedBroker, preset: str, **more: str) -> dict[str, str]:
    named = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t", "ledger.topic": LEDGER}
    return {
        **named,
        "kafka.security.protocol": "PLAINTEXT",
        "preset": preset,
        "sink.id": f"s-{preset}",
        "queryname": "q",
        **more,
    }


def configs_of(kafka: EmbeddedBroker, topic: str) -> dict[str, str]:
    return kafka.do(lambda core: dict(core.cluster.topics[topic].configs))


def test_every_preset_has_a_quirk() -> None:
    variants = {"msk-express": "msk", "event-hubs-premium": "event-hubs"}
    assert list(PRESETS) == [name for name in QUIRKS if name not in variants]
    with pytest.raises(ConfigError, match="knows the quirks of confluent-cloud"):
        Settings(quirks="kafka-as-a-service")


@pytest.mark.parametrize("planned", [plan_batch, plan_stream])
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "event-hubs"])
def test_exactly_once_is_planned_with_the_preset(preset: str, planned: Any) -> None:
    with EmbeddedBroker(3, quirks=preset) as kafka:
        planned(options_of(kafka, preset, **{"topic.create": "true"}), SCHEMA, overwrite=False)
        assert {"t", LEDGER} <= kafka.do(lambda core: set(core.cluster.topics))
        assert configs_of(kafka, LEDGER)["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("service", "preset", "refused"),
    [
        ("msk-express", "msk", "INVALID_REQUEST"),
        ("confluent-cloud", None, "POLICY_VIOLATION"),
        ("msk-serverless", None, "INVALID_CONFIG"),
    ],
)
def test_where_the_ledgers_settings_are_protected_it_is_made_compacted_alone_and_that_is_said(
    service: str, preset: str | None, refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(3, topics={"t": 1}, quirks=service) as kafka:
        options = options_of(kafka, preset or "msk", **{"ledger.topic": f"{LEDGER}-of-{service}"})
        with caplog.at_level(logging.WARNING, logger="kafka_sink"):
            plan_stream(options, SCHEMA, overwrite=False)
        assert configs_of(kafka, f"{LEDGER}-of-{service}") == {"cleanup.policy": "compact"}
    assert refused in caplog.text and "created with cleanup.policy=compact alone" in caplog.text
    assert "instead of segment.bytes=16777216" in caplog.text


def test_what_the_user_sets_for_the_ledger_is_not_left_out() -> None:
    with EmbeddedBroker(3, topics={"t": 1}, quirks="msk-express") as kafka:
        options = options_of(kafka, "msk", **{"ledger.config.segment.bytes": "1048576"})
        with pytest.raises(BrokerError, match=r"segment\.bytes cannot be set here") as raised:
            plan_stream(options, SCHEMA, overwrite=False)
        assert raised.value.name == "PKS-3011"
        assert LEDGER not in kafka.do(lambda core: core.cluster.topics)


def test_what_brokers_refuse_for_another_reason_is_told_with_that_reason() -> None:
    with EmbeddedBroker(3, topics={"t": 1}, quirks="confluent-cloud") as kafka:
        options = options_of(kafka, "msk", **{"ledger.replication.factor": "2"})
        with pytest.raises(BrokerError, match="the replication factor must be 3"):
            plan_stream(options, SCHEMA, overwrite=False)


@pytest.mark.parametrize("preset", ["redpanda", "warpstream", "bufstream"])
def test_services_without_kip_890_get_transactions_of_the_first_generation(preset: str) -> None:
    with EmbeddedBroker(3, quirks=preset) as kafka, client_of(kafka.bootstrap_servers) as client:
        assert client.transaction_support() == TransactionSupport(1, False, epoch_of_end_is_safe=False)


@pytest.mark.parametrize("mode", [MODES[0], MODES[2]], ids=lambda mode: mode.title.replace(" ", "-"))
def test_exactly_once_is_possible_where_a_broker_does_not_tell_its_own_configuration(mode: Mode) -> None:
    assert outcome("msk-serverless", mode) == ARRIVED


@pytest.mark.parametrize("planned", [plan_batch, plan_stream])
def test_event_hubs_with_transactions_take_exactly_once_and_a_ledger_that_is_there(planned: Any) -> None:
    with EmbeddedBroker(3, topics={"t": 1}, quirks="event-hubs-premium") as kafka:
        kafka.create_topic(LEDGER, 1, {"cleanup.policy": "compact"})
        writer = planned(options_of(kafka, "event-hubs"), SCHEMA, overwrite=False)
        assert vars(writer)["_options"].is_exactly_once


@pytest.mark.parametrize("service", ["msk-serverless", "event-hubs-premium"])
def test_a_broker_that_does_not_tell_its_configuration_is_no_error_and_a_topic_that_is_not_there_is(
    service: str,
) -> None:
    with EmbeddedBroker(3, topics={"t": 1}, quirks=service) as kafka, client_of(kafka.bootstrap_servers) as client:
        assert client.broker_configs(["transaction.max.timeout.ms"]) is None
        told, missing = client.configs_of_broker_and_topic(
            ["transaction.max.timeout.ms"], "not-there", ["segment.bytes"]
        )
        assert told is None and isinstance(missing, BrokerError)
        assert client.topic_configs("t", ["cleanup.policy"]) == {"cleanup.policy": "delete"}
        assert client.transaction_support() == TransactionSupport(2, True)


# ---- Event Hubs without transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("planned", [plan_batch, plan_stream])
def test_exactly_once_is_refused_where_there_are_no_transactions(planned: Any) -> None:
    with EmbeddedBroker(3, topics={"t": 1}, quirks="event-hubs") as kafka:
        with pytest.raises(ConfigError, match=r"offer no transactions .*delivery\.fallback=at-least-once") as raised:
            planned(options_of(kafka, "event-hubs"), SCHEMA, overwrite=False)
        assert raised.value.name == "PKS-3010"
        assert LEDGER not in kafka.do(lambda core: core.cluster.topics)


@pytest.mark.parametrize("planned", [plan_batch, plan_stream])
def test_it_falls_back_by_the_users_word_alone_and_says_so(planned: Any, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(3, topics={"t": 1}, quirks="event-hubs") as kafka:
        options = options_of(kafka, "event-hubs", **{"delivery.fallback": "at-least-once"})
        with caplog.at_level(logging.WARNING, logger="kafka_sink"):
            writer = planned(options, SCHEMA, overwrite=False)
        assert "rows are written at least once" in caplog.text
        assert vars(writer)["_sink_id"] is None and not vars(writer)["_options"].is_exactly_once


def test_the_fallback_changes_nothing_where_there_are_transactions() -> None:
    with EmbeddedBroker(3, topics={"t": 1}) as kafka:
        writer = plan_stream(
            options_of(kafka, "redpanda", **{"delivery.fallback": "at-least-once"}), SCHEMA, overwrite=False
        )
        assert vars(writer)["_sink_id"] == "s-redpanda" and vars(writer)["_options"].is_exactly_once


def test_a_refused_login_is_told_in_the_words_of_the_service() -> None:
    with EmbeddedBroker(users={"alice": "secret"}, quirks="event-hubs") as kafka:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        error = said({"bootstrap.servers": kafka.bootstrap_servers, **login, "sasl.password": "wrong"})
    assert isinstance(error, AuthenticationError) and error.name == "PKS-4001"
    assert "Invalid username or password" in str(error)


@pytest.mark.parametrize("codec", ["lz4", "gzip"])
def test_compressed_batches_are_refused(codec: str) -> None:
    with EmbeddedBroker(topics={"t": 1}, quirks="event-hubs") as kafka:
        compressing = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec})
        with compressing, pytest.raises(KafkaSinkError, match="UNSUPPORTED_COMPRESSION_TYPE"):
            compressing.send("t", value=b"x" * 1000).result(60)
        with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
            assert producer.send("t", value=b"x" * 1000).result(60).offset == 0


def test_large_requests_and_idle_connections_are_closed() -> None:
    core = BrokerCluster(settings=Settings(quirks="event-hubs"))
    about_us = {"client_software_name": "a", "client_software_version": "1"}
    ask = encode_request(API_VERSIONS, 4, correlation_id=1, client_id="c", body=about_us)
    assert core.on_bytes(1, 7, ask, 1_000)[0][1] is not None
    assert core.tick(240_000) == [] and core.next_deadline_ms == 241_000
    core.on_bytes(1, 7, ask, 200_000 + 40_000)
    assert core.tick(479_999) == [] and core.tick(480_000) == [(7, None)]
    assert core.on_bytes(1, 8, (1_046_529).to_bytes(4, "big"), 480_001) == [(8, None)]


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_table_has_what_did_not_arrive_by_its_error() -> None:
    results = {("msk", MODES[0].title): "refused: x", ("msk", MODES[1].title): "refused: x", ("strimzi", "a"): ARRIVED}
    assert list(table(results))[2:] == [f"| `msk` | {MODES[0].title}; {MODES[1].title} | x |"]


def test_a_footnote_is_the_name_and_the_first_sentence_of_an_error() -> None:
    refused = BrokerError("127.0.0.1:9092 (attempt 3) refused: A|B (1).\n Try again. Or do not", BROKER_REFUSED, code=1)
    expected = "[PKS-3004](errors.md#pks-3004): host:port refused: A\\|B (1)."
    assert footnote(refused) == expected
    assert footnote(BrokerError(explain_error(refused), BROKER_REFUSED, code=1)) == expected


def test_the_job_of_the_page_is_planned_on_its_service() -> None:
    (block,) = re.findall(r"^options = (\{.*?^\})", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    options = ast.literal_eval(block)
    assert parse_sink_options(options).notices == ()
    with EmbeddedBroker(3, quirks=options["preset"]) as kafka:
        here = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.security.protocol": "PLAINTEXT"}
        plan_batch({**options, **here}, SCHEMA, overwrite=False)
        assert configs_of(kafka, "__pykafka_sink_ledger")["segment.bytes"] == "52428800"


def refused_by_the_page() -> list[tuple[str, str, str]]:
    text = PAGE.read_text(encoding="utf-8").partition(TRIED)[2]
    return re.findall(r"^\| `([\w-]+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)


def test_the_errors_of_the_page_are_short() -> None:
    rows = refused_by_the_page()
    assert len(rows) == 2
    for _, _, text in rows:
        assert re.match(r"\[PKS-\d{4}\]\(errors\.md#pks-\d{4}\): ", text), text
        assert "Data:" not in text and "pykafka-sink explain" not in text


def test_the_page_says_what_the_presets_are_and_what_happened_in_each_mode() -> None:
    assert sections() in PAGE.read_text(encoding="utf-8")
    refused = [(service, mode) for service, modes, _ in refused_by_the_page() for mode in modes.split("; ")]
    assert len([mode for service, mode in refused if service == "event-hubs"]) == 4
    assert {service for service, _ in refused} == {"event-hubs"}
