"""A step of the driver's machine in one phase, at which the driver crashes, is paused, or is cut off."""

from __future__ import annotations

from random import Random

from kafka_sink.exactly_once.phase import Phase

# Phases in which it matters most whether a decision is also carried out come more often.
PHASES = (
    *[Phase.DECIDING] * 3, *[Phase.COMMITTING] * 4, *[Phase.FINISHING] * 2, *[Phase.RECORDING] * 2, Phase.FENCING,
    Phase.READING, Phase.CLOSING, Phase.CHECKING, Phase.DISCARDING, Phase.SWEEPING, Phase.CLAIMING,
)  # fmt: skip


class Moment:
    """None or some of the phase's requests have been sent by then."""

    def __init__(self, pick: Random) -> None:
        self._phase = pick.choice(PHASES)
        self._steps = pick.choice((0, 0, 1, 2, 3))

    def is_now(self, phase: Phase) -> bool:
        if phase is not self._phase:
            return False
        self._steps -= 1
        return self._steps < 0
