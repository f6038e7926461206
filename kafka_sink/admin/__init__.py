"""Requests to a cluster or a schema registry without a producer: planning, the driver, the command line."""
