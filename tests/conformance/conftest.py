"""One node of each Kafka version and transaction level for the whole run, with the timers of peer.py.

Also one node of each version with users, ACLs and a frequent log cleaner: no test that uses it changes an ACL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import confluent_kafka.admin as confluent
import pytest

from kafka_sink.testing import Acl
from tests.conformance import acl_scripts, sasl_scripts
from tests.conformance.peer import PROPERTIES, KafkaPeer
from tests.conftest import started_when_asked
from tools import kafka_security
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Pair:
    """An Apache Kafka, and the release and level that the embedded broker needs for a comparison with it."""

    kafka: KafkaCluster
    release: str
    transaction_version: str


@pytest.fixture(scope="session")
def pair_of() -> Iterator[Callable[[str, int], Pair]]:
    @contextmanager
    def start(version: str, level: int) -> Iterator[Pair]:
        # Kafka 3.9 does not have this feature.
        feature = None if version.startswith("3.") else level
        with KafkaCluster(version=version, properties=PROPERTIES, transaction_version=feature) as cluster:
            _warm_up(cluster)
            yield Pair(cluster, version.rpartition(".")[0], str(level))

    with started_when_asked(start) as of:
        yield of


def _warm_up(cluster: KafkaCluster) -> None:
    peer = KafkaPeer(cluster.bootstrap_servers)
    peer.warm_up()
    peer.close()


# ---- secured ----

ADMIN = "admin"
PASSWORDS = {ADMIN: "s3cret", **sasl_scripts.USERS, **{user: f"of-{user}" for user in acl_scripts.cases()}}
FAILURE_DELAY_MS = 20


@dataclass(frozen=True, slots=True)
class Secured:
    """`address` requires authentication; the cluster's own listener does not, and allows everything."""

    kafka: KafkaCluster
    release: str

    @property
    def address(self) -> str:
        return self.kafka.sasl_bootstrap_servers


@pytest.fixture(scope="session")
def secured_of() -> Iterator[Callable[[str], Secured]]:
    short = f"listener.name.sasl_plaintext.{sasl_scripts.SHORT.lower()}.connections.max.reauth.ms"
    properties = {
        **PROPERTIES,
        **kafka_security.AUTHORIZER,
        "connection.failed.authentication.delay.ms": FAILURE_DELAY_MS,
        short: sasl_scripts.SESSION_MS,
        "log.cleaner.backoff.ms": 150,
    }

    @contextmanager
    def start(version: str) -> Iterator[Secured]:
        with KafkaCluster(version, properties=properties, users=PASSWORDS) as cluster:
            write_acls(cluster, [acl for granted in acl_scripts.cases().values() for acl in granted])
            _warm_up(cluster)
            yield Secured(cluster, version.rpartition(".")[0])

    with started_when_asked(start) as of:
        yield of


def write_acls(cluster: KafkaCluster, acls: list[Acl]) -> None:
    """Creates the ACLs and waits until the broker applies them."""
    admin = confluent.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for written in admin.create_acls([binding(one) for one in acls]).values():
        written.result(60)
    wait_until(lambda: len(admin.describe_acls(EVERY_ACL).result(60)) == len(acls), "every ACL is known to the broker")


EVERY_ACL = confluent.AclBindingFilter(
    confluent.ResourceType.ANY,
    None,
    confluent.ResourcePatternType.ANY,
    None,
    None,
    confluent.AclOperation.ANY,
    confluent.AclPermissionType.ANY,
)
RESOURCE_TYPES = {
    "topic": confluent.ResourceType.TOPIC,
    "group": confluent.ResourceType.GROUP,
    "cluster": confluent.ResourceType.BROKER,
    "transactional_id": confluent.ResourceType.TRANSACTIONAL_ID,
}


def binding(acl: Acl) -> confluent.AclBinding:
    return confluent.AclBinding(
        RESOURCE_TYPES[acl.resource_type],
        acl.name,
        confluent.ResourcePatternType[acl.pattern.upper()],
        acl.principal,
        "*",
        confluent.AclOperation[acl.operation.upper()],
        confluent.AclPermissionType[acl.permission.upper()],
    )
