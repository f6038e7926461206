"""Sockets, TLS, files, HTTP and the clock."""
