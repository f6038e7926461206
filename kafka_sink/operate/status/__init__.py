"""Is anything wrong with the sinks of a cluster? collect.py asks, facts.py is what was found, findings.py judges it;
figures.py and server.py tell Prometheus."""
