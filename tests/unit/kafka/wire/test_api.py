"""An `Api` as a value: processes exchange its definition, not the codecs compiled from it."""

from __future__ import annotations

import pickle

from kafka_sink.kafka.wire.apis import METADATA


def test_an_api_whose_codecs_are_compiled_can_be_pickled_and_encodes_the_same() -> None:
    body = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
    encoded = METADATA.encode_request(4, body)
    copy = pickle.loads(pickle.dumps(METADATA))
    assert (copy.key, copy.name, copy.versions) == (METADATA.key, METADATA.name, METADATA.versions)
    assert copy.encode_request(4, body) == encoded
