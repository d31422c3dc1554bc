"""Sweeps over grids and searches, and the processes that run them."""
