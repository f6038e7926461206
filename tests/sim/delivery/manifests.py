"""I22: each batch that a sink has reported as delivered has one manifest, and what that says is what readers find.

A manifest is in doubt if its marker was dropped and the next transaction of the id has ended it (`leaders`): it may be
visible or not. Of two drivers with one label, the first leaves the end of its decision to the second; if that one dies
in it, the manifest is missing until the label is written again, or a command finishes the decision.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any

from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.formats.records.scalar import decode_batch
from kafka_sink.kafka.client.cluster import topic_id_text
from kafka_sink.testing import BrokerCluster
from tests.sim.checkers import read_log
from tests.sim.delivery.books import Books, is_letter
from tests.sim.delivery.ledger_log import LostMarkers, ledger_entries, unseen_entries
from tests.sim.delivery.plan import MANIFESTS
from tests.sim.scenario import TOPICS
from tests.sim.trace import Violation

# Of which batch, and of which run of it.
Named = tuple[BatchKey, str]


def check_manifests(
    core: BrokerCluster,
    books: Books,
    lost: LostMarkers,
    rows_in_doubt: Collection[int],
    manifests_in_doubt: Collection[int],
) -> None:
    found, doubted = visible_manifests(core, manifests_in_doubt)
    unseen = Counter(
        (record.key, record.run)
        for record in unseen_entries(core, lost)
        if record.kind is Kind.DONE and record.manifest is not None
    )
    _check_against_ledger(core, lost, _named(found), _named(doubted), unseen)
    ranges = _visible_ranges(core, books)
    of_key: dict[BatchKey, list[dict[str, Any]]] = defaultdict(list)
    for one in found:
        of_key[BatchKey(one["query"], one["batch"])].append(one)
        _check_where(one, core)
        _check_ranges(one, ranges, is_in_doubt=bool(rows_in_doubt))
    keys_in_doubt = {BatchKey(one["query"], one["batch"]) for one in doubted} | _open_labels(core, lost)
    for batch in books.batches:
        is_one_of_a_kind = batch.key.is_named and len(books.generations(batch.key)) == 1
        least = 0 if batch.key in keys_in_doubt else 1
        most = 1 + sum(count for (key, _), count in unseen.items() if key == batch.key)
        if is_one_of_a_kind and batch.must_be_there and not least <= len(of_key[batch.key]) <= most:
            raise Violation("I22", f"{batch} was delivered and has {len(of_key[batch.key])} manifests")


def _open_labels(core: BrokerCluster, lost: LostMarkers) -> set[BatchKey]:
    newest = {one.record.key: one.record for one in ledger_entries(core, lost) if one.is_committed}
    return {key for key, record in newest.items() if key.is_label and record.kind is Kind.INTENT}


def visible_manifests(
    core: BrokerCluster, in_doubt: Collection[int]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Those that readers find, and those in doubt, by their offsets, whether they find them or not."""
    found: list[dict[str, Any]] = []
    doubted: list[dict[str, Any]] = []
    waiting: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for batch in core.cluster.topics[MANIFESTS].partitions[0].log.batches:
        decoded = decode_batch(batch.data)
        if decoded.is_commit_marker or decoded.is_abort_marker:
            ended = waiting.pop(decoded.producer_id, [])
            found += ended if decoded.is_commit_marker else []
            continue
        manifests = doubted if batch.base_offset in in_doubt else waiting[decoded.producer_id]
        manifests += (json.loads(one.value or b"") for one in decoded.records)
    return found, doubted


def _check_against_ledger(
    core: BrokerCluster, lost: LostMarkers, told: Counter[Named], in_doubt: Counter[Named], unseen: Counter[Named]
) -> None:
    """A record that closes a decision has its manifest, and no decision has two, unless the ledger has lost the marker
    of the first one: then it is closed again. Not each manifest has its record, since the log cleaner removes older
    ones."""
    closed = Counter(
        (entry.record.key, entry.record.run)
        for entry in ledger_entries(core, lost)
        if entry.is_committed and entry.record.kind is Kind.DONE and entry.record.manifest is not None
    )
    if missing := closed - told - in_doubt:
        raise Violation("I22", f"closed without a manifest: {list(missing)}")
    if twice := [named for named, count in told.items() if count > 1 + unseen[named]]:
        raise Violation("I22", f"more than one manifest: {twice}")


def _named(manifests: list[dict[str, Any]]) -> Counter[Named]:
    return Counter(
        (BatchKey(one["query"], one["batch"]), one["run"]) for one in manifests if one["query"] or one["batch"]
    )


def _check_where(manifest: dict[str, Any], core: BrokerCluster) -> None:
    """Offsets mean rows of one topic of one cluster only. The manifest names both, unless a transaction was over before
    its brokers had told the id of its topic."""
    if manifest.get("cluster") != core.cluster.cluster_id:
        raise Violation("I22", f"a manifest of the cluster {manifest.get('cluster')!r}")
    for name, content in {**manifest["topics"], **manifest.get("dead_letters", {})}.items():
        if content.get("id") not in (None, topic_id_text(core.cluster.topics[name].topic_id)):
            raise Violation("I22", f"a manifest names the topic {name} with the id {content['id']!r}")


# Offsets of what is visible in each partition, each with whether it is a dead letter.
Found = dict[tuple[str, int], dict[int, bool]]


def _visible_ranges(core: BrokerCluster, books: Books) -> dict[tuple[BatchKey, str], Found]:
    """Of each batch and run."""
    found: dict[tuple[BatchKey, str], Found] = defaultdict(lambda: defaultdict(dict))
    for name in TOPICS:
        for partition in core.cluster.topics[name].partitions:
            view = read_log((name, partition.index), partition.log, is_dead=False)
            visible = set(view.visible)
            for offset, number in view.offsets.items():
                if number in visible:
                    attempt, row = books.records[number]
                    found[attempt.key, attempt.run][name, partition.index][offset] = is_letter(row)
    return found


def _check_ranges(
    manifest: dict[str, Any],
    ranges: dict[tuple[BatchKey, str], Found],
    *,
    is_in_doubt: bool,
) -> None:
    key = BatchKey(manifest["query"], manifest["batch"])
    seen = ranges[key, manifest["run"]]
    told, letters = _told(manifest["topics"]), _told(manifest.get("dead_letters", {}))
    is_partly_told = any(-1 in (first, last) for first, last, _ in [*told.values(), *letters.values()])
    if manifest.get("accepted") or is_in_doubt or is_partly_told:
        return  # rows are missing, or a broker did not say where they are
    there = {where: list(offsets.values()).count(False) for where, offsets in seen.items()}
    rows = {where: (min(seen[where]), max(seen[where]), count) for where, count in there.items() if count}
    apart = {where: [offset for offset in offsets if offsets[offset]] for where, offsets in seen.items()}
    dead = {where: (min(offsets), max(offsets), len(offsets)) for where, offsets in apart.items() if offsets}
    if (told, letters, manifest["rows"]) != (rows, dead, sum(there.values())):
        raise Violation("I22", f"the manifest of {key} says {told} and {letters}, and readers find {dict(seen)}")


def _told(topics: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        (topic, partition): (first, last, rows)
        for topic, content in topics.items()
        for partition, first, last, rows in content["partitions"]
    }
