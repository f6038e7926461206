"""The producer's decisions: a pure state machine driven by `Engine.step(now_ms, events, calls)`. No I/O, no clock."""
