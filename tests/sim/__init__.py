"""Deterministic simulation: engines, the embedded broker core, a seeded network and a seeded clock in one thread.

One number, the seed, determines everything: the cluster, the options, the faults and their times, the delay of each
packet. Equal seeds give equal runs, to the last byte. `python -m tests.sim --seed N` runs one.
"""
