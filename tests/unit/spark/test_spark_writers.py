"""How the writers use commit messages: a commit needs a receipt of every task, an abort uses those that exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion
from kafka_sink.errors import CommitAborted, CommitPending, ConfigError, KafkaSinkError, LocalProtocolError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark import driver, summary, task, task_context
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.datasource import plan_stream
from kafka_sink.spark.formats import SidePlan
from kafka_sink.spark.triggers import is_before_any_batch
from kafka_sink.spark.writers import BatchWriter, CommitMessage, StreamWriter

OURS = CommitMessage(TaskReceipt(BatchKey("q-1", 7), "run", 0, 11))
SCHEMA = StructType().add("value", StringType())


@dataclass
class SomebodyElses(WriterCommitMessage):
    rows: int


def stream_writer(
    guarantee: str = "exactly-once", schema_id: int | None = None, refusal: KafkaSinkError | None = None
) -> StreamWriter:
    settings = {"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery.guarantee": guarantee}
    sink_id = "sink" if guarantee == "exactly-once" else None
    columns = choose_columns(SCHEMA, "t")
    if schema_id is not None:
        columns = replace(columns, sides=(SidePlan("value", None, schema_id=schema_id),))
    return StreamWriter(parse_sink_options(settings), columns, sink_id, refusal)


def batch_writer(label: str = "x") -> BatchWriter:
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    return BatchWriter(options, choose_columns(SCHEMA, "t"), BatchKey("", label), run="own", sink_id="sink")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_stream_whose_tasks_gave_no_receipt_is_refused_as_a_continuous_one(guarantee: str) -> None:
    with pytest.raises(ConfigError, match=r"trigger\(continuous=\.\.\.\) is not supported.*processingTime"):
        stream_writer(guarantee).commit([None, None], 0)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_message_of_somebody_else_is_refused_at_the_commit_of_a_stream(guarantee: str) -> None:
    with pytest.raises(LocalProtocolError, match=r"2 tasks, and 1 of them .*instead: SomebodyElses"):
        stream_writer(guarantee).commit([OURS, SomebodyElses(3)], 7)


@pytest.mark.parametrize("strange", [None, SomebodyElses(3)])
def test_a_message_that_is_no_receipt_is_refused_at_the_commit_of_a_batch_write(
    strange: WriterCommitMessage | None,
) -> None:
    with pytest.raises(LocalProtocolError, match="Nothing is committed"):
        batch_writer().commit([OURS, strange])


def test_an_abort_takes_tasks_that_left_no_message_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[driver.FinishedBatch] = []
    monkeypatch.setattr(driver, "abort_batch", given.append)
    monkeypatch.setattr(summary, "report_aborted", lambda *_, **__: None)
    stream_writer().abort([None, OURS, None], 7)
    stream_writer().abort([OURS], 7)
    assert [each.receipts for each in given] == [[OURS.receipt]] * 2
    assert [each.is_complete for each in given] == [False, True]


def test_an_abort_asks_brokers_where_a_task_may_have_left_something_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """With brokers that are down it waits for them. A write of a name of its own knows its run, a receipt tells that of
    a stream's tasks, and the tasks of a batch that is only numbered have the run of a query."""
    asked: list[str] = []

    def use(batch: driver.FinishedBatch, *_: object) -> CommitResult:
        asked.append(f"run {batch.run}")
        return CommitResult(Conclusion.ABORTED, is_swept=True)

    monkeypatch.setattr(driver, "_use_driver", use)
    monkeypatch.setattr(driver, "_end_own_runs", lambda *_: asked.append("any run"))
    monkeypatch.setattr(summary, "report_aborted", lambda *_, **__: None)
    stream_writer().abort([OURS, OURS], 7)
    stream_writer().abort([], 7)
    assert asked == []
    stream_writer().abort([None, None], 7)
    stream_writer().abort([None, OURS], 7)
    batch_writer().abort([None, None])
    batch_writer("7").abort([None, None])
    batch_writer("7").abort([None, OURS])
    assert asked == ["any run", "run run", "run own", "any run", "run run"]


def test_the_manifest_names_the_schemas_of_the_tasks_whatever_the_commit_s_own_plan_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark plans a stream's commit anew; meanwhile somebody has registered a new version."""
    given: list[driver.FinishedBatch] = []
    monkeypatch.setattr(driver, "commit_batch", given.append)
    monkeypatch.setattr(summary, "report_delivered", lambda *_: None)
    monkeypatch.setattr(task, "write_task", lambda *_: OURS.receipt)
    monkeypatch.setattr(task_context, "place_in_stream", lambda *_: None)
    stream_writer(schema_id=8).commit([stream_writer(schema_id=7).write(iter([]))], 7)
    assert given[0].schemas == {"value": 7}


# ---- brokers that offer transactions to tasks, and none to the commit ----


