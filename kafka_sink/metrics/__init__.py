"""Figures of tasks and micro-batches: what is counted, where it is kept, and who gets it. Loaded if an option asks."""
