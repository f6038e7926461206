"""Struct columns through Spark to a topic, read back with confluent-kafka's deserializers and the registry's double."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry
from tests.spark.parity import Folder, append, start
from tests.spark.spark_session import TopicRow, read_rows, run_to_end

UTC = dt.timezone.utc
ROWS = [
    {
        "id": 7,
        "name": "é\n",
        "amount": decimal.Decimal("-12.50"),
        "ratio": 0.5,
        "born": dt.date(1999, 12, 31),
        "seen": dt.datetime(2024, 2, 29, 12, 30, 1, 250000, UTC),
        "tags": ["a", None, ""],
        "counts": {"x": 1},
        "place": {"lat": 1.25, "raw": b"\x00\xff"},
    },
    {
        "id": -(2**63),
        "name": None,
        "amount": None,
        "ratio": -0.0,
        "born": None,
        "seen": None,
        "tags": [],
        "counts": None,
        "place": None,
    },
]
DDL = (
    "id bigint not null, name string, amount decimal(12,2), ratio double, born date, seen timestamp, "
    "tags array<string>, counts map<string,int>, place struct<lat:double,raw:binary>"
)
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Ignored { string nothing = 1; }
message Order {
  message Place { double lat = 1; bytes raw = 2; }
  int64 id = 1;
  optional string name = 2;
  google.protobuf.Timestamp seen = 3;
  repeated string tags = 4;
  map<string, int32> counts = 5;
  Place place = 6;
}
"""


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in ROWS], DDL)


def written(kafka: EmbeddedBroker, topic: str) -> list[TopicRow]:
    return read_rows(kafka.bootstrap_servers, topic)


