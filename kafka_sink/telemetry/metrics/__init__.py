"""Metrics of tasks and micro-batches: counting, storage and export. Imported only if an option enables them."""
