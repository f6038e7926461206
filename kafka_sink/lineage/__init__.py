"""OpenLineage events of batches: made here, sent to a file or an address. Loaded if an option asks."""
