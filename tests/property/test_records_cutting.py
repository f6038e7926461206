"""Where a long column is cut: every row is in one piece, limits hold, and no piece is a leftover of a few rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.formats.records.columns import RECORD_OVERHEAD_BYTES_MAX, RecordColumns
from kafka_sink.formats.records.cutting import cut_rows


def columns(sizes: list[int]) -> RecordColumns:
    return RecordColumns.from_rows([None] * len(sizes), [bytes(size) for size in sizes])


@given(
    sizes=st.one_of(
        st.lists(st.integers(0, 600), min_size=1, max_size=40),
        st.builds(lambda size, count: [size] * count, st.integers(0, 600), st.integers(1, 40)),
    ),
    wanted_bytes=st.integers(1, 3000),
    bytes_max=st.none() | st.integers(1, 3000),
    rows_max=st.none() | st.integers(1, 50),
)
def test_pieces_cover_all_rows_once_and_keep_the_limits(
    sizes: list[int], wanted_bytes: int, bytes_max: int | None, rows_max: int | None
) -> None:
    rows = columns(sizes)
    cut = list(cut_rows(rows, wanted_bytes, bytes_max=bytes_max, rows_max=rows_max))
    assert [row for start, stop in cut for row in range(start, stop)] == list(range(len(sizes)))
    largest_row = max(rows.slice(row, row + 1).bytes_max for row in range(len(sizes)))
    for start, stop in cut:
        piece_bytes = rows.slice(start, stop).bytes_max
        assert rows_max is None or stop - start <= rows_max
        assert stop - start == 1 or bytes_max is None or piece_bytes <= bytes_max
        assert piece_bytes <= 1.5 * wanted_bytes + largest_row
    if bytes_max is None and rows_max is None:
        assert len(cut) <= max(1, round(rows.bytes_max / wanted_bytes))


@pytest.mark.parametrize("rows_over", [0, 1, 2, 60])
def test_a_few_rows_beyond_the_wanted_size_make_no_piece_of_their_own(rows_over: int) -> None:
    size = 1000 - RECORD_OVERHEAD_BYTES_MAX - 3
    alike = columns([size] * (400 + rows_over))
    mixed = columns([size, size - 1] * ((400 + rows_over) // 2))
    for rows in (alike, mixed):
        assert list(cut_rows(rows, 400_000)) == [(0, rows.row_count)]
        halves = [stop - start for start, stop in cut_rows(rows, 200_000)]
        assert len(halves) == 2
        assert max(halves) - min(halves) <= 4


def test_no_rows_make_no_piece() -> None:
    assert list(cut_rows(columns([]), 100, bytes_max=100)) == []
