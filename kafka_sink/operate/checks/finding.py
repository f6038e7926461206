"""Results of probes: a table for people, objects for programs."""

from __future__ import annotations

from kafka_sink.frozen import frozen

OK, WARN, FAIL = "ok", "warn", "fail"
_EXIT_CODES = {OK: 0, WARN: 1, FAIL: 2}
_MARKS = {OK: "✓", WARN: "!", FAIL: "✗"}
_PLAIN_MARKS = {OK: "ok", WARN: "warn", FAIL: "FAIL"}


@frozen
class ProbeResult:
    """`name` is what was checked; `advice` is what to do, possibly also with an ok."""

    name: str
    verdict: str
    text: str
    advice: str = ""


def ok(name: str, text: str, advice: str = "") -> ProbeResult:
    return ProbeResult(name, OK, text, advice)


def warn(name: str, text: str, advice: str = "") -> ProbeResult:
    return ProbeResult(name, WARN, text, advice)


def fail(name: str, text: str, advice: str) -> ProbeResult:
    return ProbeResult(name, FAIL, text, advice)


class CheckReport(tuple[ProbeResult, ...]):
    """Printed, or shown at the end of a notebook's cell, it is a table."""

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    @property
    def exit_code(self) -> int:
        """0: no problem, 1: warnings, 2: something will not work."""
        return max((_EXIT_CODES[finding.verdict] for finding in self), default=0)

    @property
    def is_ok(self) -> bool:
        return self.exit_code < _EXIT_CODES[FAIL]

    def objects(self) -> list[dict[str, str]]:
        return [{"name": each.name, "verdict": each.verdict, "text": each.text, "advice": each.advice} for each in self]

    def lines(self, encoding: str | None = "utf-8") -> list[str]:
        """Marks are words if the terminal cannot show the symbols."""
        marks = _MARKS if (encoding or "").lower().replace("-", "") == "utf8" else _PLAIN_MARKS
        mark_width, name_width = max(map(len, marks.values())), max((len(each.name) for each in self), default=0)
        shown = []
        for each in self:
            shown.append(f"{marks[each.verdict]:{mark_width}} {each.name:{name_width}}  {each.text}")
            if each.advice:
                shown.append(f"{'':{mark_width}} {'':{name_width}}  -> {each.advice}")
        return shown
