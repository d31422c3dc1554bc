"""Server optimizers, one per file."""
