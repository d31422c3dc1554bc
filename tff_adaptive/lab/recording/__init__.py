"""Files of a run's folder: rows, checkpoints, client states and figures."""
