"""What a write of the caller's own process does before and after Spark's part: options as text, the summary."""

from __future__ import annotations

import re
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kafka_sink
from kafka_sink.commit.receipt import BatchKey, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import ConfigError, TransactionAborted
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark import second_door
from kafka_sink.spark.driver import FinishedBatch
from kafka_sink.spark.second_door import INTERRUPTED, WriteSummary, _settings, _summarize
from kafka_sink.spark.task_context import JOB_GROUP, QUERY_ID

NAMED = {"kafka.bootstrap.servers": "h:1", "sink.id": "s"}
CLASSIC = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: "1m"))
FRAME: Any = SimpleNamespace(isStreaming=False)
KEY = BatchKey("q", 7)
RECEIPTS = [
    TaskReceipt(KEY, "run", 0, 11, written=(WrittenPartition("t", 0, 2, 5, 6),), row_count=2, bytes=20),
    TaskReceipt(KEY, "run", 1, 12, written=(WrittenPartition("t", 0, 1, 7, 7),), row_count=1, bytes=10),
    TaskReceipt(KEY, "run", 2, 13, record_errors={"null topic": 4}),
]


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said = list[str]()
    monkeypatch.setattr(second_door._LOGGER, "error", lambda text, *values: said.append(text % values))
    return said


def finished() -> FinishedBatch:
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    return FinishedBatch(options, "sink", KEY, "run", RECEIPTS)


def test_a_frame_in_place_of_the_options_is_told_which_comes_first() -> None:
    options: Any = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    for call in (lambda: kafka_sink.write(options, FRAME), lambda: kafka_sink.write_batch(options, 7, FRAME)):
        with pytest.raises(ConfigError, match="the frame comes first and then the options"):
            call()


class Planned(Exception):
    """The write has begun with its planning."""


@pytest.mark.parametrize(
    "number", ["7", b"7", None, True, 5.0, -1, 2**63, "x" * 10_000], ids=lambda one: repr(one)[:20]
)
def test_what_is_no_number_of_a_micro_batch_is_refused_before_anything_begins(number: Any) -> None:
    """A text would be a label, which no check of the checkpoint looks at; others failed after all tasks."""
    with pytest.raises(
        ConfigError, match=r"batch_id=\S+ is not the number of a micro-batch.* as it is and not"
    ) as caught:
        kafka_sink.write_batch(FRAME, number, {**NAMED, "topic": "t"})
    assert caught.value.name == "PKS-1002" and len(str(caught.value)) < 1000


