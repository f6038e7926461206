"""Encodes rows with a schema into keys and values: Avro, Protobuf, JSON. By column, as in `records`.

A schema and the Arrow type of a column are matched once (`match.plan`); the result is a tree of nodes, one per element
of the type, and every node turns an Arrow array into pieces (`formats/records/pieces.py`). Nothing here knows a
registry: the prefix of every value is an argument.
"""
