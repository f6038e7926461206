"""No error of a write, and no line of its log, shows the secret of any option: each option that can hold one, with the
secret itself and with references to it. What Spark shows of them: tests/spark/test_canary_doors.py."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StringType, StructType

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.auth import renewal
from kafka_sink.options.secret_options import secret_options
from kafka_sink.spark.datasource import plan_batch
from tests.spark.canaries import ACCEPTED, Canaries, canaries
from tools.worker_environment import worker_environment

SCHEMA = StructType().add("value", StringType())


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canaries]:
    with canaries(tmp_path_factory.mktemp("canaries")) as made:
        yield made


@pytest.mark.parametrize("how", ["literal", "file", "env"])
@pytest.mark.parametrize("name", list(secret_options()))
def test_what_is_said_of_a_write_that_is_refused_has_no_secret(
    held: Canaries, name: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for variable, value in {**worker_environment(tmp_path), **held.environment}.items():
        monkeypatch.setenv(variable, value)
    # Nobody waits between two tries at an endpoint that is not there.
    hurried = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=lambda _s: None)
    monkeypatch.setattr(renewal, "time", hurried)
    said = []
    with caplog.at_level("DEBUG", "kafka_sink"):
        try:
            said.append(repr(plan_batch(held.options(name, held.value(name, how)), SCHEMA, False)))
        except KafkaSinkError as error:
            said += [str(error), repr(error), pickle.dumps(error).decode("latin-1"), repr(vars(error))]
            said += traceback.format_exception(error)
            assert name not in ACCEPTED
        else:
            assert name in ACCEPTED
    assert [text for text in [*said, caplog.text] for secret in held.secrets.values() if secret in text] == []
