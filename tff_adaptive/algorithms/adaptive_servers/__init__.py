"""Methods with adaptive server optimizers, one per file."""
