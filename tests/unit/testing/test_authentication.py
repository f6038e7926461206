"""Requests between the tokens of a login."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.wire import apis
from kafka_sink.testing import BrokerCluster, Settings
from tests.support.cluster_client import Closed, ClusterClient


def logging_in() -> ClusterClient:
    client = ClusterClient(BrokerCluster(1, users={"alice": "secret"}))
    assert client.ask(1, apis.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})["error_code"] == 0
    return client


def test_a_request_between_two_tokens_is_told_so_where_its_version_has_a_code() -> None:
    answer = logging_in().ask(1, apis.FIND_COORDINATOR, 3, {"key": "group"})
    assert answer["error_code"] == 34


def test_it_is_only_cut_off_where_its_version_has_none() -> None:
    client = logging_in()
    with pytest.raises(Closed):
        client.ask(1, apis.FIND_COORDINATOR, 4, {"coordinator_keys": ["group"]})


@pytest.mark.parametrize(("quirks", "token"), [("", b""), ("event-hubs", None)])
def test_event_hubs_refuse_a_login_with_null_in_place_of_a_token(quirks: str, token: bytes | None) -> None:
    client = ClusterClient(BrokerCluster(1, users={"alice": "secret"}, settings=Settings(quirks=quirks)))
    client.ask(1, apis.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    answer = client.ask(1, apis.SASL_AUTHENTICATE, 1, {"auth_bytes": b"\0alice\0wrong"})
    assert (answer["error_code"], answer["auth_bytes"]) == (58, token)
    assert "Invalid username or password" in answer["error_message"]
