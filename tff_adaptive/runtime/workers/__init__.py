"""Execution contexts on TFF's own worker, a separate process."""
