"""The shell around the engine: the only folder with sockets, threads, clocks, randomness and logging."""