@pytest.mark.parametrize("number", [7, np.int64(7), np.uint8(7)], ids=lambda one: type(one).__name__)
def test_a_whole_number_of_any_type_is_the_number_of_a_micro_batch(
    number: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[Any]()

    def note(frame: Any, batch_id: int, *more: Any, **options: Any) -> Any:
        found.append(batch_id)
        raise Planned

    monkeypatch.setattr(
        second_door,
        "plan_query",
        lambda given, schema: SimpleNamespace(options=SimpleNamespace(checkpoint_location=None), sink_id="s"),
    )
    monkeypatch.setattr(second_door, "query_of_batch", note)
    with pytest.raises(Planned):
        kafka_sink.write_batch(SimpleNamespace(isStreaming=False, schema=None), number, {**NAMED, "topic": "t"})  # type: ignore[arg-type]
    assert found == [7] and type(found[0]) is int


@pytest.mark.parametrize("call", [kafka_sink.write, lambda frame, options: kafka_sink.write_batch(frame, 0, options)])
def test_what_is_no_frame_of_spark_is_told_so(call: Any) -> None:
    with pytest.raises(ConfigError, match=r"this is a builtins\.list, and no frame of Spark(?s:.*)createDataFrame"):
        call([], {**NAMED, "topic": "t"})


def test_values_become_text_as_those_of_spark_s_option_do() -> None:
    given = {"topic": "t", "topic.create": True, "compress": False, "kafka.linger.ms": 5, "share": 0.5}
    assert _settings(given) == {
        "topic": "t",
        "topic.create": "true",
        "compress": "false",
        "kafka.linger.ms": "5",
        "share": "0.5",
    }


def test_options_without_a_value_are_all_named() -> None:
    with pytest.raises(ConfigError, match=r"these options have no value \(None\): a, b$"):
        kafka_sink.foreach_batch({"b": None, "topic": "t", "a": None})


def test_two_names_of_a_query_are_refused() -> None:
    options = {**NAMED, "topic": "t", "query.id": "a", "Query.Id": " a"}
    assert repr(kafka_sink.foreach_batch(options)) == "<kafka_sink.foreach_batch to t>"
    with pytest.raises(ConfigError, match=r"query\.id and Query\.Id mean the same and have different values"):
        kafka_sink.foreach_batch({**options, "Query.Id": "b"})


def test_a_function_of_foreach_batch_keeps_the_options_it_was_given_and_shows_none_but_the_topic() -> None:
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "me"}
    options = {**NAMED, **login, "topic": "events", "kafka.sasl.password": "hush"}
    function = kafka_sink.foreach_batch(options)
    options["topic"] = "changed"
    assert repr(function) == "<kafka_sink.foreach_batch to events>"
    assert repr(kafka_sink.foreach_batch(NAMED)) == "<kafka_sink.foreach_batch to the topics of the rows>"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"tpoic": "t"}, "PKS-1001"),
        ({"record.errors": "ignore"}, "PKS-1002"),
        ({"batch.id": "day-1"}, "PKS-1004"),
        ({"query.id": ""}, "PKS-1002"),
        ({"sink.id": "no blanks"}, "PKS-1002"),
    ],
)
def test_wrong_options_of_foreach_batch_are_refused_in_the_cell_and_not_in_the_first_batch(
    given: dict[str, str], name: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{name} (?s:.*)\n  Data: Nothing was written") as caught:
        kafka_sink.foreach_batch({**NAMED, **given})
    assert caught.value.name == name


def test_a_stream_without_a_name_is_refused_in_the_cell() -> None:
    with pytest.raises(ConfigError, match="has to know this stream again after a restart") as caught:
        kafka_sink.foreach_batch({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    assert caught.value.name == "PKS-1106"


def test_what_only_the_writing_process_has_is_not_asked_for_in_the_cell() -> None:
    """Over Spark Connect that is another one."""
    files = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/such/file.pem"}
    given = {**NAMED, **files, "kafka.client.id": "${env:NOT_SET}", "query.id": "q", "summary.listener": "no_such:one"}
    assert repr(kafka_sink.foreach_batch({**given, "topic": "t"})) == "<kafka_sink.foreach_batch to t>"


@pytest.mark.parametrize("conclusion", [Conclusion.DELIVERED, Conclusion.RECOVERED])
def test_a_summary_counts_rows_tasks_and_what_was_left_out(conclusion: Conclusion) -> None:
    assert _summarize(finished(), conclusion) == WriteSummary(
        rows=3,
        bytes=30,
        tasks=3,
        partitions=(WrittenPartition("t", 0, 3, 5, 7),),
        left_out={"null topic": 4},
        is_repeated=False,
    )


def test_the_partitions_of_a_summary_have_the_rows_and_dead_letters_are_apart() -> None:
    """One row names the topic of the letters itself."""
    letters = (WrittenPartition("dead", 0, 3, 10, 13), WrittenPartition("dead", 1, 1, 4, 4))
    written = (WrittenPartition("dead", 0, 4, 10, 13), letters[1], WrittenPartition("t", 0, 2, 5, 6))
    receipt = TaskReceipt(KEY, "run", 0, 11, written=written, row_count=7, dead_letters=letters)
    batch = finished()._replace(receipts=[receipt])
    summary = _summarize(batch, Conclusion.DELIVERED)
    assert summary.partitions == (WrittenPartition("dead", 0, 1, 10, 13), WrittenPartition("t", 0, 2, 5, 6))
    assert summary.dead_letters == letters
    assert sum(each.row_count for each in (*summary.partitions, *summary.dead_letters)) == summary.rows
    repeated = _summarize(batch, Conclusion.ALREADY_DELIVERED)
    assert (repeated.partitions, repeated.dead_letters) == ((), ())


def test_the_summary_of_a_repeated_batch_has_its_rows_and_no_offsets_of_what_was_aborted() -> None:
    summary = _summarize(finished(), Conclusion.ALREADY_DELIVERED)
    assert (summary.rows, summary.tasks, summary.is_repeated, summary.partitions) == (3, 3, True, ())


@pytest.mark.parametrize("call", [kafka_sink.write, lambda frame, options: kafka_sink.write_batch(frame, 0, options)])
def test_a_stream_is_sent_to_foreach_batch_before_anything_else_is_looked_at(call: object) -> None:
    with pytest.raises(ConfigError, match=r"this frame is a stream(?s:.*)Data: ") as caught:
        call(SimpleNamespace(isStreaming=True), {"unknown": 1})  # type: ignore[operator]
    assert caught.value.name == "PKS-1102"


def test_what_is_wrong_with_a_batch_is_one_line_of_the_log(logged: list[str]) -> None:
    with pytest.raises(ConfigError, match="PKS-1102"):
        kafka_sink.foreach_batch(NAMED)(SimpleNamespace(isStreaming=True, sparkSession=CLASSIC), 0)  # type: ignore
    (line,) = logged
    assert line.startswith("the batch failed: PKS-1102 ") and "Data: Nothing was written." in line and "\n" not in line


# ---- a query that is stopped ----

RUN = "6d2c0ec3-9f4e-4bd0-9b6c-53ad2f3f0c8e"
# What Spark searches for in the error of a function, in StreamExecution's companion.
CALLING, CLASSES = "py4j.protocol.Py4JJavaError: An error occurred while calling", "java.lang.InterruptedException|x"


@pytest.mark.parametrize(
    "pattern",
    [CALLING + r".+(\r\n|\r|\n): (" + CLASSES + ")", CALLING + r"((.|\r\n|\r|\n)*)(" + CLASSES + ")"],
    ids=["3.4 and 3.5", "4.0 to 4.3"],
)
@pytest.mark.parametrize(
    "told", [f"of a task: java.io.IOException\n Caused by: {INTERRUPTED}", INTERRUPTED + "x" * 99_999]
)
def test_spark_takes_the_error_for_the_end_of_a_stopped_query_and_the_user_sees_what_it_was_told(
    monkeypatch: pytest.MonkeyPatch, pattern: str, told: str
) -> None:
    """The error may be about something else, such as a task of the user's that was interrupted."""
    with pytest.raises(TransactionAborted) as raised:
        fail_with(told, monkeypatch, is_only_sink=True)
    assert f"ValueError: {' '.join(told.split())[:400]}" in str(raised.value)
    said = "".join(traceback.format_exception(raised.value))
    assert re.search(pattern, said)
    assert len(said[said.index("the query was stopped") :]) < 1000 and "direct cause" not in said


# By the function of `foreach_batch`, or by `write_batch` in one of the user's.
WAYS = pytest.mark.parametrize("is_only_sink", [True, False], ids=["foreach_batch", "write_batch"])


@WAYS
@pytest.mark.parametrize(
    "text",
    [
        "An error occurred while calling o1.collect.\n: java.lang.InterruptedException\n\tat java.lang.Object.wait",
        f"org.apache.spark.SparkException: Job 3 cancelled part of cancelled job group {RUN}",
        f"[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group {RUN} SQLSTATE: XXKDA",
    ],
)
def test_a_write_that_a_stop_has_interrupted_or_cancelled_says_so(
    monkeypatch: pytest.MonkeyPatch, text: str, is_only_sink: bool
) -> None:
    with pytest.raises(TransactionAborted, match="the query was stopped, or its job cancelled, in the"):
        fail_with(text, monkeypatch, is_only_sink)


@WAYS
@pytest.mark.parametrize(
    "text",
    ["Job 3 cancelled part of cancelled job group mine", "no row", "cancelled job group "]
    + [f"The value '{INTERRUPTED}: sleep' cannot be cast", f"at Queue.take: {INTERRUPTED}"],
)
def test_any_other_error_of_a_batch_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, text: str, is_only_sink: bool
) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        fail_with(text, monkeypatch, is_only_sink)


@WAYS
@pytest.mark.parametrize("is_active", [True, False])
def test_a_row_with_a_stack_trace_in_the_error_of_a_query_that_runs_is_no_stop(
    monkeypatch: pytest.MonkeyPatch, is_only_sink: bool, is_active: bool
) -> None:
    text = f"The value 'RuntimeException\n\tat a.b\nCaused by: {INTERRUPTED}: sleep' cannot be cast to INT"
    execution = SimpleNamespace(isActive=lambda: is_active)
    with pytest.raises(ValueError if is_active else TransactionAborted, match="cannot be cast"):
        fail_with(text, monkeypatch, is_only_sink, execution)


def fail_with(text: str, monkeypatch: pytest.MonkeyPatch, is_only_sink: bool, execution: object = None) -> None:
    """A micro-batch of this run fails. `execution`: Spark's own object of its query, where that can be reached."""

    def write(*_: object, **__: object) -> None:
        raise ValueError(text)

    monkeypatch.setattr(second_door, "_write_batch", write)
    context = SimpleNamespace(getLocalProperty={JOB_GROUP: RUN, QUERY_ID: KEY.query_id}.get)
    conf = SimpleNamespace(get=lambda name, default: "1m")
    session = SimpleNamespace(sparkContext=context, conf=conf)
    if execution is not None:
        state = SimpleNamespace(activeStreamingQueries=lambda: {KEY.query_id: execution})
        session._jsparkSession = SimpleNamespace(sharedState=lambda: state)
        session._jvm = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(UUID=SimpleNamespace(fromString=str))))
    frame: Any = SimpleNamespace(sparkSession=session)
    if is_only_sink:
        kafka_sink.foreach_batch({**NAMED, "topic": "t"})(frame, 0)
    else:
        kafka_sink.write_batch(frame, 0, {"topic": "t"})
