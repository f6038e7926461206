"""Runs the whole suite in several processes: `python -m tools.suite`, or `make test`."""
