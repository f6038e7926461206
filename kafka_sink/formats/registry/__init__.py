"""Schema registries: requests, responses, and the framing of values. Pure.

spark/formats/schema_registry.py sends the requests, on the driver, while a write is planned. Tasks get the result with
their plan and send none.
"""
