"""A run's folder: rows, checkpoints, clients' states, figures."""
