"""Checkpoints: the last few rounds, and the best."""
