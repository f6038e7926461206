"""Deterministic simulation: engines, the embedded broker core, a seeded network and a seeded clock in one thread.

One number decides everything: which cluster, which options, which faults when, how long each packet travels. Equal
seeds give equal runs, to the last byte, so a failure is a number. `python -m tests.sim --seed N` runs one.
"""
