"""How one talks to Kafka, whoever does: wire (messages), client (connections, metadata, single requests), io (sockets,
TLS, files, the clock) and auth (logins). wire and client are pure.
"""
