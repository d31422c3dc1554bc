"""Client optimizers that choose their own step size."""