def context(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def by_id(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: -value["id"])


def client(registry: EmbeddedRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def test_all_columns_become_an_avro_record_that_confluents_deserializer_reads(
    frame: DataFrame, embedded_kafka: EmbeddedBroker, embedded_registry: EmbeddedRegistry
) -> None:
    servers = embedded_kafka.bootstrap_servers
    keyed = frame.withColumn("key", F.struct("id")).repartition(8)
    append(
        keyed, servers, topic="orders", value_format="avro", key_format="avro", value_record_name="shop.Order",
        schema_registry_url=embedded_registry.url, auto_register_schemas="true",
    )  # fmt: skip
    read = AvroDeserializer(client(embedded_registry))
    rows = written(embedded_kafka, "orders")
    assert by_id([read(row.value, context("orders")) for row in rows]) == ROWS
    assert sorted(read(row.key, context("orders"))["id"] for row in rows) == [-(2**63), 7]
    schema = json.loads(client(embedded_registry).get_latest_version("orders-value").schema.schema_str)
    assert (schema["namespace"], schema["name"]) == ("shop", "Order")
    assert schema["fields"][1] == {"name": "name", "type": ["null", "string"], "default": None}


@pytest.mark.slow  # in every run: test_registry_requests.py
def test_the_registry_is_asked_while_planning_and_by_no_executor(
    spark: SparkSession, embedded_kafka: EmbeddedBroker, embedded_registry: EmbeddedRegistry
) -> None:
    append(
        spark.range(0, 160, 1, 16), embedded_kafka.bootstrap_servers, topic="numbers", value_format="avro",
        schema_registry_url=embedded_registry.url, auto_register_schemas="true",
    )  # fmt: skip
    assert len(written(embedded_kafka, "numbers")) == 160
    path = "/subjects/numbers-value/versions"
    assert embedded_registry.requests() == [("GET", f"{path}/latest"), ("POST", path)]


def test_a_stream_writes_by_the_latest_version_of_its_subject(
    spark: SparkSession,
    embedded_kafka: EmbeddedBroker,
    embedded_registry: EmbeddedRegistry,
    tmp_path: Path,
) -> None:
    text = json.dumps(
        {
            "type": "record", "name": "Line", "fields": [
                {"name": "source", "type": "string", "default": "spark"},
                {"name": "LINE", "type": ["null", "string"]},
            ],
        }
    )  # fmt: skip
    schema_id = _register(embedded_registry, "lines-value", text)
    before = len(embedded_registry.requests())
    folder = Folder(spark, tmp_path)
    folder.add("a", "b")
    folder.add("c")
    lines = folder.read().select(F.col("value").alias("line"))
    options = {"value_format": "avro", "schema_registry_url": embedded_registry.url, "use_latest_version": "true"}
    servers = embedded_kafka.bootstrap_servers
    run_to_end(start(lines, servers, str(tmp_path / "c"), topic="lines", **options))
    assert {method for method, _ in embedded_registry.requests()[before:]} == {"GET"}
    read = AvroDeserializer(client(embedded_registry))
    rows = written(embedded_kafka, "lines")
    assert sorted(read(row.value, context("lines"))["LINE"] for row in rows) == ["a", "b", "c"]
    assert {row.value[:5] for row in rows if row.value} == {b"\0" + struct.pack(">I", schema_id)}


def test_a_stream_goes_on_with_its_schema_when_spark_decides_anew_which_columns_can_be_null(
    spark: SparkSession,
    embedded_kafka: EmbeddedBroker,
    embedded_registry: EmbeddedRegistry,
    tmp_path: Path,
) -> None:
    """Spark leaves out a side of a union that has no rows, and with it the nulls that only this side could have."""
    for name in ("web", "shop"):
        (tmp_path / name).mkdir()
    folders = [Folder(spark, tmp_path / name) for name in ("web", "shop")]
    web = folders[0].read().select(F.col("value").alias("line"), F.lit("web").alias("channel"))
    shop = folders[1].read().select(F.lit("shop").alias("line"), F.col("value").alias("channel"))
    options = {"value_format": "avro", "schema_registry_url": embedded_registry.url, "auto_register_schemas": "true"}
    for place in (0, 1, 0):  # alone, each side would have a schema that is not compatible with the other's
        folders[place].add("a")
        query = start(web.union(shop), embedded_kafka.bootstrap_servers, str(tmp_path / "c"), topic="lines", **options)
        run_to_end(query)
    read = AvroDeserializer(client(embedded_registry))
    rows = written(embedded_kafka, "lines")
    found = [read(row.value, context("lines")) for row in rows]
    assert sorted((each["line"], each["channel"]) for each in found) == [("a", "web"), ("a", "web"), ("shop", "a")]
    assert len(embedded_registry.do(lambda core: core.store.snapshot())["lines-value"]) == 2


def test_inside_foreach_batch_values_are_protobuf_that_confluents_deserializer_reads(
    spark: SparkSession, frame: DataFrame, embedded_kafka: EmbeddedBroker, embedded_registry: EmbeddedRegistry,
    tmp_path: Path,
) -> None:  # fmt: skip
    path = tmp_path / "order.desc"
    path.write_bytes(_order_descriptors())
    folder = Folder(spark, tmp_path)
    folder.add("x")
    servers = embedded_kafka.bootstrap_servers

    def write(_: DataFrame, batch_id: int) -> None:
        append(
            frame.select("id", "name", "seen", "tags", "counts", "place").filter("id = 7")
            .withColumn("tags", F.array(F.lit("a"))),
            servers, topic="orders", sink_id="orders", batch_id=str(batch_id), value_format="protobuf",
            value_schema=str(path), value_record_name="Order", schema_registry_url=embedded_registry.url,
            auto_register_schemas="true",
        )  # fmt: skip

    query = folder.read().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
    run_to_end(query.trigger(availableNow=True).start())
    (row,) = written(embedded_kafka, "orders")
    read = ProtobufDeserializer(_order_message(), {"use.deprecated.format": False}, client(embedded_registry))
    message: Any = read(row.value, context("orders"))
    assert (message.id, message.name, list(message.tags), dict(message.counts)) == (7, "é\n", ["a"], {"x": 1})
    assert message.seen.ToDatetime(UTC) == ROWS[0]["seen"]
    assert (message.place.lat, message.place.raw) == (1.25, b"\x00\xff")


def test_a_proto_file_is_enough_to_write_by(
    frame: DataFrame, embedded_kafka: EmbeddedBroker, embedded_registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    (tmp_path / "order.proto").write_text(PROTO)
    append(
        frame.select("id", "name", "place"), embedded_kafka.bootstrap_servers, topic="orders", value_format="protobuf",
        value_schema=str(tmp_path / "order.proto"), value_record_name="shop.Order",
        schema_registry_url=embedded_registry.url, auto_register_schemas="true",
    )  # fmt: skip
    values = [row.value or b"" for row in written(embedded_kafka, "orders")]
    # Magic byte, id, and the path to the second message of the file.
    assert {value[:7] for value in values} == {b"\x00\x00\x00\x00\x01\x02\x02"}
    messages = [_order_message().FromString(value[7:]) for value in values]
    assert sorted((message.id, message.name, message.place.lat) for message in messages) == [
        (-(2**63), "", 0.0), (7, "é\n", 1.25),
    ]  # fmt: skip
    assert client(embedded_registry).get_latest_version("orders-value").schema.schema_str == PROTO


def test_json_with_a_schema_is_read_by_confluents_deserializer(
    frame: DataFrame, embedded_kafka: EmbeddedBroker, embedded_registry: EmbeddedRegistry
) -> None:
    append(
        frame.drop("ratio"), embedded_kafka.bootstrap_servers, topic="orders", value_format="json-schema",
        value_columns="id,name,tags,born", schema_registry_url=embedded_registry.url, auto_register_schemas="true",
    )  # fmt: skip
    read = JSONDeserializer(None, schema_registry_client=client(embedded_registry))
    assert by_id([read(row.value, context("orders")) for row in written(embedded_kafka, "orders")]) == [
        {"id": 7, "name": "é\n", "tags": ["a", None, ""], "born": "1999-12-31"},
        {"id": -(2**63), "tags": []},
    ]


def test_json_without_a_schema_says_what_to_json_says(frame: DataFrame, embedded_kafka: EmbeddedBroker) -> None:
    append(frame, embedded_kafka.bootstrap_servers, topic="ours", value_format="json")
    append(
        frame.select(F.to_json(F.struct("*")).alias("value")), embedded_kafka.bootstrap_servers, topic="sparks"
    )  # fmt: skip
    ours, sparks = ([row.value for row in written(embedded_kafka, topic)] for topic in ("ours", "sparks"))
    assert sorted(map(str, ours)) == sorted(map(str, sparks))


@pytest.mark.slow  # in every run without Spark: tests/integration/test_key_schemas.py
def test_the_schema_can_stand_in_a_header_and_a_tombstone_has_none(
    spark: SparkSession, embedded_kafka: EmbeddedBroker, embedded_registry: EmbeddedRegistry
) -> None:
    frame = spark.range(3).selectExpr(
        "CAST(id AS STRING) AS key", "IF(id = 1, NULL, named_struct('id', id, 'text', 'longer than an id')) AS value",
        "array(named_struct('key', 'own', 'value', CAST('x' AS BINARY))) AS headers",
    )  # fmt: skip
    append(
        frame, embedded_kafka.bootstrap_servers, topic="orders", value_format="avro", value_schema_framing="header",
        schema_registry_url=embedded_registry.url, auto_register_schemas="true",
    )  # fmt: skip
    rows = {row.key: row for row in written(embedded_kafka, "orders")}
    read = AvroDeserializer(client(embedded_registry))
    assert [name for name, _ in rows[b"0"].headers] == ["own", "__value_schema_id"]
    assert read(rows[b"2"].value, context("orders", list(rows[b"2"].headers))) == {"id": 2, "text": "longer than an id"}
    assert rows[b"1"].value is None and rows[b"1"].headers == (("own", b"x"),)


@pytest.mark.slow  # in every run without Spark: tests/unit/formats/schemas
def test_columns_that_do_not_fit_are_refused_before_any_task(
    frame: DataFrame, embedded_kafka: EmbeddedBroker, embedded_registry: EmbeddedRegistry
) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"id","type":"string"},{"name":"born","type":"int"}]}'
    with pytest.raises(Exception) as raised:
        append(
            frame.select("id", "name", "born"), embedded_kafka.bootstrap_servers, topic="orders",
            value_format="avro", value_schema=text,
        )  # fmt: skip
    said = str(raised.value)
    assert "column id has type bigint, the schema says string; what fits there: string" in said
    assert "the schema has no field for column name; it has id, born" in said
    assert embedded_registry.requests() == []
    assert written(embedded_kafka, "orders") == []


