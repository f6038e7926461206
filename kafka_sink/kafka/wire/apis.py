"""The supported APIs: key, versions, and encoding and decoding of request and answer in each version.

A version range is what this code can encode and decode, not what any broker offers: the connection negotiates the
highest common version. Kafka 2.1 is the oldest broker covered by all ranges. The fields are in messages_*.py.

Codecs are compiled the first time a version is used, so the table costs almost nothing to import. Decoders return a
dict or raise RemoteProtocolError, never anything else. Trailing bytes are an error too: the Java client ignores them,
but no known broker sends any, and they are the only visible sign of a message decoded with the wrong version. A null in
a non-nullable field is an error, as in the Java client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from kafka_sink.errors import LocalProtocolError, RemoteProtocolError
from kafka_sink.kafka.wire import messages_coordinators, messages_data
from kafka_sink.kafka.wire.primitives import Codec
from kafka_sink.kafka.wire.schema import VERSION_LAST, Field, compile_fields, parse_fields, split_blocks

_MESSAGES = dict(split_blocks((messages_data.MESSAGES + messages_coordinators.MESSAGES).splitlines()))


# Above every version that there can be.
NEVER = VERSION_LAST + 1


@cache
def _fields_of(message: str) -> tuple[Field, ...]:
    return parse_fields(_MESSAGES[message])


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """`flexible` is the first version with compact lengths and tagged fields (KIP-482)."""

    key: int
    name: str
    versions: tuple[int, int]
    flexible: int | None
    # What else changes with a version, by the first one that has it. Before this one a broker that throttles delays the
    # answer; from it on it answers first, and the client must stop sending (KIP-219). APIs newer than the KIP: 0.
    throttled_since: int = 0
    # Topics are named by their ids (KIP-516).
    topic_ids_since: int = NEVER
    # One request is about several coordinators, or groups (KIP-699, KIP-709).
    batched_since: int = NEVER
    # The rules of transaction version 2 (KIP-890): the leader registers a partition with the first batch, the group's
    # coordinator registers the group, and the end of a transaction raises the epoch.
    transaction_2_since: int = NEVER
    # Names the current identity, so that a fenced producer cannot fence its successor (KIP-360).
    identity_since: int = NEVER
    # Has isolation levels.
    isolated_since: int = NEVER
    # Leader epochs are right. Brokers before 2.4, which do not speak this version, report wrong ones while a partition
    # is moved.
    reliable_epochs_since: int = NEVER
    # -1 means the broker's default (KIP-464).
    defaults_since: int = NEVER
    # Spoken by brokers (Kafka 3.6) whose leaders verify with the coordinator that a transaction is open (KIP-890, part
    # 1).
    verified_since: int = NEVER

    def __reduce__(self) -> tuple[Callable[[int], Api], tuple[int]]:
        """A copy is the same object: code compares with `is`, and the model search copies machines that hold one."""
        return _api_of, (self.key,)

    @property
    def version_min(self) -> int:
        return self.versions[0]

    @property
    def version_max(self) -> int:
        return self.versions[1]

    @property
    def request(self) -> tuple[Field, ...]:
        return _fields_of(f"{self.name} request")

    @property
    def response(self) -> tuple[Field, ...]:
        return _fields_of(f"{self.name} answer")

    @property
    def last_by_name(self) -> int:
        """The last version in which topics are named by their names."""
        return min(self.version_max, self.topic_ids_since - 1)

    @property
    def last_single(self) -> int:
        """The last version that is about one coordinator, or one group."""
        return min(self.version_max, self.batched_since - 1)

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def request_header_version(self, version: int) -> int:
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """ApiVersions is always answered with header 0, because a client may lack flexible headers (KIP-511)."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS.key else 0

    def encode_request(self, version: int, body: Mapping[str, Any]) -> bytes:
        return self._encode(True, version, body)

    def decode_request(
        self, version: int, data: bytes, offset: int = 0, *, ignore_rest: bool = False
    ) -> dict[str, Any]:
        """`offset` is where the body starts in `data`: after the header if `data` is a whole frame.

        A broker sets `ignore_rest`, as Kafka's do: librdkafka's Metadata request for all topics has trailing bytes.
        """
        return self._decode(True, version, data, offset, ignore_rest)

    def encode_response(self, version: int, body: Mapping[str, Any]) -> bytes:
        return self._encode(False, version, body)

    def decode_response(self, version: int, data: bytes, offset: int = 0) -> dict[str, Any]:
        return self._decode(False, version, data, offset)

    def _encode(self, is_request: bool, version: int, body: Mapping[str, Any]) -> bytes:
        out = bytearray()
        try:
            _codec(self.key, is_request, version).write(out, body)
        except LocalProtocolError as cause:
            raise LocalProtocolError(f"{self._title(is_request, version)}: {cause}") from None
        return bytes(out)

    def _decode(
        self, is_request: bool, version: int, data: bytes, offset: int, ignore_rest: bool = False
    ) -> dict[str, Any]:
        data = bytes(data)
        codec = _codec(self.key, is_request, version)
        try:
            values, position = codec.read(data, offset)
        except RemoteProtocolError as cause:
            raise RemoteProtocolError(f"{self._title(is_request, version)}: {cause}") from None
        if position != len(data) and not ignore_rest:
            title = self._title(is_request, version)
            raise RemoteProtocolError(f"{title}: {len(data) - position} bytes left over at byte {position}")
        decoded: dict[str, Any] = values
        return decoded

    def _title(self, is_request: bool, version: int) -> str:
        return f"{self.name} {'request' if is_request else 'answer'} v{version}"


