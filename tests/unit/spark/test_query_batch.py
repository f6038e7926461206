"""Which query a micro-batch belongs to, from what Spark's objects say: the thread, an option, the checkpoint, the
session. And the runs of a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.spark.query_batch import QueryBatch, query_of_batch

QUERY = "6f3c8f6a-1d52-4c0e-9d0b-5c8f7f6f4a11"
RUN = "11111111-2222-4333-8444-555555555555"
PROPERTIES = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "7", "spark.jobGroup.id": RUN}
A, B = QueryBatch("a"), QueryBatch("b")


class ConnectSession(SimpleNamespace):
    """Has no context at all."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


def frame(properties: Mapping[str, str] | None = None, queries: tuple[str, ...] = (), *, connect: bool = False) -> Any:
    active = [SimpleNamespace(id=each) for each in queries]
    if connect:
        return SimpleNamespace(sparkSession=ConnectSession(streams=SimpleNamespace(active=active)))
    context = SimpleNamespace(getLocalProperty=(properties or {}).get)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context, streams=SimpleNamespace(active=active)))


def checkpoint_with(folder: Path, metadata: bytes) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "metadata").write_bytes(metadata)
    return str(folder)


# ---- the thread that Spark calls ----


def test_in_the_thread_of_spark_the_properties_name_query_and_run() -> None:
    assert query_of_batch(frame(PROPERTIES), 7, None, "/nowhere") == (QUERY, RUN)


def test_another_number_than_that_of_the_micro_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_id=8 is not that of this micro-batch, which is 7") as caught:
        query_of_batch(frame(PROPERTIES), 8, None, None)
    assert caught.value.name == "PKS-1107"


def test_the_option_beats_what_the_thread_says_of_the_query_and_a_new_start_of_it_is_another_run() -> None:
    assert query_of_batch(frame(PROPERTIES), 8, "chosen", None) == ("chosen", RUN)
    assert query_of_batch(frame(PROPERTIES), 7, QUERY, None) == (QUERY, RUN)
    assert query_of_batch(frame(connect=True), 7, "chosen", None) == ("chosen", "")


# ---- the checkpoint ----


@pytest.mark.parametrize("form", ["{}", " {}/ ", "file:{}", "file://{}", "file://localhost{}"])
def test_the_checkpoint_names_the_query_in_every_spelling_of_a_local_folder(tmp_path: Path, form: str) -> None:
    for name in ("c", "a b", "a%20b", "a#b?c=d", "ö"):
        location = checkpoint_with(tmp_path / name, b'{"id":"%s"}' % name.encode())
        assert query_of_batch(frame(), 0, None, form.format(location)) == (name, "")


@pytest.mark.parametrize(
    "metadata",
    [b"", b"{", b"null", b"[]", b"7", b'"id"', b"{}", b'{"id":null}', b'{"id":7}', b'{"id":""}', b"\xff\xfe{"],
)
def test_metadata_without_a_query_id_are_no_checkpoint(tmp_path: Path, metadata: bytes) -> None:
    with pytest.raises(ConfigError, match="the query of batch 3 is not known"):
        query_of_batch(frame(), 3, None, checkpoint_with(tmp_path / "c", metadata))


@pytest.mark.parametrize(
    "location",
    [None, "", "s3://bucket{}", "s3a://bucket{}", "hdfs:{}", "dbfs:{}", "file:", "file://", "c", "\0{}", "{}/metadata"],
)
def test_a_location_that_is_no_local_folder_names_no_query(tmp_path: Path, location: str | None) -> None:
    """Not even if there is a local folder with its path."""
    path = checkpoint_with(tmp_path / "c", b'{"id":"%s"}' % QUERY.encode())
    with pytest.raises(ConfigError, match=r"Set the option query\.id"):
        query_of_batch(frame(), 0, None, location and location.format(path))


def test_a_folder_that_is_not_there_or_has_no_metadata_names_no_query(tmp_path: Path) -> None:
    for location in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="or checkpointLocation, if this process can read it") as caught:
            query_of_batch(frame(), 0, None, str(location))
        assert caught.value.name == "PKS-1107"


# ---- the session ----


def test_a_query_that_is_the_only_one_of_the_session_is_not_taken_for_that_of_the_batch() -> None:
    """It may be another one, while that of the batch is being stopped."""
    for is_connect in (True, False):
        with pytest.raises(ConfigError, match="the query of batch 0 is not known: over Spark Connect"):
            query_of_batch(frame(connect=is_connect, queries=(QUERY,)), 0, None, None)
