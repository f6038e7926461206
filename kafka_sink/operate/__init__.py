"""For operators: cli (the command `pykafka-sink`), checks (will a job work here)."""
