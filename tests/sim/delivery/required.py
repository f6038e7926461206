"""What has to happen in a run of some hundred seeds, or the run proves too little."""

from __future__ import annotations

from tests.sim.delivery.plan import ALL_FAULTS

REQUIRED = tuple(f"fault {kind}" for kind in ALL_FAULTS)
