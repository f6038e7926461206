"""The picture of the drill in docs/operations.md is drawn from the recording beside it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

from tools.drill_picture import COLOURS, FIGURES, PICTURE, RECORDING, draw, points_of, spans_of

RECORDED = json.loads(RECORDING.read_text(encoding="utf-8"))


def test_the_picture_is_that_of_the_recording() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(RECORDED), "write it: python -m tools.drill_picture"


def test_the_recording_has_an_alert_within_two_minutes_of_each_event() -> None:
    """Fires, goes after the command, and fires for a process that is gone."""
    killed, recovered, gone = (at_s for at_s, _ in RECORDED["events"])
    act, down = RECORDED["alerts"]["KafkaSinkActNow firing"], RECORDED["alerts"]["KafkaSinkStatusDown firing"]
    assert killed < act[0] <= killed + 120 and max(act) <= recovered + 120
    assert gone < down[0] <= gone + 120
    assert set(RECORDED["figures"]) == set(FIGURES) and all(RECORDED["figures"].values())


def test_every_part_of_it_can_be_seen_on_a_dark_page() -> None:
    """By the rules of its style: text without a colour, black lines, the white ground. The other colours are bright."""
    picture = draw(RECORDED)
    ElementTree.fromstring(picture)
    assert "prefers-color-scheme: dark" in picture
    used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', picture))
    assert used <= {"none", "white", "black", "#ddd", "#1f6f8b", "#e07a3f", "#c0392b"}
    assert not re.search(r"<text[^>]* fill=", picture)


def test_moments_of_a_state_are_joined_to_spans() -> None:
    assert spans_of({"pending": [0, 5, 10], "firing": [15, 30]}) == [
        ("pending", 0, 15), ("firing", 15, 20), ("firing", 30, 35)
    ]  # fmt: skip
    assert points_of([(100, "1"), (105, "2.345")], 100) == [(0, 1), (5, 2.35)]
    assert set(COLOURS) == {"pending", "firing"}
