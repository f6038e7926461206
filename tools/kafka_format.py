"""Formats the data folders of a new cluster's nodes.

Apache Kafka's own tool does this, in a JVM. Its files depend on the version, the features and the users; apart from
three names they are the same for every cluster and node. So the tool runs once for each combination, and its files are
kept in the cache beside the jars.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools import kafka_security
from tools.kafka_jars import cache_folder, jars
from tools.kafka_node import KafkaNode, NodeFailed, free_port

_PATIENCE_S = 120


def format_nodes(nodes: Sequence[KafkaNode], features: Mapping[str, int], users: Mapping[str, str]) -> None:
    cluster_id = _new_id()
    for node in nodes:
        shutil.copytree(_format_once(node.version, features, users), node.data_path)
        _rename(node.data_path / "meta.properties", {
            "cluster.id": cluster_id, "node.id": str(node.node_id), "directory.id": _new_id(),
        })  # fmt: skip


def _new_id() -> str:
    # Kafka's tool would read a leading "-" as an option, which happened once in 64 starts.
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def _rename(properties: Path, names: Mapping[str, str]) -> None:
    pairs = (line.split("=", 1) for line in properties.read_text().splitlines() if not line.startswith("#"))
    properties.write_text("".join(f"{name}={names.get(name, value)}\n" for name, value in pairs))


def _format_once(version: str, features: Mapping[str, int], users: Mapping[str, str]) -> Path:
    """The data folder of a node that was formatted like this and never started."""
    asked = json.dumps([dict(features), dict(users)], sort_keys=True)
    kept = cache_folder() / f"kafka-{version}" / f"formatted-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
    if kept.is_dir():
        return kept
    jars(version)
    # Beside its final place, so that it can be moved there in one step.
    with tempfile.TemporaryDirectory(prefix="format-", dir=kept.parent) as folder:
        node = KafkaNode(version, 1, free_port(), free_port(), Path(folder) / "node")
        node.write_properties([node], {})
        _run_tool(node, features, users)
        try:
            node.data_path.rename(kept)
        except OSError:  # another process was faster
            if not kept.is_dir():
                raise
    return kept


def _run_tool(node: KafkaNode, features: Mapping[str, int], users: Mapping[str, str]) -> None:
    arguments = ["kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", str(node.properties_path)]
    arguments += kafka_security.format_arguments(users)
    for name, level in features.items():
        arguments += ["--feature", f"{name}={level}"]
    log = node.folder / "format.log"
    if node.start_java(arguments, log).wait(_PATIENCE_S) != 0:
        text = log.read_text(errors="replace")
        raise NodeFailed(f"Apache Kafka {node.version} could not format a data folder:\n{text[-4000:]}")
