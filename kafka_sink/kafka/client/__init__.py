"""Connections to brokers, metadata, coordinators, single requests: what the producer and others share. No I/O."""
