"""YARN's ApplicationMaster, with the driver in it, is killed in a commit, after the decision is in the ledger. YARN
starts the script again, by itself."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import pytest

from kafka_sink.kafka.wire.apis import END_TXN
from tests.support.faults import Fault, Harm, of_a_task
from tests.support.kafka_proxy import KafkaProxy
from tests.support.open_transactions import open_transactions
from tests.yarn.jobs import PATIENCE_S, ROWS_PER_FILE, export, keys, stream, write_files
from tests.yarn.recipe import Recipe
from tools.kafka_cluster import KafkaCluster
from tools.yarn_cluster import YarnCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

ROWS = 300


@pytest.fixture
def sink_id() -> str:
    return f"yarn-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def fault(proxy: KafkaProxy, yarn: YarnCluster, tmp_path: Path) -> Fault:
    """Tasks' transactions are ended after the decision. At the second one the driver is killed; the request is lost."""

    def kill_masters() -> None:
        for master in yarn.application_masters():
            yarn.kill(master)
        (tmp_path / "killed").write_text(" ".join(sorted(batches(tmp_path, "offsets") - batches(tmp_path, "commits"))))

    return proxy.on(END_TXN, Harm.LOSE_REQUEST, nth=2, where=of_a_task, before=kill_masters)


def batches(folder: Path, log: str) -> set[str]:
    """Micro-batches in a log of Spark's checkpoint."""
    return {path.name for path in (folder / "checkpoint" / log).glob("[0-9]*")}


def was_killed_after_the_decision(fault: Fault, yarn: YarnCluster) -> bool:
    """And started again, once."""
    return fault.hit is not None and fault.hit[1]["committed"] and yarn.attempts() == 2


def to(proxy: KafkaProxy, topic: str, **options: str) -> list[str]:
    """With a ledger of its own, so that planning does not end here what other tests have decided."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    sink = {"kafka.bootstrap.servers": proxy.bootstrap_servers, "topic": topic, "ledger.topic": f"ledger-{topic}"[:249]}
    return [word for name, value in {**sink, **named}.items() for word in ("--to", f"{name}={value}")]


def test_a_stream_goes_on_after_its_application_master_was_killed_in_a_commit(
    recipe: Recipe,
    yarn: YarnCluster,
    kafka_4: KafkaCluster,
    proxy: KafkaProxy,
    fault: Fault,
    topic_name: str,
    tmp_path: Path,
    sink_id: str,
) -> None:
    kafka_4.create_topic(topic_name, partitions=3)
    write_files(tmp_path, 3)
    job = recipe.submit("cluster", "stream_to_kafka.py", *stream(tmp_path), *to(proxy, topic_name, sink_id=sink_id))
    job.wait(PATIENCE_S)
    assert was_killed_after_the_decision(fault, yarn)
    assert (tmp_path / "killed").read_text() == "1"
    assert keys(kafka_4, topic_name) == Counter(range(3 * ROWS_PER_FILE))
    assert open_transactions(kafka_4.bootstrap_servers, sink_id) == []


def test_an_export_with_a_name_is_delivered_once_though_yarn_starts_it_again(
    recipe: Recipe,
    yarn: YarnCluster,
    kafka_4: KafkaCluster,
    proxy: KafkaProxy,
    fault: Fault,
    topic_name: str,
    sink_id: str,
) -> None:
    kafka_4.create_topic(topic_name, partitions=3)
    named = to(proxy, topic_name, sink_id=sink_id, batch_id="2026-11-26")
    recipe.submit("cluster", "export_to_kafka.py", *export(ROWS), *named).wait(PATIENCE_S)
    assert was_killed_after_the_decision(fault, yarn)
    assert keys(kafka_4, topic_name) == Counter(range(ROWS))
    assert open_transactions(kafka_4.bootstrap_servers, sink_id) == []


def test_an_export_without_a_name_is_there_twice_after_yarn_has_started_it_again(
    recipe: Recipe, yarn: YarnCluster, kafka_4: KafkaCluster, proxy: KafkaProxy, fault: Fault, topic_name: str
) -> None:
    """The sink cannot know that the second run repeats the first. The guide says so, with what to do instead."""
    kafka_4.create_topic(topic_name, partitions=3)
    recipe.submit("cluster", "export_to_kafka.py", *export(ROWS), *to(proxy, topic_name)).wait(PATIENCE_S)
    assert was_killed_after_the_decision(fault, yarn)
    assert keys(kafka_4, topic_name) == Counter(2 * list(range(ROWS)))
