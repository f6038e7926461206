"""The hand-written reader of Produce responses agrees with the generic decoder, or leaves the response to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.kafka.wire.frames import decode_response, encode_response
from kafka_sink.kafka.wire.produce import Acknowledgements, read_acknowledgements

CORRELATION_ID = 77
INT64 = st.integers(-(2**63), 2**63 - 1)


def _partition(version: int, *, is_good: bool) -> st.SearchStrategy[dict[str, Any]]:
    good = {"index": st.integers(0, 2**31 - 1), "base_offset": INT64, "log_append_time_ms": INT64}
    if is_good:
        return st.fixed_dictionaries({**good, "error_code": st.just(0)})
    leader = {"current_leader": st.just({"leader_id": 3, "leader_epoch": 4})} if version >= 10 else {}
    error = {"batch_index": st.integers(0, 9), "batch_index_error_message": st.none() | st.text(max_size=3)}
    return st.fixed_dictionaries(
        {**good, "error_code": st.integers(-1, 130)},
        optional={
            "record_errors": st.lists(st.fixed_dictionaries(error), max_size=2),
            "error_message": st.none() | st.text(max_size=3),
            **leader,
        },
    )


def _answers(version: int, *, is_good: bool) -> st.SearchStrategy[dict[str, Any]]:
    name = {"topic_id": st.binary(min_size=16, max_size=16)} if version >= 13 else {"name": st.text(max_size=200)}
    partitions = st.lists(_partition(version, is_good=is_good), max_size=3)
    topic = st.fixed_dictionaries({**name, "partition_responses": partitions})
    return st.fixed_dictionaries(
        {"responses": st.lists(topic, max_size=3), "throttle_time_ms": st.integers(-1, 2**31 - 1)}
    )


FLEXIBLE_VERSIONS = st.integers(9, PRODUCE.version_max)
GOOD = FLEXIBLE_VERSIONS.flatmap(lambda version: st.tuples(st.just(version), _answers(version, is_good=True)))
ANY = FLEXIBLE_VERSIONS.flatmap(lambda version: st.tuples(st.just(version), _answers(version, is_good=False)))


def _frame(version: int, body: dict[str, Any]) -> bytes:
    return encode_response(PRODUCE, version, CORRELATION_ID, body)[4:]


def _by_rows(version: int, frame: bytes) -> Acknowledgements | None:
    """The result of the generic decoder as `Acknowledgements`; None if it contains more than these can hold."""
    try:
        body = decode_response(PRODUCE, version, frame, CORRELATION_ID)
    except RemoteProtocolError:
        return None
    partitions = []
    for topic in body["responses"]:
        for each in topic["partition_responses"]:
            has_more = each["record_errors"] or each["error_message"] is not None
            if each["error_code"] or has_more or each.get("current_leader", {}).get("leader_id", -1) != -1:
                return None
            key = topic["topic_id"] if version >= 13 else topic["name"]
            partitions.append((key, each["index"], each["base_offset"], each["log_append_time_ms"]))
    if body.get("node_endpoints"):
        return None
    return Acknowledgements(body["throttle_time_ms"], partitions)


@given(GOOD)
def test_a_good_answer_is_read_by_hand_as_by_the_rows(case: tuple[int, dict[str, Any]]) -> None:
    version, body = case
    found = read_acknowledgements(version, _frame(version, body), CORRELATION_ID)
    expected = _by_rows(version, _frame(version, body))
    is_short = all(len(topic.get("name", "").encode()) < 126 for topic in body["responses"])
    assert found == expected if is_short else found in (None, expected)


@given(ANY)
def test_an_answer_that_says_more_is_left_to_the_rows(case: tuple[int, dict[str, Any]]) -> None:
    version, body = case
    found = read_acknowledgements(version, _frame(version, body), CORRELATION_ID)
    assert found is None or found == _by_rows(version, _frame(version, body))


@given(GOOD, st.data())
def test_a_broken_answer_is_never_taken_for_a_good_one(case: tuple[int, dict[str, Any]], data: st.DataObject) -> None:
    version, body = case
    frame = bytearray(_frame(version, body))
    change = data.draw(st.sampled_from(("flip", "cut", "add")))
    if change == "flip":
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    elif change == "cut":
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    else:
        frame += data.draw(st.binary(min_size=1, max_size=3))
    found = read_acknowledgements(version, bytes(frame), CORRELATION_ID)
    assert found is None or found == _by_rows(version, bytes(frame))


@pytest.mark.parametrize("version", [9, PRODUCE.version_max])
def test_one_wrong_byte_anywhere_is_never_taken_for_a_good_answer(version: int) -> None:
    topic = {"name": "t"} if version < 13 else {"topic_id": bytes(range(16))}
    topics = [{**topic, "partition_responses": [{"index": 3}]}, {**topic, "partition_responses": []}]
    frame = _frame(version, {"responses": topics})
    assert read_acknowledgements(version, frame, CORRELATION_ID) == _by_rows(version, frame)
    for position in range(len(frame)):
        for value in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
            wrong = frame[:position] + bytes([value]) + frame[position + 1 :]
            found = read_acknowledgements(version, wrong, CORRELATION_ID)
            assert found is None or found == _by_rows(version, wrong)


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 254, 255, 1000])
def test_one_byte_counts_up_to_126_partitions_and_two_bytes_more(count: int) -> None:
    rows = [{"index": index, "error_code": 0, "base_offset": index * 7} for index in range(count)]
    frame = _frame(12, {"responses": [{"name": "t", "partition_responses": rows}], "throttle_time_ms": 5})
    found = read_acknowledgements(12, frame, CORRELATION_ID)
    assert found == _by_rows(12, frame) == Acknowledgements(5, [("t", n, n * 7, -1) for n in range(count)])


def test_the_answer_to_another_request_is_left_to_the_rows_which_refuse_it() -> None:
    body = {"responses": [], "throttle_time_ms": 0}
    assert read_acknowledgements(9, _frame(9, body), CORRELATION_ID) == Acknowledgements(0, [])
    assert read_acknowledgements(9, _frame(9, body), CORRELATION_ID + 1) is None


def test_versions_before_compact_arrays_are_left_to_the_rows() -> None:
    body = {"responses": [], "throttle_time_ms": 0}
    assert read_acknowledgements(8, _frame(8, body), CORRELATION_ID) is None
