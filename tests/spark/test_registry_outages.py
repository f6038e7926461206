"""Spark and a schema registry that is down, slow, closed or hostile: rows are written only with a schema that was
found, and a stream that has found its schema no longer needs the registry."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry, RegistryFault
from tests.spark.parity import OURS, Folder, append, start
from tests.spark.spark_session import read_rows, run_to_end
from tools.driver_processes import driver_processes, kill

QUICK = {"schema_registry_retries_wait_ms": "1", "schema_registry_max_retries": "1",
         "schema_registry_http_read_timeout_ms": "300"}  # fmt: skip
REGISTER = {"value_format": "avro", "auto_register_schemas": "true", **QUICK}
LATEST = {"value_format": "avro", "use_latest_version": "true", **QUICK}
PASSWORD = "hunter2-of-the-registry"


@pytest.fixture
def orders(embedded_kafka: EmbeddedBroker) -> EmbeddedBroker:
    """The embedded broker with the topic."""
    embedded_kafka.create_topic("orders", 2)
    return embedded_kafka


def lines(kafka: EmbeddedBroker, registry: EmbeddedRegistry) -> list[str]:
    """The values as Confluent's deserializer reads them."""
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext("orders", MessageField.VALUE)
    values = [read(row.value, context) for row in read_rows(kafka.bootstrap_servers, "orders")]
    return sorted(value["line"] for value in values if value is not None)


def is_empty(kafka: EmbeddedBroker) -> bool:
    return read_rows(kafka.bootstrap_servers, "orders") == []


def of_lines(folder: Folder) -> DataFrame:
    return folder.read().select(F.col("value").alias("line"))


# ---- at the start ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choice", [pytest.param(REGISTER, id="register"), pytest.param(LATEST, id="latest", marks=pytest.mark.slow)]
)
def test_a_registry_that_is_down_ends_a_write_and_a_stream_before_any_task(
    spark: SparkSession, orders: EmbeddedBroker, embedded_registry: EmbeddedRegistry, tmp_path: Path,
    choice: dict[str, str],
) -> None:  # fmt: skip
    embedded_registry.stop()
    said = f"the schema registry {embedded_registry.url} did not answer: Connection refused"
    user = {"schema_registry_basic_auth_user_info": f"me:{PASSWORD}"}
    options = {**choice, **user, "schema_registry_url": embedded_registry.url}
    with pytest.raises(Exception, match=said) as caught:
        append(spark.range(3).select("id"), orders.bootstrap_servers, topic="orders", **options)
    assert PASSWORD not in str(caught.value)
    folder = Folder(spark, tmp_path)
    folder.add("a")
    with pytest.raises(Exception, match=said) as caught:
        run_to_end(start(of_lines(folder), orders.bootstrap_servers, str(tmp_path / "c"), topic="orders", **options))
    assert PASSWORD not in str(caught.value)
    assert is_empty(orders)


FAULTS = {
    "401": (RegistryFault(status=401, body=b'{"error_code":401,"message":"Unauthorized"}'), "answered 401"),
    "403": (RegistryFault(status=403, body=b'{"error_code":40301,"message":"denied"}'), "answered 40301"),
    "404": (RegistryFault(status=404, body=b'{"error_code":40401,"message":"none"}'), "answered 40401"),
    "409": (RegistryFault(status=409, body=b'{"error_code":409,"message":"NO_DEFAULT"}'), "NO_DEFAULT.*not compatible"),
    "422": (RegistryFault(status=422, body=b'{"error_code":42201,"message":"Invalid"}'), "answered 42201"),
    "429": (RegistryFault(status=429), "answered 429.*again and again"),
    "500": (RegistryFault(status=500, body=b'{"error_code":50001,"message":"st"}'), "answered 50001.*again and again"),
    "redirect": (RegistryFault(status=302, headers={"Location": "http://127.0.0.1:1/"}), "redirects are not followed"),
    "slow": (RegistryFault(delay_s=5), "did not answer: timed out"),
    "page": (
        RegistryFault(status=200, body=b"<html>", headers={"Content-Type": "text/html"}),
        "did not answer with JSON",
    ),
    "deep": (RegistryFault(status=200, body=b"[" * 300_000), "did not answer with JSON"),
    "wrong-type": (
        RegistryFault(status=200, body=b'{"id": "one"}'),
        "JSON in which schema is missing or not what it should be",
    ),
    "cut": (RegistryFault(cut=True), "the answer broke off"),
}
# One of each class of error. tests/unit/formats/registry and tests/integration/test_registry.py test which answer gives
# which.
IN_EVERY_RUN = ("401", "409", "slow", "deep")