@pytest.mark.slow  # in every run without Spark: tests/integration/test_schema_rules.py
def test_rows_under_a_data_contract_are_refused_before_any_task_and_written_by_the_users_word(
    spark: SparkSession, embedded_kafka: EmbeddedBroker, embedded_registry: EmbeddedRegistry
) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"ssn","type":"string","confluent:tags":["PII"]}]}'
    rule = {"name": "encryptPII", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}
    body = json.dumps({"schema": text, "ruleSet": {"domainRules": [rule]}}).encode()
    path = "/subjects/orders-value/versions"
    assert embedded_registry.do(lambda core: core.answer("POST", path, {}, body).status) == 200
    frame = spark.range(0, 3, 1, 1).selectExpr("CAST(id AS STRING) AS ssn")
    options = {"topic": "orders", "value_format": "avro", "schema_registry_url": embedded_registry.url,
               "use_latest_version": "true"}  # fmt: skip
    with pytest.raises(Exception) as raised:
        append(frame, embedded_kafka.bootstrap_servers, **options)
    said = str(raised.value)
    assert "PKS-7010" in said and "encryptPII (TRANSFORM ENCRYPT, WRITEREAD, tags PII, fields ssn)" in said
    assert written(embedded_kafka, "orders") == []
    append(frame, embedded_kafka.bootstrap_servers, **options, schema_rules="ignore")
    assert len(written(embedded_kafka, "orders")) == 3


