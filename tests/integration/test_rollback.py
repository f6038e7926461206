"""A stream goes back to the release before and forward again, as docs/operations.md says; with the embedded broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_sink.testing import EmbeddedBroker
from tests.chaos.bare_spark import PARTITIONS, Checkpoint, problems, run_on, settings_of
from tests.support.releases import BEFORE_NAMES, release_of

# Run inside the release before, with that release's own simulation of Spark.
SCRIPT = """\
import sys
from tests.chaos.bare_spark import Checkpoint, run_on, settings_of

if __name__ == "__main__":
    servers, query_id, committed = sys.argv[1:]
    run_on(Checkpoint(query_id, int(committed)), settings_of(servers, "t"), 2)
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = release_of(BEFORE_NAMES, tmp_path_factory)
    (folder / "tests" / "chaos" / "two_batches.py").write_text(SCRIPT)
    return folder


@pytest.mark.parametrize("is_logged", [True, False], ids=["between-batches", "before-the-commit-log"])
def test_the_release_before_continues_a_stream_of_this_one(release: Path, *, is_logged: bool) -> None:
    with EmbeddedBroker(topics={"t": PARTITIONS}) as broker:
        servers, checkpoint = broker.bootstrap_servers, Checkpoint()
        run_on(checkpoint, settings_of(servers, "t"), 2)
        checkpoint.committed -= not is_logged
        command = [sys.executable, "-m", "tests.chaos.two_batches", servers, checkpoint.query_id]
        environment = {**os.environ, "PYTHONPATH": str(release)}
        before = subprocess.run(
            [*command, str(checkpoint.committed)], cwd=release, env=environment, capture_output=True, timeout=300
        )
        assert before.returncode == 0, before.stderr.decode()[-3000:]
        checkpoint.committed += 2
        run_on(checkpoint, settings_of(servers, "t"))
        assert problems(servers, "t", checkpoint.committed + 1) == []
