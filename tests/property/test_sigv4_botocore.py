"""Amazon's own library signs the same requests identically, for any keys, hosts and times."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.security.sigv4 import AwsCredentials, presign_query, scope_at

PRINTABLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=60)
KEY_IDS = st.from_regex(r"[A-Z0-9]{4,20}", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9]{1,10}(\.[a-z0-9\-]{1,10}){0,5}", fullmatch=True)
REGIONS = st.sampled_from(["us-east-1", "eu-west-1", "cn-north-1", "us-gov-west-1"])
TIMES = st.integers(1, 4_000_000_000)


class At:
    """Context in which botocore sees this time as the current one."""

    def __init__(self, now_s: int) -> None:
        self._now = datetime.datetime.fromtimestamp(now_s, datetime.timezone.utc)

    def __enter__(self) -> None:
        self._former: Any = botocore.auth.get_current_datetime
        botocore.auth.get_current_datetime = lambda *_arguments, **_more: self._now

    def __exit__(self, *_: object) -> None:
        botocore.auth.get_current_datetime = self._former


@given(KEY_IDS, PRINTABLE, st.none() | PRINTABLE, HOSTS, REGIONS, TIMES)
def test_the_message_for_a_broker_is_that_of_botocore(
    key_id: str, secret: str, token: str | None, host: str, region: str, now_s: int
) -> None:
    request = AWSRequest(method="GET", url=f"https://{host}/", params={"Action": "kafka-cluster:Connect"})
    signer = botocore.auth.SigV4QueryAuth(Credentials(key_id, secret, token), "kafka-cluster", region, expires=900)
    with At(now_s):
        signer.add_auth(request)
    theirs = dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
    ours = presign_query(
        AwsCredentials(key_id, secret, token or ""),
        scope_at(now_s, region, "kafka-cluster"),
        host,
        {"Action": "kafka-cluster:Connect"},
        900,
    )
    assert ours == theirs
