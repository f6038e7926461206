"""The place of a task (query, batch, run, partition, attempt) is read from Spark's TaskContext; nothing else is."""

from __future__ import annotations

import pickle

import pytest
from pyspark import TaskContext

from kafka_sink.commit.identity import run_hash, run_of_query
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import ConfigError, LocalProtocolError
from kafka_sink.spark.task_context import (
    BATCH_ID,
    CONTINUOUS,
    DESCRIPTION,
    JOB_GROUP,
    QUERY_ID,
    TaskPlace,
    place_in_batch,
    place_in_stream,
)

STREAM = {QUERY_ID: "q-1", BATCH_ID: "7", JOB_GROUP: "r-1"}
QUERY, RUN = "8d2dbe5c-1a33-4cb4-8a0f-7f1f3a7f0d6e", "2f1c9f6e-0b58-4a51-9a53-0f6d1e0f7b11"
INSIDE = {QUERY_ID: QUERY, BATCH_ID: "7", JOB_GROUP: RUN, DESCRIPTION: f"name\nid = {QUERY}\nrunId = {RUN}\nbatch = 7"}


class Context:
    """The part of Spark's TaskContext that the sink uses."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return 3

    def taskAttemptId(self) -> int:
        return 41

    def attemptNumber(self) -> int:
        return 1


def inside_a_task(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    monkeypatch.setattr(TaskContext, "get", staticmethod(lambda: Context(properties)))


def test_a_task_of_a_stream_knows_query_batch_run_partition_and_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    inside_a_task(monkeypatch, STREAM)
    place = place_in_stream("sink")
    assert place == TaskPlace(BatchKey("q-1", 7), run_of_query("r-1"), 3, 41, f"sink-{run_hash('q-1')}")
    assert place.attempt_number == 1
    assert str(place) == "Spark partition 3, TID 41, of batch 7 of query q-1"


def test_without_a_sink_id_there_is_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    inside_a_task(monkeypatch, STREAM)
    assert place_in_stream(None).own_identity is None
    assert place_in_stream("sink").own_identity is not None


def test_two_attempts_of_one_partition_have_two_transactional_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    inside_a_task(monkeypatch, STREAM)
    first = place_in_stream("sink")
    monkeypatch.setattr(Context, "taskAttemptId", lambda self: 42)
    assert place_in_stream("sink").own_identity != first.own_identity


@pytest.mark.parametrize("missing", STREAM)
def test_a_stream_task_without_one_of_sparks_properties_says_which_are_needed(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    inside_a_task(monkeypatch, {name: value for name, value in STREAM.items() if name != missing})
    with pytest.raises(LocalProtocolError, match=missing.replace(".", r"\.")):
        place_in_stream("sink")


def test_a_batch_write_has_the_key_that_the_driver_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    inside_a_task(monkeypatch, {})
    place = place_in_batch(BatchKey("", "monday"), "run", "sink")
    assert place == TaskPlace(BatchKey("", "monday"), "run", 3, 41, "sink")
    assert pickle.loads(pickle.dumps(place)) == place


def test_inside_foreach_batch_the_number_of_the_batch_is_that_batch_in_the_run_of_its_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside_a_task(monkeypatch, INSIDE)
    place = place_in_batch(BatchKey("", "7"), "run", "sink")
    sink_id = f"sink-{run_hash(QUERY)}"
    assert place == TaskPlace(BatchKey(QUERY, 7), run_of_query(RUN), 3, 41, sink_id, errors_may_be_caught=True)
    label = BatchKey("", "monday")
    assert place_in_batch(label, "run", "sink") == TaskPlace(label, "run", 3, 41, "sink")


@pytest.mark.parametrize(
    "changed",
    [
        {JOB_GROUP: "nightly export"},
        {JOB_GROUP: ""},
        {JOB_GROUP: QUERY},
        {JOB_GROUP: "11111111-1111-1111-1111-111111111111"},
        {JOB_GROUP: "5b0f5ad1-62a5-4a44-8a44-2a5a3f1f3f10"},
    ],
    ids=["words", "nothing", "the query's id", "no random UUID", "not the run that Spark describes"],
)
def test_a_job_group_of_the_users_own_is_not_taken_for_the_run_of_the_query(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    inside_a_task(monkeypatch, {**INSIDE, **changed})
    place = place_in_batch(BatchKey("", "7"), "run", "sink")
    assert (place.key, place.run, place.errors_may_be_caught) == (BatchKey(QUERY, 7), "run", True)


def test_a_description_of_the_users_own_takes_the_run_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    inside_a_task(monkeypatch, {**INSIDE, DESCRIPTION: "the nightly export"})
    assert place_in_batch(BatchKey("", "7"), "run", "sink").run == run_of_query(RUN)


def test_outside_of_a_task_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", staticmethod(lambda: None))
    with pytest.raises(LocalProtocolError, match="only write inside a Spark task"):
        place_in_batch(BatchKey("", ""), "run", None)


def test_a_batch_write_with_a_bare_number_is_refused_in_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    inside_a_task(monkeypatch, {})
    with pytest.raises(ConfigError, match="its query is not known"):
        place_in_batch(BatchKey("", "7"), "run", "sink")


@pytest.mark.parametrize("sink_id", ["sink", None])
def test_a_task_of_a_continuous_query_is_refused(monkeypatch: pytest.MonkeyPatch, sink_id: str | None) -> None:
    inside_a_task(monkeypatch, {**STREAM, CONTINUOUS: "true"})
    with pytest.raises(ConfigError, match=r"trigger\(continuous=\.\.\.\) is not supported"):
        place_in_stream(sink_id)
