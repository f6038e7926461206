"""The producer's decisions: a pure state machine driven by `Engine.step(now_ms, inputs)`. No I/O, no clock."""
