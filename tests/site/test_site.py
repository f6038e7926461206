"""The site in a real browser: every page on a phone without an error, light and dark, and the search.

Skipped if mkdocs-material or Chromium is not installed; continuous integration installs both.
"""

from __future__ import annotations

import json

import pytest

from tests.site.conftest import Site
from tools.browser import Browser

PHONE = (390, 844)
DESKTOP = (1280, 900)
# Pages with wide content: tables, code, pictures.
WIDE_PAGES = ("index.html", "options.html", "fault-matrix.html", "how-it-works.html", "benchmarks/spark-sinks.html")
SCREEN = "document.documentElement"
# What is wider than the screen and does not scroll by itself, pictures that are not shown whole, a missing heading.
PAGE_CHECKS = """(() => {
  const scrolls = one => {
    for (let at = one.parentElement; at; at = at.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(at).overflowX) && at.clientWidth < innerWidth + 1)
        return true;
    return false;
  };
  const article = [...document.querySelectorAll('.md-content article *')];
  const wide = article.filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !scrolls(one));
  const pictures = [...document.querySelectorAll('.md-content article img')];
  const cut = pictures.filter(one => !one.complete || !one.naturalWidth
    || one.getBoundingClientRect().right > innerWidth || one.getBoundingClientRect().width < 200);
  return {
    wide: [...wide.map(one => one.outerHTML.slice(0, 80)),
      ...(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])],
    cut: cut.map(one => one.src),
    heading: document.querySelector('h1')?.textContent ? [] : ['no heading'],
  };
})()"""
# Text below the contrast that WCAG asks for: 4.5, or 3 for large letters. To ask for the style of an element is what
# takes time, so each element is asked once: a page has thousands of texts, and most are below the same ten elements.
FAINT_TEXT = """(() => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) => [red, green, blue].map(each => each / 255)
    .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
  const over = (upper, lower) => {
    const share = upper.length > 3 ? upper[3] : 1;
    return [0, 1, 2].map(index => upper[index] * share + lower[index] * (1 - share));
  };
  const papers = new Map([[null, [255, 255, 255]]]);
  const paper = one => {
    if (!papers.has(one)) {
      const own = parts(getComputedStyle(one).backgroundColor), below = paper(one.parentElement);
      papers.set(one, own.length > 3 && own[3] === 0 ? below : over(own, below));
    }
    return papers.get(one);
  };
  const found = new Map(), seen = new Set();
  const walk = document.createTreeWalker(document.querySelector('.md-content article'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || seen.has(one)) continue;
    seen.add(one);
    if (one.closest('.headerlink, script, style, svg') || !one.offsetParent) continue;
    const style = getComputedStyle(one), below = paper(one), ink = over(parts(style.color), below);
    const [low, high] = [light(ink), light(below)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 600);
    const ratio = (high + 0.05) / (low + 0.05);
    const shown = walk.currentNode.data.trim().slice(0, 30);
    if (ratio < (isLarge ? 3 : 4.5)) found.set(`${style.color} on ${below}`, `${ratio.toFixed(2)} ${shown}`);
  }
  return [...found];
})()"""
# As on a page that is opened in the dark: opening each a second time takes longer. Otherwise colours change slowly.
DARKEN = """(() => {
  const still = document.createElement('style');
  still.textContent = '*, *::before, *::after { transition: none !important }';
  document.head.append(still);
  document.body.setAttribute('data-md-color-scheme', 'slate');
  return getComputedStyle(document.body).backgroundColor;
})()"""
COLOURS = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('h1')).color]"


def brightness(colour: str) -> float:
    numbers = [float(number) for number in colour[colour.index("(") + 1 : -1].split(",")]
    return sum(numbers[:3]) / 3


def first_visit(browser: Browser, url: str, scheme: str) -> None:
    """The site remembers a visitor's choices; this visitor has made none."""
    browser.prefer(scheme)
    browser.open(url)
    browser.evaluate("localStorage.clear()")
    browser.open(url)


def test_the_build_warns_of_nothing(site: Site) -> None:
    assert "WARNING" not in site.said
    assert len(site.pages) > 45


def is_read(page: str) -> bool:
    """Listings of sources have colours of their own."""
    return page != "404.html" and not page.startswith("source/")


def test_every_page_renders_on_a_phone_without_an_error_or_anything_cut_and_has_contrast_in_light_and_dark(
    site: Site, browser: Browser
) -> None:
    browser.size(*PHONE, is_phone=True)
    first_visit(browser, site.pages_url + "index.html", "light")
    found = {}
    for page in site.pages:
        before = len(browser.problems)
        browser.open(site.pages_url + page)
        seen = browser.evaluate(PAGE_CHECKS)
        if is_read(page):
            seen["faint"] = browser.evaluate(FAINT_TEXT)
            seen["stays light"] = brightness(browser.evaluate(DARKEN)) >= 64
            seen["faint in the dark"] = browser.evaluate(FAINT_TEXT)
        if any(seen.values()) or browser.problems[before:]:
            found[page] = (seen, browser.problems[before:])
    # The 404 page has addresses from the root of a server, so it is not tested here.
    found.pop("404.html", None)
    assert found == {}


