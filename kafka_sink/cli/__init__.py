"""The console script `pykafka-sink`: what an operator asks and orders when no query is running. A shell without Spark.

arguments (what is typed, and which function runs it) -> session (a client and settings made of them) -> read_commands
and write_commands (what an operator asks, and orders) -> report (text or JSON) -> __main__ (errors and exit codes).
"""
