"""What `kafka_sink` itself offers."""

from __future__ import annotations

from typing import Any

import kafka_sink


def test_a_star_import_takes_the_public_names_and_nothing_else() -> None:
    space: dict[str, Any] = {}
    exec("from kafka_sink import *", space)
    del space["__builtins__"]
    assert set(space) == set(kafka_sink.__all__) and space["Producer"] is kafka_sink.Producer
