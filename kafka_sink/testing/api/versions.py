"""ApiVersions (18), versions 0-4: the supported versions, and the features of the cluster.

The finalized feature `transaction.version` enables transactions of version 2 in clients; `metadata.version` tells what
all brokers know. An unknown later version is
answered in version 0 with UNSUPPORTED_VERSION (KIP-511). Produce is listed from version 0 although 0-2 are refused,
because librdkafka requires that (KAFKA-18659), and AddPartitionsToTxn up to the versions used between brokers, which
tells a client that they verify transactions (KIP-890). `Settings.release` limits the versions to those of that Kafka
release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS, PRODUCE, Api
from kafka_sink.testing.api.parts import Answer
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.session import Stage
from kafka_sink.testing.settings import Settings

TRANSACTION_VERSION, METADATA_VERSION = "transaction.version", "metadata.version"
TRANSACTION_VERSION_MAX = 2
LAST_VERSIONS: Mapping[str, Mapping[str, int]] = {
    "4.3": {},
    "3.9": {
        "Produce": 11,
        "Fetch": 17,
        "ListOffsets": 9,
        "Metadata": 12,
        "DescribeGroups": 5,
        "DescribeCluster": 1,
        "EndTxn": 4,
        "TxnOffsetCommit": 4,
        "ListTransactions": 1,
    },
}
METADATA_VERSIONS: Mapping[str, int] = {"4.3": 30, "3.9": 21}
# Listed for all, but refused here: only brokers may use these versions.
OF_BROKERS: Mapping[str, int] = {"AddPartitionsToTxn": 5}
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def version_max(settings: Settings, api: Api) -> int:
    last = {**LAST_VERSIONS[settings.release], **settings.quirk.last_versions}
    return min(api.version_max, last.get(api.name, api.version_max))


def is_served(settings: Settings, api: Api) -> bool:
    return api.name not in settings.quirk.missing_apis


def list_api_versions(call: Call) -> list[dict[str, int]]:
    settings = call.core.settings
    of_brokers = {name: settings.quirk.last_versions.get(name, last) for name, last in OF_BROKERS.items()}
    return [
        {
            "api_key": api.key,
            "min_version": 0 if api is PRODUCE else api.version_min,
            "max_version": of_brokers.get(api.name, version_max(settings, api)),
        }
        for api in sorted(APIS.values(), key=lambda one: one.key)
        if is_served(settings, api)
    ]


def on_api_versions(call: Call) -> Answer:
    call.check_fault()
    if call.version >= 3:
        _check_software(call)
    if call.session.stage is Stage.VERSIONS:
        call.session.stage = Stage.HANDSHAKE
    level = call.core.settings.number(TRANSACTION_VERSION)
    levels = {METADATA_VERSION: METADATA_VERSIONS[call.core.settings.release], TRANSACTION_VERSION: level}
    supported = {"name": TRANSACTION_VERSION, "min_version": 0, "max_version": TRANSACTION_VERSION_MAX}
    return {
        "error_code": 0,
        "api_keys": list_api_versions(call),
        "supported_features": [supported],
        "finalized_features_epoch": 1,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in levels.items()
            if level
        ],
    }


def _check_software(call: Call) -> None:
    for name in ("client_software_name", "client_software_version"):
        if SOFTWARE_NAME.fullmatch(call.body[name]) is None:
            raise Refused(Code.INVALID_REQUEST)


def refuse_version(call: Call) -> None:
    own = [entry for entry in list_api_versions(call) if entry["api_key"] == API_VERSIONS.key]
    call.answer({"error_code": Code.UNSUPPORTED_VERSION, "api_keys": own}, version=0)
