"""Connections to brokers, metadata, coordinators, single requests: what the producer and everybody else share. No I/O."""
