"""The authorizer by itself: precedence, implications, patterns."""

from __future__ import annotations

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.testing import Acl
from kafka_sink.testing.acl import Authorizer

ALICE = "User:alice"


@pytest.mark.parametrize(
    ("acls", "operation", "name", "allowed"),
    [
        ([], "read", "t", False),
        ([Acl(ALICE, "read", "topic", "t")], "read", "t", True),
        ([Acl(ALICE, "read", "topic", "t")], "read", "t2", False),
        ([Acl(ALICE, "read", "topic", "t")], "write", "t", False),
        ([Acl("User:*", "read", "topic", "*")], "read", "t", True),
        ([Acl("User:bob", "read", "topic", "t")], "read", "t", False),
        ([Acl(ALICE, "read", "topic", "t", "prefixed")], "read", "t2", True),
        ([Acl(ALICE, "all", "topic", "t")], "delete", "t", True),
        ([Acl(ALICE, "alter", "topic", "t")], "describe", "t", True),
        ([Acl(ALICE, "create", "topic", "t")], "describe", "t", False),
        ([Acl(ALICE, "alter_configs", "topic", "t")], "describe_configs", "t", True),
        ([Acl(ALICE, "all", "topic", "t"), Acl(ALICE, "read", "topic", "*", permission="deny")], "read", "t", False),
        ([Acl(ALICE, "all", "topic", "t"), Acl(ALICE, "read", "topic", "t", permission="deny")], "describe", "t", True),
        ([Acl(ALICE, "read", "group", "t")], "read", "t", False),
    ],
)
def test_a_deny_wins_and_only_allows_imply(acls: list[Acl], operation: str, name: str, allowed: bool) -> None:
    assert Authorizer(acls).is_allowed(ALICE, operation, "topic", name) is allowed


@pytest.mark.parametrize(
    ("denied", "allowed"),
    [
        ([], True),
        ([Acl(ALICE, "write", "topic", "t", permission="deny")], False),
        ([Acl(ALICE, "write", "topic", "", "prefixed", "deny")], False),
        ([Acl(ALICE, "write", "topic", "*", permission="deny")], False),
        ([Acl(ALICE, "write", "topic", "other", permission="deny")], True),
        ([Acl(ALICE, "write", "topic", "t2", "prefixed", "deny")], True),
    ],
)
def test_permission_on_some_topic_is_lost_only_to_a_deny_that_covers_it(denied: list[Acl], allowed: bool) -> None:
    authorizer = Authorizer([Acl(ALICE, "write", "topic", "t"), *denied])
    assert authorizer.is_allowed_somewhere(ALICE, "write", "topic") is allowed


def test_super_users_may_do_everything_and_removed_acls_count_no_more() -> None:
    acl = Acl(ALICE, "read", "topic", "t")
    authorizer = Authorizer([acl, Acl("User:root", "all", "topic", "*", permission="deny")], ["User:root"])
    assert authorizer.is_allowed("User:root", "read", "topic", "t")
    authorizer.remove(acl)
    assert not authorizer.is_allowed(ALICE, "read", "topic", "t")


@pytest.mark.parametrize("wrong", [("alice", "read", "topic"), (ALICE, "reed", "topic"), (ALICE, "read", "tpic")])
def test_an_acl_that_means_nothing_is_refused(wrong: tuple[str, str, str]) -> None:
    with pytest.raises(ConfigError):
        Acl(*wrong)
