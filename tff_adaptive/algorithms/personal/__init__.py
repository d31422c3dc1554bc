"""Personalized methods, which keep part of the model on each client."""
