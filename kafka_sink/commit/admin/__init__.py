"""Requests to a cluster without a producer: planning, the driver, the command line."""
