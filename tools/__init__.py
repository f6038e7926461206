"""Development tools: an Apache Kafka to test against, foreign readers, Java programs.

These tools are not part of the installed package, and the package does not use them. They may use confluent-kafka,
because a check of our bytes must not use our own code.
"""
