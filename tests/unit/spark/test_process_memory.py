"""Objects that live as long as the process are excluded from garbage collection; others are collected eventually."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from kafka_sink.spark.process_memory import RENEWED_AFTER, LastingHeap

WORK_MAX = 3 * RENEWED_AFTER


class Circle:
    """A reference cycle, which only the garbage collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def only_the_daemon_collects() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
    gc.collect()


@pytest.fixture
def loaded() -> Iterator[list[str]]:
    """The names of modules that the test has created."""
    names: list[str] = []
    yield names
    for name in names:
        sys.modules.pop(name, None)


def load(names: list[str]) -> None:
    names.append(f"made_by_test_heap_{len(names)}")
    sys.modules[names[-1]] = ModuleType(names[-1])


def test_what_is_there_when_work_begins_is_not_looked_at_again() -> None:
    circle = Circle()
    LastingHeap().on_work_begin()
    assert not any(each is circle for each in gc.get_objects())
    assert gc.get_freeze_count() > 0


def test_once_everything_is_loaded_the_garbage_of_each_piece_of_work_goes_when_the_daemon_collects() -> None:
    heap, circles = LastingHeap(), []
    for number in range(50):
        alive = Circle()  # like Spark's own functions when a task begins
        heap.on_work_begin()
        circles.append(weakref.ref(alive))
        del alive
        gc.collect()
        assert sum(each() is not None for each in circles) <= 1, f"after {number + 1} pieces of work"


def test_what_was_loaded_later_is_frozen_when_the_next_piece_of_work_begins(loaded: list[str]) -> None:
    heap = LastingHeap()
    heap.on_work_begin()
    load(loaded)
    circle = Circle()
    heap.on_work_begin()
    assert not any(each is circle for each in gc.get_objects())


def test_code_that_loads_a_module_each_time_leaks_no_more_than_one_round_of_renewal(loaded: list[str]) -> None:
    heap, circles = LastingHeap(), []
    for _ in range(WORK_MAX):
        load(loaded)
        alive = Circle()
        heap.on_work_begin()
        circles.append(weakref.ref(alive))
        del alive
    assert sum(each() is not None for each in circles) <= RENEWED_AFTER
    assert gc.get_freeze_count() > 0
