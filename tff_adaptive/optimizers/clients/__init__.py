"""Client optimizers, one per file."""
