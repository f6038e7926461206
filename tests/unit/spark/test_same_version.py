"""A plan is carried out by the version of the package that made it, or refused before anything of it is used."""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.errors import ConfigError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark import same_version
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.datasource import KafkaSinkDataSource
from kafka_sink.spark.writers import BatchWriter, CommitMessage
from kafka_sink.version import VERSION


def writer() -> BatchWriter:
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    columns = choose_columns(StructType().add("value", StringType()), "t")
    return BatchWriter(options, columns, BatchKey("", "x"), run="run", sink_id="sink")


def test_a_writer_is_the_same_on_the_other_side() -> None:
    before = writer()
    after = pickle.loads(cloudpickle.dumps(before))
    assert type(after) is BatchWriter and repr(vars(after)) == repr(vars(before))


def test_the_class_that_spark_looks_up_is_that_of_whichever_release_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM looks it up once and keeps it: after an upgrade the next write is planned by the new release."""
    pickled = cloudpickle.dumps(KafkaSinkDataSource)
    monkeypatch.setattr(same_version, "VERSION", "0.9.9")
    assert pickle.loads(pickled) is KafkaSinkDataSource


def test_a_process_that_has_outlived_an_upgrade_is_to_be_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = cloudpickle.dumps(writer())
    monkeypatch.setattr(same_version, "VERSION", "0.9.9")
    with pytest.raises(ConfigError, match=r"restart the Spark application \(over Connect, the server\)") as caught:
        pickle.loads(pickled)
    assert "install the same" not in str(caught.value)


def test_what_a_task_tells_is_not_read_by_a_commit_of_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stream, the process that commits makes its own plan. Fields of a receipt are pickled by their places."""
    receipt = TaskReceipt(BatchKey("query", 7), "b" * 16, 0, 1, None, 900_000, 800_000)
    message = CommitMessage(receipt, schemas={"value": 7})
    pickled = cloudpickle.dumps(message)
    after = pickle.loads(pickled)
    assert type(after) is CommitMessage and after == message
    monkeypatch.setattr(same_version, "VERSION", "0.9.9")
    with pytest.raises(
        ConfigError, match=rf"planned by pykafka-sink {re.escape(VERSION)} in .* has pykafka-sink 0\.9\.9"
    ):
        pickle.loads(pickled)


def test_another_version_is_refused_with_both_versions_and_folders_and_nothing_is_unpickled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, (version, folder, _) = writer().__reduce__()
    monkeypatch.setattr(same_version, "VERSION", "0.9.9")
    monkeypatch.setattr(same_version, "FOLDER", "/opt/image/kafka_sink")
    with pytest.raises(ConfigError) as caught:
        same_version.unpickle(version, folder, b"classes that 0.9.9 does not have")
    assert caught.value.name == "PKS-1110"
    here = re.escape(str(Path(same_version.__file__).parents[1]))
    said = rf"planned by pykafka-sink {VERSION} in {here}, .* pykafka-sink 0\.9\.9 in /opt/image/kafka_sink"
    assert re.search(said, str(caught.value))


@pytest.mark.parametrize("missing", ["a_package_of_the_driver", "kafka_sink.of_a_newer_release"])
def test_an_interpreter_without_a_package_of_the_writer_is_named_with_what_it_lacks(missing: str) -> None:
    pickled = f"c{missing}\nWriter\n.".encode()
    with pytest.raises(ConfigError, match=f"No module named '{missing}'") as caught:
        same_version.unpickle(VERSION, same_version.FOLDER, pickled)
    assert caught.value.name == "PKS-1104"
    assert f"Spark runs {sys.executable}, where pykafka-sink cannot be loaded" in str(caught.value)
    assert "Data: " in str(caught.value)