@pytest.mark.parametrize(
    "answer", [pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.slow) for name in FAULTS]
)
def test_what_the_registry_answers_instead_is_the_error_and_nothing_is_written(
    spark: SparkSession, orders: EmbeddedBroker, embedded_registry: EmbeddedRegistry, answer: str
) -> None:
    fault, words = FAULTS[answer]
    fault.times = 1000
    embedded_registry.inject(fault)
    with pytest.raises(Exception, match=f"(?s){words}") as caught:
        append(
            spark.range(3).select("id"), orders.bootstrap_servers, topic="orders",
            schema_registry_url=embedded_registry.url, schema_registry_basic_auth_user_info=f"me:{PASSWORD}",
            **REGISTER,
        )  # fmt: skip
    assert embedded_registry.url in str(caught.value) and PASSWORD not in str(caught.value)
    assert is_empty(orders)
    fault.times = 0


def test_an_incompatible_change_is_refused_before_any_task(
    spark: SparkSession, orders: EmbeddedBroker, embedded_registry: EmbeddedRegistry
) -> None:
    options = {**REGISTER, "schema_registry_url": embedded_registry.url}
    append(spark.range(2).selectExpr("CAST(id AS STRING) AS line"), orders.bootstrap_servers, topic="orders", **options)
    before = embedded_registry.do(lambda core: core.store.snapshot())
    with pytest.raises(Exception, match=r"(?s)answered 409.*TYPE_MISMATCH.*Nothing was written"):
        append(spark.range(2, 4).selectExpr("id AS line"), orders.bootstrap_servers, topic="orders", **options)
    assert lines(orders, embedded_registry) == ["0", "1"]
    assert embedded_registry.do(lambda core: core.store.snapshot()) == before


# ---- in the middle of a stream ---------------------------------------------------------------------------------------


def test_a_stream_goes_on_without_the_registry_even_when_spark_ends_its_processes(
    spark: SparkSession, orders: EmbeddedBroker, embedded_registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path)
    folder.add("a", "b")
    writer = of_lines(folder).writeStream.format(OURS).option("kafka.bootstrap.servers", orders.bootstrap_servers)
    options = {**REGISTER, "schema_registry_url": embedded_registry.url, "topic": "orders"}
    writer = writer.options(**{name.replace("_", "."): value for name, value in options.items()})
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        asked = embedded_registry.requests()
        path = "/subjects/orders-value/versions"
        assert set(asked) == {("GET", f"{path}/latest"), ("POST", path)}
        embedded_registry.stop()
        folder.add("c")
        query.processAllAvailable()
        # Spark itself does that after a minute without work.
        for process_id in driver_processes(owner=os.getpid()):
            kill(process_id)
        folder.add("d")
        query.processAllAvailable()
        assert embedded_registry.requests() == asked
    finally:
        query.stop()
    embedded_registry.start()
    assert lines(orders, embedded_registry) == ["a", "b", "c", "d"]


def test_a_stream_goes_on_by_its_version_while_the_subject_gets_a_new_one(
    spark: SparkSession, orders: EmbeddedBroker, embedded_registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    def register(text: str) -> int:
        client = SchemaRegistryClient({"url": embedded_registry.url})
        return client.register_schema("orders-value", Schema(text, "AVRO"))

    first = register('{"type":"record","name":"L","fields":[{"name":"line","type":["null","string"]}]}')
    folder = Folder(spark, tmp_path)
    folder.add("a")
    writer = of_lines(folder).writeStream.format(OURS).option("kafka.bootstrap.servers", orders.bootstrap_servers)
    options = {**LATEST, "schema_registry_url": embedded_registry.url, "topic": "orders"}
    writer = writer.options(**{name.replace("_", "."): value for name, value in options.items()})
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        second = register(
            '{"type":"record","name":"L","fields":[{"name":"line","type":["null","string"]},'
            '{"name":"more","type":"int","default":1}]}'
        )
        asked_before = len(embedded_registry.requests())
        folder.add("b")
        query.processAllAvailable()
    finally:
        query.stop()
    assert lines(orders, embedded_registry) == ["a", "b"]
    ids = {int.from_bytes(row.value[1:5], "big") for row in read_rows(orders.bootstrap_servers, "orders") if row.value}
    # Spark may plan the tasks of any batch in a new process, which asks again.
    has_asked_again = ("GET", "/subjects/orders-value/versions/latest") in embedded_registry.requests()[asked_before:]
    assert first in ids
    assert ids <= ({first, second} if has_asked_again else {first})
