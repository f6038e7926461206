"""The site in a real browser: every page without an error, on a phone and a desktop, dark and light; and its search.

Skipped if mkdocs-material or Chromium is not installed; continuous integration installs both.
"""

from __future__ import annotations

import pytest

from tests.site.conftest import Site
from tools.browser import Browser

PHONE = (390, 844)
DESKTOP = (1280, 900)
# Pages with wide content: tables, code, pictures.
WIDE_PAGES = ("index.html", "options.html", "fault-matrix.html", "how-it-works.html", "benchmarks/spark-sinks.html")
SCREEN = "document.documentElement"
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


def test_every_page_renders_on_a_phone_without_an_error_and_without_scrolling_sideways(
    site: Site, browser: Browser
) -> None:
    browser.size(*PHONE, is_phone=True)
    found = {}
    for page in site.pages:
        before = len(browser.problems)
        browser.open(site.pages_url + page)
        wide, heading = browser.evaluate(
            f"[{SCREEN}.scrollWidth - innerWidth, (document.querySelector('h1') || {{}}).textContent || '']"
        )
        if wide > 0 or not heading or browser.problems[before:]:
            found[page] = (wide, heading, browser.problems[before:])
    # The 404 page has addresses from the root of a server, so it is not tested here.
    found.pop("404.html", None)
    assert found == {}


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


def test_the_search_finds_an_option_and_leads_to_its_page(site: Site, browser: Browser) -> None:
    browser.size(*DESKTOP)
    browser.open(site.url + "index.html?q=ledger.accept.new.sink")
    browser.wait_for("document.querySelectorAll('.md-search-result__item a').length > 0")
    links = browser.evaluate("[...document.querySelectorAll('.md-search-result__item a')].map(one => one.href)")
    assert any("/options.html" in link for link in links)


@pytest.mark.parametrize(
    ("asked", "page"),
    [
        ("docker", "troubleshooting.html"),
        ("hostname", "troubleshooting.html"),
        ("INVALID_PRODUCER_EPOCH", "troubleshooting.html"),
        ("password", "security.html"),
        ("driver dies", "faq.html"),
        ("airflow", "guides/clusters.html"),
    ],
)
def test_the_search_answers_everyday_words_with_a_page_for_users(
    site: Site, browser: Browser, asked: str, page: str
) -> None:
    browser.size(*DESKTOP)
    browser.open(f"{site.url}index.html?q={asked.replace(' ', '%20')}")
    browser.wait_for("document.querySelectorAll('.md-search-result__item a').length > 0")
    links = browser.evaluate("[...document.querySelectorAll('.md-search-result__item a')].map(one => one.href)")
    assert any(f"/{page}" in link for link in links[:4]), links[:4]
