"""What lies on a shelf is nobody's; what was taken is somebody's alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from kafka_sink.kafka.io.shelf import Shelf

THREADS, TURNS = 10, 2_000


def test_what_was_put_back_last_is_taken_first_and_the_oldest_goes_when_there_is_no_room() -> None:
    shelf: Shelf[str, int] = Shelf(3)
    assert shelf.take("a") is None
    for key, thing in (("a", 1), ("b", 2), ("a", 3)):
        assert shelf.put(key, thing) == []
    assert shelf.put("c", 4) == [2], "b was used least recently"
    assert (shelf.take("a"), shelf.take("a"), shelf.take("a")) == (3, 1, None)
    assert (len(shelf), shelf.clear(), len(shelf)) == (1, [4], 0)


def test_all_of_one_kind_are_taken_at_once_and_the_others_stay() -> None:
    shelf: Shelf[str, int] = Shelf(3)
    for key, thing in (("a", 1), ("b", 2), ("a", 3)):
        shelf.put(key, thing)
    assert (shelf.take_all("a"), shelf.take_all("a"), len(shelf)) == ([1, 3], [], 1)
    assert shelf.put("c", 4) == [] and shelf.put("c", 5) == [], "there is room again"


def test_large_things_take_the_room_of_several_and_the_last_one_stays_however_large() -> None:
    shelf: Shelf[str, str] = Shelf(9, 6, len)
    assert shelf.put("a", "xx") == shelf.put("b", "xx") == shelf.put("c", "xx") == []
    assert shelf.put("d", "xxx") == ["xx", "xx"], "a and b were used least recently"
    assert shelf.take("c") == "xx" and shelf.put("e", "xxx") == [], "what was taken takes no room"
    assert shelf.put("f", "x" * 7) == ["xxx", "xxx"]
    assert shelf.put("g", "x") == ["x" * 7]
    assert shelf.take_all("g") == ["x"] and shelf.put("h", "x" * 6) == []
    assert shelf.clear() == ["x" * 6] and shelf.put("a", "xxx") == shelf.put("b", "xxx") == []


def test_no_two_threads_have_the_same_thing() -> None:
    shelf: Shelf[int, list[int]] = Shelf(THREADS // 2)
    start = threading.Barrier(THREADS)
    made: list[list[int]] = []

    def use(me: int) -> None:
        start.wait(60)
        for turn in range(TURNS):
            thing = shelf.take(turn % 3)
            if thing is None:
                thing = []
                made.append(thing)
            thing.append(me)
            assert thing[-1] == me and len(thing) == 1
            thing.clear()
            shelf.put(turn % 3, thing)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(use, me) for me in range(THREADS)]:
            done.result(120)
    assert len(shelf) <= THREADS // 2
    assert made