def test_a_commit_that_finds_no_transactions_raises_if_tasks_wrote_in_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By delivery.fallback=at-least-once. The abort says what readers wait for."""
    transaction = PreparedTransaction("sink-run-0-11", 1, 0, 2)
    written = CommitMessage(TaskReceipt(BatchKey("q-1", 7), "run", 0, 11, transaction=transaction))
    writer = stream_writer("at-least-once")
    warned: list[object] = []
    monkeypatch.setattr(driver, "_warn_of_waiting_readers", lambda *given: warned.append(given))
    monkeypatch.setattr(summary, "report_aborted", lambda *_: None)
    monkeypatch.setattr(summary, "report_delivered", lambda *_: None)
    with pytest.raises(CommitAborted, match=r"wrote in transactions, .* Nothing of it is visible"):
        writer.commit([written, OURS], 7)
    writer.abort([written, OURS], 7)
    assert len(warned) == 1
    writer.commit([OURS], 7)


# ---- what planning refuses before a commit ---------------------------------------------------------------------------


def test_what_an_earlier_run_has_decided_about_the_batch_is_not_called_aborted() -> None:
    """It may be visible. Of another batch's decision the error says nothing about this one."""
    written = CommitMessage(
        TaskReceipt(BatchKey("q-1", 7), "run", 0, 11, transaction=PreparedTransaction("sink-run-0-11", 1, 0, 2))
    )
    own = CommitPending("batch 7 is decided", query_id="q-1", batch_id=7)
    with pytest.raises(CommitPending, match=r"batch 7 is decided") as raised:
        stream_writer(refusal=own).commit([written], 7)
    assert "Nothing of it is visible" not in str(raised.value)
    for other in (replace_key(own, "q-2", 7), replace_key(own, "q-1", 6)):
        with pytest.raises(CommitAborted, match=r"batch 7 is decided.* Nothing of it is visible") as aborted:
            stream_writer(refusal=other).commit([written], 7)
        assert (aborted.value.query_id, aborted.value.batch_id) == ("q-1", 7)


def replace_key(error: CommitPending, query_id: str, batch_id: int) -> CommitPending:
    return CommitPending(str(error), query_id=query_id, batch_id=batch_id)


def test_rows_that_were_written_without_transactions_are_not_called_invisible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first batch is recorded even if its tasks fell back to at least once."""
    first = CommitMessage(TaskReceipt(BatchKey("q-1", 0), "run", 0, 11, row_count=3))
    refusal = ConfigError("topic manifests is not known")
    with pytest.raises(ConfigError, match="topic manifests is not known") as raised:
        stream_writer(refusal=refusal).commit([first], 0)
    assert "visible" not in str(raised.value)
    # Nothing is to be committed, and what was written is there.
    monkeypatch.setattr(summary, "report_delivered", lambda *_: None)
    stream_writer(refusal=refusal).commit([OURS], 7)
    stream_writer("at-least-once", refusal=refusal).commit([first], 0)


# ---- a query without any batch ---------------------------------------------------------------------------------------


def checkpoint_with(folder: Path, *names: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "metadata").touch()
    (folder / "offsets").mkdir()
    for name in names:
        (folder / "offsets" / name).touch()
    return str(folder)


def test_a_query_whose_checkpoint_has_no_batch_is_a_continuous_one(tmp_path: Path) -> None:
    location = checkpoint_with(tmp_path, ".0.crc")
    for spelling in (location, f"file:{location}", f"file://{location}/"):
        assert is_before_any_batch({"checkpointLocation": spelling})
    with pytest.raises(ConfigError, match=r"trigger\(continuous=\.\.\.\) is not supported"):
        plan_stream({"checkpointlocation": location}, SCHEMA, False)


def test_a_query_whose_checkpoint_has_no_folder_for_batches_yet_is_a_continuous_one(tmp_path: Path) -> None:
    assert not is_before_any_batch({"checkpointlocation": str(tmp_path)})  # nothing shows that it is a checkpoint
    (tmp_path / "metadata").touch()
    assert is_before_any_batch({"checkpointlocation": str(tmp_path)})


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b?c=d", "ö"])
def test_the_name_of_the_folder_is_taken_as_spark_takes_it(tmp_path: Path, name: str) -> None:
    location = checkpoint_with(tmp_path / name)
    for spelling in (location, f"file:{location}", f"file://{location}/"):
        assert is_before_any_batch({"checkpointlocation": spelling})


def test_another_folder_whose_name_is_the_decoded_one_says_nothing(tmp_path: Path) -> None:
    checkpoint_with(tmp_path / "a b")
    for location in (checkpoint_with(tmp_path / "a%20b", "0"), f"{tmp_path}/a%20%62"):
        assert not is_before_any_batch({"checkpointlocation": f"file://{location}"})


def test_a_query_with_a_batch_under_way_is_none(tmp_path: Path) -> None:
    assert not is_before_any_batch({"checkpointlocation": checkpoint_with(tmp_path, "0", ".0.crc")})


@pytest.mark.parametrize("location", ["", "s3a://bucket/checkpoint", "hdfs:///checkpoint", "/no/such/folder"])
def test_a_checkpoint_that_cannot_be_looked_at_says_nothing(location: str) -> None:
    assert not is_before_any_batch({"checkpointlocation": location})
    assert not is_before_any_batch({})
