"""A complete Apache Kafka producer in pure Python. Everything public is imported from here."""
