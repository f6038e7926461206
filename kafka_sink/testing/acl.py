"""Access control lists, evaluated as by Apache Kafka's StandardAuthorizer.

Off unless the cluster is given a list, even an empty one; then anything not allowed is denied, except to super users. A
matching deny overrides every allow. Read, Write, Delete and Alter on a resource imply Describe, AlterConfigs implies
DescribeConfigs, but only in allow entries. The operations that an API requires are in the API's file.

Entries may be added and removed while the cluster runs; the next request is checked against the current ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_sink.errors import ConfigError
from kafka_sink.testing.errors import Code

ANONYMOUS = "User:ANONYMOUS"
EVERYBODY = "User:*"
WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = "topic", "group", "cluster", "transactional_id"
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = "read", "write", "create", "delete", "alter", "describe"
CLUSTER_ACTION, IDEMPOTENT_WRITE = "cluster_action", "idempotent_write"
DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL = "describe_configs", "alter_configs", "all"
LITERAL, PREFIXED = "literal", "prefixed"
ALLOW, DENY = "allow", "deny"

# The error for a missing permission, by resource type.
REFUSALS = {
    TOPIC: Code.TOPIC_AUTHORIZATION_FAILED,
    GROUP: Code.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: Code.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_CHOICES = {
    "resource_type": frozenset(REFUSALS),
    "operation": frozenset(
        {READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION}
        | {IDEMPOTENT_WRITE, DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL}
    ),
    "pattern": frozenset({LITERAL, PREFIXED}),
    "permission": frozenset({ALLOW, DENY}),
}
_IMPLIES = {
    DESCRIBE: frozenset({DESCRIBE, READ, WRITE, DELETE, ALTER}),
    DESCRIBE_CONFIGS: frozenset({DESCRIBE_CONFIGS, ALTER_CONFIGS}),
}


@dataclass(frozen=True, slots=True)
class Acl:
    """`principal` is "User:alice" or "User:*"; the literal name "*" means every resource of that type."""

    principal: str
    operation: str
    resource_type: str
    name: str = CLUSTER_NAME
    pattern: str = LITERAL
    permission: str = ALLOW

    def __post_init__(self) -> None:
        for field, choices in _CHOICES.items():
            value = getattr(self, field)
            if value not in choices:
                raise ConfigError(f"an ACL's {field} is one of {', '.join(sorted(choices))}, not {value!r}")
        if not self.principal.startswith("User:"):
            raise ConfigError(f"an ACL's principal starts with 'User:', {self.principal!r} does not")

    def concerns(self, principal: str) -> bool:
        return self.principal in (principal, EVERYBODY)

    def covers(self, resource_type: str, name: str) -> bool:
        if self.resource_type != resource_type:
            return False
        return name.startswith(self.name) if self.pattern == PREFIXED else self.name in (name, WILDCARD)

    def is_about(self, operation: str) -> bool:
        if self.operation in (ALL, operation):
            return True
        return self.permission == ALLOW and self.operation in _IMPLIES.get(operation, ())


class Authorizer:
    def __init__(self, acls: Iterable[Acl] = (), super_users: Iterable[str] = ()) -> None:
        self.acls = list(acls)
        self._super_users = frozenset(super_users)

    def add(self, *acls: Acl) -> None:
        self.acls.extend(acls)

    def remove(self, *acls: Acl) -> None:
        self.acls = [one for one in self.acls if one not in acls]

    def is_allowed(self, principal: str, operation: str, resource_type: str, name: str) -> bool:
        if principal in self._super_users:
            return True
        fitting = [
            one.permission
            for one in self.acls
            if one.concerns(principal) and one.covers(resource_type, name) and one.is_about(operation)
        ]
        return DENY not in fitting and ALLOW in fitting

    def is_allowed_somewhere(self, principal: str, operation: str, resource_type: str) -> bool:
        """On at least one resource of the type, existing or not: for an idempotent producer without a topic."""
        if principal in self._super_users:
            return True
        fitting = [
            one
            for one in self.acls
            if one.concerns(principal) and one.resource_type == resource_type and one.operation in (operation, ALL)
        ]
        denied = [one for one in fitting if one.permission == DENY]
        if any(one.pattern == LITERAL and one.name == WILDCARD for one in denied):
            return False
        return any(one.permission == ALLOW and not _is_overruled(one, denied) for one in fitting)


def _is_overruled(allowed: Acl, denied: list[Acl]) -> bool:
    """Whether a deny covers everything that this entry allows. A literal one covers only a literal allow of the same
    name."""
    if allowed.pattern == LITERAL and allowed.name == WILDCARD:
        return False
    return any(
        allowed.name.startswith(one.name)
        if one.pattern == PREFIXED
        else allowed.pattern == LITERAL and allowed.name == one.name
        for one in denied
    )
