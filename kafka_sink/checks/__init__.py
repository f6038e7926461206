"""Will a job with these options work here? Probes of everything it rests on, before it runs: `check`.

Each probe asks one thing of the real brokers, registry or installation, and yields findings; printing is elsewhere.
"""
