"""OpenLineage events of batches: made here, sent to a file or a URL. Imported only if an option enables it."""
