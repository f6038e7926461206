"""An `Api` is one object in a process, however it is copied: code compares with `is`."""

from __future__ import annotations

import copy
import pickle

import pytest

from kafka_sink.kafka.client.outcome import DriverOutcome, driver_outcome
from kafka_sink.kafka.wire.apis import APIS, METADATA, PRODUCE, Api


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_copy_of_an_api_is_the_api(api: Api) -> None:
    assert pickle.loads(pickle.dumps(api)) is api
    assert copy.deepcopy(api) is api


def test_an_api_whose_codecs_are_compiled_can_be_pickled() -> None:
    METADATA.encode_request(4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": False})
    assert pickle.loads(pickle.dumps(METADATA)) is METADATA


def test_a_copy_of_a_machine_understands_the_same_answers() -> None:
    """As of a fenced driver, which looks who has taken over."""
    assert driver_outcome(pickle.loads(pickle.dumps(PRODUCE)), 47) is DriverOutcome.FENCED
