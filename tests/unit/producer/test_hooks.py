"""Arguments of users: serializers, headers, topics, interceptors, groups. Errors name what is wrong and no value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafka_sink.errors import DataError, KafkaSinkError
from kafka_sink.producer import interceptors as interceptors_module
from kafka_sink.producer.engine.commands import ConsumerGroup
from kafka_sink.producer.interceptors import Interceptors, ProducerRecord
from kafka_sink.producer.offsets import OffsetAndMetadata, read_offsets
from kafka_sink.producer.serialize import check_row, check_size, read_headers, serialize

from .shell import FakeLogger

SECRET = "what-no-text-may-show"


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> FakeLogger:
    fake = FakeLogger()
    monkeypatch.setattr(interceptors_module, "_LOGGER", fake)
    return fake


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), (b"", b""), (bytearray(b"x"), b"x"), (memoryview(b"x"), b"x"), ("grün", b"gr\xc3\xbcn")],
)
def test_bytes_stay_what_they_are_and_text_becomes_utf8(given: object, expected: bytes | None) -> None:
    assert serialize("value", "t", given, None) == expected


@pytest.mark.parametrize("given", [42, 1.5, object(), [SECRET], "\ud800"])
def test_what_is_neither_is_refused_by_field_topic_and_type(given: object) -> None:
    with pytest.raises(DataError, match="the key of a record for topic t is") as caught:
        serialize("key", "t", given, None)
    assert caught.value.column == "key"
    assert SECRET not in str(caught.value)


def test_a_serializer_that_raises_is_named_and_what_it_saw_is_not() -> None:
    def strict(value: Any) -> bytes:
        raise ValueError(SECRET)

    with pytest.raises(DataError, match=r"the value of a record for topic t was not serialized: .*strict") as caught:
        serialize("value", "t", SECRET, strict)
    assert SECRET not in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(DataError, match="is of type int; needed is bytes or None"):
        serialize("value", "t", 1, lambda value: value)


def test_headers_keep_order_and_duplicates_and_may_be_a_mapping() -> None:
    pairs, byte_count = read_headers("t", [("a", b"1"), ("a", None), ("b", "text")])
    assert pairs == (("a", b"1"), ("a", None), ("b", b"text"))
    assert byte_count >= 3 + 5
    assert read_headers("t", {"a": b"1"})[0] == (("a", b"1"),)
    assert read_headers("t", [])[0] is None


@pytest.mark.parametrize("headers", [["ab"], [("a",)], [(b"a", b"1")], [("a", 1)], [7], [("\ud800", b"")], 5])
def test_headers_that_are_no_pairs_are_refused(headers: Any) -> None:
    if headers == ["ab"]:
        headers = ["abc"]
    with pytest.raises(DataError, match="topic t"):
        read_headers("t", headers)


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ((None, None, None), "topic"),
        (("", None, None), "topic"),
        ((b"t", None, None), "topic"),
        (("t", -1, None), "timestamp"),
        (("t", 1.5, None), "timestamp"),
        (("t", None, -1), "partition"),
        (("t", None, True), "partition"),
        (("t", None, 2**31), "partition"),
    ],
)
def test_what_is_no_topic_partition_or_timestamp_is_refused_by_name(row: Any, column: str) -> None:
    with pytest.raises(DataError) as caught:
        check_row(*row)
    assert caught.value.column == column


def test_a_record_above_the_request_size_is_refused_with_both_sizes() -> None:
    check_size("t", None, bytes(800), None, 1000)
    with pytest.raises(DataError, match=r"takes \d+ bytes.* for topic t|for topic t .*takes \d+ bytes"):
        check_size("t", b"key", bytes(990), (("h", b"1"),), 1000)


def test_interceptors_go_in_turn_and_one_that_raises_changes_nothing(logger: FakeLogger) -> None:
    class Append:
        def __init__(self, letter: str) -> None:
            self.letter = letter

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(record.topic, record.value + self.letter)

    class Broken:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise RuntimeError

    class Wrong:
        def on_send(self, record: ProducerRecord) -> str:
            return "no record"

    class Silent:
        def on_send(self, record: ProducerRecord) -> None:
            return None

    chain = Interceptors([Append("a"), Broken(), Wrong(), Silent(), Append("b")])
    assert chain.on_send(ProducerRecord("t", "")).value == "ab"
    assert [text for _, text in logger.said] == [
        "interceptor Broken raised in on_send (topic t)",
        "interceptor Wrong returned a str from on_send for topic t; the record stays as it was",
    ]


def test_interceptors_that_raise_in_the_end_do_not_keep_others_from_theirs(logger: FakeLogger) -> None:
    closed: list[str] = []

    class Closing:
        def close(self) -> None:
            closed.append("here")

    class Broken:
        def on_acknowledgement(self, metadata: object, error: KafkaSinkError | None) -> None:
            raise RuntimeError

        def close(self) -> None:
            raise RuntimeError

    chain = Interceptors([Broken(), Closing()])
    chain.on_acknowledgement("t", None, None)
    chain.close()
    assert closed == ["here"]
    assert [text for _, text in logger.said] == [
        "interceptor Broken raised in on_acknowledgement (topic t)",
        "interceptor Broken raised in close",
    ]


def test_offsets_carry_the_member_of_the_group() -> None:
    group = ConsumerGroup("g", 3, "member", "instance")
    offsets: dict[tuple[str, int], int | OffsetAndMetadata] = {("t", 0): 5, ("t", 1): OffsetAndMetadata(6, 2, "note")}
    assert read_offsets(offsets, group) == (group, {("t", 0): (5, -1, ""), ("t", 1): (6, 2, "note")})
    assert read_offsets({("t", 0): 1}, "g")[0] == ConsumerGroup("g", -1, "", None)


def test_offsets_may_be_numbers_of_numpy() -> None:
    from_arrays: Any = {("t", np.int32(1)): np.int64(7), ("t", 2): (np.int64(8), 3)}
    assert read_offsets(from_arrays, "g")[1] == {("t", 1): (7, -1, ""), ("t", 2): (8, 3, "")}


@pytest.mark.parametrize(
    "group",
    [
        *(None, "", "\ud800", "g" * 32_768, ConsumerGroup(""), ConsumerGroup("g", 3), ConsumerGroup("g", 2**31, "m")),
        *(ConsumerGroup(*parts) for parts in ((5,), ("g", "1", "m"), ("g", 1, 5), ("g", -1, "", 5))),  # type: ignore[arg-type]
    ],
)
def test_a_group_that_is_none_or_fits_into_no_request_is_refused(group: Any) -> None:
    with pytest.raises(DataError, match="group"):
        read_offsets({("t", 0): 1}, group)


@pytest.mark.parametrize(
    "offsets",
    [
        *({("t", 0): -1}, {("t", "0"): 1}, {"t": 1}, {("t", 0): "1"}, {("t", 0): 1.5}, [("t", 0)]),
        *({("t", 0): 2**63}, {("t", -1): 1}, {("t", 2**31): 1}, {("\ud800", 0): 1}),
        *({("t", 0): OffsetAndMetadata(1, 2**31)}, {("t", 0): OffsetAndMetadata(1, 0, "x" * 32_768)}),
        {("t", 0): (1, 2, 3, 4)},
    ],
)
def test_offsets_that_are_none_or_fit_into_no_request_are_refused(offsets: Any) -> None:
    with pytest.raises(DataError, match="offset"):
        read_offsets(offsets, "g")
