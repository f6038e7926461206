"""The console script `pykafka-sink`: the operator's commands when no query is running. Needs no Spark.

arguments (command line, and the function for each command) -> sink_client (client and settings) -> read_commands and
write_commands (the operator's commands) -> report (text or JSON) -> kafka_sink.__main__ (errors and exit codes).
"""
