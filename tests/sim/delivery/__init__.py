"""Deterministic simulation of exactly-once delivery: a Spark query, its tasks and drivers, and the broker core.

Tasks are real engines with transactions. Drivers are the real commit state machine over the real admin engine. Spark is
simulated. One number, the seed, determines everything. `python -m tests.sim.delivery --seed N` runs one.
"""
