"""Execution contexts on TFF's C++ worker, a separate process."""
