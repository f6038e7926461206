"""The code in README and in the guides works: each block is run, in the order of its page, and its output is compared
with the output block that follows it. Pages that write to a broker must leave rows there.

`python` blocks of one page share their names, as in a notebook; of `sh` blocks the lines with `pykafka-sink` are run.
"""

from __future__ import annotations

import io
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_sink import Producer
from kafka_sink.__main__ import main
from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry
from tests.support.page_blocks import (
    BROKER,
    FOLDER,
    PAGES,
    REGISTRY,
    Block,
    code_blocks,
    commands,
    placed,
    topics_written,
)

# At least this many of all code blocks are run.
RUN_MIN = 35
# What a page takes from the reader's own program. All others define what they use.
OF_THE_READER = {
    "README.md": ("frame",),
    "docs/guides/change-feeds.md": ("spark",),
    "docs/guides/connect.md": ("spark",),
    "docs/guides/spark-submit.md": ("spark",),
    "docs/migration.md": ("frame",),
    "docs/order.md": ("frame",),
    "docs/schemas.md": ("frame",),
    "docs/embedded-broker.md": ("run_my_job",),
}


def run_my_job(options: dict[str, str]) -> None:
    """The pages about tests call the reader's own code by this name."""
    if "bootstrap.servers" in options:
        with Producer(options) as producer:
            producer.send("events", b"a row").result(60)


def run(block: Block, names: dict[str, Any], places: dict[str, str]) -> str:
    """Returns what the block printed."""
    code = placed(block.code, places)
    printed = io.StringIO()
    with redirect_stdout(printed):
        if block.language == "python":
            exec(compile(code, block.name, "exec"), names)
        else:
            for program, *words in commands(code):
                assert program == "pykafka-sink", f"{block.name}: {program} is not run by this test; say so there"
                assert main(words) == 0, f"{block.name}: {' '.join(words)}"
    return printed.getvalue()


@pytest.mark.parametrize("page", [page for page in PAGES if any(not block.reason for block in code_blocks(page))])
def test_the_code_of_a_page_runs(
    page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # all tests share the session
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS id", "concat('row ', id) AS value", "value AS payload")
    given = {"spark": spark, "frame": frame, "run_my_job": run_my_job}
    names: dict[str, Any] = {"__name__": "page", **{name: given[name] for name in OF_THE_READER.get(page, ())}}
    wanted = [block for block in code_blocks(page) if not block.reason]
    with ExitStack() as stack:
        kafka = stack.enter_context(EmbeddedBroker(topics={"input": 1}))  # other topics are created at the first write
        places = {BROKER: kafka.bootstrap_servers, FOLDER: f"{tmp_path}/"}
        if any(REGISTRY in block.code for block in wanted):
            places[REGISTRY] = stack.enter_context(EmbeddedRegistry()).url
        if wanted[0].language == "sh":
            # The page is about a sink that exists already.
            options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t", "sink.id": "orders"}
            frame.write.format("pykafka-sink").mode("append").options(**options, **{"batch.id": "first"}).save()
        try:
            for block in wanted:
                printed = run(block, names, places)
                assert block.prints is None or printed == block.prints, block.name
        finally:
            for query in spark.streams.active:
                query.stop()
            if isinstance(names.get("kafka"), EmbeddedBroker):
                names["kafka"].stop()  # for the second time if the page has stopped it
        assert [topic for topic in sorted(topics_written(page)) if not kafka.records(topic)] == []


def test_every_block_of_code_is_run_or_says_why_not() -> None:
    every = [block for page in PAGES for block in code_blocks(page)]
    left_out = [block for block in every if block.reason]
    assert [block.name for block in left_out if len(block.reason) < 10] == []
    assert len(every) - len(left_out) >= RUN_MIN
