"""Frames between foreign clients and real brokers (tests/golden/record_wire.py) are decoded and encoded identically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS, PRODUCE
from kafka_sink.kafka.wire.frames import decode_request_header, decode_response, encode_request, encode_response

GOLDEN = Path(__file__).parents[3] / "golden"


def recorded() -> list[Any]:
    cases = []
    for path in sorted(GOLDEN.glob("wire_*.json")):
        document = json.loads(path.read_text())
        for pair in document["pairs"]:
            api = APIS.get(pair["api_key"])
            if api is not None and api.version_min <= pair["version"] <= api.version_max:
                name = f"{document['broker']}-{pair['client']}-{api.name}-v{pair['version']}".replace(" ", "_")
                cases.append(pytest.param(api, pair, id=name))
    return cases


CASES = recorded()


def test_recordings_cover_most_apis() -> None:
    keys = {case.values[1]["api_key"] for case in CASES}
    assert len(CASES) > 100
    assert sorted(api.name for key, api in APIS.items() if key not in keys) == [
        "DescribeClientQuotas",
        "DescribeQuorum",
        "OffsetForLeaderEpoch",
    ]


@pytest.mark.parametrize(("api", "pair"), CASES)
def test_a_recorded_request_is_read_and_written_to_the_same_bytes(api: Any, pair: Any) -> None:
    frame = bytes.fromhex(pair["request"])
    api_key, version, correlation_id, client_id, offset = decode_request_header(frame)
    assert (api_key, version) == (pair["api_key"], pair["version"])
    body = api.decode_request(version, frame, offset)
    encoded = encode_request(api, version, correlation_id=correlation_id, client_id=client_id, body=body)
    assert encoded[4:] == frame


@pytest.mark.parametrize(("api", "pair"), CASES)
def test_a_recorded_answer_is_read_and_written_to_the_same_bytes(api: Any, pair: Any) -> None:
    frame = bytes.fromhex(pair["answer"])
    correlation_id = int.from_bytes(frame[:4], "big")
    body = decode_response(api, pair["version"], frame, correlation_id)
    assert encode_response(api, pair["version"], correlation_id, body)[4:] == frame


def test_brokers_announce_the_versions_that_the_engine_relies_on() -> None:
    newest: dict[str, int] = {}
    for case in CASES:
        api, pair = case.values
        if api is API_VERSIONS and pair["version"] == 4:
            frame = bytes.fromhex(pair["answer"])
            body = decode_response(api, 4, frame, int.from_bytes(frame[:4], "big"))
            ranges = {entry["api_key"]: entry["max_version"] for entry in body["api_keys"]}
            newest[case.id.split("-")[0]] = ranges[PRODUCE.key]
            assert {feature["name"] for feature in body["finalized_features"]} >= {"metadata.version"}
    assert newest == {"Apache_Kafka_3.9.1": 11, "Apache_Kafka_4.3.1": 13}
