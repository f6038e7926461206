"""Development tools: an Apache Kafka to test against, foreign readers, Java programs.

These tools are not part of the installed package, and the package does not use them. They may use confluent-kafka,
because our bytes must be checked by code that is not ours.
"""
