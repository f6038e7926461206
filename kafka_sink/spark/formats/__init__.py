"""Which schema a column is written with: found on the driver, at the schema registry, before any task; and what a task
needs of it.
"""
