"""Manifests in the ledger, and their places, over random content."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.commit.admin.manifests import parse_manifest
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.ledger_codec import INT64_MAX, decode_record, encode_record
from kafka_sink.commit.manifest import Manifest, partition_of_key
from kafka_sink.commit.receipt import WrittenPartition
from kafka_sink.kafka.client.cluster import topic_id_text
from tests.support.slow_murmur2 import murmur2
from tests.unit.commit.test_ledger import record

_PARTITIONS = st.builds(
    WrittenPartition,
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 2**31 - 1),
    st.integers(0, 10**12),
    st.integers(-1, INT64_MAX - 1),
    st.integers(-1, INT64_MAX - 1),
)


@given(
    st.lists(_PARTITIONS, max_size=20),
    st.integers(0, 2**31 - 1),
    st.dictionaries(st.sampled_from(["key", "value"]), st.integers(0, 2**31)),
    st.lists(_PARTITIONS, max_size=5),
    st.dictionaries(st.sampled_from(["a", "b"]), st.binary(min_size=16, max_size=16).map(topic_id_text)),
)
def test_any_manifest_is_read_as_it_was_written(
    written: list[WrittenPartition], partition: int, schemas: dict[str, int], letters: list[WrittenPartition],
    ids: dict[str, str],
) -> None:  # fmt: skip
    manifest = Manifest("m", partition, "s", tuple(written), schemas, tuple(letters), ids)
    assert decode_record(encode_record(record(Kind.INTENT, manifest=manifest))).manifest == manifest


def made() -> dict[str, Any]:
    named = Manifest("m", 0, "s", (WrittenPartition("a", 0, 1, 5, 6),), {"value": 3}, topic_ids={"a": "id"})
    intent = record(Kind.DONE, cluster_id="here", manifest=named)
    assert intent.manifest_record is not None
    content: dict[str, Any] = json.loads(intent.manifest_record[1])
    return content


_ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


@given(_ANY_JSON, st.sampled_from(sorted(made())))
def test_whatever_is_in_the_topic_is_a_manifest_or_passed_over(found: Any, field: str) -> None:
    whole = made()
    assert parse_manifest(json.dumps(whole).encode()) is not None
    assert parse_manifest(json.dumps(found).encode()) is None
    for changed in ({**whole, field: found}, {name: each for name, each in whole.items() if name != field}):
        manifest = parse_manifest(json.dumps(changed).encode())
        if manifest is not None:
            assert manifest.spark_options()["assign"] and hash((manifest.sink, manifest.batch_id))


@given(st.binary(max_size=40), st.integers(1, 10_000))
def test_it_goes_to_the_partition_of_its_key_as_with_any_producer(key: bytes, count: int) -> None:
    assert partition_of_key(key, count) == (murmur2(key) & 0x7FFFFFFF) % count
