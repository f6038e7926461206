"""Sockets, TLS, HTTP and the clock, and what threads and processes share."""
