"""Schema registries: what is asked of them, what answers mean, and what stands in front of a value. Pure.

The requests go out in admin/schema_registry.py, on the driver, while a write is planned. Tasks get what was found out
with their plan and ask nobody.
"""
