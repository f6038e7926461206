"""`@frozen` creates the same class as `dataclass`, but faster."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import ClassVar

import pytest

from kafka_sink.frozen import frozen


@frozen
class Ours:
    """A reading."""

    place: str
    values: tuple[int, ...] = ()
    more: Mapping[str, int] = field(default_factory=dict)
    secret: str = field(default="s", repr=False)

    @property
    def count(self) -> int:
        return len(self.values)


@dataclass(slots=True, unsafe_hash=True)
class Theirs:
    place: str
    values: tuple[int, ...] = ()
    more: Mapping[str, int] = field(default_factory=dict)
    secret: str = field(default="s", repr=False)


@frozen
class Alone:
    value: int


@frozen
class Empty:
    pass


@pytest.mark.parametrize("given", [("a",), ("a", (1, 2)), ("a", (), {"x": 1}, "t")])
def test_fields_defaults_and_text_are_those_of_a_dataclass(given: tuple[object, ...]) -> None:
    ours, theirs = Ours(*given), Theirs(*given)
    assert asdict(ours) == asdict(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    assert is_dataclass(Ours) and Ours.__match_args__ == Theirs.__match_args__


def test_each_one_has_its_own_default_that_is_made() -> None:
    assert Ours("a").more is not Ours("a").more


def test_equal_are_those_of_one_class_with_equal_values() -> None:
    assert Ours("a", (1,)) == Ours("a", (1,)) != Ours("a", (2,))
    assert Ours("a", (1,)) != Theirs("a", (1,))
    assert Alone(1) == Alone(1) != Alone(2)
    assert Empty() == Empty() != Alone(1)


def test_equal_ones_have_one_hash_and_a_value_without_hash_has_none() -> None:
    assert len({Alone(1), Alone(1), Alone(2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours("a", more={}))


def test_copies_changed_copies_and_what_was_pickled_are_equal() -> None:
    ours = Ours("a", (1, 2), {"x": 1})
    assert copy(ours) == pickle.loads(pickle.dumps(ours)) == ours
    assert replace(ours, place="b") == Ours("b", (1, 2), {"x": 1})
    assert ours.count == 2 and Ours.__doc__ == "A reading."


def test_there_is_no_room_for_anything_else() -> None:
    with pytest.raises(AttributeError):
        Alone(1).other = 2
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'value'"):
        Alone()


def test_what_it_does_not_know_is_refused_where_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="Child needs more than @frozen can: make it a dataclass"):

        @frozen
        class Child(Alone):
            more: int

    with pytest.raises(TypeError, match="needs more than @frozen can"):

        @frozen
        class Shared:
            all_of_them: ClassVar[int] = 1

    with pytest.raises(TypeError, match="needs more than @frozen can"):

        @frozen
        class Busy:
            value: int

            def __post_init__(self) -> None:
                self.value += 1
