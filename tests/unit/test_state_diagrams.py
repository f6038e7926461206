"""The diagrams in the documents match the tables in the code."""

from __future__ import annotations

import pytest

from tools.state_diagrams import PAGES, ROOT, draw_page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_the_states_that_the_code_has(name: str) -> None:
    page = (ROOT / name).read_text()
    assert page == draw_page(name, page), "run: python -m tools.state_diagrams"
