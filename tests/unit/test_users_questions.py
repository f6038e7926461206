"""Questions of somebody who is new here: each is answered within two clicks from README, and sixty seconds of
reading. The paths are taken here."""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

import pytest

from tests.support.page_blocks import ROOT
from tools.options_reference import anchor_of

# What is read in sixty seconds.
WORDS_MAX = 240


class Path(NamedTuple):
    """`clicks`: links as they stand on the page before, in their order. `answer`: words where the last one leads."""

    question: str
    clicks: tuple[str, ...]
    answer: str


PATHS = (
    Path("Where do I set a password?", ("docs/security.md",), "on the driver and on each executor"),
    Path("What if my driver dies?", ("docs/faq.md", "exactly-once.md#what-happens-at-a-crash"), "commits the rest"),
    Path("How long may I wait then?", ("docs/faq.md", "#what-if-my-driver-dies"), "within 15 minutes of the batch's"),
    Path("How fast is it with rows of 1 kB?", ("docs/performance.md",), "| 1 kB | **level**"),
    Path("How old is a row at 1,000 rows/s?", ("docs/performance.md",), "1,039 instead of 719 at 1,000"),
    Path("Which Spark?", ("docs/compatibility.md",), "4.0 or newer"),
    Path("How do my consumers change?", ("docs/readers.md",), "isolation.level=read_committed"),
    Path("How is an export written once?", ("docs/guides/batch.md", "#once-however-often-the-job-runs"), "sink.id"),
    Path("How do I write Avro?", ("docs/schemas.md",), '"value.format", "avro"'),
    Path(
        "My Kafka is in Docker, and nothing happens",
        ("docs/options.md", "troubleshooting.md#advertises-this-address-a-hostname-of-docker-localhost"),
        "advertised.listeners",
    ),
    Path(
        "INVALID_PRODUCER_EPOCH: is something lost?",
        ("docs/options.md", "troubleshooting.md#producer_fenced-invalid_producer_epoch"),
        "nothing is lost",
    ),
    Path("Can a topic take the rows that cannot be written?", ("docs/headers.md#dead-letters",), "`dead.letter.topic`"),
    Path(
        "Do two streams to one topic disturb each other?", ("docs/faq.md", "#can-two-jobs-write-to-one-topic"), "wait"
    ),
    Path("What do I monitor?", ("docs/operations.md",), "pykafka-sink status"),
    Path("How do I upgrade?", ("docs/upgrading.md",), "install on driver and executors"),
    Path(
        "How does Airflow start it?", ("docs/guides/clusters.md", "#airflow-and-other-schedulers"), "`batch.id` the run"
    ),
    Path(
        "Databricks 14.3: what works?",
        ("docs/platforms.md",),
        "14.3 LTS | functions; [install with pins](#versions-that-fit-together)",
    ),
    Path("Can I keep the checkpoint of my stream?", ("docs/migration.md", "#a-running-stream"), "it can be kept"),
    Path("How do I run it on Databricks?", ("docs/platforms.md", "#how-the-package-gets-there"), "%pip install"),
    Path("The query stopped: is my data safe?", ("docs/operations.md", "#the-query-stopped"), "whether data is safe"),
)


def section_of(text: str, anchor: str) -> str:
    """From the heading on; without one the page from its beginning."""
    if not anchor:
        return text
    headings = list(re.finditer(r"^#+ (.+)$", text, re.MULTILINE))
    # A heading that was changed keeps its former anchor.
    (found,) = [one for one in headings if anchor_of(one[1]) == anchor or one[1].startswith(f'<a id="{anchor}">')]
    return text[found.start() :]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.question)
def test_a_question_is_answered_within_two_clicks_and_a_minute(path: Path) -> None:
    assert len(path.clicks) <= 2
    page, text = "README.md", (ROOT / "README.md").read_text(encoding="utf-8")
    for click in path.clicks:
        page, _, anchor = posixpath.normpath(posixpath.join(posixpath.dirname(page), click)).partition("#")
        # A heading of the same page is in its table of contents.
        assert f"]({click})" in text or click.startswith("#"), f"no link to {click}"
        if click.startswith("#"):
            text = section_of(text, anchor)
        else:
            text = section_of((ROOT / page).read_text(encoding="utf-8"), anchor)
    before = text.partition(path.answer)[0]
    assert before != text, "the answer is not there"
    assert len(before.split()) <= WORDS_MAX