PRODUCE = Api(0, "Produce", versions=(3, 13), flexible=9, throttled_since=6, transaction_2_since=12, topic_ids_since=13)
FETCH = Api(1, "Fetch", versions=(4, 18), flexible=12, throttled_since=8, topic_ids_since=13)
LIST_OFFSETS = Api(2, "ListOffsets", versions=(1, 11), flexible=6, throttled_since=3, isolated_since=2)
METADATA = Api(3, "Metadata", versions=(4, 13), flexible=9, throttled_since=6, reliable_epochs_since=9)
# Offsets are by topic name here: the versions with topic ids, from 10 on, are left out.
OFFSET_COMMIT = Api(8, "OffsetCommit", versions=(2, 9), flexible=8, throttled_since=4)
OFFSET_FETCH = Api(9, "OffsetFetch", versions=(1, 9), flexible=6, batched_since=8)
FIND_COORDINATOR = Api(10, "FindCoordinator", versions=(0, 6), flexible=3, throttled_since=2, batched_since=4)
# Types of the key whose coordinator is looked for.
GROUP_KEY, TRANSACTION_KEY = 0, 1
JOIN_GROUP = Api(11, "JoinGroup", versions=(0, 9), flexible=6)
HEARTBEAT = Api(12, "Heartbeat", versions=(0, 4), flexible=4)
LEAVE_GROUP = Api(13, "LeaveGroup", versions=(0, 5), flexible=4)
SYNC_GROUP = Api(14, "SyncGroup", versions=(0, 5), flexible=4)
DESCRIBE_GROUPS = Api(15, "DescribeGroups", versions=(0, 6), flexible=5)
LIST_GROUPS = Api(16, "ListGroups", versions=(0, 5), flexible=3)
# After a handshake in version 0 the exchange continues in raw frames, after version 1 in SaslAuthenticate.
SASL_HANDSHAKE = Api(17, "SaslHandshake", versions=(0, 1), flexible=None)
API_VERSIONS = Api(18, "ApiVersions", versions=(0, 4), flexible=3, throttled_since=2)
CREATE_TOPICS = Api(19, "CreateTopics", versions=(2, 7), flexible=5, throttled_since=3, defaults_since=4)
DELETE_TOPICS = Api(20, "DeleteTopics", versions=(1, 6), flexible=4)
# Version 6 is not stable in Kafka 4.3.
INIT_PRODUCER_ID = Api(22, "InitProducerId", versions=(0, 5), flexible=2, throttled_since=1, identity_since=3)
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", versions=(2, 4), flexible=4)
# Versions 4 and 5 are only used between brokers.
ADD_PARTITIONS_TO_TXN = Api(24, "AddPartitionsToTxn", versions=(0, 3), flexible=3, throttled_since=1, verified_since=4)
ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", versions=(0, 4), flexible=3, throttled_since=1)
END_TXN = Api(26, "EndTxn", versions=(0, 5), flexible=3, throttled_since=1, transaction_2_since=5)
TXN_OFFSET_COMMIT = Api(28, "TxnOffsetCommit", versions=(0, 5), flexible=3, throttled_since=1, transaction_2_since=5)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", versions=(1, 4), flexible=4, throttled_since=2)
# Types of what it describes.
RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", versions=(0, 2), flexible=2)
CREATE_PARTITIONS = Api(37, "CreatePartitions", versions=(0, 3), flexible=2)
# For `check`, from Kafka 2.8 on; the version before has no tagged fields.
DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", versions=(1, 1), flexible=1)
# Only used for the controller's clock, so one version is enough: from the second one on replicas have times.
DESCRIBE_QUORUM = Api(55, "DescribeQuorum", versions=(1, 1), flexible=0)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", versions=(0, 2), flexible=0)
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", versions=(0, 0), flexible=0)
DESCRIBE_TRANSACTIONS = Api(65, "DescribeTransactions", versions=(0, 0), flexible=0)
# States of a transaction. "Prepare": its end is decided, and markers are being written. "Complete": all have been.
ONGOING = "Ongoing"
PREPARE_COMMIT, COMPLETE_COMMIT = "PrepareCommit", "CompleteCommit"
PREPARE_ABORT, COMPLETE_ABORT = "PrepareAbort", "CompleteAbort"
LIST_TRANSACTIONS = Api(66, "ListTransactions", versions=(0, 2), flexible=0)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in tuple(globals().values()) if isinstance(api, Api)})


def _api_of(key: int) -> Api:
    return APIS[key]


@cache
def _codec(api_key: int, is_request: bool, version: int) -> Codec:
    api = APIS[api_key]
    if not api.version_min <= version <= api.version_max:
        title = api._title(is_request, version)
        raise LocalProtocolError(f"{title}: spoken here are versions {api.version_min} to {api.version_max}")
    return compile_fields(api.request if is_request else api.response, version, api.is_flexible(version))
