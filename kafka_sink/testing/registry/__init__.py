"""The embedded schema registry: its state (`store`, with `avro`), its responses (`core`), and its socket."""
