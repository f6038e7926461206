"""A step of the driver's machine in one phase, at which the driver crashes, is paused, or is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kafka_sink.commit.phase import Phase

# Phases in which it matters most whether a decision is also carried out come more often.
PHASES = (
    *[Phase.DECIDING] * 3, *[Phase.COMMITTING] * 4, *[Phase.FINISHING] * 2, *[Phase.RECORDING] * 2, Phase.FENCING,
    Phase.READING, Phase.CLOSING, Phase.CHECKING, Phase.DISCARDING, Phase.SWEEPING, Phase.CLAIMING,
)  # fmt: skip
# For a partition that loses its leader: before the check, between check and commit, while a decision is finished, and
# before transactions are aborted.
LEADER_PHASES = (
    *[Phase.CHECKING] * 4, Phase.DECIDING, *[Phase.COMMITTING] * 4, *[Phase.FINISHING] * 2, Phase.FENCING,
    Phase.DISCARDING, Phase.SWEEPING,
)  # fmt: skip


class Moment:
    """None or some of the phase's requests have been sent by then."""

    def __init__(self, pick: Random, phases: Sequence[Phase] = PHASES) -> None:
        self._phase = pick.choice(phases)
        self._steps = pick.choice((0, 0, 1, 2, 3))

    def is_now(self, phase: Phase) -> bool:
        if phase is not self._phase:
            return False
        self._steps -= 1
        return self._steps < 0
