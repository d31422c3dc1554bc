"""Rewriting of TFF computations' TensorFlow graphs to run in one process."""
