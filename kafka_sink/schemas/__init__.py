"""Rows with a schema to the bytes of keys and values: Avro, Protobuf, JSON. By whole columns, as in `records`.

A schema and the Arrow type of a column are matched once (`match.plan`); what comes out is a tree of nodes, one for each
place in the type, and every node turns an Arrow array into pieces (`pieces.py`). Nothing here knows a registry: the
bytes that stand in front of every value are handed in.
"""
