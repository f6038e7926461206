"""From columns and rows to bytes: records (Kafka's record batches), schemas (Avro, Protobuf, JSON), registry (what
stands in front of a value, and where its schema is found). Pure; knows no broker.
"""
