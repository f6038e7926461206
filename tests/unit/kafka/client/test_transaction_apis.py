"""The versions of requests by transaction version."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.client.transaction_apis import versions_of
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Api,
)

RULED_BY_VERSION = (PRODUCE, TXN_OFFSET_COMMIT, END_TXN)
APIS = (*RULED_BY_VERSION, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_version_is_one_that_the_package_speaks(api: Api) -> None:
    for transaction_version in (1, 2):
        first, last = versions_of(api, transaction_version)
        assert api.version_min <= first <= last <= api.version_max


@pytest.mark.parametrize("api", RULED_BY_VERSION, ids=lambda api: api.name)
def test_a_version_that_selects_the_rules_belongs_to_one_transaction_version(api: Api) -> None:
    (_, last_of_first), (first_of_second, last_of_second) = versions_of(api, 1), versions_of(api, 2)
    assert last_of_first + 1 == first_of_second
    assert last_of_second == api.version_max
