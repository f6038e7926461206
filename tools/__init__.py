"""Development tools: an Apache Kafka to test against, foreign readers, Java programs.

Nothing here is part of the installed package, and the package knows nothing of it. confluent-kafka is allowed here:
what checks our bytes must not be our own code.
"""
