"""Checks whether a job with these options will work here, by probing everything it needs before it runs: `check`.

Each probe checks one aspect of the real brokers, registry or installation, and yields findings; printing is elsewhere.
"""
