"""Spark into a Kafka with TLS and SCRAM: only options are needed, no secret is shown. On a cluster: test_jobs.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_sink.__main__ import main
from tests.conftest import NEWEST
from tests.spark.parity import Folder, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.support.secured_kafka import KEY_PASSWORD, SHORT, USERS, SecuredKafka
from tools.kafka_security import MTLS, SASL_SSL

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture
def secured(secured_kafka_of: Callable[[str], SecuredKafka]) -> SecuredKafka:
    return secured_kafka_of(NEWEST)


@pytest.fixture
def options(secured: SecuredKafka, spark: SparkSession, tmp_path: Path, topic_name: str) -> dict[str, str]:
    """The options of an existing job of Spark's own sink, but with PEM in place of JKS."""
    trusted, secrets = tmp_path / f"{topic_name}.pem", tmp_path / f"{topic_name}.properties"
    trusted.write_text(secured.authority.text)
    secrets.write_text(f"alice={USERS['alice']}\n")
    spark.sparkContext.addFile(str(trusted))
    spark.sparkContext.addFile(str(secrets))
    jaas = f'{SCRAM} required username="alice" password="${{file:{secrets.name}:alice}}";'
    return {
        "kafka.bootstrap.servers": secured.kafka.bootstrap_servers_of(SASL_SSL),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": SHORT,
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.location": trusted.name,
        "kafka.ssl.truststore.type": "PEM",
        "topic": topic_name,
    }


def test_a_stream_delivers_exactly_once_through_scram_over_tls(
    secured: SecuredKafka,
    spark: SparkSession,
    options: dict[str, str],
    topic_name: str,
    tmp_path: Path,
    checkpoint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    writable_topic(secured.kafka, topic_name)
    folder = Folder(spark, tmp_path)

    def run() -> None:
        writer = folder.read().writeStream.format("pykafka-sink").options(**options)
        run_to_end(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())

    folder.add("a", "b")
    folder.add("c")
    run()
    # The state after a crash between our commit and Spark's: the last batch runs again.
    for name in ("1", ".1.crc"):
        (Path(checkpoint) / "commits" / name).unlink()
    folder.add("d")
    run()
    assert values(secured.kafka, topic_name) == [b"a", b"b", b"c", b"d"]

    # The console script takes the same options from a properties file, with secrets by reference.
    secrets = tmp_path / f"{topic_name}.properties"
    properties = tmp_path / "client.properties"
    properties.write_text(
        "".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in options.items() if "kafka." in name)
        .replace(secrets.name, str(secrets))
        .replace(f"{topic_name}.pem", str(tmp_path / f"{topic_name}.pem"))
    )
    assert main(["ledger", "--properties", str(properties), "--checkpoint", checkpoint]) == 0
    shown = capsys.readouterr().out
    assert "delivered" in shown and USERS["alice"] not in shown


def test_a_batch_is_written_with_a_client_certificate(
    secured: SecuredKafka, spark: SparkSession, topic_name: str
) -> None:
    writable_topic(secured.kafka, topic_name)
    writer = spark.range(5).selectExpr("cast(id as string) as value").write.format("pykafka-sink").mode("append")
    writer.options(
        **{
            "kafka.bootstrap.servers": secured.kafka.bootstrap_servers_of(MTLS),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.certificates": secured.authority.text,
            "kafka.ssl.keystore.certificate.chain": secured.client.chain.read_text(),
            "kafka.ssl.keystore.key": secured.client.key.read_text(),
            "kafka.ssl.key.password": KEY_PASSWORD,
            "topic": topic_name,
        }
    ).save()
    assert values(secured.kafka, topic_name) == [b"%d" % number for number in range(5)]


def test_a_wrong_password_ends_the_query_at_planning_without_showing_it(
    secured: SecuredKafka, spark: SparkSession, options: dict[str, str]
) -> None:
    jaas = f'{SCRAM} required username="alice" password="hunter2";'
    writer = spark.range(1).selectExpr("cast(id as string) as value").write.format("pykafka-sink").mode("append")
    with pytest.raises(Exception, match="refused the credentials for SCRAM-SHA-512") as caught:
        writer.options(**{**options, "kafka.sasl.jaas.config": jaas}).save()
    assert "hunter2" not in str(caught.value)


@pytest.mark.slow  # test_canary.py and test_canary_doors.py search more places for more secrets
def test_a_secret_that_stands_in_the_options_is_in_nothing_that_spark_shows_or_keeps(
    secured: SecuredKafka,
    spark: SparkSession,
    options: dict[str, str],
    topic_name: str,
    tmp_path: Path,
    checkpoint: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    canary = USERS["alice"]
    writable_topic(secured.kafka, topic_name)
    folder = Folder(spark, tmp_path)
    folder.add("a")
    literal = {**options, "kafka.sasl.jaas.config": f'{SCRAM} required username="alice" password="{canary}";'}
    writer = folder.read().writeStream.format("pykafka-sink").options(**literal)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    run_to_end(query)
    query.explain(True)
    with pytest.raises(Exception, match="is not supported") as caught:
        spark.range(1).write.format("pykafka-sink").options(**literal, batch_size="1").mode("overwrite").save()
    kept = [path for path in Path(checkpoint).rglob("*") if path.is_file()]
    shown = [str(caught.value), str(query.lastProgress), *capfd.readouterr(), *(str(query.status),)]
    shown += [path.read_text(errors="replace") for path in kept]
    assert len(kept) > 4 and values(secured.kafka, topic_name) == [b"a"]
    assert [text for text in shown if canary in text] == []
