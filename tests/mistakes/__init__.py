"""Mistakes that the commit of a micro-batch could make, planted for its judges: the simulation and the model."""
