"""One program for each producer that is compared; each runs in a process of its own (common.py)."""