# A table, by the heading of its first column, and how many of its columns are needed for an answer.
ANSWERS = (
    ("readers.html", "reader", 2),
    ("platforms.html", "platform and release", 2),
    ("performance.html", "setting", 3),
    ("comparison.html", "", 3),
)
RIGHT_EDGE = """((title, count) => {
  const tables = [...document.querySelectorAll('.md-content article table')];
  const table = tables.find(one => one.rows[0].cells[0].textContent === title);
  return Math.max(...[...table.rows].map(row => row.cells[count - 1].getBoundingClientRect().right));
})"""


@pytest.mark.parametrize(("page", "title", "columns"), ANSWERS)
def test_the_answer_in_a_table_is_on_the_screen_of_a_phone(
    site: Site, browser: Browser, page: str, title: str, columns: int
) -> None:
    browser.size(*PHONE, is_phone=True)
    browser.open(site.pages_url + page)
    edge = browser.evaluate(f"{RIGHT_EDGE}({json.dumps(title)}, {columns})")
    assert edge <= PHONE[0]


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_a_visitor_gets_the_colours_of_the_system(site: Site, browser: Browser, scheme: str, is_dark: bool) -> None:
    browser.size(*DESKTOP)
    first_visit(browser, site.pages_url + "index.html", scheme)
    paper, ink = (brightness(colour) for colour in browser.evaluate(COLOURS))
    assert (paper < 64) is is_dark
    assert abs(paper - ink) > 100, "a heading that cannot be read"
    for page in WIDE_PAGES:
        browser.open(site.pages_url + page)
        assert browser.evaluate(f"{SCREEN}.scrollWidth <= innerWidth"), page
        assert browser.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)"), page


# What users type, and the page that they need.
EVERYDAY_WORDS = {
    "docker": "troubleshooting.html",
    "hostname": "troubleshooting.html",
    "INVALID_PRODUCER_EPOCH": "troubleshooting.html",
    "password": "security.html",
    "driver dies": "faq.html",
    "airflow": "guides/clusters.html",
    "localhost": "troubleshooting.html",
    "certificate": "security.html",
    "jaas": "security.html",
    "which spark": "faq.html",
    "databricks": "platforms.html",
    "duplicates": "exactly-once.html",
    "PKS-6011": "errors.html",
    "MESSAGE_TOO_LARGE": "options.html",
    "FAQ": "faq.html",
    "consumers": "readers.html",
    "migrate": "migration.html",
    "migration": "migration.html",
    "upgrade": "upgrading.html",
    "rollback": "upgrading.html",
    "monitoring": "operations.html",
    "alerting": "operations.html",
    "DLQ": "headers.html",
    "quarantine": "headers.html",
    "dead letter": "headers.html",
    "invalid rows": "headers.html",
    "rows that cannot be written": "faq.html",
    "cannot reach the broker": "troubleshooting.html",
    "Connection refused": "troubleshooting.html",
    "UnknownHostException": "troubleshooting.html",
    "fenced": "troubleshooting.html",
    "producer fenced": "troubleshooting.html",
    "1 kB": "performance.html",
    "rows of 1 kB": "performance.html",
    "100 B": "performance.html",
    "latency": "performance.html",
    "overhead": "performance.html",
    "OOM": "performance.html",
    "ordering": "order.html",
    "backpressure": "guides/streams.html",
    "nightly": "guides/batch.html",
    "dag": "guides/clusters.html",
    "schema registry": "schemas.html",
    "avro": "schemas.html",
    "vault": "security.html",
    "dbutils": "examples/on_a_platform.html",
    # What Spark and Python say, where the sink cannot.
    "Failed to find the data source": "troubleshooting.html",
    "No module named kafka_sink": "troubleshooting.html",
    "ErrorIfExists mode": "troubleshooting.html",
    "does not support Update mode": "troubleshooting.html",
    "Duplicated field names in Arrow Struct": "troubleshooting.html",
    "clustering columns do not match": "troubleshooting.html",
    "sink allowlist for Real-Time Mode": "troubleshooting.html",
    "failed to connect back": "troubleshooting.html",
}
TYPE = """(() => {
  const field = document.querySelector('[data-md-component=search-query]');
  field.value = %s;
  field.dispatchEvent(new Event('keyup'));
})()"""


def ask(browser: Browser, words: str) -> list[str]:
    """On an open page. What is asked first has no answer, so that what is found is not that of the words before."""
    browser.evaluate(TYPE % json.dumps("xyzzy"))
    browser.wait_for("document.querySelectorAll('.md-search-result__item').length === 0")
    browser.evaluate(TYPE % json.dumps(words))
    return found(browser)


def first_pages(links: list[str]) -> list[str]:
    """A page is found once, and below it those of its sections that have the words."""
    return [*dict.fromkeys(link.partition("?")[0].partition("#")[0] for link in links)][:3]


def found(browser: Browser) -> list[str]:
    browser.wait_for("document.querySelectorAll('.md-search-result__item a').length > 0")
    links: list[str] = browser.evaluate(
        "[...document.querySelectorAll('.md-search-result__item a')].map(one => one.href)"
    )
    return links


def test_the_search_finds_an_option_and_then_answers_everyday_words_with_a_page_for_users(
    site: Site, browser: Browser
) -> None:
    browser.size(*DESKTOP)
    browser.open(site.url + "index.html?q=ledger.accept.new.sink")
    assert any("/options.html" in link for link in found(browser))
    # On the same page: to open one with the index of all pages takes longer than all of these questions.
    answers = {words: first_pages(ask(browser, words)) for words in EVERYDAY_WORDS}
    missed = {words: answers[words] for words, page in EVERYDAY_WORDS.items() if site.url + page not in answers[words]}
    assert missed == {}
