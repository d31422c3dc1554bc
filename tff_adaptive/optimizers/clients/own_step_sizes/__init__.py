"""Client optimizers that adapt their own step size."""
