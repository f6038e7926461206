"""Whether what is done for many topics looks at each of them a few times, or once for each of the others."""

from __future__ import annotations


class CountedName(str):
    """The name of a topic that counts how often such names are compared. Each is an object of its own, as names are
    that receipts have brought from several tasks."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def written_names(topic_count: int, partition_count: int) -> list[tuple[str, int]]:
    CountedName.compared = 0
    return [(CountedName(f"t{topic:04}"), part) for topic in range(topic_count) for part in range(partition_count)]
