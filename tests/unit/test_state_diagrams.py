"""The diagrams in DESIGN.md are what the tables in the code say."""

from __future__ import annotations

from tools.state_diagrams import PAGE, drawn


def test_the_design_page_shows_the_states_that_the_code_has() -> None:
    page = PAGE.read_text()
    assert page == drawn(page), "run: python -m tools.state_diagrams"
