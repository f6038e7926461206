"""ApiVersions (18), versions 0-4: what the broker speaks, and the features of the cluster.

Finalized features are those of `transaction.version`: 2 turns on transactions of the second generation in clients. A
version from the future is answered in version 0 with UNSUPPORTED_VERSION and the whole list (KIP-511). Produce is
listed from version 0 although 0-2 are refused, because librdkafka looks for that (KAFKA-18659). With
`transaction.version` 0 or 1 the list ends where that of Kafka 3.9 does: Produce 11, EndTxn 4, TxnOffsetCommit 4.
"""

from __future__ import annotations

from typing import Any

from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.wire.apis import API_VERSIONS, APIS, END_TXN, PRODUCE, TXN_OFFSET_COMMIT

TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_MAX = 2
NOT_SERVED = frozenset({"SaslHandshake", "SaslAuthenticate"})


def served_versions(call: Call) -> list[dict[str, int]]:
    version = call.core.settings.number(TRANSACTION_VERSION)
    last_of_old = {PRODUCE.key: 11, END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4} if version < 2 else {}
    return [
        {
            "api_key": api.key,
            "min_version": 0 if api is PRODUCE else api.version_min,
            "max_version": min(api.version_max, last_of_old.get(api.key, api.version_max)),
        }
        for api in sorted(APIS.values(), key=lambda one: one.key)
        if api.name not in NOT_SERVED
    ]


def on_api_versions(call: Call) -> None:
    try:
        call.check_fault()
    except Refused as refusal:
        call.answer({"error_code": int(refusal.code), "api_keys": []})
        return
    level = call.core.settings.number(TRANSACTION_VERSION)
    body: dict[str, Any] = {"error_code": 0, "api_keys": served_versions(call)}
    if call.version >= 3:
        body["supported_features"] = [
            {"name": TRANSACTION_VERSION, "min_version": 0, "max_version": TRANSACTION_VERSION_MAX}
        ]
        body["finalized_features_epoch"] = 1
        body["finalized_features"] = [
            {"name": TRANSACTION_VERSION, "max_version_level": level, "min_version_level": level}
        ] if level else []
    call.answer(body)


def refuse_version(call: Call) -> None:
    body = {"error_code": int(Code.UNSUPPORTED_VERSION), "api_keys": [
        entry for entry in served_versions(call) if entry["api_key"] == API_VERSIONS.key
    ]}
    call.answer(body, version=0)
