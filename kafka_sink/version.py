"""This package's version, and its name as sent to brokers.

Brokers show version and name in their metrics and request logs (KIP-511); they accept letters, digits, dots and hyphens
only.
"""

VERSION = "0.3.0.dev0"
CLIENT_SOFTWARE_NAME = "pykafka-sink"
