"""`register` in each PySpark that has the format: Spark may have found an installed package by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from kafka_sink.spark import register


class Session:
    """A session whose Spark answers like this."""

    def __init__(self, condition: str = "") -> None:
        self.dataSource = SimpleNamespace(register=self._register)
        self.is_active = False
        self._condition = condition

    def _register(self, _source: type) -> None:
        if self._condition:
            raise AnalysisException(errorClass=self._condition, message=self._condition, messageParameters={})

    def createDataFrame(self, *_: object) -> None:
        self.is_active = True


def registered(condition: str = "") -> Session:
    session: Any = Session(condition)
    register(session)
    return session


@pytest.mark.parametrize("condition", ["", "DATA_SOURCE_ALREADY_EXISTS"])
def test_the_session_becomes_active_also_if_spark_had_found_the_format(condition: str) -> None:
    assert registered(condition).is_active


def test_any_other_refusal_is_the_callers() -> None:
    with pytest.raises(AnalysisException):
        registered("INVALID_OPTION")
