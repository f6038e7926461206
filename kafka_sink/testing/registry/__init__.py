"""The embedded schema registry: what it keeps (`store`, with `avro`), what it answers (`core`), and its socket."""
