"""What others are told about batches: metrics, and lineage (OpenLineage). Imported only if an option enables it."""
