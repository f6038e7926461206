"""Deterministic simulation of exactly-once delivery: a Spark query, its tasks and drivers, and the broker core.

Tasks are real engines in transactional lives, drivers are the real commit machine over the real question client; Spark
is played by its rules. One number decides everything. `python -m tests.sim.delivery --seed N` runs one.
"""
