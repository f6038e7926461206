"""Benchmarks: this producer beside the others on one broker, in one run. No test, and nothing here asserts a time."""
