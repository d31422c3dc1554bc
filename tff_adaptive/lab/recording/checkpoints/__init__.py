"""Checkpoints of the last few rounds, and of the best."""
