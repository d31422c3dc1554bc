"""Methods that leave part of the model with each client."""
