"""Connections to brokers, metadata, coordinators and single requests: what the producer and everybody else share. No I/O,
no clock."""