TIGHT = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"},{"name":"name","type":"string"}]}'


def test_rows_that_do_not_fit_are_dead_letters_as_json_with_row_and_column(
    spark: SparkSession, embedded_kafka: EmbeddedBroker
) -> None:
    frame = spark.range(0, 6, 1, 1).selectExpr("IF(id = 4, 5000000000, id) AS id", "IF(id = 2, NULL, 'n') AS name")
    append(
        frame, embedded_kafka.bootstrap_servers, topic="orders", value_format="avro", value_schema=TIGHT,
        record_errors="dead-letter", dead_letter_topic="letters",
    )  # fmt: skip
    assert [row.value for row in written(embedded_kafka, "orders")] == [
        struct.pack("BBs", 2 * number, 2, b"n") for number in (0, 1, 3, 5)
    ]
    letters = {row.value: dict(row.headers) for row in written(embedded_kafka, "letters")}
    assert sorted(letters, key=str) == [b'{"id":2}', b'{"id":5000000000,"name":"n"}']
    about = letters[b'{"id":2}']
    assert about["pykafka-sink.error"] == b"value.name of row 2 is null, and the schema has no null there"
    assert (about["pykafka-sink.reason"], about["pykafka-sink.row"]) == (b"bad value", b"2")
    append(
        frame, embedded_kafka.bootstrap_servers, topic="dropped", value_format="avro", value_schema=TIGHT,
        record_errors="drop",
    )  # fmt: skip
    assert len(written(embedded_kafka, "dropped")) == 4


@pytest.mark.slow  # in every run without Spark: tests/integration/test_spark_task.py
def test_a_row_that_does_not_fit_fails_the_task_and_is_named(
    spark: SparkSession, embedded_kafka: EmbeddedBroker
) -> None:
    frame = spark.range(0, 6, 1, 1).selectExpr("IF(id = 4, 5000000000, id) AS id", "'n' AS name")
    with pytest.raises(Exception, match=r"value\.id of row 4 is out of the range of its type in the schema"):
        append(
            frame, embedded_kafka.bootstrap_servers, topic="orders", value_format="avro", value_schema=TIGHT
        )  # fmt: skip


def _register(registry: EmbeddedRegistry, subject: str, text: str) -> int:
    from confluent_kafka.schema_registry import Schema

    return client(registry).register_schema(subject, Schema(text, "AVRO"))


def _order_message() -> Any:
    """The class that protoc would generate from PROTO."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Ignored").field.add(name="nothing", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    place = order.nested_type.add(name="Place")
    place.field.add(name="lat", number=1, type=1, label=1)
    place.field.add(name="raw", number=2, type=12, label=1)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="name", number=2, type=9, label=1, proto3_optional=True, oneof_index=0)
    order.oneof_decl.add(name="_name")
    order.field.add(name="seen", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.field.add(name="tags", number=4, type=9, label=3)
    order.field.add(name="counts", number=5, type=11, label=3, type_name=".shop.Order.CountsEntry")
    order.field.add(name="place", number=6, type=11, label=1, type_name=".shop.Order.Place")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def _order_descriptors() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    for message in (timestamp_pb2.Timestamp, _order_message()):
        message.DESCRIPTOR.file.CopyToProto(files.file.add())
    return files.SerializeToString()
