"""README and the pages of docs/: links work, figures equal those of the benchmarks, generated pages are up to date."""

from __future__ import annotations

import codeop
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.page_blocks import PAGES as PAGES_THAT_RUN
from tests.support.page_blocks import ROOT, Block, code_blocks
from tools import api_reference, site_pages, speed_picture

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README, COMPARISON = ((ROOT / path).read_text(encoding="utf-8") for path in ("README.md", "docs/comparison.md"))
LINK = re.compile(r"\]\(([^)\s#]+)[^)\s]*\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links(page: str) -> list[str]:
    return LINK.findall(FENCE.sub("", (ROOT / page).read_text(encoding="utf-8")))


def benchmark(name: str) -> str:
    return (ROOT / "docs" / "benchmarks" / f"{name}.md").read_text(encoding="utf-8")


def comparison(title: str) -> list[str]:
    """The compared figures in the row that begins with this title, one for each sink."""
    (row,) = re.findall(rf"^\| {re.escape(title)}.*$", COMPARISON, re.MULTILINE)
    return [re.sub(r"\*|rows/s|ms", "", cell).strip() for cell in row.strip("|").split("|")][1:]


def ages_of(rate: str) -> list[str]:
    """The median age of a row at the reader, of this sink and of Spark's own."""
    head, row = re.findall(rf"^\| (?:rows/s|{rate}) .*$", benchmark("latency"), re.MULTILINE)
    sinks = [cell.strip() for cell in head.split("|")]
    columns = [sinks.index(sink) for sink in ("ours, exactly once", "Spark's own sink")]
    return [row.split("|")[column].split(", ")[0].strip() for column in columns]


def rates(case: str) -> list[str]:
    """The rates of this sink and of Spark's own sink."""
    (row,) = re.findall(rf"^\| {case} .*$", benchmark("spark-shapes"), re.MULTILINE)
    return [row.split("|")[column].strip() for column in (3, 4)]


PROGRAMS = [
    block for page in PAGES_THAT_RUN for block in code_blocks(page) if block.language == "python" and not block.reason
]


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_a_program_can_be_pasted_into_an_interpreter(block: Block) -> None:
    """An interpreter ends a compound statement at an empty line only, where a file or a notebook needs none."""
    statement: list[str] = []
    for line in [*block.code.splitlines(), ""]:
        statement.append(line)
        if codeop.compile_command("\n".join(statement), symbol="single") is not None:
            statement.clear()
    assert statement == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_to_one(page: str) -> None:
    here = (ROOT / page).parent
    assert [link for link in links(page) if "://" not in link and not (here / link).exists()] == []


def test_each_proof_names_files_that_are_there() -> None:
    proofs = [link for link in links("docs/proof.md") if link.startswith("../tests/")]
    assert len(proofs) > 25
    assert [link for link in proofs if not (ROOT / "docs" / link).exists()] == []


def test_readme_is_short_and_has_one_picture_and_the_way_to_the_proofs() -> None:
    assert README.partition("<details")[0].count("\n") <= 80
    assert "docs/proof.md" in README and README.count("![") == 1


@pytest.mark.parametrize("address", ["https://example.org/sink", ""])
def test_the_page_of_an_index_has_no_link_to_a_file_that_is_not_there(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    monkeypatch.setenv("PROJECT_URL", address)
    runpy.run_path(str(ROOT / "setup.py"))
    text = FENCE.sub("", given["long_description"])
    targets = LINK.findall(text)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert bool(targets) is bool(address) and given["url"] == (address or None)
    if address:
        place = "main" if ".dev" in given["version"] else f"v{given['version']}"
        assert f"{address}/blob/{place}/docs/proof.md" in targets
        assert f"]({address}/raw/{place}/docs/pictures/bars.svg)" in text
    else:
        assert "![" not in text and "proof" in text


@pytest.mark.parametrize(
    ("size", "title"), [("100", "100 B rows, keyed"), ("1000", "1 kB rows, keyed"), ("10000", "10 kB rows, keyed")]
)
def test_the_rates_that_are_compared_are_those_of_the_benchmark(size: str, title: str) -> None:
    pairs = zip(rates(f"{size}B-keyed-lz4"), rates(f"{size}B-keyed-none"), strict=True)
    assert comparison(title)[:2] == [f"{lz4} / {none}" for lz4, none in pairs]


@pytest.mark.parametrize(("size", "title"), [("100", "100 B rows, keyed"), ("1000", "1 kB rows, keyed")])
def test_the_shares_of_confluent_kafka_are_those_of_the_benchmark(size: str, title: str) -> None:
    sinks = benchmark("spark-sinks")
    lz4, none = (speed_picture.share_of_confluent(sinks, f"{size}B-keyed-{codec}") for codec in ("lz4", "none"))
    assert comparison(title)[2] == f"{lz4} / {none} of Spark's own"


def test_the_times_that_are_compared_are_those_of_the_benchmarks() -> None:
    steps = {
        row.split("|")[1].strip(): row.split("|")
        for row in benchmark("commit-cost").splitlines()
        if row.startswith("|")
    }
    sinks = [cell.strip() for cell in steps["tasks"]]
    columns = [sinks.index(sink) for sink in ("ours, exactly once", "Spark's own sink")]
    batch = [[re.sub(r"\(.*\)", "", steps[tasks][column]).strip() for tasks in ("2", "64")] for column in columns]
    assert [cell.replace(",", "") for cell in comparison("micro-batch of 1000 rows")[:2]] == [
        " / ".join(one) for one in batch
    ]
    slow, fast = ages_of("1,000"), ages_of("10,000")
    assert comparison("row to reader")[:2] == [" / ".join(pair) for pair in zip(slow, fast, strict=True)]
    firsts = [
        re.findall(rf"^\| {sink} \| ([\d,]+)", benchmark("cold-start"), re.MULTILINE)
        for sink in ("ours, exactly once", "Spark's own sink")
    ]
    seconds = [f"{int(found.replace(',', '')) / 1000:.1f} s" for (found,) in firsts]
    assert comparison("first write")[:2] == seconds


@pytest.mark.parametrize("rate", ["1,000", "10,000"])
def test_no_page_tells_the_latency_of_one_rate_only(rate: str) -> None:
    ours, own = ages_of(rate)
    performance, faq = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("performance.md", "faq.md"))
    assert re.search(rf"{ours}( ms)? instead of {own} at {rate}\b", performance)
    later = int(ours.replace(",", "")) - int(own.replace(",", ""))
    assert f" {later} ms later at {rate}" in faq.replace("\n", " ")


def test_the_committed_reference_of_the_api_is_up_to_date_and_has_every_public_name() -> None:
    text = api_reference.reference()
    assert api_reference.PATH.read_text(encoding="utf-8") == text, "run: python -m tools.api_reference"
    assert api_reference.names_of_groups() == api_reference.public_names()


def test_the_pictures_of_speeds_are_those_of_the_benchmarks(tmp_path: Path) -> None:
    shapes = [row for row in benchmark("spark-shapes").splitlines() if row.startswith("|")][2:]
    assert len(speed_picture.ratios(benchmark("spark-shapes"))) == len(shapes) > 10
    assert speed_picture.main([str(tmp_path)]) == 0
    for name in speed_picture.pictures():
        committed = (speed_picture.FOLDER / name).read_text(encoding="utf-8")
        assert (tmp_path / name).read_text(encoding="utf-8") == committed, "run: python -m tools.speed_picture"
    ours, own, confluent = re.findall(r">([\d.]+)</text>", (speed_picture.FOLDER / "bars.svg").read_text())
    assert all(
        words in README.replace("\n", " ") for words in (f"pykafka-sink {ours}", f"foreachPartition {confluent}")
    )
    assert own == "1.00"


def test_a_link_out_of_the_docs_leads_to_a_copy_and_one_to_a_page_stays_one() -> None:
    text = "[a](../../setup.py), [b](../options.md#x), [c](../../README.md), [d](https://x.org/), [e](nowhere.md)"
    assert site_pages.relink(text, "docs/guides/batch.md") == (
        "[a](../source/setup.py.txt), [b](../options.md#x), [c](../index.md), [d](https://x.org/), [e](nowhere.md)"
    )
    assert site_pages.linked_paths(text, "docs/guides/batch.md") == ["README.md", "docs/options.md", "setup.py"]
    assert site_pages.relink("[`a`](docs/options.md)", "README.md") == "[`a`](options.md)"
    assert site_pages.relink("```\n[a](docs/options.md)\n```\n", "README.md") == "```\n[a](docs/options.md)\n```\n"


def test_a_link_to_a_notebook_leads_to_a_page_with_its_texts_and_its_code() -> None:
    assert site_pages.relink("[a](../examples/x.ipynb), [b](../examples/on_a_platform.ipynb)", "docs/platforms.md") == (
        "[a](../examples/x.ipynb), [b](examples/on_a_platform.md)"
    )
    path = ROOT / "examples" / "on_a_platform.ipynb"
    page = site_pages.notebook_page(path.read_text(encoding="utf-8"), "examples/on_a_platform.ipynb")
    assert page.startswith("# A notebook for Databricks") and "`examples/on_a_platform.ipynb` in a clone" in page
    (install,) = re.findall(r"```python\n(%pip install .*?)\n```", page, re.DOTALL)
    assert "'numpy==1.26.4' 'pyarrow>=18,<26'" in install
    assert page.count("```") == 2 * 5 and site_pages.notebooks() == [
        "examples/on_a_platform.ipynb",
        "examples/spark_to_kafka.ipynb",
    ]


def test_names_in_a_table_may_break_behind_their_signs_and_nowhere_else() -> None:
    names = "<code>isolation.level=read_committed</code> 1.5 <code>.save()</code> <code>--py-files</code>"
    broken = "isolation.<wbr>level=<wbr>read_<wbr>committed"
    assert site_pages.breakable(f"<p>{names}</p><table>{names}</table>") == (
        f"<p>{names}</p><table>{names.replace('isolation.level=read_committed', broken)}</table>"
    )


def test_the_navigation_takes_each_page_once_and_leaves_none_out() -> None:
    sections = [{"First": ["b*.md", "a.md"]}, {"Second": ["bb.md", "gone.md"]}]
    found = site_pages.navigation(sections, ["a.md", "b.md", "bb.md", "new.md"])
    assert found == [{"First": ["b.md", "a.md"]}, {"Second": ["bb.md"]}, {"More": ["new.md"]}]


def test_the_command_of_the_reference_writes_the_file_it_is_given(tmp_path: Path) -> None:
    assert api_reference.main([str(tmp_path / "api.md")]) == 0
    assert (tmp_path / "api.md").read_text(encoding="utf-8") == api_reference.reference()
