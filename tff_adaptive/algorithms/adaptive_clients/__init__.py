"""Methods with adaptive client optimizers, one per file."""
