"""Benchmarks: compare this producer with others on one broker, in one run. These are not tests; no time is asserted."""
