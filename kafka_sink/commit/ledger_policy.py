"""What the topic of a ledger must be like: compacted, and nothing else. Otherwise brokers delete decisions with age.

It is looked at when a query is planned (commit/admin/ledger_topic.py), and now and then while it runs (preflight.py):
somebody may change the topic meanwhile, and brokers delete the first segments within minutes.
"""

from __future__ import annotations

CLEANUP = "cleanup.policy"
MESSAGE_BYTES = "max.message.bytes"


def policy_problem(topic: str, policy: str | None) -> str | None:
    """compact,delete is no better than delete: it compacts, but still deletes old records. Other servers than Apache
    Kafka may leave the policy out."""
    if policy in ("compact", None):
        return None
    return (
        f"the ledger topic {topic} has {CLEANUP}={policy}: decisions would be deleted with age, and batches "
        f"delivered twice. Set it right ({alter_command(topic, CLEANUP, 'compact')}), or choose another "
        "ledger.topic"
    )


def alter_command(topic: str, name: str, value: object) -> str:
    return f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {name}={value}"
