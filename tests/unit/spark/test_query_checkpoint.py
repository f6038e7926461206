"""Whether the next start of a query will find its checkpoint, from what Spark's objects and the folders say."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark import query_checkpoint
from kafka_sink.spark.query_checkpoint import LOCATION_OF_SESSION, check_checkpoint, check_checkpoint_of_format
from tests.unit.spark.test_query_batch import checkpoint_with

TEMPORARY = f"file:/tmp/temporary-{uuid.uuid4()}"
OTHER = str(uuid.uuid4())


@pytest.fixture
def query() -> str:
    """A new one: each is looked at once in a process."""
    return str(uuid.uuid4())


class Session:
    """As PySpark's classic session, of which only the objects behind it know the folder."""

    def __init__(self, query: str, checkpoint: str, name: str | None = None, of_session: str | None = None) -> None:
        running = SimpleNamespace(resolvedCheckpointRoot=lambda: checkpoint, name=lambda: name)
        self.asked = 0

        def shared_state() -> Any:
            self.asked += 1
            return SimpleNamespace(activeStreamingQueries=lambda: {query: running})

        self._jsparkSession = SimpleNamespace(sharedState=shared_state)
        self._jvm = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(UUID=SimpleNamespace(fromString=str))))
        self.conf = {LOCATION_OF_SESSION: of_session}


def check(session: Any, query: str, location: str | None = None, batch_id: int = 0, exactly_once: bool = True) -> None:
    check_checkpoint(session, query, batch_id, location, is_exactly_once=exactly_once)


def is_accepted(session: Any, query: str, location: str | None = None, batch_id: int = 0) -> bool:
    try:
        check(session, query, location, batch_id)
    except ConfigError:
        return False
    return True


def test_a_folder_of_one_start_is_refused_whatever_the_options_name(query: str, tmp_path: Path) -> None:
    for location in (None, "/checkpoints/orders", str(tmp_path), "s3://bucket/checkpoints"):
        with pytest.raises(
            ConfigError, match=r"made file:/tmp/temporary-.* for this start alone.*on the writer"
        ) as caught:
            check(Session(query, TEMPORARY), query, location, batch_id=5)
        assert caught.value.name == "PKS-1111"


def test_at_least_once_warns_of_it_once(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, warned = Session(query, TEMPORARY), list[str]()
    monkeypatch.setattr(query_checkpoint, "warn_once", warned.append)
    for batch_id in range(3):
        check(session, query, batch_id=batch_id, exactly_once=False)
    assert ["every row is written again" in each for each in warned] == [True]


@pytest.mark.parametrize(
    "checkpoint", ["file:/data/orders", "s3a://bucket/orders", f"hdfs://n:8020/{OTHER}", f"{TEMPORARY}/c"]
)
def test_a_checkpoint_that_stays_is_accepted_and_spark_is_asked_for_it_once(query: str, checkpoint: str) -> None:
    session = Session(query, checkpoint)
    for batch_id in range(3):
        check(session, query, None, batch_id)
    assert session.asked == 1


@pytest.mark.parametrize(
    "setting",
    ["/ck", "/ck/", "hdfs://n:8020/ck", "ck", "//n:8020//ck", "hdfs:///ck", "/./ck", "/x/../ck/.", "hdfs://n:8020//ck"]
    + ["./ck", "../ck", "../../ck/"],
)
def test_an_unnamed_query_in_the_folder_of_the_session_is_refused_at_its_first_batch(query: str, setting: str) -> None:
    root = f"hdfs://n:8020/ck/{OTHER}"
    with pytest.raises(ConfigError, match=r"a query without a name a new folder.*Set \.queryName"):
        check(Session(query, root, of_session=setting), query)
    assert is_accepted(Session(query, root, of_session=setting), query, batch_id=1)  # somebody resumes it


@pytest.mark.parametrize("setting", [None, "", "/ck/orders", "/c", "k", "s3a://bucket/other"])
def test_an_unnamed_query_in_another_folder_is_accepted(query: str, setting: str | None) -> None:
    assert is_accepted(Session(query, f"hdfs://n:8020/ck/{OTHER}", of_session=setting), query)


def test_a_named_query_in_the_folder_of_the_session_is_accepted(query: str) -> None:
    assert is_accepted(Session(query, f"file:/ck/{OTHER}", name="orders", of_session="/ck"), query)


@pytest.mark.parametrize(
    ("names", "is_refused"),
    [({}, True), ({"queryname": ""}, True), ({"queryname": "orders"}, False), ({"checkpointlocation": "/c"}, False)],
)
def test_a_stream_of_the_format_has_a_location_or_a_name(
    names: dict[str, str], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = list[str]()
    monkeypatch.setattr(query_checkpoint, "warn_once", warned.append)
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "sink.id": "orders", **names}
    with pytest.raises(ConfigError, match=r"Set \.queryName") if is_refused else nullcontext():
        check_checkpoint_of_format(parse_sink_options(given))
    assert not warned
    check_checkpoint_of_format(parse_sink_options({**given, "delivery.guarantee": "at-least-once"}))
    assert len(warned) == is_refused


def test_the_location_among_the_options_has_to_be_that_of_the_query(query: str, tmp_path: Path) -> None:
    location = checkpoint_with(tmp_path / "c", b'{"id":"%s"}' % query.encode())
    for session in (Session(query, f"file:{location}"), SimpleNamespace()):
        assert is_accepted(session, query, location)
    other = checkpoint_with(tmp_path / "other", b'{"id":"%s"}' % OTHER.encode())
    words = f"checkpointLocation={other}, .* Its query is {OTHER}, and the one that runs is {query}"
    with pytest.raises(ConfigError, match=f"{words}, with its checkpoint in file:{location}") as caught:
        check(Session(query, f"file:{location}"), query, other)
    assert caught.value.name == "PKS-1111"
    with pytest.raises(ConfigError, match=rf"{words}\. Give it the location that the writer has"):
        check(SimpleNamespace(), query, other)  # where Spark does not tell its folder


@pytest.mark.parametrize("metadata", [None, b"", b"{}", b"[]", b'{"id":7}', b"\xff"])
def test_a_folder_without_the_id_of_a_query_is_no_checkpoint(
    query: str, tmp_path: Path, metadata: bytes | None
) -> None:
    location = str(tmp_path) if metadata is None else checkpoint_with(tmp_path / "c", metadata)
    for known in (query, ""):  # over Spark Connect the query is not known
        with pytest.raises(ConfigError, match="It has no file metadata with the id of a query"):
            check(SimpleNamespace(), known, location)
    assert is_accepted(Session(query, "hdfs://n:8020/c"), query, location)  # it only has the path of the real one


@pytest.mark.parametrize("location", ["/nowhere/c", "s3://bucket/c", "\0", "file:", None])
def test_a_location_that_cannot_be_read_here_contradicts_nothing(query: str, location: str | None) -> None:
    assert is_accepted(SimpleNamespace(), query, location)
    assert is_accepted(SimpleNamespace(), "", location)


def test_over_spark_connect_a_checkpoint_of_any_query_may_be_that_of_this_one(tmp_path: Path) -> None:
    location = checkpoint_with(tmp_path / "c", b'{"id":"%s"}' % OTHER.encode())
    assert is_accepted(SimpleNamespace(), "", location)
