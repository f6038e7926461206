"""The console script `pykafka-sink`: what an operator asks and orders when no query is running. A shell without Spark.

arguments (what is typed, and which function runs it) -> desk (a client and settings made of them) -> show (ledger,
transactions) and order (recover, resolve, transactions --abort) -> report (text or JSON) -> __main__ (errors and exit
codes).
"""
