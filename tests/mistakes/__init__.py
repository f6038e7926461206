"""Mistakes in the commit of a micro-batch. They are planted; the simulation and the model must find them."""
