"""The table of error codes."""

from __future__ import annotations

from kafka_sink.kafka.wire.codes import CODES, code


def test_the_table_has_every_code_of_kafka_without_a_gap() -> None:
    assert list(CODES) == list(range(-1, 134))
    assert len({row.name for row in CODES.values()}) == 135
    assert all(row.number == number and row.text for number, row in CODES.items())


def test_stale_metadata_implies_retriable() -> None:
    assert all(row.retriable for row in CODES.values() if row.stale_metadata)
    stale = [row.number for row in CODES.values() if row.stale_metadata]
    assert stale == [3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103]
    retriable = [row.number for row in CODES.values() if row.retriable and not row.stale_metadata]
    assert retriable == [2, 7, 14, 15, 16, 19, 20, 41, 51, 70, 71, 75, 78, 88, 89, 106, 122, 123, 133]


def test_an_unknown_number_keeps_its_number_and_is_not_retriable() -> None:
    unknown = code(999)
    assert (unknown.number, unknown.name, unknown.retriable) == (999, "UNKNOWN_CODE_999", False)
    assert code(-300).number == -300


def test_known_numbers_have_their_names() -> None:
    assert [code(number).name for number in (-1, 0, 10, 35, 90, 120)] == [
        "UNKNOWN_SERVER_ERROR",
        "NONE",
        "MESSAGE_TOO_LARGE",
        "UNSUPPORTED_VERSION",
        "PRODUCER_FENCED",
        "TRANSACTION_ABORTABLE",
    ]
